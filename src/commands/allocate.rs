//! `gpu-coord AMOUNT` and `gpu-coord allocate AMOUNT`.

use std::os::unix::process::parent_id;

use super::choice::Choice;
use super::eligible::eligible;
use super::kin::Kin;
use super::{Context, answer};
use crate::assignment::{Assignment, Grant, Owner, Record, Standing};
use crate::cli::Allocation;
use crate::cli::watchdog::Guard;
use crate::coordination::ledger::Ledger;
use crate::coordination::plan::Change;
use crate::coordination::settle;
use crate::device::{Identity, Inventory, Unit};
use crate::error::Error;
use crate::host::liveness::Liveness;
use crate::host::owner::{self, Form, Found};
use crate::notes::Notes;
use crate::policy::{self, Occupancy, Used};
use crate::visible::Seen;

pub(super) fn run(
    context: &Context<'_>,
    form: Form,
    options: &Allocation,
    notes: &mut Notes,
) -> Result<(), Error> {
    if options.amount == 0 {
        return Ok(());
    }
    // Before the lock: whoever does not read our answer is not to keep others waiting.
    context.stdout.ready(context.deadline)?;
    let coordinates = match form {
        Form::Discover => options.enable_coordination_mode,
        Form::Allocate | Form::DeallocateAll => !options.no_coordination,
    };
    let owner = if coordinates { Some(find_owner(context, form, options, notes)?) } else { None };
    let inventory = context.inventory(&options.source, notes)?;
    let (seen, units) = eligible(context, options, &inventory, notes)?;
    policy::can_ever_be_given(options.amount, units.len(), inventory.units().count())?;
    let kin = Kin::of(&context.host, &inventory, notes);
    let request =
        Request { form, options, inventory: &inventory, seen: &seen, units: &units, kin: kin.as_ref() };
    match owner {
        Some(owner) => request.coordinate(context, &owner, notes),
        None => request.first(context, notes),
    }
}

fn find_owner(
    context: &Context<'_>,
    form: Form,
    options: &Allocation,
    notes: &mut Notes,
) -> Result<Owner, Error> {
    let found = owner::find(&context.host, form, options.owner.owner, &context.surroundings.service, notes)?;
    match found {
        Found::Owner(owner) => Ok(owner),
        Found::Gone(_) | Found::Invocation(_) => {
            Err(Error::Owner("no process holds what is given".to_owned()))
        }
    }
}

/// A request, and what it may be given.
struct Request<'a> {
    form: Form,
    options: &'a Allocation,
    inventory: &'a Inventory,
    /// How the owner counts.
    seen: &'a Seen,
    units: &'a [Unit],
    /// `None`: who computes on a device is not considered.
    kin: Option<&'a Kin<'a>>,
}

