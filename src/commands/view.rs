//! What `gpu-coord status` shows, as a table and as JSON.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::quota::Sum;
use super::table::{Paint, table};
use super::{eligible, isolation, json};
use crate::assignment::{Assignment, Owner, Record, Standing, Waiter};
use crate::cli::Terminal;
use crate::device::{Device, Inventory};
use crate::host::Host;
use crate::notes::Notes;
use crate::policy::{InUse, Occupancy, Place, State};
use crate::selection::Selection;
use crate::sharing::Resources;

/// All that is shown.
pub(super) struct View<'a> {
    pub(super) host: &'a Host,
    pub(super) inventory: &'a Inventory,
    pub(super) resources: &'a Resources,
    /// By namespace and resource.
    pub(super) sums: BTreeMap<(String, String), Sum>,
    pub(super) selection: &'a Selection,
    pub(super) record: &'a Record,
    pub(super) occupancy: &'a Occupancy<'a>,
    pub(super) standing: &'a dyn Fn(usize) -> Standing,
    /// `None`: it cannot be told who computes on a device.
    pub(super) in_use: Option<InUse<'a>>,
    /// What a table is shown on.
    pub(super) terminal: Option<Terminal>,
}

/// What is free is green, what wants somebody's eye yellow, what is broken red.
const STATES: Paint = Paint {
    column: 2,
    colour: |cell| match cell.split([':', ' ']).next() {
        Some("free") => Some(32),
        Some("stale" | "unknown" | "drained" | "not") => Some(33),
        Some("sick" | "withheld") => Some(31),
        _ => None,
    },
};

