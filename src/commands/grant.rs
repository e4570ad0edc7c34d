//! What a request is given, from the record to the commit. How it reaches the owner is the caller's matter.

use super::isolation::Isolation;
use super::mps;
use super::queue::{self, Queue};
use super::request::{Decision, Request};
use super::told::Told;
use crate::assignment::{Assignment, Grant, Origin, Owner};
use crate::cgroup::Confined;
use crate::cli::watchdog::Guard;
use crate::coordination::ledger::Ledger;
use crate::coordination::settle;
use crate::device::{Inventory, Unit};
use crate::error::Error;
use crate::host::owner;
use crate::notes::Notes;
use crate::visible::Seen;

/// What was given.
pub(super) struct Given<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) units: &'a [Unit],
    /// How the owner counts from now on.
    pub(super) seen: &'a Seen,
    /// Whether it can open these units alone.
    pub(super) is_confined: bool,
    /// What else its runtime is to be told.
    pub(super) variables: Vec<(&'static str, String)>,
    pub(super) grant: Grant,
}

impl Given<'_> {
    /// What of it concerns the owner.
    pub(super) fn told(&self) -> Told<'_> {
        let Given { inventory, units, seen, is_confined, ref variables, .. } = *self;
        Told { inventory, units, seen, is_confined, variables }
    }
}

/// The way from the record to the owner.
pub(super) trait Handover {
    /// All that can fail before anything is recorded.
    fn prepare(&mut self, given: &Given<'_>) -> Result<(), Error>;

    /// The units are recorded, and the lock is held still: what was not handed over is not recorded when the
    /// next caller reads. `notes`: what is to be said, if it is not said later.
    fn deliver(&mut self, notes: &Notes) -> Result<(), Error>;

    /// Whether the owner goes on after a failure, and is to be as it was before.
    fn outlives_failure(&self) -> bool {
        true
    }
}

impl Request<'_> {
    /// Gives the units to `owner`. After an error nothing is recorded, and nobody confined.
    pub(super) fn give(
        &self,
        owner: &Owner,
        handover: &mut dyn Handover,
        notes: &mut Notes,
    ) -> Result<(), Error> {
        let given = self.try_to_give(owner, handover, notes);
        // Who waits is refused when it has waited long enough.
        if self.queue.is_some_and(Queue::is_in) {
            return given;
        }
        given.inspect_err(|error| self.context.note_refusal(owner, error))
    }

    fn try_to_give(
        &self,
        owner: &Owner,
        handover: &mut dyn Handover,
        notes: &mut Notes,
    ) -> Result<(), Error> {
        let path = &self.options.file.coordination_file;
        let guard = self.context.guard(path);
        self.context.check_place(path, notes)?;
        let ledger = Ledger::open(&self.context.host, path, owner.uid, self.context.deadline)?;
        let Decision { units, mut change, isolation } = self.decide(owner, &ledger, notes)?;
        let units = match (units, self.queue) {
            (Err(error), Some(queue)) => {
                let waiter = queue::waiter(owner, self.options.amount, self.units, self.inventory);
                queue.enter(ledger, change, waiter)?;
                return Err(error);
            }
            (units, _) => units?,
        };
        // From here on a signal must not part what is done from what is recorded and handed over.
        super::block_signals();
        let confined = self.confine(isolation, &units, notes)?;
        let undo = |error| match &confined {
            Some(confined) => confined.undo(error),
            None => error,
        };
        let grant = Grant { id: settle::random(), of: u32::try_from(units.len()).unwrap_or(u32::MAX) };
        let seen = confined.as_ref().map(|_| Seen::only(&units));
        let seen = seen.as_ref().unwrap_or(self.seen);
        let is_confined = confined.is_some();
        let variables = mps::variables(self.context, self.inventory, self.resources, &units);
        let given = Given { inventory: self.inventory, units: &units, seen, is_confined, variables, grant };
        self.context
            .check_strict(notes)
            .and_then(|()| handover.prepare(&given))
            .and_then(|()| self.recheck(owner))
            .map_err(undo)?;
        let cgroup = confined.as_ref().map(Confined::name);
        change.granted = self.assignments(owner, &given, cgroup.as_deref());
        let stale =
            change.stale.iter().map(|at| ledger.record().assignments[*at].clone()).collect::<Vec<_>>();
        guard.iter().for_each(|guard| guard.commits_for(owner.pid));
        let committed = ledger.commit(&change).map_err(undo)?;
        guard.into_iter().for_each(Guard::call_off);
        // Who is replaced by a command cannot say it later.
        if !handover.outlives_failure() {
            self.context.note_grant(owner, &change, &stale, notes);
        }
        handover.deliver(notes).map_err(|error| {
            let error = committed.undo(error);
            if handover.outlives_failure() { undo(error) } else { error }
        })?;
        self.context.note_grant(owner, &change, &stale, notes);
        Ok(())
    }

    fn recheck(&self, owner: &Owner) -> Result<(), Error> {
        owner::recheck(&self.context.host, owner)?;
        if self.context.deadline.has_passed() {
            return Err(self.context.deadline.error("all that comes before the record is written"));
        }
        Ok(())
    }

    fn confine(
        &self,
        isolation: Option<Isolation<'_>>,
        units: &[Unit],
        notes: &mut Notes,
    ) -> Result<Option<Confined>, Error> {
        let Some(isolation) = isolation else { return Ok(None) };
        match isolation.confine(units) {
            Ok(confined) => Ok(Some(confined)),
            // One that is confined already could not open what it is given.
            Err(error) if isolation.is_in_force() => Err(error),
            Err(error) => self.without(error, notes).map(|()| None),
        }
    }

    fn assignments(&self, owner: &Owner, given: &Given<'_>, cgroup: Option<&str>) -> Vec<Assignment> {
        let since = settle::now();
        let assignment = |unit: &Unit| {
            let device = &self.inventory.devices[unit.device];
            Assignment {
                index: device.index,
                slot: unit.slot,
                identity: self.inventory.identity(unit).into_owned(),
                owner: owner.clone(),
                grant: Some(given.grant),
                since,
                invocation: self.context.surroundings.service.invocation().map(str::to_owned),
                cgroup: cgroup.map(str::to_owned),
                namespace: self.options.namespace.clone(),
                origin: self.is_passed_on.then_some(Origin { grant: given.grant.id, is_taken: false }),
                unknown: String::new(),
            }
        };
        given.units.iter().map(assignment).collect()
    }
}
