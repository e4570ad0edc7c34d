//! `drain`, `undrain` and `release`: what an operator does to units by hand.

use std::collections::HashMap;

use nix::unistd::getuid;

use super::Context;
use super::judged::Judged;
use super::remains::Remains;
use crate::assignment::{Assignment, Drained, Record, Standing};
use crate::cli::ByHand;
use crate::coordination::ledger::Ledger;
use crate::coordination::plan::Change;
use crate::coordination::settle;
use crate::device::{Inventory, Relation, Unit};
use crate::error::Error;
use crate::notes::Notes;
use crate::policy::{self, Occupancy};
use crate::selection::Selection;

/// What is meant, and the record under its lock.
struct Hand<'a> {
    context: &'a Context<'a>,
    options: &'a ByHand,
    inventory: Inventory,
    units: Vec<Unit>,
}

/// Keeps units from being granted, whoever holds them now.
pub(super) fn drain(
    context: &Context<'_>,
    options: &ByHand,
    reason: &str,
    notes: &mut Notes,
) -> Result<(), Error> {
    let hand = Hand::of(context, options, notes)?;
    let path = &options.file.coordination_file;
    let _guard = context.guard(path);
    context.check_place(path, notes)?;
    let ledger = Ledger::open(&context.host, path, None, context.deadline)?;
    // What is drained already is so for another reason from now on.
    let undrained = hand.drained(ledger.record());
    let since = settle::now();
    let drained = |unit: &Unit| Drained {
        index: hand.inventory.devices[unit.device].index,
        identity: hand.inventory.identity(unit).into_owned(),
        uid: Some(getuid().as_raw()),
        since,
        reason: reason.to_owned(),
    };
    let change =
        Change { drained: hand.whole_units().iter().map(drained).collect(), undrained, ..Change::default() };
    let drained = change.drained.clone();
    context.check_strict(notes)?;
    hand.commit(ledger, change)?;
    context.note_drained(&drained, notes);
    Ok(())
}

pub(super) fn undrain(context: &Context<'_>, options: &ByHand, notes: &mut Notes) -> Result<(), Error> {
    let hand = Hand::of(context, options, notes)?;
    let _guard = context.guard(&options.file.coordination_file);
    let ledger = hand.ledger(notes)?;
    let undrained = ledger.as_ref().map(|ledger| hand.drained(ledger.record())).unwrap_or_default();
    match ledger {
        Some(ledger) if !undrained.is_empty() => {
            let drained: Vec<Drained> =
                undrained.iter().map(|at| ledger.record().drained[*at].clone()).collect();
            context.check_strict(notes)?;
            hand.commit(ledger, Change { undrained, ..Change::default() })?;
            context.note_undrained(&drained, notes);
            Ok(())
        }
        _ => {
            notes.warn("none of these units is drained; `gpu-coord status` shows which are");
            Ok(())
        }
    }
}

/// Frees what is recorded of units whose owners are dead, or cannot be judged. A living owner keeps what it has: of a
/// shared device the others' shares are freed all the same.
pub(super) fn release(context: &Context<'_>, options: &ByHand, notes: &mut Notes) -> Result<(), Error> {
    let hand = Hand::of(context, options, notes)?;
    let _guard = context.guard(&options.file.coordination_file);
    let Some(ledger) = hand.ledger(notes)? else {
        let path = options.file.coordination_file.display();
        notes.warn(format!("nobody holds these units: there is no {path}"));
        return Ok(());
    };
    let record = ledger.record();
    let occupancy = policy::occupancy(&hand.inventory, record);
    let judged = Judged::new(&context.host, record, ledger.facts(), Some(&occupancy));
    let places = occupancy.places.iter().filter(|place| hand.units.contains(&place.unit));
    let mut released: Vec<usize> = places.flat_map(|place| place.holders.iter().copied()).collect();
    released.sort_unstable();
    released.dedup();
    if released.is_empty() {
        return nothing_to_release(&hand, &occupancy, notes);
    }
    let standing = |position: usize| judged.standing(position);
    let remains = Remains::of(&context.host, record, &standing);
    if let Some(shared) = released.iter().find(|position| remains.is_open_to_the_living(**position)) {
        let Assignment { index, owner, .. } = &record.assignments[*shared];
        return Err(Error::Refused(format!(
            "device {index} is not released: what pid {} left is in the control group of a living owner, who can open \
             it; end that owner (`gpu-coord status` names it)",
            owner.pid
        )));
    }
    if let Some(orphaned) = released.iter().find(|position| remains.has_orphans(**position)) {
        remains.name(*orphaned, notes)?;
        let index = record.assignments[*orphaned].index;
        let alive = notes.warnings.pop().unwrap_or_default();
        return Err(Error::Refused(format!(
            "device {index} is not released: {alive}, or release it with `gpu-coord reclaim --force`"
        )));
    }
    let is_alive = |position: &usize| judged.standing(*position) == Standing::Alive;
    let index = |position: &usize| record.assignments[*position].index;
    let living: Vec<usize> = released.iter().copied().filter(is_alive).collect();
    released.retain(|position| !living.contains(position));
    let freed: Vec<u32> = released.iter().map(index).collect();
    if let Some(living) = living.iter().find(|position| !freed.contains(&index(position))) {
        return Err(kept(&record.assignments[*living]));
    }
    let mut change = judged.change(Some(&hand.inventory), false);
    change.stale.retain(|position| !released.contains(position));
    change.settled.retain(|(position, _)| !released.contains(position));
    change.passed = rest_of_grants(record, &released);
    let left = |position: &usize| {
        let line = &record.assignments[*position];
        format!("kept index {} of pid {}, which lives\n", line.unit(), line.owner.pid)
    };
    let left: String = living.iter().map(left).collect();
    let given_back: Vec<Assignment> = released.iter().map(|at| record.assignments[*at].clone()).collect();
    notes.detail(format!("{} released", policy::units(released.len() as u128)));
    change.released = released;
    context.check_strict(notes)?;
    super::block_signals();
    ledger.commit(&context.host, &change)?;
    context.note_by_hand(&given_back, notes);
    let line = |line: &Assignment| format!("released index {} of pid {}\n", line.unit(), line.owner.pid);
    let done: String = given_back.iter().map(line).collect();
    context.print(&(done + &left), notes)
}

