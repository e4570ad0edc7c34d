//! The lines of the coordination file: pure, from bytes to values and back.
//!
//! ```text
//! INDEX SP PID [TAB key=value;...]     held; without keys it is a line of Flink's own script
//! ? SP PID TAB key=value;...           a waiter: start, boot, pidns, uid, amount, ticket, among
//! ! SP INDEX TAB key=value;...         a drained unit: uuid, pci, id, uid, time, reason
//! # anything                           free space
//! ```
//!
//! The first byte decides what a line is, so that one byte, written last, makes an assignment hold. After the TAB there is
//! no blank, since Flink's script deletes every line that contains "INDEX blank", and no NUL, since a single one makes an
//! old grep treat the file as binary, and the script rob a live owner.
//!
//! A line that begins with an index but is not an assignment withholds that index; a line without an index is an error.
//! Reading either as "free" would grant a unit twice.

mod print;

use super::escape::unescape;
use super::pairs::{Pairs, hex64, number, printable};
use super::separator;
use crate::assignment::{Assignment, Drained, Grant, Origin, Owner, Waiter};
use crate::device::{Identity, PciAddress};

pub(crate) use print::{print, print_drained, print_waiter};

/// The largest pid is one less (`PID_MAX_LIMIT` of the kernel's `include/linux/threads.h`).
const PID_LIMIT: u32 = 4 << 20;

/// One line, without its newline.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Nothing,
    /// Free space, with the grants that it marks as not held.
    Free(Vec<u64>),
    Held(Assignment),
    Withheld {
        index: u32,
        problem: String,
    },
    Waiter(Waiter),
    Drained(Drained),
}

/// Parses one line. Fails for a line that has no index.
pub(crate) fn parse(line: &[u8]) -> Result<Line, String> {
    let line = line.strip_suffix(b"\r").unwrap_or(line); // from an editor of another system
    match line {
        [] => Ok(Line::Nothing),
        [b'#', rest @ ..] => Ok(Line::Free(grants(rest))),
        // It holds nothing, so one that cannot be understood is free space.
        [b'?', rest @ ..] => Ok(waiter(rest).map_or_else(|_| Line::Free(Vec::new()), Line::Waiter)),
        [b'!', rest @ ..] => drained(rest),
        _ => held(line),
    }
}

fn held(line: &[u8]) -> Result<Line, String> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || !matches!(line.get(digits), Some(b' ' | b'\t')) {
        return Err(format!("{} does not begin with an index and a blank", excerpt(line)));
    }
    let index = index(&line[..digits]);
    Ok(match assignment(index, line, digits) {
        Ok(assignment) => Line::Held(assignment),
        Err(problem) => Line::Withheld { index, problem: format!("{} {problem}", excerpt(line)) },
    })
}

/// An index that does not fit into a `u32` is past every inventory, and so is the largest one.
fn index(digits: &[u8]) -> u32 {
    number(digits).unwrap_or(u32::MAX)
}

fn assignment(index: u32, line: &[u8], digits: usize) -> Result<Assignment, String> {
    let (pid, keys) = pid_and_keys(&line[digits..])?;
    let mut assignment = Assignment::of_the_script(index, pid);
    let (mut id, mut of) = (None, None);
    for pair in Pairs::of(keys)? {
        let (key, value) = pair?;
        match key {
            b"grant" => id = Some(hex64(value)?),
            b"of" => of = Some(number(value)?),
            b"slot" => assignment.slot = Some(number(value)?),
            b"time" => assignment.since = Some(number(value)?),
            b"inv" => assignment.invocation = Some(unescape(value)),
            b"cgroup" => assignment.cgroup = Some(unescape(value)),
            b"ns" => assignment.namespace = Some(unescape(value)),
            b"exec" => assignment.origin = Some(Origin { grant: hex64(value)?, is_taken: false }),
            b"taken" => assignment.origin = Some(Origin { grant: hex64(value)?, is_taken: true }),
            _ if identity_key(&mut assignment.identity, key, value)? => {}
            _ if owner_key(&mut assignment.owner, key, value)? => {}
            _ => keep(&mut assignment.unknown, key, value),
        }
    }
    assignment.grant = match (id, of) {
        (Some(id), Some(of)) => Some(Grant { id, of }),
        (None, None) => None,
        _ => return Err("has only one of `grant` and `of`".to_owned()),
    };
    Ok(assignment)
}