impl View<'_> {
    /// Positions of assignments that hold no unit of this host.
    fn elsewhere(&self) -> Vec<usize> {
        let mut is_shown = vec![false; self.record.assignments.len()];
        let holders = self.occupancy.places.iter().flat_map(|place| &place.holders);
        holders.for_each(|position| is_shown[*position] = true);
        (0..is_shown.len()).filter(|position| !is_shown[*position]).collect()
    }

    /// The holders of a unit, each once: the living first, and whoever asked inside of `exec` before its command.
    fn holders(&self, place: &Place<'_>) -> Vec<usize> {
        let line = |position: usize| &self.record.assignments[position];
        let mut holders = place.holders.clone();
        holders.sort_by_key(|position| {
            let is_taken = line(*position).origin.is_some_and(|origin| origin.is_taken);
            ((self.standing)(*position) == Standing::Dead, !is_taken)
        });
        let mut owners: Vec<&Owner> = Vec::new();
        holders.retain(|position| {
            let owner = &line(*position).owner;
            let is_new = !owners.iter().any(|other| other.is(owner));
            owners.push(owner);
            is_new
        });
        holders
    }

    pub(super) fn as_json(&self, path: &Path, notes: &Notes) -> String {
        let units = |device: usize| {
            let others = self.others(device, &self.inventory.devices[device]);
            let places = self.occupancy.of_device(device).iter();
            let shown = places.filter(|place| self.selection.takes(&place.unit));
            shown.map(|place| self.unit(place, others.as_deref())).collect()
        };
        let devices = eligible::shown(self.inventory, self.selection).into_iter();
        let devices: Vec<Value> = devices.map(|(at, device)| json::device(device, units(at))).collect();
        let elsewhere = self.elsewhere().into_iter();
        let elsewhere =
            elsewhere.map(|at| json::elsewhere(self.host, &self.record.assignments[at], (self.standing)(at)));
        let waiters = self.record.waiters.iter();
        let waiters = waiters.map(
            |waiter| json!({ "pid": waiter.owner.pid, "amount": waiter.amount, "ticket": waiter.ticket }),
        );
        let mut fields = Map::new();
        fields.insert("coordination_file".to_owned(), json!(path.to_string_lossy()));
        fields.insert("source".to_owned(), json!(self.inventory.source));
        fields.insert("devices".to_owned(), json!(devices));
        fields.insert("elsewhere".to_owned(), elsewhere.collect());
        fields.insert("namespaces".to_owned(), self.namespaces());
        fields.insert("waiters".to_owned(), waiters.collect());
        json::document(self.host, Some(self.inventory), fields, notes)
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
        let owner = |at: &usize| json::owner(self.host, &self.record.assignments[*at], (self.standing)(*at));
        let owners: Vec<Value> = self.holders(place).iter().map(owner).collect();
        let mut fields = Map::new();
        fields.insert("resource".to_owned(), json!(self.resources.name(&place.unit)));
        fields.insert("state".to_owned(), json!(place.state(self.inventory, self.standing).name()));
        fields.insert("reason".to_owned(), json!(self.reason(place)));
        fields.insert("in_use_by_others".to_owned(), json!(others));
        fields.insert("owner".to_owned(), json!(owners.first()));
        fields.insert("other_owners".to_owned(), json!(owners.get(1..).unwrap_or_default()));
        json::unit(self.inventory, &place.unit, fields)
    }

    /// Why a unit is not given although no process holds it.
    fn reason(&self, place: &Place<'_>) -> Option<String> {
        match place.state(self.inventory, self.standing) {
            State::Withheld => place.withheld.map(|withheld| withheld.problem.clone()),
            State::Drained => place.drained.map(|drained| drained.reason.clone()),
            State::Sick => self.inventory.devices[place.unit.device].health.reason().map(str::to_owned),
            State::Free | State::Stale | State::Held | State::Unknown => None,
        }
    }

    pub(super) fn as_table(&self) -> String {
        let heads = ["INDEX", "MODEL", "STATE", "PID", "UID", "SINCE", "COMMAND"];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        rows[0].extend(self.shows_resources().then(|| "RESOURCE".to_owned()));
        rows[0].extend(self.shows_groups().then(|| "CONTROL GROUP".to_owned()));
        for place in self.occupancy.places.iter().filter(|place| self.selection.takes(&place.unit)) {
            rows.extend(self.rows(place));
        }
        rows.extend(self.elsewhere().into_iter().map(|position| {
            let index = self.record.assignments[position].index.to_string();
            self.row([index, String::new(), "not here".to_owned(), String::new()], Some(position))
        }));
        table(&rows, self.terminal, Some(&STATES)) + &self.waiting() + &self.quotas()
    }

    /// The queue of `exec --wait`, if there is one, in its order.
    fn waiting(&self) -> String {
        let mut waiters: Vec<&Waiter> = self.record.waiters.iter().collect();
        if waiters.is_empty() {
            return String::new();
        }
        waiters.sort_by_key(|waiter| waiter.ticket);
        let mut rows = vec![["WAITING", "UNITS", "COMMAND"].map(str::to_owned).to_vec()];
        rows.extend(waiters.into_iter().map(|Waiter { owner, amount, .. }| {
            let command = json::command(self.host, owner).unwrap_or_default();
            vec![owner.pid.to_string(), amount.to_string(), command]
        }));
        "\n".to_owned() + &table(&rows, self.terminal, None)
    }

    /// Where there are quotas, or somebody has a namespace of its own.
    fn quotas(&self) -> String {
        let is_told = self.sums.values().any(|sum| sum.limit.is_some())
            || self.record.assignments.iter().any(|held| held.namespace.is_some());
        if !is_told {
            return String::new();
        }
        let mut rows = vec![["NAMESPACE", "RESOURCE", "USED", "LIMIT"].map(str::to_owned).to_vec()];
        rows.extend(self.sums.iter().map(|((namespace, resource), Sum { used, limit })| {
            let limit = limit.map(|limit| limit.to_string()).unwrap_or_default();
            vec![namespace.clone(), resource.clone(), used.to_string(), limit]
        }));
        "\n".to_owned() + &table(&rows, self.terminal, None)
    }

    /// One for each owner, or one for a unit without any.
    fn rows(&self, place: &Place<'_>) -> Vec<Vec<String>> {
        let device = &self.inventory.devices[place.unit.device];
        let index = match place.unit.slot {
            Some(slot) => format!("{}#{slot}", device.index),
            None => device.index.to_string(),
        };
        let model = device.name.clone().unwrap_or_default();
        let name = place.state(self.inventory, self.standing).name();
        let state = self.reason(place).map_or_else(|| name.to_owned(), |reason| format!("{name}: {reason}"));
        let state = state + &in_use(&self.others(place.unit.device, device).unwrap_or_default());
        let resource = self.resources.name(&place.unit).unwrap_or_default().to_owned();
        let cells = [index, model, state, resource];
        let holders = self.holders(place);
        if holders.is_empty() {
            return vec![self.row(cells, None)];
        }
        holders.into_iter().map(|holder| self.row(cells.clone(), Some(holder))).collect()
    }

    /// What is said of a unit, and who holds it.
    fn row(&self, [index, model, state, resource]: [String; 4], holder: Option<usize>) -> Vec<String> {
        let assignment = holder.map(|position| &self.record.assignments[position]);
        let is_alive = holder.is_some_and(|position| (self.standing)(position) == Standing::Alive);
        let command = assignment.filter(|_| is_alive).and_then(|held| json::command(self.host, &held.owner));
        let since = assignment.and_then(|held| held.since).and_then(date);
        let group = assignment.and_then(|held| group(self.host, held)).unwrap_or_default();
        let mut row = vec![
            index,
            model,
            state,
            assignment.map(|held| held.owner.pid.to_string()).unwrap_or_default(),
            assignment.and_then(|held| held.owner.uid).map(|uid| uid.to_string()).unwrap_or_default(),
            since.unwrap_or_default(),
            command.unwrap_or_default(),
        ];
        row.extend(self.shows_resources().then_some(resource));
        row.extend(self.shows_groups().then_some(group));
        row
    }

    /// Where somebody has said what the units are called.
    fn shows_resources(&self) -> bool {
        self.resources.is_configured
    }

    /// Most hosts have none.
    fn shows_groups(&self) -> bool {
        self.record.assignments.iter().any(|held| held.cgroup.is_some())
    }
}

/// The owner's group, and what it is kept from.
fn group(host: &Host, held: &Assignment) -> Option<String> {
    let name = held.cgroup.as_ref()?;
    Some(match isolation::in_force(host, held)? {
        Ok(spans) if spans.is_empty() => format!("{name} denies nothing"),
        Ok(spans) => {
            let spans: Vec<String> = spans.iter().map(ToString::to_string).collect();
            format!("{name} denies {}", spans.join(" "))
        }
        Err(problem) => format!("{name} ({problem})"),
    })
}

/// The first few of those that compute on a device and do not hold it.
fn in_use(others: &[u32]) -> String {
    const MOST: usize = 3;
    let pids: Vec<String> = others.iter().take(MOST).map(u32::to_string).collect();
    match others.len().saturating_sub(MOST) {
        0 if others.is_empty() => String::new(),
        0 => format!(" (in use by pid {})", pids.join(", ")),
        more => format!(" (in use by pid {} and {more} more)", pids.join(", ")),
    }
}

/// Seconds since the epoch as a date, up to the last that has four digits of a year; the rest is no date.
fn date(seconds: u64) -> Option<String> {
    const LAST: u64 = 253_402_300_799;
    let time = (seconds <= LAST).then(|| UNIX_EPOCH + Duration::from_secs(seconds))?;
    Some(humantime::format_rfc3339_seconds(time).to_string())
}
