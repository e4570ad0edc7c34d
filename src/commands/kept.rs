//! Which lines of dead owners `reclaim` keeps, since processes of theirs may still use the devices, and why.

use std::collections::BTreeMap;

use super::kin::Kin;
use super::remains::Remains;
use crate::assignment::Assignment;
use crate::host::Host;
use crate::notes::Notes;
use crate::policy::{Holdings, Place};

/// What is needed to tell which lines to keep.
pub(super) struct Keeping<'a> {
    pub(super) host: &'a Host,
    pub(super) holdings: Holdings<'a>,
    pub(super) remains: &'a Remains<'a>,
    /// `None`: it is not known who computes on a device.
    pub(super) kin: Option<&'a Kin<'a>>,
}

impl Keeping<'_> {
    /// Those of the stale lines that are kept, each with the reason. With `is_forced`, only what a living owner can open
    /// is kept.
    pub(super) fn kept(
        &self,
        stale: &[usize],
        is_forced: bool,
        notes: &mut Notes,
    ) -> BTreeMap<usize, String> {
        let mut kept = BTreeMap::new();
        for position in stale.iter().copied() {
            let users = self.users(position);
            let line = &self.holdings.record.assignments[position];
            notes.warnings.extend((!users.is_empty()).then(|| self.computing(line, &users)));
            let reason = if self.remains.is_open_to_the_living(position) {
                Some("its control group is also that of a living owner".to_owned())
            } else if is_forced {
                None
            } else if self.remains.has_orphans(position) {
                Some("processes live on in its control group; --force releases it anyway".to_owned())
            } else {
                let users = (!users.is_empty())
                    .then_some("others compute on its device, and may be descendants of it");
                users.map(|users| format!("{users}; --force releases it anyway"))
            };
            kept.extend(reason.map(|reason| (position, reason)));
        }
        let bound = self.holdings.record.bound(stale.iter().copied(), &kept.keys().copied().collect());
        bound.into_iter().map(|(position, with)| (position, kept[&with].clone())).collect()
    }

    /// The processes that compute on the device of a line, belong to none of its owners, and may be descendants of the
    /// dead one.
    fn users(&self, position: usize) -> Vec<u32> {
        let Some(kin) = self.kin else { return Vec::new() };
        let in_use = kin.in_use(self.holdings, None);
        // Holders are in ascending order.
        let is_its = |place: &&Place<'_>| place.holders.binary_search(&position).is_ok();
        let places = self.holdings.occupancy.places.iter().filter(is_its);
        let mut devices: Vec<usize> = places.map(|place| place.unit.device).collect();
        devices.dedup();
        let owner = &self.holdings.record.assignments[position].owner;
        let is_later = |pid: &u32| self.has_started_since(*pid, owner.start);
        devices.into_iter().flat_map(|device| in_use.by_others(device)).filter(is_later).collect()
    }

    /// Whether the process may be younger than the owner: an older one is not a descendant.
    fn has_started_since(&self, pid: u32, start: Option<u64>) -> bool {
        let began = self.host.process(pid).ok().flatten().and_then(|process| process.start);
        began.zip(start).is_none_or(|(began, start)| began >= start)
    }

    fn computing(&self, line: &Assignment, pids: &[u32]) -> String {
        let compute = if pids.len() == 1 { "computes" } else { "compute" };
        format!(
            "pid {} {compute} on device {}, which pid {} held until it ended; end what is left of it",
            self.host.named(pids),
            line.index,
            line.owner.pid
        )
    }
}
