//! `gpu-coord release`: frees units whose owners are dead or cannot be judged. A living owner keeps what it holds; the
//! other shares of a shared device are still freed.

use std::collections::{BTreeMap, BTreeSet};

use super::Context;
use super::by_hand::Hand;
use super::judged::Judged;
use super::remains::Remains;
use crate::assignment::{Assignment, Record, Standing};
use crate::cli::ByHand;
use crate::coordination::settle;
use crate::error::Error;
use crate::notes::Notes;
use crate::policy::{self, Place};

pub(super) fn run(context: &Context<'_>, options: &ByHand, notes: &mut Notes) -> Result<(), Error> {
    context.stdout.ready(context.deadline)?;
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
    let places = hand.places(&occupancy);
    let held: BTreeSet<usize> = places.iter().flat_map(|place| place.holders.iter().copied()).collect();
    if held.is_empty() {
        return nothing_to_release(&hand, &places, notes);
    }
    check_groups(context, record, &judged, &held)?;
    let is_alive = |position: &usize| judged.standing(*position) == Standing::Alive;
    let (living, freed): (BTreeSet<usize>, BTreeSet<usize>) = held.into_iter().partition(is_alive);
    check_living(record, &living, &freed)?;

    let mut change = judged.change(Some(&hand.inventory), false);
    change.release(freed.iter().copied().collect());
    change.regranted = rest_of_grants(record, &freed);
    let lines =
        |positions: &BTreeSet<usize>| positions.iter().map(|at| record.assignments[*at].clone()).collect();
    let (living, freed): (Vec<Assignment>, Vec<Assignment>) = (lines(&living), lines(&freed));
    notes.detail(format!("{} released", policy::units(freed.len() as u128)));
    context.check_strict(notes)?;
    super::block_signals();
    ledger.commit(&context.host, &change)?;
    context.note_by_hand(&freed, notes);
    let freed = freed.iter().map(|line| format!("released {}\n", line.told()));
    let kept = living.iter().map(|line| format!("kept {}, which is alive\n", line.told()));
    context.print(&freed.chain(kept).collect::<String>(), notes)
}

/// Says what else keeps the units from being granted, since no owner does.
fn nothing_to_release(hand: &Hand<'_>, places: &[&Place<'_>], notes: &mut Notes) -> Result<(), Error> {
    if let Some(withheld) = places.iter().find_map(|place| place.withheld) {
        return Err(Error::Refused(withheld.message(&hand.options.file.coordination_file)));
    }
    notes.warn(if places.iter().any(|place| place.drained.is_some()) {
        "nobody holds these units, and some are drained; `gpu-coord undrain` lets them be granted again"
    } else {
        "nobody holds these units"
    });
    Ok(())
}

/// Fails if processes in a control group can still open one of the units.
fn check_groups(
    context: &Context<'_>,
    record: &Record,
    judged: &Judged<'_>,
    held: &BTreeSet<usize>,
) -> Result<(), Error> {
    let standing = |position: usize| judged.standing(position);
    let remains = Remains::of(&context.host, record, &standing);
    if let Some(shared) = held.iter().find(|position| remains.is_open_to_the_living(**position)) {
        let Assignment { index, owner, .. } = &record.assignments[*shared];
        return Err(Error::Refused(format!(
            "device {index} is not released: what pid {} left is in the control group of a living owner, who \
             can open it; end that owner (`gpu-coord status` names it)",
            owner.pid
        )));
    }
    for position in held {
        if let Some(survivors) = remains.survivors(*position)? {
            let index = record.assignments[*position].index;
            return Err(Error::Refused(format!(
                "device {index} is not released: {survivors}, or release it with `gpu-coord reclaim --force`"
            )));
        }
    }
    Ok(())
}

/// Fails if there is a device of which nothing can be released, since living owners hold all that is meant.
fn check_living(record: &Record, living: &BTreeSet<usize>, freed: &BTreeSet<usize>) -> Result<(), Error> {
    let index = |position: &usize| record.assignments[*position].index;
    let freed: BTreeSet<u32> = freed.iter().map(index).collect();
    let is_kept_whole = |position: &&usize| !freed.contains(&index(position));
    let Some(position) = living.iter().find(is_kept_whole) else { return Ok(()) };
    let Assignment { index, owner, .. } = &record.assignments[*position];
    let pid = owner.pid;
    Err(Error::Refused(format!(
        "device {index} is held by pid {pid}, which is alive; end it, or give back what it holds with `gpu-coord \
         deallocateAll --owner {pid}`"
    )))
}

/// The lines of a grant hold all together or not at all, so those that are not released are rewritten under a new grant.
fn rest_of_grants(record: &Record, freed: &BTreeSet<usize>) -> Vec<(usize, Assignment)> {
    let mut rests: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (line, with) in record.bound(0..record.assignments.len(), freed) {
        if !freed.contains(&line) {
            rests.entry(with).or_default().push(line);
        }
    }
    let anew = rests.into_values().flat_map(|lines| {
        let grant = Some(settle::grant(lines.len()));
        lines.into_iter().map(move |at| (at, grant))
    });
    anew.map(|(at, grant)| (at, Assignment { grant, ..record.assignments[at].clone() })).collect()
}
