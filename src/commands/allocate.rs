//! `gpu-coord AMOUNT` and `gpu-coord allocate AMOUNT`.

use std::os::unix::process::parent_id;

use super::choice::Choice;
use super::eligible::eligible;
use super::isolation::{Isolation, Situation};
use super::kin::Kin;
use super::remains::Remains;
use super::{Context, answer, isolation};
use crate::assignment::{Assignment, Grant, Owner, Record, Standing};
use crate::cgroup::Confined;
use crate::cli::watchdog::Guard;
use crate::cli::{Allocation, Cgroup};
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
    if !coordinates && options.cgroup.is_some_and(|how| how != Cgroup::No) {
        return Err(Error::Usage(
            "--cgroup needs the record of who holds what: add --enable-coordination-mode, and leave \
             --no-coordination out"
                .to_owned(),
        ));
    }
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

/// What is given, and how.
struct Decision<'a> {
    units: Vec<Unit>,
    change: Change,
    /// `None`: the owner is not confined.
    isolation: Option<Isolation<'a>>,
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
            remains: &Remains::of(&context.host, &record),
        };
        let units = choice.make(&context.host, &self.asked(false, Used::GiveAsAny, false), notes)?;
        context.stdout.write(&self.answer(&units, self.seen)?, context.deadline)
    }

    fn coordinate(&self, context: &Context<'_>, owner: &Owner, notes: &mut Notes) -> Result<(), Error> {
        let path = &self.options.file.coordination_file;
        let guard = context.guard(path);
        context.check_place(path, notes)?;
        let ledger = Ledger::open(&context.host, path, owner.uid, context.deadline)?;
        let Decision { units, mut change, isolation } = self.decide(context, owner, &ledger, notes)?;
        // From here on a signal must not part what is done from what is recorded and answered.
        super::block_signals();
        let confined = self.confine(isolation, &units, notes)?;
        let undo = |error| match &confined {
            Some((_, confined)) => confined.undo(error),
            None => error,
        };
        let seen = confined.as_ref().map(|(isolation, _)| isolation.seen(&units));
        let prepared = self.answer(&units, seen.as_ref().unwrap_or(self.seen)).and_then(|answer| {
            let cgroup = confined.as_ref().map(|(_, confined)| confined.name());
            change.granted = self.assignments(context, owner, &units, cgroup.as_deref());
            owner::recheck(&context.host, owner)?;
            if context.deadline.has_passed() {
                return Err(context.deadline.error("all that comes before the record is written"));
            }
            Ok(answer)
        });
        let answer = prepared.map_err(undo)?;
        guard.iter().for_each(|guard| guard.commits_for(owner.pid));
        let committed = ledger.commit(&change).map_err(undo)?;
        guard.into_iter().for_each(Guard::call_off);
        // Under the lock still: what was not handed over is not recorded when the next caller reads.
        context.stdout.write(&answer, context.deadline).map_err(|error| undo(committed.undo(error)))
    }

    fn decide<'a>(
        &'a self,
        context: &'a Context<'_>,
        requester: &'a Owner,
        ledger: &Ledger,
        notes: &mut Notes,
    ) -> Result<Decision<'a>, Error> {
        let record = ledger.record();
        let occupancy = policy::occupancy(self.inventory, record);
        warn(&occupancy, &self.options.file.coordination_file, notes);
        let liveness = Liveness::new(&context.host, ledger.facts());
        let standing = |position: usize| -> Standing {
            liveness.standing(&record.assignments[position], occupancy.is_here[position])
        };
        let situation =
            Situation { inventory: self.inventory, owner: requester, record, occupancy: &occupancy };
        let isolation = self.isolation(context, &situation, notes)?;
        let takes_over = self.form == Form::Discover || self.options.check_dead;
        let remains = Remains::of(&context.host, record);
        let choice = Choice {
            inventory: self.inventory,
            record,
            occupancy: &occupancy,
            standing: &standing,
            requester: Some(requester),
            kin: self.kin,
            remains: &remains,
        };
        let asked = self.asked(takes_over, Used::GiveLast, isolation.is_some());
        let units = choice.make(&context.host, &asked, notes)?;
        let owner = |pid| owner::of(&context.host, pid);
        let mut change = settle::settle(record, takes_over, standing, owner, |index| self.identity(index));
        if takes_over {
            remains.clear(self.inventory, &standing, notes);
        }
        // The record goes on naming a group until it is gone.
        change.stale.retain(|position| !remains.has_orphans(*position));
        Ok(Decision { units, change, isolation })
    }

    /// `None` if the owner is not to be confined, or if it was to be only at best.
    fn isolation<'a>(
        &'a self,
        context: &'a Context<'_>,
        situation: &Situation<'a, '_>,
        notes: &mut Notes,
    ) -> Result<Option<Isolation<'a>>, Error> {
        situation.check_not_inside_another(&context.host)?;
        if !isolation::is_wanted(self.options.cgroup, situation) {
            return Ok(None);
        }
        match Isolation::of(context, situation, self.options.cgroup) {
            Ok(isolation) => isolation.check_numbering(self.options, self.seen).map(|()| Some(isolation)),
            Err(error) => self.without(error, notes).map(|()| None),
        }
    }

    fn confine<'a>(
        &self,
        isolation: Option<Isolation<'a>>,
        units: &[Unit],
        notes: &mut Notes,
    ) -> Result<Option<(Isolation<'a>, Confined)>, Error> {
        let Some(isolation) = isolation else { return Ok(None) };
        match isolation.confine(units) {
            Ok(confined) => Ok(Some((isolation, confined))),
            Err(error) => self.without(error, notes).map(|()| None),
        }
    }

    /// Goes on without isolation, if it was asked for only at best.
    fn without(&self, error: Error, notes: &mut Notes) -> Result<(), Error> {
        let is_isolation = matches!(error, Error::Isolation(_));
        if self.options.cgroup != Some(Cgroup::BestEffort) || !is_isolation {
            return Err(error);
        }
        notes.warn(format!("the owner is not confined, and can open every device: {}", error.chain()));
        Ok(())
    }

    /// `in_use`: what is done with a device that others compute on, if nothing is said about it.
    fn asked(&self, takes_over: bool, in_use: Used, isolates: bool) -> policy::Request<'_> {
        policy::Request {
            amount: self.options.amount,
            takes_over,
            includes_sick: self.options.include_unhealthy,
            in_use: if self.options.skip_busy { Used::Withhold } else { in_use },
            isolates,
            units: self.units,
        }
    }

    fn identity(&self, index: u32) -> Identity {
        let device = self.inventory.devices.iter().find(|device| device.index == index);
        device.map(|device| device.identity.clone()).unwrap_or_default()
    }

    fn assignments(
        &self,
        context: &Context<'_>,
        owner: &Owner,
        units: &[Unit],
        cgroup: Option<&str>,
    ) -> Vec<Assignment> {
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
                cgroup: cgroup.map(str::to_owned),
                unknown: String::new(),
            }
        };
        units.iter().map(assignment).collect()
    }

    fn answer(&self, units: &[Unit], seen: &Seen) -> Result<String, Error> {
        answer::line(self.inventory, units, seen, self.options.print)
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