fn keep(unknown: &mut String, key: &[u8], value: &[u8]) {
    if !unknown.is_empty() {
        unknown.push(';');
    }
    let pair = [key, b"=", value].concat();
    unknown.extend(pair.into_iter().map(char::from)); // ASCII, as `Pairs` has checked
}

/// A waiter. One without a start time could be any process with its pid, and one with amount 0 wants nothing: both are
/// refused, since they would keep the others waiting.
fn waiter(rest: &[u8]) -> Result<Waiter, String> {
    let (pid, keys) = pid_and_keys(rest)?;
    let mut owner = Owner::of_pid(pid);
    let (mut amount, mut ticket, mut among) = (None, None, None);
    for pair in Pairs::of(keys)? {
        let (key, value) = pair?;
        match key {
            b"amount" => amount = Some(number(value)?),
            b"ticket" => ticket = Some(number(value)?),
            b"among" => among = Some(value.split(|byte| *byte == b',').map(span).collect::<Result<_, _>>()?),
            _ => {
                owner_key(&mut owner, key, value)?;
            }
        }
    }
    match (owner.start, amount, ticket) {
        (Some(_), Some(amount), Some(ticket)) if amount > 0 => Ok(Waiter { owner, amount, ticket, among }),
        _ => Err("is not a waiter: `start`, `amount` or `ticket` is missing".to_owned()),
    }
}

/// `0-3`, or `7` alone.
fn span(text: &[u8]) -> Result<(u32, u32), String> {
    let mut ends = text.splitn(2, |byte| *byte == b'-');
    let first = number(ends.next().unwrap_or_default())?;
    Ok((first, ends.next().map_or(Ok(first), number)?))
}

fn drained(rest: &[u8]) -> Result<Line, String> {
    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return Err(format!("`!{}` names no index", printable(rest)));
    }
    let index = index(&rest[..digits]);
    Ok(match drained_keys(index, &rest[digits..]) {
        Ok(drained) => Line::Drained(drained),
        Err(problem) => Line::Withheld { index, problem: format!("`!{}` {problem}", printable(rest)) },
    })
}

fn drained_keys(index: u32, keys: &[u8]) -> Result<Drained, String> {
    let identity = Identity::default();
    let mut drained = Drained { index, identity, uid: None, since: None, reason: String::new() };
    for pair in Pairs::of(keys.strip_prefix(b"\t").ok_or("has no TAB after the index")?)? {
        let (key, value) = pair?;
        match key {
            b"uid" => drained.uid = Some(number(value)?),
            b"time" => drained.since = Some(number(value)?),
            b"reason" => drained.reason = unescape(value),
            _ => {
                identity_key(&mut drained.identity, key, value)?;
            }
        }
    }
    Ok(drained)
}

/// `SP PID [TAB keys]`.
fn pid_and_keys(rest: &[u8]) -> Result<(u32, &[u8]), String> {
    let rest = rest.strip_prefix(b" ").ok_or("has no blank before the pid")?;
    let (pid, keys) = match separator::position(b'\t', rest) {
        Some(tab) => (&rest[..tab], &rest[tab + 1..]),
        None => (rest, &rest[rest.len()..]),
    };
    let parsed: u32 = number(pid).map_err(|_| format!("has `{}` where a pid should be", printable(pid)))?;
    if parsed == 0 || parsed >= PID_LIMIT {
        return Err(format!("has {parsed} where a pid should be"));
    }
    Ok((parsed, keys))
}

/// Reads a key of an identity; `false` if it is another key.
fn identity_key(identity: &mut Identity, key: &[u8], value: &[u8]) -> Result<bool, String> {
    match key {
        b"uuid" => identity.uuid = Some(unescape(value)),
        b"pci" => identity.pci = Some(address(value)?),
        b"id" => identity.id = Some(unescape(value)),
        _ => return Ok(false),
    }
    Ok(true)
}

fn address(value: &[u8]) -> Result<PciAddress, String> {
    let problem = |_| format!("has `{}` where a PCI address should be", printable(value));
    unescape(value).parse().map_err(problem)
}

