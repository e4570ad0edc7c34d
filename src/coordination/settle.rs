//! The lines of Flink's own script, which have only an index and a pid: before our first write each is
//! freed if its owner is dead, or else written anew with what tells the owner from a later process.
//!
//! Every write of ours renews the time of the file's last change, by which the owners of such lines are
//! judged.

use std::hash::BuildHasher;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::assignment::{Assignment, Grant, Owner, Record, Standing};
use crate::coordination::plan::Change;
use crate::device::Identity;

/// Settles the script's lines, and with `clears_stale` frees every line whose owner is dead, so that the
/// script finds nothing to take over itself.
///
/// `owner` looks a living process up, and `named` a device by its index.
pub(crate) fn settle(
    record: &Record,
    clears_stale: bool,
    standing: impl Fn(usize) -> Standing,
    owner: impl Fn(u32) -> Option<Owner>,
    named: impl Fn(u32) -> Identity,
) -> Change {
    let mut change = Change::default();
    for (position, line) in record.assignments.iter().enumerate() {
        let is_the_scripts = line.is_the_scripts();
        if !is_the_scripts && !clears_stale {
            continue;
        }
        match standing(position) {
            Standing::Dead => change.stale.push(position),
            Standing::Alive if is_the_scripts => {
                let anew = owner(line.owner.pid).map(|owner| written_anew(line, owner, named(line.index)));
                change.settled.extend(anew.map(|anew| (position, anew)));
            }
            Standing::Alive | Standing::Doubtful(_) => {}
        }
    }
    change
}

/// The time is left out: the script does not say when it gave the device.
fn written_anew(line: &Assignment, owner: Owner, identity: Identity) -> Assignment {
    let grant = Some(Grant { id: random(), of: 1 });
    Assignment { owner, identity, grant, ..line.clone() }
}

/// 64 random bits: the standard library's hash keys are seeded by the kernel.
pub(crate) fn random() -> u64 {
    std::collections::hash_map::RandomState::new().hash_one(SystemTime::now())
}

/// Seconds since the epoch.
pub(crate) fn now() -> Option<u64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}
