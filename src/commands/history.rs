//! The history: a line for each grant, release, take-over and refusal. "Who took my GPU" is asked the next morning,
//! and Flink drops what a script says on success.

use nix::unistd::getuid;

use super::Context;
use crate::assignment::{Assignment, Owner};
use crate::coordination::plan::Change;
use crate::error::Error;
use crate::host::journal::Entry;

/// Names the units of assignments for people: `0 (GPU-1...), 3`.
fn units<'a>(assignments: impl Iterator<Item = &'a Assignment>) -> String {
    let unit = |assignment: &Assignment| {
        let slot = assignment.slot.map(|slot| format!("#{slot}")).unwrap_or_default();
        match &assignment.identity.uuid {
            Some(uuid) => format!("{}{slot} ({uuid})", assignment.index),
            None => format!("{}{slot}", assignment.index),
        }
    };
    assignments.map(unit).collect::<Vec<_>>().join(", ")
}

impl Context<'_> {
    /// What is given to an owner, and what dead ones held until now.
    pub(super) fn note_grant(&self, owner: &Owner, change: &Change, stale: &[Assignment]) {
        self.note(|| {
            let mut entries: Vec<Entry> = stale.iter().map(of_stale).collect();
            let what = format!("gave device {} to", units(change.granted.iter()));
            entries.push(self.entry("grant", owner, &what));
            entries
        });
    }

    pub(super) fn note_release(&self, owner: &Owner, released: &[Assignment]) {
        let what = || format!("took device {} back from", units(released.iter()));
        self.note(|| vec![self.entry("release", owner, &what())]);
    }

    pub(super) fn note_reclaimed(&self, stale: &[Assignment]) {
        self.note(|| stale.iter().map(of_stale).collect());
    }

    /// What an operator has released.
    pub(super) fn note_by_hand(&self, released: &[Assignment]) {
        self.note(|| {
            let entry = |line: &Assignment| {
                let (units, pid) = (units(std::iter::once(line)), line.owner.pid);
                let uid = getuid();
                Entry {
                    message: format!(
                        "uid {uid} has released device {units} by hand, which is recorded for pid {pid}"
                    ),
                    fields: vec![("ACTION", "release".to_owned()), ("OWNER", pid.to_string())],
                }
            };
            released.iter().map(entry).collect()
        });
    }

    pub(super) fn note_refusal(&self, owner: &Owner, error: &Error) {
        self.note(|| {
            let mut entry = self.entry("refusal", owner, "gave nothing to");
            entry.message += &format!(": {}", error.chain());
            vec![entry]
        });
    }

    /// Entries are made only where they can be written.
    fn note(&self, entries: impl FnOnce() -> Vec<Entry>) {
        if let Some(mut sink) = self.host.history(self.log) {
            sink.write(&entries());
        }
    }

    fn entry(&self, action: &str, owner: &Owner, what: &str) -> Entry {
        let command =
            self.host.command_line(owner.pid).map(|command| format!(" ({command})")).unwrap_or_default();
        let uid = owner.uid.map(|uid| format!(" of uid {uid}")).unwrap_or_default();
        Entry {
            message: format!("{what} pid {}{uid}{command}", owner.pid),
            fields: vec![("ACTION", action.to_owned()), ("OWNER", owner.pid.to_string())],
        }
    }
}

fn of_stale(stale: &Assignment) -> Entry {
    let (units, pid) = (units(std::iter::once(stale)), stale.owner.pid);
    Entry {
        message: format!("released device {units}, which pid {pid} held until it ended"),
        fields: vec![("ACTION", "reclaim".to_owned()), ("OWNER", pid.to_string())],
    }
}
