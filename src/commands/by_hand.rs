//! What an operator does to units by hand: which units are meant, and their record.

use std::collections::{BTreeSet, HashSet};

use super::Context;
use super::judged::Judged;
use crate::assignment::Record;
use crate::cli::ByHand;
use crate::coordination::ledger::Ledger;
use crate::coordination::plan::Change;
use crate::device::{Inventory, Unit};
use crate::error::Error;
use crate::notes::Notes;
use crate::policy::{self, Occupancy, Place};
use crate::selection::Selection;

/// What is drained of some units.
#[derive(Default)]
pub(super) struct DrainedHere {
    /// Positions of what keeps these units and no others.
    pub(super) alone: Vec<usize>,
    /// The devices of what keeps some of them together with others.
    pub(super) with_others: BTreeSet<u32>,
}

/// What is meant.
pub(super) struct Hand<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) options: &'a ByHand,
    pub(super) inventory: Inventory,
    units: Vec<Unit>,
}

impl<'a> Hand<'a> {
    pub(super) fn of(
        context: &'a Context<'a>,
        options: &'a ByHand,
        notes: &mut Notes,
    ) -> Result<Hand<'a>, Error> {
        let (inventory, _) = context.inventory(&options.source, notes)?;
        // The message names the option that takes such a list in other commands.
        let wrong = |problem: String| Error::Usage(problem.replacen("--devices", "UNIT", 1));
        let selection = Selection::of(&inventory, Some(&options.units), None).map_err(wrong)?;
        let units = inventory.units().filter(|unit| selection.takes(unit)).collect();
        Ok(Hand { context, options, inventory, units })
    }

    /// `None` if there is no record.
    pub(super) fn ledger(&self, notes: &mut Notes) -> Result<Option<Ledger>, Error> {
        let path = &self.options.file.coordination_file;
        self.context.check_place(path, notes)?;
        Ledger::open_existing(&self.context.host, path, None, self.context.deadline)
    }

    /// These units, each with what the record says about it.
    pub(super) fn places<'o>(&self, occupancy: &'o Occupancy<'_>) -> Vec<&'o Place<'o>> {
        let units: HashSet<&Unit> = self.units.iter().collect();
        occupancy.places.iter().filter(|place| units.contains(&place.unit)).collect()
    }

    /// The units without slots: a device is drained with all its shares.
    pub(super) fn whole_units(&self) -> Vec<Unit> {
        let mut units: Vec<Unit> = self.units.iter().map(|unit| Unit { slot: None, ..*unit }).collect();
        units.dedup();
        units
    }

    /// What is drained of these units. A device that was drained whole may have been divided since.
    pub(super) fn drained(&self, record: &Record) -> DrainedHere {
        let units: HashSet<&Unit> = self.units.iter().collect();
        let mut here = DrainedHere::default();
        for (position, kept) in policy::kept_by_drains(&self.inventory, record).enumerate() {
            let meant = kept.iter().filter(|unit| units.contains(unit)).count();
            if meant > 0 && meant == kept.len() {
                here.alone.push(position);
            } else if meant > 0 {
                here.with_others.extend(kept.iter().map(|unit| self.inventory.devices[unit.device].index));
            }
        }
        here
    }

    /// Writes the change, together with what every change has to do.
    pub(super) fn commit(&self, ledger: Ledger, change: Change) -> Result<(), Error> {
        let record = ledger.record();
        let occupancy = policy::occupancy(&self.inventory, record);
        let judged = Judged::new(&self.context.host, record, ledger.facts(), Some(&occupancy));
        let Change { stale, settled, gone, .. } = judged.change(Some(&self.inventory), false);
        super::block_signals();
        ledger.commit(&self.context.host, &Change { stale, settled, gone, ..change })?;
        Ok(())
    }
}