impl Request<'_> {
    /// Without coordination: the first units, whoever else is told the same.
    fn first(&self, context: &Context<'_>, notes: &mut Notes) -> Result<(), Error> {
        let record = Record::default();
        // Nobody is an owner, but who asks is not to be kept from what it computes on already.
        let requester = self.options.skip_busy.then(|| self.options.owner.owner.unwrap_or_else(parent_id));
        let requester = requester.and_then(|pid| owner::of(&context.host, pid));
        let choice = Choice {
            inventory: self.inventory,
            record: &record,
            occupancy: &policy::occupancy(self.inventory, &record),
            standing: &|_| Standing::Alive,
            requester: requester.as_ref(),
            kin: self.kin,
        };
        let units = choice.make(&context.host, &self.asked(false, Used::GiveAsAny), notes)?;
        context.stdout.write(&self.answer(&units)?, context.deadline)
    }

    fn coordinate(&self, context: &Context<'_>, owner: &Owner, notes: &mut Notes) -> Result<(), Error> {
        let path = &self.options.file.coordination_file;
        let guard = context.guard(path);
        context.check_place(path, notes)?;
        let ledger = Ledger::open(&context.host, path, owner.uid, context.deadline)?;
        let (units, mut change) = self.decide(context, owner, &ledger, notes)?;
        let answer = self.answer(&units)?;
        change.granted = self.assignments(context, owner, &units);
        owner::recheck(&context.host, owner)?;
        if context.deadline.has_passed() {
            return Err(context.deadline.error("all that comes before the record is written"));
        }
        super::block_signals();
        guard.iter().for_each(|guard| guard.commits_for(owner.pid));
        let committed = ledger.commit(&change)?;
        guard.into_iter().for_each(Guard::call_off);
        // Under the lock still: what was not handed over is not recorded when the next caller reads.
        context.stdout.write(&answer, context.deadline).map_err(|error| committed.undo(error))
    }

    fn decide(
        &self,
        context: &Context<'_>,
        requester: &Owner,
        ledger: &Ledger,
        notes: &mut Notes,
    ) -> Result<(Vec<Unit>, Change), Error> {
        let record = ledger.record();
        let occupancy = policy::occupancy(self.inventory, record);
        warn(&occupancy, &self.options.file.coordination_file, notes);
        let liveness = Liveness::new(&context.host, ledger.facts());
        let standing = |position: usize| -> Standing {
            liveness.standing(&record.assignments[position], occupancy.is_here[position])
        };
        let takes_over = self.form == Form::Discover || self.options.check_dead;
        let choice = Choice {
            inventory: self.inventory,
            record,
            occupancy: &occupancy,
            standing: &standing,
            requester: Some(requester),
            kin: self.kin,
        };
        let units = choice.make(&context.host, &self.asked(takes_over, Used::GiveLast), notes)?;
        let owner = |pid| owner::of(&context.host, pid);
        Ok((units, settle::settle(record, takes_over, standing, owner, |index| self.identity(index))))
    }

    /// `in_use`: what is done with a device that others compute on, if nothing is said about it.
    fn asked(&self, takes_over: bool, in_use: Used) -> policy::Request<'_> {
        policy::Request {
            amount: self.options.amount,
            takes_over,
            includes_sick: self.options.include_unhealthy,
            in_use: if self.options.skip_busy { Used::Withhold } else { in_use },
            units: self.units,
        }
    }

    fn identity(&self, index: u32) -> Identity {
        let device = self.inventory.devices.iter().find(|device| device.index == index);
        device.map(|device| device.identity.clone()).unwrap_or_default()
    }

    fn assignments(&self, context: &Context<'_>, owner: &Owner, units: &[Unit]) -> Vec<Assignment> {
        let grant = Grant { id: settle::random(), of: u32::try_from(units.len()).unwrap_or(u32::MAX) };
        let since = settle::now();
        let assignment = |unit: &Unit| {
            let device = &self.inventory.devices[unit.device];
            Assignment {
                index: device.index,
                slot: unit.slot,
                identity: self.inventory.identity(unit).into_owned(),
                owner: owner.clone(),
                grant: Some(grant),
                since,
                invocation: context.surroundings.service.invocation().map(str::to_owned),
                cgroup: None,
                unknown: String::new(),
            }
        };
        units.iter().map(assignment).collect()
    }

    fn answer(&self, units: &[Unit]) -> Result<String, Error> {
        answer::line(self.inventory, units, self.seen, self.options.print)
    }
}

/// Lines that withhold a unit, each named: they stay until somebody looks at them.
fn warn(occupancy: &Occupancy<'_>, path: &std::path::Path, notes: &mut Notes) {
    let mut withheld: Vec<_> = occupancy.places.iter().filter_map(|place| place.withheld).collect();
    withheld.dedup();
    for line in withheld {
        notes.warn(format!(
            "{}:{}: {}, so that index {} is withheld; correct the line, or delete it if no process holds the unit",
            path.display(),
            line.line,
            line.problem,
            line.index
        ));
    }
}
