//! What `gpu-coord status` shows, and its JSON.

mod rows;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use serde_json::{Map, Value, json};

use super::quota::Sum;
use super::{eligible, json};
use crate::cli::Terminal;
use crate::device::Device;
use crate::host::Host;
use crate::host::account::Accounts;
use crate::notes::Notes;
use crate::policy::{Holdings, InUse, Place, State};
use crate::selection::Selection;
use crate::sharing::Resources;

/// All that is shown.
pub(super) struct View<'a> {
    pub(super) host: &'a Host,
    /// What users are called.
    pub(super) accounts: &'a Accounts,
    pub(super) holdings: Holdings<'a>,
    pub(super) resources: &'a Resources,
    /// By namespace and resource.
    pub(super) sums: BTreeMap<(String, String), Sum>,
    pub(super) selection: &'a Selection,
    /// `None`: it cannot be told who computes on a device.
    pub(super) in_use: Option<InUse<'a>>,
    /// What a table is shown on.
    pub(super) terminal: Option<Terminal>,
}

impl View<'_> {
    /// Positions of assignments that hold no unit of this host.
    fn elsewhere(&self) -> Vec<usize> {
        let mut is_shown = vec![false; self.holdings.record.assignments.len()];
        let holders = self.holdings.occupancy.places.iter().flat_map(|place| &place.holders);
        holders.for_each(|position| is_shown[*position] = true);
        (0..is_shown.len()).filter(|position| !is_shown[*position]).collect()
    }

    /// The holders of a unit, each once: the living first, and whoever asked inside of `exec` before its command.
    fn holders(&self, place: &Place<'_>) -> Vec<usize> {
        let line = |position: usize| &self.holdings.record.assignments[position];
        let mut holders = place.holders.clone();
        holders.sort_by_key(|position| {
            let is_taken = line(*position).origin.is_some_and(|origin| origin.is_taken);
            (self.holdings.is_dead(*position), !is_taken)
        });
        let mut owners = HashSet::new();
        holders.retain(|position| owners.insert(line(*position).owner.names()));
        holders
    }

    pub(super) fn as_json(&self, path: &Path, notes: &Notes) -> String {
        let units = |device: usize| {
            let others = self.others(device, &self.holdings.inventory.devices[device]);
            let places = self.holdings.occupancy.of_device(device).iter();
            let shown = places.filter(|place| self.selection.takes(&place.unit));
            shown.map(|place| self.unit(place, others.as_deref())).collect()
        };
        let devices = eligible::shown(self.holdings.inventory, self.selection).into_iter();
        let devices: Vec<Value> = devices.map(|(at, device)| json::device(device, units(at))).collect();
        let elsewhere = self.elsewhere().into_iter();
        let elsewhere = elsewhere.map(|at| {
            json::elsewhere(
                self.host,
                self.accounts,
                &self.holdings.record.assignments[at],
                (self.holdings.standing)(at),
            )
        });
        let waiters = self.holdings.record.waiters.iter();
        let waiters = waiters.map(
            |waiter| json!({ "pid": waiter.owner.pid, "amount": waiter.amount, "ticket": waiter.ticket }),
        );
        let mut fields = Map::new();
        fields.insert("coordination_file".to_owned(), json!(path.to_string_lossy()));
        fields.insert("source".to_owned(), json!(self.holdings.inventory.source));
        fields.insert("devices".to_owned(), json!(devices));
        fields.insert("elsewhere".to_owned(), elsewhere.collect());
        fields.insert("namespaces".to_owned(), self.namespaces());
        fields.insert("waiters".to_owned(), waiters.collect());
        json::document(self.host, Some(self.holdings.inventory), fields, notes)
    }

    /// What each namespace holds of each resource, and its quota.
    fn namespaces(&self) -> Value {
        let sum = |((namespace, resource), Sum { used, limit }): (&(String, String), &Sum)| json!({ "namespace": namespace, "resource": resource, "used": used, "limit": limit });
        self.sums.iter().map(sum).collect()
    }

    /// Pids of processes that compute on a device and hold nothing of it; `None` if it cannot be told.
    fn others(&self, at: usize, device: &Device) -> Option<Vec<u32>> {
        device.processes.as_ref()?;
        Some(self.in_use.as_ref()?.by_others(at))
    }

    fn unit(&self, place: &Place<'_>, others: Option<&[u32]>) -> Value {
        let owner = |at: &usize| {
            json::owner(
                self.host,
                self.accounts,
                &self.holdings.record.assignments[*at],
                (self.holdings.standing)(*at),
            )
        };
        let owners: Vec<Value> = self.holders(place).iter().map(owner).collect();
        let mut fields = Map::new();
        fields.insert("resource".to_owned(), json!(self.resources.name(&place.unit)));
        fields.insert("state".to_owned(), json!(self.holdings.state(place).name()));
        fields.insert("reason".to_owned(), json!(self.reason(place)));
        fields.insert("in_use_by_others".to_owned(), json!(others));
        fields.insert("owner".to_owned(), json!(owners.first()));
        fields.insert("other_owners".to_owned(), json!(owners.get(1..).unwrap_or_default()));
        json::unit(self.holdings.inventory, &place.unit, fields)
    }

    /// Why a unit is not given although no process holds it.
    fn reason(&self, place: &Place<'_>) -> Option<String> {
        match self.holdings.state(place) {
            State::Withheld => place.withheld.map(|withheld| withheld.problem.clone()),
            State::Drained => place.drained.map(|drained| drained.reason.clone()),
            State::Sick => {
                self.holdings.inventory.devices[place.unit.device].health.reason().map(str::to_owned)
            }
            State::Free | State::Stale | State::Held | State::Unknown => None,
        }
    }
}
