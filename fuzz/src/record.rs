//! The coordination file.

use crate::assert_shown;
use crate::assignment::{Assignment, Grant, Record, Waiter};
use crate::coordination::format::{self, Line};
use crate::coordination::plan::{self, Change, Plan, Write};
use crate::coordination::text::Text;
use crate::device::{Device, Identity, Inventory};
use crate::policy;

/// What is read prints back to itself, and a change of it, cut anywhere, keeps what it does not speak of.
///
/// The first bytes choose the change and where it is cut; the rest is the file.
pub(crate) fn record(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first_chunk::<8>() else { return };
    let choice = u64::from_le_bytes(*choice);
    let text = Text::read(bytes.to_vec());
    prints_back(&text.record);
    is_shown(&text);
    policy::occupancy(&inventory(), &text.record);
    if text.malformed.is_empty() {
        changes(&text, choice);
    }
}

/// Of a long record it is the reading that is measured.
const PRINTED: usize = 10_000;

fn prints_back(record: &Record) {
    for assignment in record.assignments.iter().take(PRINTED) {
        let line = format::print(assignment);
        assert!(line.bytes().all(|byte| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t')), "{line:?}");
        if !assignment.is_the_scripts() {
            assert_eq!(
                format::parse(line.as_bytes()).as_ref(),
                Ok(&Line::Held(assignment.clone())),
                "{line:?}"
            );
        }
    }
    for drained in &record.drained {
        let line = format::print_drained(drained);
        assert_eq!(format::parse(line.as_bytes()).as_ref(), Ok(&Line::Drained(drained.clone())), "{line:?}");
    }
    for waiter in &record.waiters {
        let line = format::print_waiter(waiter);
        assert_eq!(format::parse(line.as_bytes()).as_ref(), Ok(&Line::Waiter(waiter.clone())), "{line:?}");
    }
}

fn is_shown(text: &Text) {
    text.malformed.iter().for_each(|malformed| assert_shown(&malformed.problem));
    text.record.withheld.iter().for_each(|withheld| assert_shown(&withheld.problem));
}

/// Two devices, of which one has more names than the other.
fn inventory() -> Inventory {
    let uuid = |uuid: &str| Identity { uuid: Some(uuid.to_owned()), ..Identity::default() };
    let named = Identity { pci: "0000:3b:00.0".parse().ok(), ..uuid("GPU-1") };
    let devices = vec![Device::new(0, uuid("GPU-0")), Device { slots: Some(2), ..Device::new(1, named) }];
    Inventory { source: "fuzz".to_owned(), driver_version: None, devices, tells_instances: true }
}

/// As many lines as are looked for one by one afterwards.
const COMPARED: usize = 1000;

/// Some lines go, and a grant of two comes, with somebody who waits.
fn changes(text: &Text, choice: u64) {
    let lines = text.record.assignments.len();
    let is_chosen = |at: &usize| choice >> (at % 8) & 1 == 1;
    let of_choice = |is_wanted: bool| (0..lines).filter(is_chosen).filter(|_| is_wanted).collect::<Vec<_>>();
    let is_release = choice & 0x100 != 0;
    let change = Change {
        stale: of_choice(!is_release),
        released: of_choice(is_release),
        granted: [7, 8].map(granted).to_vec(),
        queued: (choice & 0x200 != 0).then(waiter),
        ..Change::default()
    };
    let plan = plan::plan(text, &change, false);
    if lines > COMPARED {
        return; // to look for each line among all is quadratic
    }
    let whole = length(&plan);
    // Whole, and cut at one byte of those that it writes.
    let cut = usize::try_from(choice >> 16).unwrap_or(usize::MAX) % (whole + 1);
    for (written, is_whole) in [(cut, false), (whole, true)] {
        let after = Text::read(after(text, &plan, written));
        assert_eq!(after.malformed, [], "{}", after.bytes.escape_ascii());
        keeps(text, &after, &change);
        let grants = after.record.assignments.iter().filter(|line| line.grant == Some(GRANT)).count();
        assert!(grants == 0 || grants == 2, "{grants} of 2 lines hold: {}", after.bytes.escape_ascii());
        assert!(!is_whole || grants == 2, "{}", after.bytes.escape_ascii());
    }
}

/// What the change does not speak of is there as it was. Lines of one grant go together.
fn keeps(before: &Text, after: &Text, change: &Change) {
    let gone: Vec<usize> = change.stale.iter().chain(&change.released).copied().collect();
    let grants: Vec<u64> =
        gone.iter().filter_map(|at| before.record.assignments[*at].grant).map(|it| it.id).collect();
    let is_kept = |(at, line): &(usize, &Assignment)| {
        !gone.contains(at)
            && !line.grant.is_some_and(|grant| grants.contains(&grant.id) || grant.id == GRANT.id)
    };
    let mut left: Vec<&Assignment> = after.record.assignments.iter().collect();
    for (_, line) in before.record.assignments.iter().enumerate().filter(is_kept) {
        let at = left.iter().position(|other| *other == line);
        left.remove(at.unwrap_or_else(|| panic!("{line:?} is lost in {}", after.bytes.escape_ascii())));
    }
    let indexes = |text: &Text| text.record.withheld.iter().map(|it| it.index).collect::<Vec<_>>();
    assert_eq!(indexes(before), indexes(after));
}

const GRANT: Grant = Grant { id: 0xfee1_900d_fee1_900d, of: 2 };

fn granted(index: u32) -> Assignment {
    let line = format!("{index} 4711\tv=1;grant={:016x};of=2;uuid=GPU-{index};start=5;boot=-", GRANT.id);
    match format::parse(line.as_bytes()) {
        Ok(Line::Held(assignment)) => assignment,
        other => panic!("{other:?}"),
    }
}

fn waiter() -> Waiter {
    match format::parse(b"? 4712\tv=1;start=5;boot=-;amount=1;ticket=9") {
        Ok(Line::Waiter(waiter)) => waiter,
        other => panic!("{other:?}"),
    }
}

fn writes(plan: &Plan) -> impl Iterator<Item = (&[Write], &[u8])> {
    [(&plan.clear[..], &[][..]), (&[], &plan.growth[..]), (&plan.fill[..], &[])].into_iter()
}

/// Bytes that the plan writes.
fn length(plan: &Plan) -> usize {
    let bytes = writes(plan)
        .map(|(writes, growth)| writes.iter().map(|it| it.bytes.len()).sum::<usize>() + growth.len());
    bytes.sum()
}

/// The file when so many bytes of the plan are written.
fn after(text: &Text, plan: &Plan, mut left: usize) -> Vec<u8> {
    let mut bytes = text.bytes.clone();
    for (writes, growth) in writes(plan) {
        for write in writes {
            let now = write.bytes.len().min(left);
            if now == 0 {
                return bytes;
            }
            bytes[write.at..write.at + now].copy_from_slice(&write.bytes[..now]);
            left -= now;
        }
        let now = growth.len().min(left);
        bytes.extend_from_slice(&growth[..now]);
        left -= now;
    }
    bytes
}
