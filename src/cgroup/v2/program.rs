//! Translates a denylist into a program for the kernel (`BPF_PROG_TYPE_CGROUP_DEVICE`), and back: pure.
//!
//! The kernel runs the program whenever a process of the group opens or creates a device node, and passes the type of
//! device, the kind of access, major and minor; the result 1 allows it. The program refuses every kind of access to the
//! denied character devices, and nothing else (`it_denies_what_the_list_denies`).
//!
//! Invariants:
//! * Each denylist has exactly one program. So a program is ours exactly if the denylist decoded from it is translated
//!   into the same instructions again (`what_differs_anywhere_is_not_ours`).
//! * Every instruction is reachable: the verifier removes dead code, and the kernel would then show a different program
//!   from the one that was loaded (`what_is_denied_is_read_back`).
//!
//! Not here: loading it (`load`), and what else identifies a program as ours (the module above).

use crate::cgroup::denylist::{Denylist, Span};

/// As in the kernel's `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Instruction {
    code: u8,
    /// The destination and the source, four bits each.
    registers: u8,
    /// For a jump: how many instructions it skips.
    offset: i16,
    immediate: i32,
}

/// The limit of Linux before 5.2, enough for 4,000 single minors or 2,000 ranges. Such a kernel may reject a list of more
/// than a thousand tests as too complex, and says so; a list of all MIG instances of 32 cards has a few hundred.
const MOST_INSTRUCTIONS: usize = 4096;
/// 12 bits of major, 20 of minor.
const LAST_MAJOR: u32 = 0xfff;
const LAST_MINOR: u32 = 0xf_ffff;

const RESULT: u8 = 0;
const CONTEXT: u8 = 1;
const TYPE: u8 = 2;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;
/// A register that only the kernel uses; the verifier rejects programs that name it.
const KERNELS_OWN: u8 = 11;

const LOAD_WORD: u8 = 0x61;
const MOVE: u8 = 0xb7;
const AND: u8 = 0x57;
const EXIT: u8 = 0x95;
const JUMP_IF_EQUAL: u8 = 0x15;
const JUMP_IF_NOT_EQUAL: u8 = 0x55;
/// Both are unsigned comparisons.
const JUMP_IF_LESS: u8 = 0xa5;
const JUMP_IF_NOT_GREATER: u8 = 0xb5;

/// `BPF_DEVCG_DEV_CHAR`
const CHARACTER: u32 = 2;

/// Where a jump goes to.
#[derive(Clone, Copy)]
enum Target {
    Allow,
    Deny,
    /// Past so many of the following instructions.
    Past(usize),
}

/// A jump whose offset is computed once all jumps are known.
struct Jump {
    code: u8,
    register: u8,
    number: u32,
    target: Target,
}

/// `None` if it would be too large, or if a number is not one that a device can have.
pub(super) fn program(denied: &Denylist) -> Option<Vec<Instruction>> {
    let spans = merged(&denied.spans);
    let is_possible =
        |span: &Span| span.major <= LAST_MAJOR && span.first <= span.last && span.last <= LAST_MINOR;
    if !spans.iter().all(is_possible) {
        return None;
    }
    if spans.is_empty() {
        return Some(verdict(1).to_vec());
    }
    let jumps: Vec<Jump> = spans.chunk_by(|one, other| one.major == other.major).flat_map(major).collect();
    let jumps = (0..).zip(&jumps).map(|(at, jump)| instruction(jump, at, jumps.len()));
    let mut instructions = header();
    instructions.extend(jumps.collect::<Option<Vec<Instruction>>>()?);
    instructions.extend(verdict(1).into_iter().chain(verdict(0)));
    (instructions.len() <= MOST_INSTRUCTIONS).then_some(instructions)
}

/// `None` for a program that is not ours.
pub(super) fn decode(instructions: &[Instruction]) -> Option<Denylist> {
    let denied = Denylist { spans: spans(instructions) };
    (program(&denied)? == instructions).then_some(denied)
}

