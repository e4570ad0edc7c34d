//! The history: a line for each grant, release, take-over and refusal, and for what an operator does. "Who took my GPU?"
//! is asked the next morning, and Flink discards what a script prints on success.

use std::io;
use std::os::unix::process::parent_id;
use std::time::Duration;

use nix::unistd::getuid;

use super::Context;
use crate::assignment::{Assignment, Drained, Owner};
use crate::cli::{Allocation, Command};
use crate::coordination::plan::Change;
use crate::error::Error;
use crate::host::journal::{Entry, Log};
use crate::host::owner::{self, Form};
use crate::notes::Notes;

/// How long to wait for a file: at most, and at least, where the deadline is near or others wait for the lock.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(100));

/// When an entry is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Others wait for the lock: a file that hangs must not delay them.
    UnderLock,
    Afterwards,
}

fn unit(line: &Assignment) -> String {
    line.identity.label(line.index, line.slot)
}

fn units<'a>(lines: impl Iterator<Item = &'a Assignment>) -> String {
    lines.map(unit).collect::<Vec<_>>().join(", ")
}

impl Context<'_> {
    /// What is granted to an owner, and what dead owners held until now.
    pub(super) fn note_grant(
        &self,
        owner: &Owner,
        change: &Change,
        stale: &[Assignment],
        when: When,
        notes: &mut Notes,
    ) {
        self.note(when, notes, || {
            let mut entries: Vec<Entry> = stale.iter().map(of_stale).collect();
            let what = format!("gave device {} to", units(change.granted.iter()));
            entries.push(self.entry("grant", owner, &what));
            entries
        });
    }

    /// What is passed on to a process that asks inside `exec`.
    pub(super) fn note_taken(&self, owner: &Owner, change: &Change, when: When, notes: &mut Notes) {
        let what = || format!("passed device {} of exec on to", units(change.granted.iter()));
        self.note(when, notes, || vec![self.entry("taken", owner, &what())]);
    }

    /// What owners have given back. There can be several in one systemd unit.
    pub(super) fn note_release(&self, released: &[Assignment], notes: &mut Notes) {
        let mut owners: Vec<&Owner> = Vec::new();
        for line in released {
            if !owners.iter().any(|owner| owner.is(&line.owner)) {
                owners.push(&line.owner);
            }
        }
        let entry = |owner: &Owner| {
            let its = released.iter().filter(|line| line.owner.is(owner));
            self.entry("release", owner, &format!("took device {} back from", units(its)))
        };
        self.note(When::Afterwards, notes, || owners.into_iter().map(entry).collect());
    }

    pub(super) fn note_reclaimed(&self, stale: &[Assignment], notes: &mut Notes) {
        self.note(When::Afterwards, notes, || stale.iter().map(of_stale).collect());
    }

    /// What an operator has released.
    pub(super) fn note_by_hand(&self, released: &[Assignment], notes: &mut Notes) {
        let entry = |line: &Assignment| {
            let (unit, pid) = (unit(line), line.owner.pid);
            let what = format!("has released device {unit} by hand, which is recorded for pid {pid}");
            let mut entry = of_operator("release", &what);
            entry.fields.push(("OWNER", pid.to_string()));
            entry
        };
        self.note(When::Afterwards, notes, || released.iter().map(entry).collect());
    }

    pub(super) fn note_drained(&self, drained: &[Drained], notes: &mut Notes) {
        let entry = |drained: &Drained| {
            let unit = drained.identity.label(drained.index, None);
            of_operator("drain", &format!("has drained device {unit}: {}", drained.reason))
        };
        self.note(When::Afterwards, notes, || drained.iter().map(entry).collect());
    }

    pub(super) fn note_undrained(&self, drained: &[Drained], notes: &mut Notes) {
        let entry = |drained: &Drained| {
            let unit = drained.identity.label(drained.index, None);
            let what = format!("lets device {unit} be granted again, which was drained: {}", drained.reason);
            of_operator("undrain", &what)
        };
        self.note(When::Afterwards, notes, || drained.iter().map(entry).collect());
    }

    /// Why nothing was granted, if units were requested.
    pub(super) fn note_refusal(&self, command: &Command, error: &Error) {
        let Some(asks) = self.asks(command) else { return };
        let seen = || owner::of(&self.host, asks).unwrap_or_else(|| Owner::of_pid(asks));
        let requester = self.requester.get().cloned().unwrap_or_else(seen);
        // Warnings are not printed together with an error.
        self.note(When::Afterwards, &mut Notes::default(), || {
            let mut entry = self.entry("refusal", &requester, "gave nothing to");
            entry.message += &format!(": {}", error.chain());
            vec![entry]
        });
    }

    /// The process that requests units, according to the command line.
    fn asks(&self, command: &Command) -> Option<u32> {
        let owner = |options: &Allocation| Some(options.owner.owner.unwrap_or_else(parent_id));
        match command {
            Command::Discover(options) if self.coordinates(Form::Discover, &options.allocation) => {
                owner(&options.allocation)
            }
            Command::Allocate(options) if self.coordinates(Form::Allocate, &options.allocation) => {
                owner(&options.allocation)
            }
            Command::Exec(_) => Some(std::process::id()),
            _ => None,
        }
    }

    /// Writes entries, which are built only if there is somewhere to write them.
    fn note(&self, when: When, notes: &mut Notes, entries: impl FnOnce() -> Vec<Entry>) {
        let Some(sink) = self.host.history(self.log) else { return };
        let patience = match when {
            When::UnderLock => PATIENCE.1,
            When::Afterwards => self.deadline.left().clamp(PATIENCE.1, PATIENCE.0),
        };
        let (Err(error), Log::File(path)) = (sink.write(&entries(), patience), self.log) else { return };
        let path = path.display();
        notes.warn(match error.kind() {
            io::ErrorKind::TimedOut => format!(
                "the history may lack this: {path} does not answer; see to its \
                 file system, or name another place with --log"
            ),
            _ => format!(
                "the history lacks this: cannot write to {path}: {error}; mend that, or name another \
                 place with --log"
            ),
        });
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

/// The entry for what an operator has done.
fn of_operator(action: &str, what: &str) -> Entry {
    Entry { message: format!("uid {} {what}", getuid()), fields: vec![("ACTION", action.to_owned())] }
}

fn of_stale(stale: &Assignment) -> Entry {
    let (unit, pid) = (unit(stale), stale.owner.pid);
    Entry {
        message: format!("released device {unit}, which pid {pid} held until it ended"),
        fields: vec![("ACTION", "reclaim".to_owned()), ("OWNER", pid.to_string())],
    }
}
