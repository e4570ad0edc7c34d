//! What to write, and in which order, so that a crash at any byte leaves a valid record: pure.
//!
//! * The file only grows, by newlines, so that every prefix of the growth ends a line and the script's `>>` never glues its
//!   line onto another.
//! * The body of a line is written behind a `#`. Its first byte, which decides, is a write of its own, and the last one.
//! * A line is freed by writing `#` over its first byte; the first such `#` frees all lines of a grant.

use std::collections::BTreeSet;

use crate::assignment::{Assignment, Drained, Waiter};
use crate::coordination::format;
use crate::coordination::text::{Space, Span, Text};

/// Ends a line that was cut short so that it does not become an assignment: a second TAB, and a word that is not a key.
const CUT: &[u8] = b"\tcut-short";

/// Bytes to be written at an offset in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) at: usize,
    pub(crate) bytes: Vec<u8>,
}

/// A change of the record. Numbers are positions in [`Record::assignments`](crate::assignment::Record), unless noted
/// otherwise.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// Assignments of dead owners.
    pub(crate) stale: Vec<usize>,
    /// Lines of the script with living owners, and what replaces each.
    pub(crate) settled: Vec<(usize, Assignment)>,
    /// Assignments that continue under another grant, since others of their grant are released, and what replaces each.
    pub(crate) regranted: Vec<(usize, Assignment)>,
    /// Assignments that their owner gives back.
    pub(crate) released: Vec<usize>,
    /// New assignments.
    pub(crate) granted: Vec<Assignment>,
    /// Units that an operator keeps from being granted from now on.
    pub(crate) drained: Vec<Drained>,
    /// Those that may be granted again: positions in [`Record::drained`](crate::assignment::Record).
    pub(crate) undrained: Vec<usize>,
    /// Waiters that have ended or stopped waiting: positions in `Record::waiters`.
    pub(crate) gone: Vec<usize>,
    /// A new waiter.
    pub(crate) queued: Option<Waiter>,
}

impl Change {
    /// Releases these, whatever else would have become of them.
    pub(crate) fn release(&mut self, positions: Vec<usize>) {
        let released: BTreeSet<usize> = positions.iter().copied().collect();
        self.stale.retain(|position| !released.contains(position));
        self.settled.retain(|(position, _)| !released.contains(position));
        self.released = positions;
    }
}

/// A change as writes, to be made in the order of the fields (`undo` only if the grant cannot be handed over).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Frees what is stale. This comes first, since every write changes the time by which the owners of the script's
    /// lines are judged.
    pub(crate) clear: Vec<Write>,
    /// To be appended.
    pub(crate) growth: Vec<u8>,
    pub(crate) fill: Vec<Write>,
    /// Undoes the grant after `fill`.
    pub(crate) undo: Vec<Write>,
}

/// Plans a change to the file. `is_outdated`: damaged lines are from an earlier boot, and are cleared.
///
/// The lines of unfinished grants are always freed, before a free line that marks them is reused.
pub(crate) fn plan(text: &Text, change: &Change, is_outdated: bool) -> Plan {
    let spans =
        |positions: &[usize]| positions.iter().map(|position| text.held[*position]).collect::<Vec<_>>();
    let replaced: Vec<&(usize, Assignment)> = change.settled.iter().chain(&change.regranted).collect();
    let new = replaced.iter().map(|(_, assignment)| assignment).chain(&change.granted).map(format::print);
    let queued = change.queued.iter().map(format::print_waiter);
    let drained = change.drained.iter().map(format::print_drained);
    let mut placement = place(text, &new.chain(queued).chain(drained).collect::<Vec<_>>());
    let assignments = replaced.len() + change.granted.len();
    let drained = placement.firsts.split_off(assignments + change.queued.iter().len());
    // Including the line of the new waiter.
    let granted = placement.firsts.split_off(replaced.len());
    let undo = granted.iter().map(|first| Write { at: first.at, bytes: b"#".to_vec() }).collect();

    let mut fill = placement.bodies;
    fill.extend(placement.firsts);
    fill.extend(free(&replaced.iter().map(|(position, _)| text.held[*position]).collect::<Vec<_>>()));
    fill.extend(free(&spans(&change.released)));
    fill.extend(granted);
    fill.extend(drained);
    fill.extend(free(&change.undrained.iter().map(|at| text.drained[*at]).collect::<Vec<_>>()));
    let gone = change.gone.iter().map(|position| text.waiting[*position]).collect();
    let stale = [spans(&change.stale), text.unfinished.clone(), gone].concat();
    let mut clear: Vec<Write> = free_at_once(text, &stale).into_iter().collect();
    if is_outdated {
        clear.extend(blot(&text.damaged));
    }
    Plan { clear, growth: placement.growth, fill, undo }
}