/// Whether the kernel rewrote it to hide its numbers (`net.core.bpf_jit_harden`).
pub(super) fn is_blinded(instructions: &[Instruction]) -> bool {
    let names = |of: &Instruction| of.registers & 0xf == KERNELS_OWN || of.registers >> 4 == KERNELS_OWN;
    instructions.iter().any(names)
}

/// Everything that one of the lists denies.
pub(super) fn union(lists: impl IntoIterator<Item = Denylist>) -> Denylist {
    let spans: Vec<Span> = lists.into_iter().flat_map(|list| list.spans).collect();
    Denylist { spans: merged(&spans) }
}

/// Sorts the spans and merges those that touch.
fn merged(spans: &[Span]) -> Vec<Span> {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable();
    let mut merged: Vec<Span> = Vec::with_capacity(sorted.len());
    for span in sorted {
        match merged.last_mut() {
            Some(last) if last.major == span.major && span.first <= last.last.saturating_add(1) => {
                last.last = last.last.max(span.last);
            }
            _ => merged.push(span),
        }
    }
    merged
}

/// Loads major and minor into registers, and allows at once what is not a character device.
fn header() -> Vec<Instruction> {
    let load = |register, offset| Instruction {
        code: LOAD_WORD,
        registers: CONTEXT << 4 | register,
        offset,
        immediate: 0,
    };
    let is_character = Instruction { offset: 2, ..plain(JUMP_IF_EQUAL, TYPE, CHARACTER) };
    let [allow, exit] = verdict(1);
    // The upper half of the first word is the kind of access.
    vec![load(TYPE, 0), plain(AND, TYPE, 0xffff), is_character, allow, exit, load(MAJOR, 4), load(MINOR, 8)]
}

/// The tests for one major. If none of them matches, the test for the next major follows, which cannot match either.
fn major(spans: &[Span]) -> Vec<Jump> {
    let mut tests: Vec<Jump> = spans.iter().flat_map(tests).collect();
    let past = Target::Past(tests.len());
    tests.insert(0, Jump { code: JUMP_IF_NOT_EQUAL, register: MAJOR, number: spans[0].major, target: past });
    tests
}

/// The tests for one span. The spans are ascending, so a minor below this one is allowed.
fn tests(span: &Span) -> Vec<Jump> {
    let minor = |code, number, target| Jump { code, register: MINOR, number, target };
    if span.first == span.last {
        return vec![minor(JUMP_IF_EQUAL, span.first, Target::Deny)];
    }
    let below = minor(JUMP_IF_LESS, span.first, Target::Allow);
    let within = minor(JUMP_IF_NOT_GREATER, span.last, Target::Deny);
    vec![below, within]
}

/// The jump at position `at` of `count` jumps, which are followed by the verdicts.
fn instruction(jump: &Jump, at: usize, count: usize) -> Option<Instruction> {
    let following = count - at - 1;
    let past = match jump.target {
        Target::Allow => following,
        Target::Deny => following + verdict(1).len(),
        Target::Past(tests) => tests,
    };
    Some(Instruction { offset: past.try_into().ok()?, ..plain(jump.code, jump.register, jump.number) })
}

fn verdict(result: u32) -> [Instruction; 2] {
    [plain(MOVE, RESULT, result), plain(EXIT, 0, 0)]
}

/// An instruction without an offset. `number` has at most 20 bits.
fn plain(code: u8, register: u8, number: u32) -> Instruction {
    Instruction { code, registers: register, offset: 0, immediate: number.cast_signed() }
}

