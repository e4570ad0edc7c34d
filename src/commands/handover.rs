//! From the decision to the owner: the last checks, the commit, and the answer while the lock is held.

use super::Context;
use super::history::When;
use super::told::Told;
use crate::assignment::{Grant, Owner};
use crate::cli::watchdog::Guard;
use crate::coordination::ledger::Ledger;
use crate::coordination::plan::Change;
use crate::device::{Inventory, Unit};
use crate::error::Error;
use crate::host::owner;
use crate::notes::Notes;
use crate::visible::Seen;

/// What is granted.
pub(super) struct Given<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) units: &'a [Unit],
    /// How the owner counts devices from now on.
    pub(super) seen: &'a Seen,
    /// Whether it can open only these units.
    pub(super) is_confined: bool,
    /// Further variables for its runtime.
    pub(super) variables: Vec<(&'static str, String)>,
    pub(super) grant: Grant,
}

impl Given<'_> {
    /// The part of it that the owner is told.
    pub(super) fn told(&self) -> Told<'_> {
        let Given { inventory, units, seen, is_confined, ref variables, .. } = *self;
        Told { inventory, units, seen, is_confined, variables }
    }
}

/// The way from the record to the owner.
pub(super) trait Handover {
    /// Does everything that can fail before anything is recorded.
    fn prepare(&mut self, given: &Given<'_>) -> Result<(), Error>;

    /// Delivers the units, which are recorded. The lock is still held: if this fails, the record is undone before the next
    /// caller reads it. `notes`: warnings to print now, if they cannot be printed later.
    fn deliver(&mut self, notes: &Notes) -> Result<(), Error>;

    /// Whether the owner continues after a failure, and must then be as it was before.
    fn outlives_failure(&self) -> bool {
        true
    }
}

/// What is about to be recorded, and for whom.
pub(super) struct Handing<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) owner: &'a Owner,
    pub(super) ledger: Ledger,
    pub(super) guard: Option<Guard>,
}

impl Handing<'_> {
    /// Does everything that can fail before anything is recorded.
    pub(super) fn prepare(
        &self,
        given: &Given<'_>,
        handover: &mut dyn Handover,
        notes: &Notes,
    ) -> Result<(), Error> {
        self.context.check_strict(notes)?;
        handover.prepare(given)?;
        owner::recheck(&self.context.host, self.owner)?;
        if self.context.deadline.has_passed() {
            return Err(self.context.deadline.error("the looks at devices, owners and control groups"));
        }
        Ok(())
    }

    /// Records the change and hands over, or does neither. `undo` undoes what was done for the owner before; `note` writes
    /// the history.
    pub(super) fn commit(
        self,
        change: &Change,
        handover: &mut dyn Handover,
        undo: &dyn Fn(Error) -> Error,
        note: &dyn Fn(When, &mut Notes),
        notes: &mut Notes,
    ) -> Result<(), Error> {
        let Handing { context, owner, ledger, guard } = self;
        guard.iter().for_each(|guard| guard.commits_for(owner.pid));
        let committed = ledger.commit(&context.host, change).map_err(undo)?;
        guard.into_iter().for_each(Guard::call_off);
        // Not later if this process becomes a command; nor if a warning about the history is an error, which must come
        // before the answer.
        let is_noted_before = !handover.outlives_failure() || context.is_strict;
        if is_noted_before {
            note(When::UnderLock, notes);
        }
        let delivered = context.check_strict(notes).and_then(|()| handover.deliver(notes));
        if let Err(error) = delivered {
            let error = committed.undo(error);
            return Err(if handover.outlives_failure() { undo(error) } else { error });
        }
        // This releases the lock, so that a history that hangs delays nobody else.
        drop(committed);
        if !is_noted_before {
            note(When::Afterwards, notes);
        }
        Ok(())
    }
}
