//! The table of `gpu-coord status`: a row for each unit, or for each of its owners.

use std::time::{Duration, UNIX_EPOCH};

use super::View;
use crate::assignment::{Assignment, Standing, Waiter};
use crate::commands::quota::Sum;
use crate::commands::table::{Paint, table};
use crate::commands::{isolation, json};
use crate::host::Host;
use crate::policy::{Place, State};

/// What is free is green, what wants somebody's eye yellow, what is broken red.
const STATES: Paint = Paint {
    column: 3,
    colour: |cell| match cell.split([':', ' ']).next() {
        Some("free") => Some(32),
        Some("stale" | "unknown" | "drained" | "not") => Some(33),
        Some("sick" | "withheld") => Some(31),
        _ => None,
    },
};

/// What is said of a unit, whoever holds it.
#[derive(Clone, Debug, Default)]
struct Cells {
    index: String,
    model: String,
    memory: String,
    state: String,
    resource: String,
}

impl View<'_> {
    pub(in crate::commands) fn as_table(&self) -> String {
        let heads = ["INDEX", "MODEL", "MEMORY", "STATE", "PID", "USER", "SINCE", "COMMAND"];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        rows[0].extend(self.shows_resources().then(|| "RESOURCE".to_owned()));
        rows[0].extend(self.shows_groups().then(|| "CONTROL GROUP".to_owned()));
        for place in self.occupancy.places.iter().filter(|place| self.selection.takes(&place.unit)) {
            rows.extend(self.rows(place));
        }
        rows.extend(self.elsewhere().into_iter().map(|position| {
            let index = self.record.assignments[position].index.to_string();
            let cells = Cells { index, state: "not here".to_owned(), ..Cells::default() };
            self.row(cells, Some(position))
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
        let cells = self.cells(place);
        let holders = self.holders(place);
        if holders.is_empty() {
            return vec![self.row(cells, None)];
        }
        holders.into_iter().map(|holder| self.row(cells.clone(), Some(holder))).collect()
    }

    fn cells(&self, place: &Place<'_>) -> Cells {
        let unit = &place.unit;
        let device = &self.inventory.devices[unit.device];
        let instance = unit.instance.zip(device.instances.as_ref()).map(|(at, instances)| &instances[at]);
        let index = match unit.slot {
            Some(slot) => format!("{}#{slot}", device.index),
            None => device.index.to_string(),
        };
        let name = device.name.as_deref().unwrap_or_default();
        let profile = instance.map(|instance| instance.profile.as_deref().unwrap_or_default());
        Cells {
            index,
            model: profile.map_or_else(|| name.to_owned(), |profile| format!("{name} MIG {profile}")),
            memory: match instance {
                // What of it is in use no source tells.
                Some(instance) => memory(None, instance.memory_mib),
                None => memory(device.memory_used_mib, device.memory_mib),
            },
            state: self.state(place),
            resource: self.resources.name(unit).unwrap_or_default().to_owned(),
        }
    }

    fn state(&self, place: &Place<'_>) -> String {
        let name = place.state(self.inventory, self.standing).name();
        let state = self.reason(place).map_or_else(|| name.to_owned(), |reason| format!("{name}: {reason}"));
        let device = place.unit.device;
        let others = self.others(device, &self.inventory.devices[device]).unwrap_or_default();
        state + &self.shared(place) + &in_use(&others)
    }

    /// How many of the shares of a device are held, beside each that is.
    fn shared(&self, place: &Place<'_>) -> String {
        let is_held = |place: &&Place<'_>| place.state(self.inventory, self.standing) == State::Held;
        if place.unit.slot.is_none() || !is_held(&place) {
            return String::new();
        }
        let places = self.occupancy.of_device(place.unit.device).iter();
        let shares: Vec<&Place<'_>> = places.filter(|other| other.unit.part() == place.unit.part()).collect();
        format!(" (shared {}/{})", shares.iter().copied().filter(is_held).count(), shares.len())
    }

    /// What is said of a unit, and who holds it.
    fn row(&self, cells: Cells, holder: Option<usize>) -> Vec<String> {
        let Cells { index, model, memory, state, resource } = cells;
        let assignment = holder.map(|position| &self.record.assignments[position]);
        let is_alive = holder.is_some_and(|position| (self.standing)(position) == Standing::Alive);
        let command = assignment.filter(|_| is_alive).and_then(|held| json::command(self.host, &held.owner));
        let since = assignment.and_then(|held| held.since).and_then(date);
        let group = assignment.and_then(|held| group(self.host, held)).unwrap_or_default();
        let mut row = vec![
            index,
            model,
            memory,
            state,
            assignment.map(|held| held.owner.pid.to_string()).unwrap_or_default(),
            assignment.and_then(|held| held.owner.uid).map(|uid| self.accounts.name(uid)).unwrap_or_default(),
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

/// How much is in use of how much.
fn memory(used: Option<u64>, total: Option<u64>) -> String {
    let number = |mib: Option<u64>| mib.map_or_else(|| "-".to_owned(), |mib| mib.to_string());
    match used.or(total) {
        Some(_) => format!("{}/{} MiB", number(used), number(total)),
        None => String::new(),
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
