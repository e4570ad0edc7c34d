//! `gpu-coord AMOUNT` and `gpu-coord allocate AMOUNT`.

use super::{Context, answer};
use crate::assignment::{Assignment, Grant, Owner, Standing};
use crate::cli::Allocation;
use crate::coordination::ledger::Ledger;
use crate::coordination::plan::Change;
use crate::coordination::settle;
use crate::device::{Identity, Inventory, Unit};
use crate::error::Error;
use crate::host::liveness::Liveness;
use crate::host::owner::{self, Form, Found};
use crate::inventory::Source;
use crate::notes::Notes;
use crate::policy::{self, Occupancy};
use crate::visible::visible;

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
    let seen = visible(&inventory, seen_by(context, options, notes).as_deref());
    policy::can_ever_be_given(options.amount, policy::count(&inventory, &seen))?;
    let request = Request { form, options, inventory: &inventory, seen: &seen };
    match owner {
        Some(owner) => request.coordinate(context, &owner, notes),
        None => request.first(context),
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

/// The owner's `CUDA_VISIBLE_DEVICES`, which decides how its CUDA counts; ours is inherited from it.
/// An inventory file describes devices of any kind, which CUDA does not count.
fn seen_by(context: &Context<'_>, options: &Allocation, notes: &mut Notes) -> Option<String> {
    if matches!(options.source.source, Source::File(_)) {
        return None;
    }
    let Some(pid) = options.owner.owner else { return context.surroundings.cuda_visible_devices.clone() };
    match context.host.environment(pid) {
        Ok(variables) => variables
            .into_iter()
            .find(|(name, _)| name == "CUDA_VISIBLE_DEVICES")
            .map(|(_, value)| value.to_string_lossy().into_owned()),
        Err(error) => {
            notes.warn(format!(
                "cannot read the environment of pid {pid} ({error}); if CUDA_VISIBLE_DEVICES is set there, take \
                 identities (--print uuid) and not indexes"
            ));
            None
        }
    }
}

/// A request, and the devices that its owner sees.
struct Request<'a> {
    form: Form,
    options: &'a Allocation,
    inventory: &'a Inventory,
    seen: &'a [usize],
}

impl Request<'_> {
    /// Without coordination: the first units, whoever else is told the same.
    fn first(&self, context: &Context<'_>) -> Result<(), Error> {
        let units = policy::sound_units(self.inventory, self.seen);
        policy::can_ever_be_given(self.options.amount, units.len())?;
        let amount = usize::try_from(self.options.amount).unwrap_or(usize::MAX);
        context.stdout.write(&self.answer(&units[..amount])?, context.deadline)
    }

    fn coordinate(&self, context: &Context<'_>, owner: &Owner, notes: &mut Notes) -> Result<(), Error> {
        let path = &self.options.file.coordination_file;
        let _guard = context.guard(path);
        context.check_place(path, notes)?;
        let mut ledger = Ledger::open(&context.host, path, owner.uid, context.deadline)?;
        let (units, mut change) = self.decide(context, &ledger, notes)?;
        let answer = self.answer(&units)?;
        change.granted = self.assignments(context, owner, &units);
        owner::recheck(&context.host, owner)?;
        if context.deadline.has_passed() {
            return Err(context.deadline.error("all that comes before the record is written"));
        }
        super::block_signals();
        ledger.commit(&change)?;
        // Under the lock still: what was not handed over is not recorded when the next caller reads.
        context.stdout.write(&answer, context.deadline).map_err(|error| ledger.undo(&change, error))
    }

    fn decide(
        &self,
        context: &Context<'_>,
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
        let request = policy::Request { amount: self.options.amount, takes_over, devices: self.seen };
        let units = policy::grant(self.inventory, record, &occupancy.places, &standing, &request)?;
        let owner = |pid| owner::of(&context.host, pid);
        Ok((units, settle::settle(record, takes_over, standing, owner, |index| self.identity(index))))
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
        answer::line(self.inventory, units, self.seen, self.options.print, self.counts_what_is_seen())
    }

    /// Without a variable that hides devices, the owner counts as the vendor's tool does.
    fn counts_what_is_seen(&self) -> bool {
        !self.seen.iter().enumerate().all(|(position, device)| position == *device)
            || self.seen.len() != self.inventory.devices.len()
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