/// Frees each line with a write of one byte. Nothing in between is rewritten, since it may have been written just before.
fn free(spans: &[Span]) -> impl Iterator<Item = Write> + '_ {
    spans.iter().map(|span| Write { at: span.at, bytes: b"#".to_vec() })
}

/// Frees all lines with one write from the first to the last, so that no crash separates them. Only valid as the very
/// first write, since it repeats what was read between the lines.
fn free_at_once(text: &Text, spans: &[Span]) -> Option<Write> {
    let (from, to) = (spans.iter().map(|span| span.at).min()?, spans.iter().map(|span| span.at).max()?);
    let mut bytes = text.bytes[from..=to].to_vec();
    for span in spans {
        bytes[span.at - from] = b'#';
    }
    Some(Write { at: from, bytes })
}

/// Overwrites whole lines, for damage of any shape that an earlier boot left.
pub(crate) fn blot(spans: &[Span]) -> Vec<Write> {
    let lines = spans.iter().filter(|span| span.len > 0);
    lines.map(|span| Write { at: span.at, bytes: vec![b'#'; span.len] }).collect()
}

/// The writes of new lines.
#[derive(Debug, Default)]
struct Placement {
    growth: Vec<u8>,
    /// Here every line begins with `#`.
    bodies: Vec<Write>,
    /// For each line, in the order given, its first byte, which makes it hold.
    firsts: Vec<Write>,
}

/// Where to put `lines`, none of which is empty or contains a newline.
fn place(text: &Text, lines: &[String]) -> Placement {
    let mut placement = Placement::default();
    let mut space = text.space.clone();
    let mut appended = Write { at: text.bytes.len(), bytes: Vec::new() };
    if text.is_cut {
        placement.growth.extend_from_slice(CUT);
        placement.growth.push(b'\n');
        appended.at += placement.growth.len();
    }
    for line in lines {
        let at = match reuse(&mut space, line.len()) {
            Some(space) => {
                placement.bodies.push(Write { at: space.span.at, bytes: body(line, &space) });
                space.span.at
            }
            None => append(&mut appended, line),
        };
        placement.firsts.push(Write { at, bytes: line.as_bytes()[..1].to_vec() });
    }
    placement.growth.resize(placement.growth.len() + appended.bytes.len(), b'\n');
    if !appended.bytes.is_empty() {
        placement.bodies.push(appended);
    }
    placement
}

/// Takes the first space that is large enough.
fn reuse(space: &mut Vec<Space>, len: usize) -> Option<Space> {
    let fits = space.iter().position(|space| space.span.len >= len)?;
    Some(space.remove(fits))
}

/// The line with `#` as its first byte. A free line keeps its length and is padded with empty keys: if it were shortened
/// by a newline, what is left behind could begin like an assignment.
fn body(line: &str, space: &Space) -> Vec<u8> {
    let mut body = line.as_bytes().to_vec();
    body[0] = b'#';
    if !space.is_blank {
        body.resize(space.span.len, b';');
    }
    body
}

