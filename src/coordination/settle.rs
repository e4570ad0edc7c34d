//! Settles the lines of Flink's own script, which have only an index and a pid: before our first write each line is freed
//! if its owner is dead, or else rewritten with what tells the owner from a later process.
//!
//! The owners of such lines are judged by the time of the file's last change, which our writes alter.

use std::hash::BuildHasher;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::assignment::{Assignment, Grant, Owner, Record, Standing, Waiter};
use crate::coordination::plan::Change;
use crate::device::Identity;

/// Settles the script's lines. With `clears_stale` it frees every line whose owner is dead, so that the script finds
/// nothing to take over.
///
/// `owner` looks up a living process by its pid, and `named` the identity of a device by its index.
pub(crate) fn settle(
    record: &Record,
    clears_stale: bool,
    standing: impl Fn(usize) -> Standing,
    owner: impl Fn(u32) -> Option<Owner>,
    named: impl Fn(u32) -> Identity,
) -> Change {
    let mut change = Change::default();
    for (position, line) in record.assignments.iter().enumerate() {
        // A line that was settled by a release, which reads no inventory, has no identity yet.
        let is_unsettled = line.is_the_scripts() || line.identity.is_empty();
        if !is_unsettled && !clears_stale {
            continue;
        }
        match standing(position) {
            Standing::Dead if clears_stale || line.is_the_scripts() => change.stale.push(position),
            Standing::Alive if is_unsettled => {
                let identity = named(line.index);
                let owner = match line.is_the_scripts() {
                    true => owner(line.owner.pid),
                    false => Some(line.owner.clone()).filter(|_| !identity.is_empty()),
                };
                change.settled.extend(owner.map(|owner| (position, written_anew(line, owner, identity))));
            }
            Standing::Dead | Standing::Alive | Standing::Doubtful(_) => {}
        }
    }
    change
}

/// Positions of the waiters that have ended, whose lines are removed by every change.
pub(crate) fn gone(record: &Record, standing: impl Fn(&Waiter) -> Standing) -> Vec<usize> {
    let waiters = record.waiters.iter().enumerate();
    waiters.filter(|(_, waiter)| standing(waiter) == Standing::Dead).map(|(position, _)| position).collect()
}

/// The line with the owner and the device. It has no time, since the script does not record when it gave the device.
fn written_anew(line: &Assignment, owner: Owner, identity: Identity) -> Assignment {
    let grant = Some(Grant { id: random(), of: 1 });
    Assignment { owner, identity, grant, ..line.clone() }
}

/// A new grant with a number of lines.
pub(crate) fn grant(lines: usize) -> Grant {
    Grant { id: random(), of: u32::try_from(lines).unwrap_or(u32::MAX) }
}

/// 64 random bits: the standard library's hash keys are seeded by the kernel.
fn random() -> u64 {
    std::collections::hash_map::RandomState::new().hash_one(SystemTime::now())
}

/// Seconds since the epoch.
pub(crate) fn now() -> Option<u64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(index: u32, pid: u32, uuid: Option<&str>, is_the_scripts: bool) -> Assignment {
        let start = (!is_the_scripts).then_some(5);
        Assignment {
            identity: Identity { uuid: uuid.map(str::to_owned), ..Identity::default() },
            owner: Owner { start, ..Owner::of_pid(pid) },
            grant: (!is_the_scripts).then_some(Grant { id: u64::from(pid), of: 1 }),
            ..Assignment::of_the_script(index, pid)
        }
    }

    /// Positions of what is stale, and of what is written anew, with the name and the owner's start.
    type Settled = (Vec<usize>, Vec<(usize, Option<String>, Option<u64>)>);

    /// Owners up to 99 live, and the others are dead.
    fn settled(clears_stale: bool, uuid: Option<&str>) -> Settled {
        let assignments = vec![
            line(0, 1, None, true),
            line(1, 100, None, true),
            line(2, 2, Some("GPU-2"), false),
            line(3, 101, Some("GPU-3"), false),
            line(4, 3, None, false),
            line(5, 102, None, false),
        ];
        let record = Record { assignments, ..Record::default() };
        let standing = |position: usize| match record.assignments[position].owner.pid {
            ..100 => Standing::Alive,
            100.. => Standing::Dead,
        };
        let owner = |pid| Some(Owner { start: Some(9), ..line(0, pid, None, true).owner });
        let named = |_| Identity { uuid: uuid.map(str::to_owned), ..Identity::default() };
        let change = settle(&record, clears_stale, standing, owner, named);
        let anew = change
            .settled
            .into_iter()
            .map(|(position, anew)| (position, anew.identity.uuid, anew.owner.start));
        (change.stale, anew.collect())
    }

    #[test]
    fn the_time_is_that_of_the_clock() {
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let (before, told, after) = (clock(), now().unwrap(), clock());
        assert!((before..=after).contains(&told), "{told} is not from {before} to {after}");
    }

    #[test]
    fn waiters_that_have_ended_go() {
        let waiter =
            |pid| Waiter { owner: line(0, pid, None, false).owner, amount: 1, ticket: 1, among: None };
        let record = Record { waiters: [100, 1, 200, 101].map(waiter).to_vec(), ..Record::default() };
        let waits = |waiter: &Waiter| match waiter.owner.pid {
            ..100 => Standing::Alive,
            100..200 => Standing::Dead,
            200.. => Standing::Doubtful(crate::assignment::Doubt::Unreadable),
        };
        assert_eq!(gone(&record, waits), [0, 3]);
    }

    #[test]
    fn the_scripts_lines_are_settled_and_those_without_a_name_are_named() {
        let gpu = Some("GPU-9".to_owned());
        let anew = vec![(0, gpu.clone(), Some(9)), (4, gpu, Some(5))];
        assert_eq!(settled(true, Some("GPU-9")), (vec![1, 3, 5], anew.clone()));
        assert_eq!(settled(false, Some("GPU-9")), (vec![1], anew), "other dead are let lie");
        assert_eq!(
            settled(false, None),
            (vec![1], vec![(0, None, Some(9))]),
            "a release has no names to give"
        );
    }
}
