//! `gpu-coord drain` and `gpu-coord undrain`.

use nix::unistd::getuid;

use super::Context;
use super::by_hand::{DrainedHere, Hand};
use crate::assignment::Drained;
use crate::cli::ByHand;
use crate::coordination::ledger::Ledger;
use crate::coordination::plan::Change;
use crate::coordination::settle;
use crate::device::Unit;
use crate::error::Error;
use crate::notes::Notes;

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
    let undrained = hand.drained(ledger.record()).alone;
    let since = settle::now();
    let drained = |unit: &Unit| Drained {
        index: hand.inventory.devices[unit.device].index,
        identity: hand.inventory.identity(unit).into_owned(),
        uid: Some(getuid().as_raw()),
        since,
        reason: reason.to_owned(),
    };
    let drained: Vec<Drained> = hand.whole_units().iter().map(drained).collect();
    context.check_strict(notes)?;
    hand.commit(ledger, Change { drained: drained.clone(), undrained, ..Change::default() })?;
    context.note_drained(&drained, notes);
    Ok(())
}

/// Lets units be granted again.
pub(super) fn undrain(context: &Context<'_>, options: &ByHand, notes: &mut Notes) -> Result<(), Error> {
    let hand = Hand::of(context, options, notes)?;
    let _guard = context.guard(&options.file.coordination_file);
    let ledger = hand.ledger(notes)?;
    let drained = ledger.as_ref().map(|ledger| hand.drained(ledger.record())).unwrap_or_default();
    let DrainedHere { alone: undrained, with_others } = drained;
    if !with_others.is_empty() {
        let devices: Vec<String> = with_others.iter().map(u32::to_string).collect();
        let all = devices.join(",");
        return Err(Error::Refused(format!(
            "what is drained of these units is drained together with others of device {all}; let go of all of it \
             with `gpu-coord undrain {all}`"
        )));
    }
    let Some(ledger) = ledger.filter(|_| !undrained.is_empty()) else {
        notes.warn("none of these units is drained; `gpu-coord status` shows which are");
        return Ok(());
    };
    let drained: Vec<Drained> = undrained.iter().map(|at| ledger.record().drained[*at].clone()).collect();
    context.check_strict(notes)?;
    hand.commit(ledger, Change { undrained, ..Change::default() })?;
    context.note_undrained(&drained, notes);
    Ok(())
}