/// The spans that the tests of one of our programs check.
fn spans(instructions: &[Instruction]) -> Vec<Span> {
    let (mut major, mut first, mut spans) = (0, 0, Vec::new());
    for instruction in instructions {
        let number = instruction.immediate.cast_unsigned();
        match (instruction.code, instruction.registers) {
            (JUMP_IF_NOT_EQUAL, MAJOR) => major = number,
            (JUMP_IF_LESS, MINOR) => first = number,
            (JUMP_IF_EQUAL, MINOR) => spans.push(Span { major, first: number, last: number }),
            (JUMP_IF_NOT_GREATER, MINOR) => spans.push(Span { major, first, last: number }),
            _ => {}
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::host::node::NodeNumber;

    /// Block devices are 1. There are no others.
    const NO_CHARACTERS: [u32; 4] = [1, 0, 3, 0x8002];
    /// Making is 1, reading 2, writing 4.
    const MASKS: std::ops::RangeInclusive<u32> = 0..=7;

    fn list(spans: &[(u32, u32, u32)]) -> Denylist {
        let span = |&(major, first, last): &(u32, u32, u32)| Span { major, first, last };
        Denylist { spans: spans.iter().map(span).collect() }
    }

    fn alternating(count: u32) -> Denylist {
        Denylist::of((0..count).map(|number| NodeNumber { major: 195, minor: 2 * number }))
    }

    fn ranges(count: u32) -> Denylist {
        Denylist {
            spans: (0..count).map(|at| Span { major: 195, first: 3 * at, last: 3 * at + 1 }).collect(),
        }
    }

    #[rustfmt::skip] // a table
    fn lists() -> Vec<(&'static str, Denylist)> {
        vec![
            ("nothing",               list(&[])),
            ("one minor",             list(&[(195, 3, 3)])),
            ("the first minor",       list(&[(195, 0, 0)])),
            ("from the first",        list(&[(195, 0, 253)])),
            ("the last minor",        list(&[(195, 0xf_ffff, 0xf_ffff)])),
            ("to the last",           list(&[(195, 1, 0xf_ffff)])),
            ("a whole major",         list(&[(195, 0, 0xf_ffff)])),
            ("nearly all",            list(&[(195, 0, 0), (195, 2, 2), (195, 4, 253)])),
            ("ranges",                list(&[(195, 1, 2), (195, 4, 7), (195, 9, 9), (195, 11, 300)])),
            ("neighbouring majors",   list(&[(194, 5, 6), (195, 1, 2), (196, 5, 6)])),
            ("majors far apart",      list(&[(0, 0, 0), (0, 2, 3), (226, 128, 130), (0xfff, 0, 0xf_fffe)])),
            ("254 minors apart",      alternating(254)),
            ("thousands of minors",   alternating(4000)),
            ("thousands of ranges",   ranges(2000)),
            ("unsorted and doubled",  list(&[(195, 5, 9), (195, 0, 3), (10, 1, 1), (195, 4, 6), (195, 8, 8)])),
        ]
    }

    /// What the kernel's interpreter does, for the instructions that we use.
    fn run(program: &[Instruction], context: [u32; 3]) -> u64 {
        let mut registers: [Option<u64>; 16] = [None; 16];
        let mut at = 0;
        loop {
            let Instruction { code, registers: names, offset, immediate } = program[at];
            let (to, from) = (usize::from(names & 0xf), names >> 4);
            let (number, own) = (i64::from(immediate).cast_unsigned(), registers[to]);
            let goes = match code {
                LOAD_WORD => {
                    assert_eq!((from, offset % 4), (CONTEXT, 0));
                    registers[to] = Some(context[usize::try_from(offset).unwrap() / 4].into());
                    false
                }
                MOVE => {
                    registers[to] = Some(number);
                    false
                }
                AND => {
                    registers[to] = Some(own.unwrap() & number);
                    false
                }
                JUMP_IF_EQUAL => own.unwrap() == number,
                JUMP_IF_NOT_EQUAL => own.unwrap() != number,
                JUMP_IF_LESS => own.unwrap() < number,
                JUMP_IF_NOT_GREATER => own.unwrap() <= number,
                EXIT => return registers[0].unwrap(),
                other => panic!("unknown instruction {other:#x} at {at}"),
            };
            at += 1;
            if goes {
                at += usize::try_from(offset).expect("no jump goes back");
            }
        }
    }

    /// Each boundary of each span with its neighbours, in the majors around it too.
    fn numbers(denied: &Denylist) -> BTreeSet<NodeNumber> {
        let of_span = |span: &Span| [span.first, span.last, 0, LAST_MINOR].map(|minor| (span.major, minor));
        let near = |number: u32, last: u32| [number.saturating_sub(1), number, (number + 1).min(last)];
        let mut known = vec![(0, 0), (1, 3), (195, 254), (195, 255), (LAST_MAJOR, LAST_MINOR)];
        known.extend(denied.spans.iter().flat_map(of_span));
        let known = known.into_iter().collect::<BTreeSet<_>>().into_iter();
        let around = known.flat_map(|(major, minor)| {
            let minors = near(minor, LAST_MINOR);
            near(major, LAST_MAJOR)
                .into_iter()
                .flat_map(move |major| minors.map(|minor| NodeNumber { major, minor }))
        });
        around.collect()
    }

    #[test]
    fn it_denies_what_the_list_denies() {
        for (case, denied) in lists() {
            let program = program(&denied).expect(case);
            // Of thousands of spans, a part: each is one more of the same.
            let step = if denied.spans.len() > 1000 { 101 } else { 1 };
            for number in numbers(&denied).into_iter().step_by(step) {
                let NodeNumber { major, minor } = number;
                for access in MASKS.map(|mask| mask << 16) {
                    let allowed = u64::from(!denied.denies(number));
                    assert_eq!(
                        run(&program, [access | CHARACTER, major, minor]),
                        allowed,
                        "{case}: {number}"
                    );
                    for other in NO_CHARACTERS {
                        assert_eq!(
                            run(&program, [access | other, major, minor]),
                            1,
                            "{case}: {other} {number}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn what_was_made_is_read_back() {
        for (case, denied) in lists() {
            let again = decode(&program(&denied).expect(case)).expect(case);
            assert_eq!(again.spans, merged(&denied.spans), "{case}");
        }
    }

    #[test]
    fn what_differs_anywhere_is_not_ours() {
        let denied = list(&[(10, 0, 4), (195, 1, 2), (195, 4, 4)]);
        let program = program(&denied).unwrap();
        for at in 0..program.len() {
            let mut others: Vec<Vec<Instruction>> = vec![program.clone(); 4];
            others[0][at].code ^= 0x40;
            others[1][at].registers ^= 1;
            others[2][at].offset += 1;
            others[3].remove(at);
            assert!(others.iter().all(|other| decode(other).is_none()), "{at}");
            let mut number = program.clone();
            number[at].immediate += 1;
            // Another denylist of ours perhaps, and never the same.
            assert_ne!(decode(&number), Some(denied.clone()), "{at}");
        }
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[program.clone(), program].concat()), None);
    }

    #[test]
    #[rustfmt::skip] // a table
    fn what_no_program_can_say_is_refused() {
        for (case, denied, is_possible) in [
            ("as many as fit",           alternating(4084), true),
            ("one more",                 alternating(4085), false),
            ("as many ranges as fit",    ranges(2042), true),
            ("one more",                 ranges(2043), false),
            ("far too many",             alternating(100_000), false),
            ("no such minor",            list(&[(195, 0, 0x10_0000)]), false),
            ("a minor that has a sign",  list(&[(195, 3, u32::MAX)]), false),
            ("no such major",            list(&[(0x1000, 0, 0)]), false),
            ("turned around",            list(&[(195, 3, 2)]), false),
        ] {
            assert_eq!(program(&denied).is_some(), is_possible, "{case}");
        }
    }

    #[test]
    fn what_names_the_kernels_own_register_was_blinded() {
        let program = program(&list(&[(195, 0, 0), (195, 2, 5)])).unwrap();
        assert!(!is_blinded(&program));
        for registers in [KERNELS_OWN, KERNELS_OWN << 4 | MINOR] {
            let blinding = Instruction { registers, ..program[0] };
            assert!(is_blinded(&[program.clone(), vec![blinding]].concat()));
        }
    }

    #[test]
    fn a_union_denies_what_either_denies() {
        let lists =
            [list(&[(195, 3, 5), (10, 0, 0)]), list(&[]), list(&[(195, 0, 2), (195, 7, 7), (195, 4, 4)])];
        assert_eq!(union(lists), list(&[(10, 0, 0), (195, 0, 5), (195, 7, 7)]));
    }
}