/// Adds a line to the write that fills the growth, and returns its offset.
fn append(appended: &mut Write, line: &str) -> usize {
    let at = appended.at + appended.bytes.len();
    appended.bytes.push(b'#');
    appended.bytes.extend_from_slice(&line.as_bytes()[1..]);
    appended.bytes.push(b'\n');
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::assignment::{Grant, Owner};
    use crate::device::Identity;

    fn assignment(index: u32, pid: u32, grant: Option<(u64, u32)>) -> Assignment {
        let owner = Owner { pid, start: Some(7), boot: None, pid_namespace: Some(1), uid: Some(0) };
        Assignment {
            identity: Identity { uuid: Some(format!("GPU-{index}")), ..Identity::default() },
            owner,
            grant: grant.map(|(id, of)| Grant { id, of }),
            since: Some(1),
            ..Assignment::of_the_script(index, pid)
        }
    }

    /// One pair for each unit that the text says is held, sorted.
    fn holders(bytes: &[u8]) -> Vec<(u32, u32)> {
        let text = Text::read(bytes.to_vec());
        assert_eq!(text.malformed, [], "{}", bytes.escape_ascii());
        let mut held: Vec<_> = text.record.assignments.iter().map(|a| (a.index, a.owner.pid)).collect();
        held.extend(text.record.withheld.iter().map(|withheld| (withheld.index, 0)));
        held.sort_unstable();
        held.dedup();
        held
    }

    /// Every state that a crash can leave, in the order of time.
    fn states(before: &[u8], plan: &Plan) -> Vec<Vec<u8>> {
        let mut bytes = before.to_vec();
        let mut states = vec![bytes.clone()];
        let put = |bytes: &mut Vec<u8>, states: &mut Vec<Vec<u8>>, write: &Write| {
            for (offset, byte) in write.bytes.iter().enumerate() {
                bytes[write.at + offset] = *byte;
                states.push(bytes.clone());
            }
        };
        plan.clear.iter().for_each(|write| put(&mut bytes, &mut states, write));
        for byte in &plan.growth {
            bytes.push(*byte);
            states.push(bytes.clone());
        }
        plan.fill.iter().for_each(|write| put(&mut bytes, &mut states, write));
        states
    }

    fn record(assignments: &[Assignment]) -> Vec<u8> {
        assignments.iter().flat_map(|a| format!("{}\n", format::print(a)).into_bytes()).collect()
    }

    /// Two granted units, in files of every shape.
    fn shapes() -> Vec<(&'static str, Vec<u8>)> {
        let long = [b"#".to_vec(), vec![b'x'; 300], b"\n".to_vec()].concat();
        let held = record(&[assignment(0, 10, Some((5, 1)))]);
        vec![
            ("empty", vec![]),
            ("a living owner", held.clone()),
            ("a free line", [long.clone(), held.clone()].concat()),
            ("two free lines", [long.clone(), held.clone(), long].concat()),
            ("left by a growth", [held.clone(), vec![b'\n'; 500]].concat()),
            ("a cut line", [held, b"9 12".to_vec()].concat()),
        ]
    }

    /// G1, G2 and G5: whatever byte is the last, the file can be read, what was held is held, and of the
    /// grant there is all or nothing; also after the script has appended a line of its own.
    #[test]
    fn a_crash_at_any_byte_leaves_all_of_a_grant_or_none() {
        let mut count = 0;
        for (case, before) in shapes() {
            let granted = vec![assignment(11, 4711, Some((1, 2))), assignment(12, 4711, Some((1, 2)))];
            let text = Text::read(before.clone());
            let plan = plan(&text, &Change { granted, ..Change::default() }, false);
            let old = holders(&before);
            let new = [old.clone(), vec![(11, 4711), (12, 4711)]].concat();
            let states = states(&before, &plan);
            for (step, state) in states.iter().enumerate() {
                let is_last = step == states.len() - 1;
                let mut expected = if is_last { new.clone() } else { old.clone() };
                expected.sort_unstable();
                assert_eq!(holders(state), expected, "{case}, byte {step}: {}", state.escape_ascii());
                if state.last() == Some(&b'\n') || state.is_empty() {
                    let appended = [state.as_slice(), b"7 99\n"].concat();
                    expected.push((7, 99));
                    expected.sort_unstable();
                    assert_eq!(holders(&appended), expected, "{case}, byte {step}, and the script");
                }
                count += 1;
            }
        }
        assert!(count > 2000, "{count} states are too few to have cut every byte");
    }

    /// A release is seen whole or not at all: the first `#` frees all lines of the grant.
    #[test]
    fn a_crash_at_any_byte_leaves_all_of_a_release_or_none() {
        let held =
            [assignment(0, 1, Some((1, 2))), assignment(1, 9, Some((2, 1))), assignment(2, 1, Some((1, 2)))];
        let before = record(&held);
        let plan =
            plan(&Text::read(before.clone()), &Change { released: vec![0, 2], ..Change::default() }, false);
        for (step, state) in states(&before, &plan).iter().enumerate() {
            let expected = if step == 0 { vec![(0, 1), (1, 9), (2, 1)] } else { vec![(1, 9)] };
            assert_eq!(holders(state), expected, "byte {step}");
        }
    }

    /// Also where the last line has no end, and lines that hold stay as they are.
    #[test]
    fn damage_of_an_earlier_boot_is_written_over_whole() {
        let text = Text::read(b"x\n\n0 11\n\0\0\0".to_vec());
        let plan = plan(&text, &Change::default(), true);
        let cleared = [(0, "#"), (8, "###")].map(|(at, bytes)| Write { at, bytes: bytes.into() });
        assert_eq!(plan.clear, cleared);
        assert_eq!(blot(&[Span { at: 3, len: 0 }]), []);
    }

    /// A living owner of a line of the script holds its unit at every byte, before and after it is settled.
    #[test]
    fn a_line_of_the_script_holds_while_it_is_settled() {
        let before = b"3 33\n4 44\n";
        let settled = vec![(0, assignment(3, 33, Some((8, 1)))), (1, assignment(4, 44, Some((9, 1))))];
        let granted = vec![assignment(5, 55, Some((10, 1)))];
        let plan =
            plan(&Text::read(before.to_vec()), &Change { settled, granted, ..Change::default() }, false);
        let states = states(before, &plan);
        for (step, state) in states.iter().enumerate() {
            let held = holders(state);
            assert!(held.contains(&(3, 33)) && held.contains(&(4, 44)), "byte {step}");
            assert_eq!(held.len(), if step == states.len() - 1 { 3 } else { 2 }, "byte {step}");
        }
        let last = Text::read(states.last().unwrap().clone());
        assert!(last.record.assignments.iter().all(|assignment| !assignment.is_the_scripts()));
    }

    /// A case, the lines, what is to change, and who holds what in the end.
    type Between = (&'static str, Vec<Vec<u8>>, Change, &'static [(u32, u32)]);

    /// Every write leaves alone what it does not mean: a line that was cleared stays so, one that was made to
    /// hold too, wherever they lie between the lines that are freed.
    #[test]
    fn what_lies_between_lines_that_are_freed_is_left_alone() {
        let space = [b"#".to_vec(), vec![b'x'; 300], b"\n".to_vec()].concat();
        let gap = vec![b'\n'; 300];
        let owned = |index, grant| record(&[assignment(index, 7, Some((grant, 1)))]);
        let script = |index: u32, pid: u32| format!("{index} {pid}\n").into_bytes();
        let cases: [Between; 4] = [
            (
                "a stale line of the script between two that are settled",
                vec![script(3, 33), script(4, 44), script(5, 55)],
                Change {
                    stale: vec![1],
                    settled: vec![(0, assignment(3, 33, Some((8, 1)))), (2, assignment(5, 55, Some((9, 1))))],
                    granted: vec![assignment(4, 99, Some((10, 1)))],
                    ..Change::default()
                },
                &[(3, 33), (4, 99), (5, 55)],
            ),
            (
                "a line is settled into the space between two that are released",
                vec![owned(1, 1), space.clone(), owned(2, 2), script(5, 55)],
                Change {
                    settled: vec![(2, assignment(5, 55, Some((9, 1))))],
                    released: vec![0, 1],
                    ..Change::default()
                },
                &[(5, 55)],
            ),
            (
                "lines are settled into the gap between them",
                vec![script(3, 33), gap, script(4, 44)],
                Change {
                    settled: vec![(0, assignment(3, 33, Some((8, 1)))), (1, assignment(4, 44, Some((9, 1))))],
                    ..Change::default()
                },
                &[(3, 33), (4, 44)],
            ),
            (
                "a grant goes into the space between two stale lines",
                vec![owned(1, 1), space, owned(2, 2)],
                Change {
                    stale: vec![0, 1],
                    granted: vec![assignment(6, 66, Some((9, 1)))],
                    ..Change::default()
                },
                &[(6, 66)],
            ),
        ];
        for (case, lines, change, held) in cases {
            let before = lines.concat();
            let plan = plan(&Text::read(before.clone()), &change, false);
            let states = states(&before, &plan);
            assert_eq!(holders(states.last().unwrap()), held, "{case}");
            let cleared = plan.clear.iter().map(|write| write.bytes.len()).sum::<usize>();
            for (step, state) in states.iter().enumerate().skip(cleared) {
                let settled = change.settled.iter().map(|(_, line)| (line.index, line.owner.pid));
                let missing: Vec<_> = settled.filter(|line| !holders(state).contains(line)).collect();
                assert!(missing.is_empty(), "{case}, byte {step}: {missing:?}");
                assert!(
                    holders(state).iter().all(|(_, pid)| *pid != 44 || held.contains(&(4, 44))),
                    "{case}"
                );
            }
        }
    }

    /// Stale lines go before the growth: a write renews the time that the script's lines are judged by.
    #[test]
    fn what_is_stale_is_cleared_first_and_its_space_is_not_reused_in_the_same_change() {
        let before = record(&[assignment(0, 1, Some((1, 1)))]);
        let granted = vec![assignment(0, 2, Some((2, 1)))];
        let plan = plan(
            &Text::read(before.clone()),
            &Change { stale: vec![0], granted, ..Change::default() },
            false,
        );
        assert_eq!(plan.clear, [Write { at: 0, bytes: b"#".to_vec() }]);
        for (step, state) in states(&before, &plan).iter().enumerate().skip(1) {
            assert!(holders(state).iter().all(|holder| *holder == (0, 2)), "byte {step}");
        }
    }

    /// A crash after the first of several writes would leave the others with a time that says that their owners live.
    #[test]
    fn what_is_stale_is_cleared_by_one_write() {
        let text = Text::read(b"0 11\n1 12\n2 13\n".to_vec());
        let plan = plan(&text, &Change { stale: vec![0, 2], ..Change::default() }, false);
        assert_eq!(plan.clear, [Write { at: 0, bytes: b"# 11\n1 12\n#".to_vec() }]);
    }

    fn waiter(pid: u32, ticket: u64) -> Waiter {
        Waiter { owner: assignment(0, pid, None).owner, amount: 1, ticket, among: None }
    }

    /// Pids and tickets.
    fn waiters(bytes: &[u8]) -> Vec<(u32, u64)> {
        let text = Text::read(bytes.to_vec());
        let mut waiters: Vec<_> = text.record.waiters.iter().map(|w| (w.owner.pid, w.ticket)).collect();
        waiters.sort_unstable();
        waiters
    }

    /// Who waits is there from one byte to the next, and what is held is held all the time.
    #[test]
    fn a_crash_at_any_byte_leaves_a_waiter_or_none() {
        for (case, before) in shapes() {
            let held = holders(&before);
            let change = Change { queued: Some(waiter(4711, 3)), ..Change::default() };
            let plan = plan(&Text::read(before.clone()), &change, false);
            let states = states(&before, &plan);
            for (step, state) in states.iter().enumerate() {
                assert_eq!(holders(state), held, "{case}, byte {step}: {}", state.escape_ascii());
                let expected = if step == states.len() - 1 { vec![(4711, 3)] } else { vec![] };
                assert_eq!(waiters(state), expected, "{case}, byte {step}: {}", state.escape_ascii());
            }
        }
    }

    /// The place in the queue is given up before the units are had, and never after.
    #[test]
    fn whoever_is_granted_units_waits_no_more() {
        let lines =
            [waiter(4711, 1), waiter(4712, 2), waiter(4713, 3)].map(|w| format::print_waiter(&w) + "\n");
        let before = [record(&[assignment(0, 1, Some((1, 1)))]), lines.concat().into_bytes()].concat();
        let granted = vec![assignment(5, 4712, Some((2, 2))), assignment(6, 4712, Some((2, 2)))];
        let change = Change { granted, gone: vec![0, 1], ..Change::default() };
        let plan = plan(&Text::read(before.clone()), &change, false);
        let states = states(&before, &plan);
        for (step, state) in states.iter().enumerate() {
            let waits = waiters(state).contains(&(4712, 2));
            let holds = holders(state).contains(&(5, 4712));
            assert!(!(waits && holds), "byte {step}");
            assert!(waiters(state).contains(&(4713, 3)) && holders(state).contains(&(0, 1)), "byte {step}");
        }
        let last = states.last().unwrap();
        assert_eq!((waiters(last), holders(last)), (vec![(4713, 3)], vec![(0, 1), (5, 4712), (6, 4712)]));
    }

    /// Of a grant a line is released, and the others go on under a new one. At every byte these are held, by their own
    /// owner alone.
    #[test]
    fn a_unit_that_is_granted_anew_is_held_at_every_byte() {
        let lines = [
            assignment(0, 10, Some((5, 3))),
            assignment(1, 10, Some((5, 3))),
            assignment(2, 10, Some((5, 3))),
            assignment(7, 77, Some((7, 1))),
        ];
        let space = [b"#".to_vec(), vec![b'x'; 300], b"\n".to_vec()].concat();
        for before in
            [record(&lines), [space, record(&lines)].concat(), [record(&lines), vec![b'\n'; 500]].concat()]
        {
            let regranted = vec![(0, assignment(0, 10, Some((9, 2)))), (2, assignment(2, 10, Some((9, 2))))];
            let change = Change { regranted, released: vec![1], ..Change::default() };
            let plan = plan(&Text::read(before.clone()), &change, false);
            let kept = [(0, 10), (2, 10), (7, 77)];
            let states = states(&before, &plan);
            for (step, state) in states.iter().enumerate() {
                let held = holders(state);
                let others: Vec<_> = held.iter().filter(|held| !kept.contains(held)).collect();
                assert!(kept.iter().all(|unit| held.contains(unit)), "byte {step}: {held:?}");
                assert!(others.is_empty() || others == [&(1, 10)], "byte {step}: {held:?}");
            }
            assert_eq!(holders(states.last().unwrap()), kept);
        }
    }

    #[test]
    fn a_reused_free_line_keeps_its_length_and_the_file_its_size() {
        let before = [b"#".to_vec(), vec![b'x'; 300], b"\n".to_vec()].concat();
        let granted = vec![assignment(0, 2, Some((2, 1)))];
        let plan = plan(&Text::read(before.clone()), &Change { granted, ..Change::default() }, false);
        let after = states(&before, &plan).pop().unwrap();
        assert_eq!(after.len(), before.len());
        assert_eq!(holders(&after), [(0, 2)]);
    }

    #[test]
    fn an_undo_frees_what_was_granted() {
        let before = record(&[assignment(0, 1, Some((1, 1)))]);
        let granted = vec![assignment(1, 2, Some((2, 2))), assignment(2, 2, Some((2, 2)))];
        let mut plan = plan(&Text::read(before.clone()), &Change { granted, ..Change::default() }, false);
        plan.fill.append(&mut plan.undo);
        for state in states(&before, &plan).iter().rev().take(2) {
            assert_eq!(holders(state), [(0, 1)]);
        }
    }
}
