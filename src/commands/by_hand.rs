//! What an operator does to units by hand: which of them are meant, and the record of them.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::Context;
use super::judged::Judged;
use crate::assignment::{Drained, Record};
use crate::cli::ByHand;
use crate::coordination::ledger::Ledger;
use crate::coordination::plan::Change;
use crate::device::{Identity, Inventory, PciAddress, Relation, Unit};
use crate::error::Error;
use crate::notes::Notes;
use crate::policy::{self, Occupancy, Place};
use crate::selection::Selection;

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
        // It speaks of the option that takes such a list elsewhere.
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

    /// These units, and what the record says of each.
    pub(super) fn places<'o>(&self, occupancy: &'o Occupancy<'_>) -> Vec<&'o Place<'o>> {
        let units: HashSet<&Unit> = self.units.iter().collect();
        occupancy.places.iter().filter(|place| units.contains(&place.unit)).collect()
    }

    /// A device is drained with all its shares.
    pub(super) fn whole_units(&self) -> Vec<Unit> {
        let mut units: Vec<Unit> = self.units.iter().map(|unit| Unit { slot: None, ..*unit }).collect();
        units.dedup();
        units
    }

    /// Positions of what is drained of these units. Not every line is compared with every unit: there may be many of
    /// both.
    pub(super) fn drained(&self, record: &Record) -> Vec<usize> {
        let index = |unit: &Unit| self.inventory.devices[unit.device].index;
        let units: Vec<(u32, Cow<'_, Identity>)> =
            self.units.iter().map(|unit| (index(unit), self.inventory.identity(unit))).collect();
        let names: HashSet<Name<'_>> = units.iter().flat_map(|(_, identity)| names_of(identity)).collect();
        let mut by_index: HashMap<u32, Vec<&Identity>> = HashMap::new();
        for (index, identity) in &units {
            by_index.entry(*index).or_default().push(identity);
        }
        let is_meant = |Drained { index, identity, .. }: &Drained| {
            let mut of_index = by_index.get(index).into_iter().flatten();
            names_of(identity).any(|name| names.contains(&name))
                || of_index.any(|unit| unit.relation(identity) == Relation::Unknown)
        };
        (0..record.drained.len()).filter(|at| is_meant(&record.drained[*at])).collect()
    }

    /// Writes what is drained and undrained, and what has to go with every change.
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

/// One name of a device or an instance.
#[derive(PartialEq, Eq, Hash)]
enum Name<'a> {
    Uuid(&'a str),
    Pci(PciAddress),
    Id(&'a str),
}

fn names_of(Identity { uuid, pci, id }: &Identity) -> impl Iterator<Item = Name<'_>> {
    let uuid = uuid.as_deref().map(Name::Uuid);
    uuid.into_iter().chain(pci.map(Name::Pci)).chain(id.as_deref().map(Name::Id))
}