/// What keeps a unit is told, if it is no owner.
fn nothing_to_release(hand: &Hand<'_>, occupancy: &Occupancy<'_>, notes: &mut Notes) -> Result<(), Error> {
    let mut places = occupancy.places.iter().filter(|place| hand.units.contains(&place.unit));
    if let Some(withheld) = places.clone().find_map(|place| place.withheld) {
        return Err(Error::Refused(withheld.message(&hand.options.file.coordination_file)));
    }
    notes.warn(if places.any(|place| place.drained.is_some()) {
        "nobody holds these units, and some are drained; `gpu-coord undrain` lets them be granted again"
    } else {
        "nobody holds these units"
    });
    Ok(())
}

/// All lines of a grant hold or none, so that those that are not released are written anew.
fn rest_of_grants(record: &Record, released: &[usize]) -> Vec<(usize, Assignment)> {
    let mut anew: HashMap<u64, Vec<usize>> = HashMap::new();
    let ids: Vec<u64> =
        released.iter().filter_map(|at| record.assignments[*at].grant).map(|grant| grant.id).collect();
    for (at, line) in record.assignments.iter().enumerate() {
        let id = line.grant.map(|grant| grant.id).filter(|id| ids.contains(id) && !released.contains(&at));
        anew.entry(id.unwrap_or_default()).or_default().extend(id.map(|_| at));
    }
    let lines = anew.into_values().filter(|positions| !positions.is_empty()).flat_map(|positions| {
        let grant = settle::grant(positions.len());
        positions.into_iter().map(move |at| (at, grant))
    });
    lines
        .map(|(at, grant)| (at, Assignment { grant: Some(grant), ..record.assignments[at].clone() }))
        .collect()
}

fn kept(assignment: &Assignment) -> Error {
    let Assignment { index, owner, .. } = assignment;
    let pid = owner.pid;
    Error::Refused(format!(
        "device {index} is held by pid {pid}, which lives; end it, or let it give back what it has with `gpu-coord \
         deallocateAll --owner {pid}`"
    ))
}

impl<'a> Hand<'a> {
    fn of(context: &'a Context<'a>, options: &'a ByHand, notes: &mut Notes) -> Result<Hand<'a>, Error> {
        let (inventory, _) = context.inventory(&options.source, notes)?;
        // It speaks of the option that takes such a list elsewhere.
        let wrong = |problem: String| Error::Usage(problem.replacen("--devices", "UNIT", 1));
        let selection = Selection::of(&inventory, Some(&options.units), None).map_err(wrong)?;
        let units = inventory.units().filter(|unit| selection.takes(unit)).collect();
        Ok(Hand { context, options, inventory, units })
    }

    fn ledger(&self, notes: &mut Notes) -> Result<Option<Ledger>, Error> {
        let path = &self.options.file.coordination_file;
        self.context.check_place(path, notes)?;
        Ledger::open_existing(&self.context.host, path, None, self.context.deadline)
    }

    /// A device is drained with all its shares.
    fn whole_units(&self) -> Vec<Unit> {
        let mut units: Vec<Unit> = self.units.iter().map(|unit| Unit { slot: None, ..*unit }).collect();
        units.dedup();
        units
    }

    /// Positions of what is drained of these units.
    fn drained(&self, record: &Record) -> Vec<usize> {
        let is_meant = |drained: &Drained| {
            self.units.iter().any(|unit| {
                let device = &self.inventory.devices[unit.device];
                match self.inventory.identity(unit).relation(&drained.identity) {
                    Relation::Same => true,
                    Relation::Different => false,
                    Relation::Unknown => device.index == drained.index,
                }
            })
        };
        (0..record.drained.len()).filter(|at| is_meant(&record.drained[*at])).collect()
    }

    fn commit(&self, ledger: Ledger, change: Change) -> Result<(), Error> {
        let record = ledger.record();
        let occupancy = policy::occupancy(&self.inventory, record);
        let judged = Judged::new(&self.context.host, record, ledger.facts(), Some(&occupancy));
        let Change { stale, settled, gone, .. } = judged.change(Some(&self.inventory), false);
        super::block_signals();
        ledger.commit(&self.context.host, &Change { stale, settled, gone, ..change })?;
        Ok(())
    }
}
