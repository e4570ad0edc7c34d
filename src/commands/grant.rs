//! Granting a request, from reading the record to the commit. How the units reach the owner is up to the caller.

use super::handover::{Given, Handing, Handover};
use super::isolation::Isolation;
use super::mps;
use super::queue;
use super::request::{Decision, Request};
use crate::assignment::{Assignment, Origin, Owner};
use crate::cgroup::Confined;
use crate::coordination::ledger::Ledger;
use crate::coordination::settle;
use crate::device::Unit;
use crate::error::Error;
use crate::notes::Notes;
use crate::visible::Seen;

impl Request<'_> {
    /// Grants the units to `owner`. After an error nothing is recorded, and nobody is confined.
    pub(super) fn give(
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
                self.context.check_strict(notes)?;
                let waiter = queue::waiter(owner, self.options.amount, self.units, self.inventory);
                queue.enter(&self.context.host, ledger, change, waiter)?;
                return Err(error);
            }
            (units, _) => units?,
        };
        self.context.check_strict(notes)?;
        // From here on a signal must not separate what is done from what is recorded and handed over.
        super::block_signals();
        let confined = self.confine(isolation, &units, notes)?;
        let undo = |error| match (&confined, error) {
            // If the grant stays recorded, its isolation stays in force.
            (Some(confined), error) if !matches!(error, Error::NotUndone { .. }) => confined.undo(error),
            (_, error) => error,
        };
        let grant = settle::grant(units.len());
        let seen = confined.as_ref().map(|_| Seen::only(&units));
        let seen = seen.as_ref().unwrap_or(self.seen);
        let is_confined = confined.is_some();
        let variables = mps::variables(self.context, self.inventory, self.resources, &units);
        let given = Given { inventory: self.inventory, units: &units, seen, is_confined, variables, grant };
        let handing = Handing { context: self.context, owner, ledger, guard };
        handing.prepare(&given, handover, notes).map_err(undo)?;
        let cgroup = confined.as_ref().map(Confined::name);
        change.granted = self.assignments(owner, &given, cgroup.as_deref());
        let record = handing.ledger.record();
        let stale: Vec<_> = change.stale.iter().map(|at| record.assignments[*at].clone()).collect();
        let note = |when, notes: &mut Notes| self.context.note_grant(owner, &change, &stale, when, notes);
        handing.commit(&change, handover, &undo, &note, notes)
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
            // An owner that is already confined could not open what it is granted.
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
