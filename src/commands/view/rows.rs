//! The table of `gpu-coord status`: a row for each unit, or for each of its owners.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, UNIX_EPOCH};

use super::View;
use crate::assignment::{Assignment, Standing, Waiter};
use crate::commands::quota::{Sum, Sums};
use crate::commands::table::{Paint, table};
use crate::commands::{isolation, json};
use crate::device::{Instance, Part, numbered};
use crate::host::Host;
use crate::plain;
use crate::policy::{Place, State};

/// Free units are green, those that need attention yellow, broken ones red.
const STATES: Paint = Paint {
    column: 3,
    colour: |cell| match cell.split([':', ' ']).next() {
        Some("free") => Some(32),
        Some("stale" | "unknown" | "drained" | "not") => Some(33),
        Some("sick" | "withheld") => Some(31),
        _ => None,
    },
};

/// What all rows need, determined once: there can be a hundred thousand rows.
struct TableFacts {
    shows_resources: bool,
    shows_groups: bool,
    /// For each device, who computes on it, in words.
    in_use: Vec<String>,
    /// For each shared device or instance, how many shares are held, and how many there are.
    shares: HashMap<Part, (usize, usize)>,
}

/// The cells about a unit, whoever holds it.
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
        let shared = self.shared();
        let heads = ["INDEX", "MODEL", "MEMORY", "STATE", "PID", "USER", "SINCE", "COMMAND"];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        rows[0].extend(shared.shows_resources.then(|| "RESOURCE".to_owned()));
        rows[0].extend(shared.shows_groups.then(|| "CONTROL GROUP".to_owned()));
        for place in self.holdings.occupancy.places.iter().filter(|place| self.selection.takes(&place.unit)) {
            rows.extend(self.rows(place, &shared));
        }
        rows.extend(self.elsewhere().into_iter().map(|position| {
            let index = self.holdings.record.assignments[position].index.to_string();
            let cells = Cells { index, state: "not here".to_owned(), ..Cells::default() };
            self.row(cells, Some(position), &shared)
        }));
        table(&rows, self.terminal, Some(&STATES)) + &self.waiting() + &self.quotas()
    }

    /// The queue of `exec --wait`, if there is one, in its order.
    fn waiting(&self) -> String {
        let mut waiters: Vec<&Waiter> = self.holdings.record.waiters.iter().collect();
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

    /// The use of quotas, if there are any, or if an owner has given a namespace.
    fn quotas(&self) -> String {
        let Sums { namespaces, users } = &self.sums;
        let is_told = namespaces.values().any(|sum| sum.limit.is_some())
            || self.holdings.record.assignments.iter().any(|held| held.namespace.is_some());
        let of_namespaces = is_told.then(|| self.sums_of("NAMESPACE", namespaces));
        let of_users = (!users.is_empty()).then(|| self.sums_of("USER", users));
        of_namespaces.into_iter().chain(of_users).collect()
    }

    fn sums_of(&self, whose: &str, sums: &BTreeMap<(String, String), Sum>) -> String {
        let mut rows = vec![[whose, "RESOURCE", "USED", "LIMIT"].map(str::to_owned).to_vec()];
        rows.extend(sums.iter().map(|((name, resource), Sum { used, limit })| {
            let limit = limit.map(|limit| limit.to_string()).unwrap_or_default();
            vec![name.clone(), resource.clone(), used.to_string(), limit]
        }));
        "\n".to_owned() + &table(&rows, self.terminal, None)
    }

    fn shared(&self) -> TableFacts {
        let devices = self.holdings.inventory.devices.iter().enumerate();
        let in_use = devices.map(|(at, device)| in_use(&self.others(at, device).unwrap_or_default()));
        let mut shares: HashMap<Part, (usize, usize)> = HashMap::new();
        for place in self.holdings.occupancy.places.iter().filter(|place| place.unit.slot.is_some()) {
            let (held, all) = shares.entry(place.unit.part()).or_default();
            *held += usize::from(self.is_held(place));
            *all += 1;
        }
        TableFacts {
            // Only if the configuration names resources.
            shows_resources: self.resources.is_configured,
            // Most hosts have none.
            shows_groups: self.holdings.record.assignments.iter().any(|held| held.cgroup.is_some()),
            in_use: in_use.collect(),
            shares,
        }
    }

    fn is_held(&self, place: &Place<'_>) -> bool {
        self.holdings.state(place) == State::Held
    }

    /// One row for each owner, or one for a unit without owners.
    fn rows(&self, place: &Place<'_>, shared: &TableFacts) -> Vec<Vec<String>> {
        let cells = self.cells(place, shared);
        let holders = self.holders(place);
        if holders.is_empty() {
            return vec![self.row(cells, None, shared)];
        }
        holders.into_iter().map(|holder| self.row(cells.clone(), Some(holder), shared)).collect()
    }

    fn cells(&self, place: &Place<'_>, shared: &TableFacts) -> Cells {
        let unit = &place.unit;
        let device = &self.holdings.inventory.devices[unit.device];
        let instance = unit.instance.zip(device.instances.as_ref()).map(|(at, instances)| &instances[at]);
        let name = device.name.as_deref().unwrap_or_default();
        // With its UUID an operator can drain one of several identical instances.
        let parts = |instance: &Instance| {
            let words = [Some("MIG"), instance.profile.as_deref(), instance.uuid.as_deref()];
            words.into_iter().flatten().collect::<Vec<_>>().join(" ")
        };
        Cells {
            index: numbered(device.index, unit.slot),
            model: instance.map_or_else(|| name.to_owned(), |instance| format!("{name} {}", parts(instance))),
            memory: match instance {
                // No source reports the memory in use of an instance.
                Some(instance) => memory(None, instance.memory_mib),
                None => memory(device.memory_used_mib, device.memory_mib),
            },
            state: self.state(place, shared),
            resource: self.resources.name(unit).unwrap_or_default().to_owned(),
        }
    }

    fn state(&self, place: &Place<'_>, shared: &TableFacts) -> String {
        let name = self.holdings.state(place).name();
        let state = self.reason(place).map_or_else(|| name.to_owned(), |reason| format!("{name}: {reason}"));
        // Added to each share that is held.
        let shares = shared.shares.get(&place.unit.part()).filter(|_| self.is_held(place));
        let shares = shares.map(|(held, all)| format!(" (shared {held}/{all})")).unwrap_or_default();
        state + &shares + &shared.in_use[place.unit.device]
    }

    /// A row: the cells about a unit and about one holder.
    fn row(&self, cells: Cells, holder: Option<usize>, shared: &TableFacts) -> Vec<String> {
        let Cells { index, model, memory, state, resource } = cells;
        let assignment = holder.map(|position| &self.holdings.record.assignments[position]);
        let is_alive = holder.is_some_and(|position| (self.holdings.standing)(position) == Standing::Alive);
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
        row.extend(shared.shows_resources.then_some(resource));
        row.extend(shared.shows_groups.then_some(group));
        row
    }
}

/// Memory in use and in total.
fn memory(used: Option<u64>, total: Option<u64>) -> String {
    let number = |mib: Option<u64>| mib.map_or_else(|| "-".to_owned(), |mib| mib.to_string());
    match used.or(total) {
        Some(_) => format!("{}/{} MiB", number(used), number(total)),
        None => String::new(),
    }
}

/// The owner's group, and what it denies.
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

/// The first few processes that compute on a device without holding it.
fn in_use(others: &[u32]) -> String {
    const MOST: usize = 3;
    match others {
        [] => String::new(),
        others => format!(" (in use by pid {})", plain::few(others, MOST, u32::to_string)),
    }
}

/// Seconds since the epoch as a date; `None` after the year 9999.
fn date(seconds: u64) -> Option<String> {
    const LAST: u64 = 253_402_300_799;
    let time = (seconds <= LAST).then(|| UNIX_EPOCH + Duration::from_secs(seconds))?;
    Some(humantime::format_rfc3339_seconds(time).to_string())
}
