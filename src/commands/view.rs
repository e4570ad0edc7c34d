//! What `gpu-coord status` shows, and its JSON.

mod rows;

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::Path;

use serde::Serialize;

use super::json::{DeviceJson, ElsewhereJson, HoldingJson, IdentityJson, OwnerJson, UnitJson};
use super::quota::{Sum, Sums};
use super::{eligible, json};
use crate::assignment::{Assignment, Waiter};
use crate::cli::Terminal;
use crate::device::Device;
use crate::error::Error;
use crate::host::Host;
use crate::host::account::Accounts;
use crate::notes::Notes;
use crate::policy::{Holdings, InUse, Place, State};
use crate::selection::Selection;
use crate::sharing::Resources;

/// Everything that is shown.
pub(super) struct View<'a> {
    pub(super) host: &'a Host,
    /// The names of users.
    pub(super) accounts: &'a Accounts,
    pub(super) holdings: Holdings<'a>,
    pub(super) resources: &'a Resources,
    pub(super) sums: Sums,
    pub(super) selection: &'a Selection,
    /// `None`: it is not known who computes on a device.
    pub(super) in_use: Option<InUse<'a>>,
    /// The terminal on which a table is shown, if any.
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

    /// The holders of a unit, each once: living ones first, and those that asked inside `exec` before its command.
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

    pub(super) fn as_json(&self, path: &Path, notes: &Notes) -> Result<String, Error> {
        let inventory = self.holdings.inventory;
        let others: Vec<Option<Vec<u32>>> =
            inventory.devices.iter().enumerate().map(|(at, device)| self.others(at, device)).collect();
        let units = |device: usize| {
            let places = self.holdings.occupancy.of_device(device).iter();
            let shown = places.filter(|place| self.selection.takes(&place.unit));
            shown.map(|place| self.unit(place, others[device].as_deref())).collect()
        };
        let devices = eligible::shown(inventory, self.selection).into_iter();
        let fields = StatusJson {
            coordination_file: path.to_string_lossy(),
            source: &inventory.source,
            devices: devices.map(|(at, device)| DeviceJson::of(device, units(at))).collect(),
            elsewhere: self.elsewhere().into_iter().map(|at| self.assignment(at)).collect(),
            namespaces: self.sums.namespaces.iter().map(NamespaceJson::of).collect(),
            users: self.sums.users.iter().map(UserJson::of).collect(),
            waiters: self.holdings.record.waiters.iter().map(WaiterJson::of).collect(),
        };
        json::document(self.host, Some(inventory), fields, notes)
    }

    fn assignment(&self, at: usize) -> ElsewhereJson<'_> {
        let Assignment { index, slot, identity, .. } = &self.holdings.record.assignments[at];
        let (identity, owner) = (IdentityJson::of(identity), self.owner(at));
        ElsewhereJson { index: *index, slot: *slot, identity, owner }
    }

    fn owner(&self, at: usize) -> OwnerJson<'_> {
        let assignment = &self.holdings.record.assignments[at];
        OwnerJson::of(self.host, self.accounts, assignment, (self.holdings.standing)(at))
    }

    /// Pids of processes that compute on a device without holding it; `None` if not known.
    fn others(&self, at: usize, device: &Device) -> Option<Vec<u32>> {
        device.processes.as_ref()?;
        Some(self.in_use.as_ref()?.by_others(at))
    }

    fn unit<'v>(&'v self, place: &Place<'v>, others: Option<&'v [u32]>) -> UnitJson<'v> {
        let mut owners = self.holders(place).into_iter().map(|at| self.owner(at));
        let holding = HoldingJson {
            resource: self.resources.name(&place.unit),
            state: self.holdings.state(place).name(),
            reason: self.reason(place),
            in_use_by_others: others,
            owner: owners.next(),
            other_owners: owners.collect(),
        };
        UnitJson::of(self.holdings.inventory, &place.unit, Some(holding))
    }

    /// Why a unit is not given although no process holds it.
    fn reason<'v>(&'v self, place: &Place<'v>) -> Option<&'v str> {
        match self.holdings.state(place) {
            State::Withheld => place.withheld.map(|withheld| withheld.problem.as_str()),
            State::Drained => place.drained.map(|drained| drained.reason.as_str()),
            State::Sick => self.holdings.inventory.devices[place.unit.device].health.reason(),
            State::Free | State::Stale | State::Held | State::Unknown => None,
        }
    }
}

#[derive(Serialize)]
struct StatusJson<'a> {
    coordination_file: Cow<'a, str>,
    source: &'a str,
    devices: Vec<DeviceJson<'a>>,
    elsewhere: Vec<ElsewhereJson<'a>>,
    namespaces: Vec<NamespaceJson<'a>>,
    users: Vec<UserJson<'a>>,
    waiters: Vec<WaiterJson>,
}

/// What a namespace holds of a resource, and its quota.
#[derive(Serialize)]
struct NamespaceJson<'a> {
    namespace: &'a str,
    resource: &'a str,
    used: u64,
    limit: Option<u64>,
}

impl<'a> NamespaceJson<'a> {
    fn of(((namespace, resource), Sum { used, limit }): (&'a (String, String), &Sum)) -> NamespaceJson<'a> {
        NamespaceJson { namespace, resource, used: *used, limit: *limit }
    }
}

/// What a user who has a quota holds of its resource.
#[derive(Serialize)]
struct UserJson<'a> {
    user: &'a str,
    resource: &'a str,
    used: u64,
    limit: Option<u64>,
}

impl<'a> UserJson<'a> {
    fn of(((user, resource), Sum { used, limit }): (&'a (String, String), &Sum)) -> UserJson<'a> {
        UserJson { user, resource, used: *used, limit: *limit }
    }
}

#[derive(Serialize)]
struct WaiterJson {
    pid: u32,
    amount: u64,
    ticket: u64,
}

impl WaiterJson {
    fn of(Waiter { owner, amount, ticket, .. }: &Waiter) -> WaiterJson {
        WaiterJson { pid: owner.pid, amount: *amount, ticket: *ticket }
    }
}
