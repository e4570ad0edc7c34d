//! Choosing the units: the record, the devices and their processes are put before the policy.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use super::kin::Kin;
use super::remains::Remains;
use crate::assignment::Owner;
use crate::device::{Health, Part, Unit};
use crate::error::Error;
use crate::host::Host;
use crate::notes::Notes;
use crate::policy::{Holdings, Situation, Wanted};

/// What is known, and who asks.
pub(super) struct Choice<'a> {
    pub(super) holdings: Holdings<'a>,
    pub(super) requester: Option<&'a Owner>,
    /// `None`: who computes on a device is not considered.
    pub(super) kin: Option<&'a Kin<'a>>,
    pub(super) remains: &'a Remains<'a>,
}

impl Choice<'_> {
    /// The units, and a warning for each questionable device among theirs.
    pub(super) fn make(
        &self,
        host: &Host,
        request: &Wanted<'_>,
        notes: &mut Notes,
    ) -> Result<Vec<Unit>, Error> {
        let known: RefCell<HashMap<usize, Vec<u32>>> = RefCell::default();
        let others = |device: usize| -> Vec<u32> {
            known.borrow_mut().entry(device).or_insert_with(|| self.others(device)).clone()
        };
        let situation = Situation {
            holdings: self.holdings,
            is_in_use: &|device| !others(device).is_empty(),
            has_orphans: &|position| self.remains.has_orphans(position),
        };
        let units = situation.grant(request)?;
        for device in units.iter().map(|unit| unit.device).collect::<BTreeSet<usize>>() {
            notes.warnings.extend(self.sick(device));
            // If the policy has not asked, it does not matter to this request.
            let pids = known.borrow().get(&device).cloned().unwrap_or_default();
            notes.warnings.extend(self.in_use(host, device, &pids));
        }
        notes.warnings.extend(self.several_instances(&units));
        notes.warnings.extend(self.open_to_others(&units));
        Ok(units)
    }

    /// CUDA uses only one instance, however many it can see.
    fn several_instances(&self, units: &[Unit]) -> Option<String> {
        let Holdings { record, occupancy, .. } = self.holdings;
        let is_own = |holder: &usize| {
            self.requester.is_some_and(|requester| record.assignments[*holder].owner.is(requester))
        };
        let places = occupancy.places.iter().filter(|place| place.holders.iter().any(is_own));
        let all = units.iter().chain(places.map(|place| &place.unit));
        let given = units.iter().filter(|unit| unit.instance.is_some()).count();
        let instances: BTreeSet<Part> = all.map(Unit::part).filter(|part| part.instance.is_some()).collect();
        (given > 0 && instances.len() > 1).then(|| {
            format!(
                "{} MIG instances for one owner, but CUDA uses only one of them: ask for 1, or for a larger profile",
                instances.len()
            )
        })
    }

    /// A warning for each line of a dead owner whose group is also that of a living owner.
    fn open_to_others(&self, units: &[Unit]) -> BTreeSet<String> {
        let places = self.holdings.occupancy.places.iter().filter(|place| units.contains(&place.unit));
        let holders = places.flat_map(|place| place.holders.iter().copied());
        let stale = holders.filter(|position| self.holdings.is_dead(*position));
        stale.filter_map(|position| self.remains.open_to(position)).collect()
    }

    fn others(&self, device: usize) -> Vec<u32> {
        self.kin.map(|kin| kin.in_use(self.holdings, self.requester).by_others(device)).unwrap_or_default()
    }

    fn sick(&self, device: usize) -> Option<String> {
        let device = &self.holdings.inventory.devices[device];
        match &device.health {
            Health::Sick(why) => Some(format!("device {} is given although it is sick: {why}", device.index)),
            Health::Sound | Health::Lost(_) => None,
        }
    }

    fn in_use(&self, host: &Host, device: usize, pids: &[u32]) -> Option<String> {
        let verb = match pids {
            [] => return None,
            [_] => "does",
            _ => "do",
        };
        Some(format!(
            "device {} is given although it is in use by pid {}, which {verb} not hold it",
            self.holdings.inventory.devices[device].index,
            host.named(pids)
        ))
    }
}