/// Reads a key of an owner; `false` if it is another key.
fn owner_key(owner: &mut Owner, key: &[u8], value: &[u8]) -> Result<bool, String> {
    match key {
        b"start" => owner.start = Some(number(value)?),
        b"boot" => owner.boot = (value != b"-").then(|| unescape(value)),
        b"pidns" => owner.pid_namespace = Some(number(value)?),
        b"uid" => owner.uid = Some(number(value)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// The ids of all grants that a free line mentions: it may be half overwritten.
fn grants(line: &[u8]) -> Vec<u64> {
    let pieces = line.split(|byte| matches!(byte, b';' | b'\t'));
    pieces.filter_map(|piece| piece.strip_prefix(b"grant=")).filter_map(|id| hex64(id).ok()).collect()
}

fn excerpt(line: &[u8]) -> String {
    format!("`{}`", printable(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Assignment {
        Assignment {
            index: 11,
            slot: Some(2),
            identity: Identity {
                uuid: Some("GPU-5".to_owned()),
                pci: "0000:3b:00.0".parse().ok(),
                id: Some("slot 1; 100 %\n\u{e9}".to_owned()),
            },
            owner: Owner {
                pid: 4711,
                start: Some(98765),
                boot: Some("ab".repeat(16)),
                pid_namespace: Some(4_026_531_836),
                uid: Some(998),
            },
            grant: Some(Grant { id: 0xfeed, of: 2 }),
            since: Some(1_700_000_000),
            invocation: Some("cd".repeat(16)),
            cgroup: Some("/a b".to_owned()),
            namespace: Some("team a".to_owned()),
            origin: Some(Origin { grant: 17, is_taken: true }),
            unknown: "later=1;more=".to_owned(),
        }
    }

    #[test]
    fn a_line_prints_back_to_itself_and_keeps_to_the_alphabet() {
        let given = Assignment { origin: Some(Origin { grant: 17, is_taken: false }), ..full() };
        assert_eq!(parse(print(&given).as_bytes()), Ok(Line::Held(given)));
        let line = print(&full());
        assert_eq!(parse(line.as_bytes()), Ok(Line::Held(full())));
        let (before, after) = line.split_once('\t').unwrap();
        assert_eq!(before, "11 4711");
        assert!(after.bytes().all(|byte| byte.is_ascii_graphic()), "{after}");
        assert_eq!(after.matches(";later=1;more=").count(), 1);
    }

    #[test]
    fn a_line_of_the_script_is_an_assignment() {
        for line in ["3 4711", "3 4711\r", "003 4711", "3 4711\t;;;"] {
            match parse(line.as_bytes()) {
                Ok(Line::Held(assignment)) => {
                    assert_eq!((assignment.index, assignment.owner.pid), (3, 4711), "{line}");
                    assert!(assignment.is_the_scripts());
                }
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn what_begins_with_an_index_and_is_no_assignment_withholds_it() {
        for (line, index, says) in [
            ("3 ",                   3, "`` where a pid"),
            ("3 47x1",               3, "`47x1` where a pid"),
            ("3 +47",                3, "`+47` where a pid"),
            ("3 -47",                3, "`-47` where a pid"),
            ("3 0",                  3, "0 where a pid"),
            ("3 4194304",            3, "4194304 where a pid"),
            ("3 1 2",                3, "`1 2` where a pid"),
            ("3\t4711",              3, "no blank before the pid"),
            ("3 47\0\0",             3, "`47\\x00\\x00` where a pid"),
            ("3 47\tv=1;id=\u{e9}",  3, "not printable ASCII"),
            ("3 47\tv=2",            3, "format version 2"),
            ("3 47\tstart=x",        3, "`x` where a number"),
            ("3 47\tgrant=1;of=1",   3, "16 hexadecimal"),
            ("3 47\tof=1",           3, "only one of"),
            ("3 47\tpci=0",          3, "has `0` where a PCI address"),
            ("3 47\tpci=0%00",       3, "has `0%00` where a PCI address"),
            ("3 47\tword",           3, "`word` where key=value"),
            ("3 47\ta=b c",          3, "blank among its keys"),
            ("3 47\ta b=c",          3, "blank among its keys"),
            ("3 47\ta=b\tcut-short", 3, "blank among its keys"),
            ("99999999999 1 2",      u32::MAX, "where a pid"),
            ("! 3\tuid=x",           3, "`x` where a number"),
            ("! 3",                  3, "no TAB"),
        ] {
            match parse(line.as_bytes()) {
                Ok(Line::Withheld { index: found, problem }) => {
                    assert_eq!(found, index, "{line:?}");
                    assert!(problem.contains(says), "{line:?}: {problem}");
                    assert!(problem.starts_with(&format!("`{}", &line[..1])), "{line:?} is not shown: {problem}");
                    assert!(problem.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()), "{problem}");
                }
                other => panic!("{line:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_has_no_index_is_an_error() {
        for line in ["x", " 3 47", "3", "3x 47", "-1 47", "\0\0\0", "\u{feff}3 47", "! x"] {
            let problem = parse(line.as_bytes()).expect_err(line);
            let first = line.as_bytes()[..1].escape_ascii();
            assert!(problem.starts_with(&format!("`{first}")), "{line:?} is not shown: {problem}");
        }
    }

    #[test]
    fn a_long_line_is_named_by_its_first_bytes() {
        let problem = parse(&[b'x'; 10_000_000]).unwrap_err();
        assert!(problem.len() < 200, "{}", problem.len());
        let Ok(Line::Withheld { problem, .. }) = parse(&[&b"3 47\tpci="[..], &[b'1'; 10_000_000]].concat())
        else {
            panic!("not withheld");
        };
        assert!(problem.len() < 300, "{}", problem.len());
    }

    #[test]
    fn a_waiter_and_a_drained_unit() {
        let Ok(Line::Waiter(waiter)) = parse(b"? 12\tv=1;start=5;boot=-;pidns=7;uid=0;amount=2;ticket=9")
        else {
            panic!("not a waiter");
        };
        assert_eq!((waiter.owner.pid, waiter.owner.start, waiter.amount, waiter.ticket), (12, Some(5), 2, 9));
        assert_eq!(print_waiter(&waiter), "? 12\tv=1;start=5;boot=-;pidns=7;uid=0;amount=2;ticket=9");
        let Ok(Line::Drained(drained)) = parse(b"! 4\tv=1;uuid=GPU-1;uid=0;time=5;reason=too%20hot") else {
            panic!("not a drained unit");
        };
        assert_eq!((drained.index, drained.reason.as_str()), (4, "too hot"));
        assert_eq!(print_drained(&drained), "! 4\tv=1;uuid=GPU-1;uid=0;time=5;reason=too%20hot");
        assert_eq!(parse(b"? torn"), Ok(Line::Free(Vec::new())), "a waiter holds nothing");
    }

    #[test]
    fn a_waiter_is_read_as_it_was_written() {
        let boot = Some("0123456789abcdef0123456789abcdef".to_owned());
        let owner = Owner { pid: 12, start: Some(5), boot, pid_namespace: Some(7), uid: None };
        for among in [None, Some(vec![(0, 3), (7, 7)])] {
            let waiter = Waiter { owner: owner.clone(), amount: 2, ticket: u64::MAX, among };
            let line = print_waiter(&waiter);
            assert!(!line.contains('\0') && line.matches(' ').count() == 1, "{line}");
            assert_eq!(parse(line.as_bytes()), Ok(Line::Waiter(waiter)), "{line}");
        }
        assert_eq!(span(b"7"), Ok((7, 7)));
    }

    /// It would keep others waiting, and nobody could tell when it has ended.
    #[test]
    fn what_lacks_a_part_of_a_waiter_is_free_space() {
        for keys in
            ["amount=1;ticket=1", "start=5;ticket=1", "start=5;amount=1", "start=5;amount=0;ticket=1", "v=2"]
        {
            let line = format!("? 12\t{keys}");
            assert_eq!(parse(line.as_bytes()), Ok(Line::Free(Vec::new())), "{line}");
        }
    }

    #[test]
    fn a_free_line_marks_every_grant_it_names() {
        let line = b"#1 2\tv=1;grant=00000000000000ff;of=1;gra;grant=00000000000000aa;x";
        assert_eq!(parse(line), Ok(Line::Free(vec![0xff, 0xaa])));
    }
}
