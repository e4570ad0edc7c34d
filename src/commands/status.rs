//! `gpu-coord status`: who holds what.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::table::table;
use super::{Context, json};
use crate::assignment::{Record, Standing};
use crate::cli::Status;
use crate::coordination::ledger::Snapshot;
use crate::device::{Health, Inventory};
use crate::error::Error;
use crate::host::Host;
use crate::host::liveness::Liveness;
use crate::notes::Notes;
use crate::policy::{self, Occupancy, Place, State};

pub(super) fn run(context: &Context<'_>, options: &Status, notes: &mut Notes) -> Result<(), Error> {
    let inventory = inventory(context, options, notes);
    let path = &options.file.coordination_file;
    let _guard = context.guard(path);
    context.check_place(path, notes).unwrap_or_else(|error| notes.warn(error.to_string()));
    let snapshot = Snapshot::read(&context.host, path, context.deadline)?;
    let empty = Record::default();
    let record = snapshot.as_ref().map_or(&empty, |snapshot| &snapshot.record);
    let occupancy = policy::occupancy(&inventory, record);
    doubts(snapshot.as_ref(), record, path, notes);
    let liveness = snapshot.as_ref().map(|snapshot| Liveness::new(&context.host, snapshot.facts));
    let standing = |position: usize| match &liveness {
        Some(liveness) => liveness.standing(&record.assignments[position], occupancy.is_here[position]),
        None => Standing::Dead, // no file, no assignment: never asked
    };
    let view = View {
        host: &context.host,
        inventory: &inventory,
        record,
        occupancy: &occupancy,
        standing: &standing,
    };
    let text = if options.json { view.as_json(path, notes) } else { view.as_table() };
    context.stdout.write(&text, context.deadline)
}

/// Who holds what is to be seen also while the driver is broken.
fn inventory(context: &Context<'_>, options: &Status, notes: &mut Notes) -> Inventory {
    context.inventory(&options.source, notes).unwrap_or_else(|error| {
        notes.warn(format!("{error}; only the record is shown"));
        Inventory { source: options.source.source.to_string(), devices: Vec::new(), tells_instances: false }
    })
}

fn doubts(snapshot: Option<&Snapshot>, record: &Record, path: &Path, notes: &mut Notes) {
    let Some(snapshot) = snapshot else { return };
    let path = path.display();
    if !snapshot.is_consistent {
        notes.warn(format!(
            "{path}: read without its lock, which a writer keeps; what is shown may be of two moments"
        ));
    }
    if let Some(doubts) = &snapshot.doubts {
        notes.warn(format!("{path}: {doubts}"));
    }
    for line in &record.withheld {
        notes.warn(format!(
            "{path}:{}: {}, so that index {} is withheld",
            line.line, line.problem, line.index
        ));
    }
}

/// All that is shown.
struct View<'a> {
    host: &'a Host,
    inventory: &'a Inventory,
    record: &'a Record,
    occupancy: &'a Occupancy<'a>,
    standing: &'a dyn Fn(usize) -> Standing,
}

impl View<'_> {
    /// Positions of assignments that hold no unit of this host.
    fn elsewhere(&self) -> Vec<usize> {
        let mut is_shown = vec![false; self.record.assignments.len()];
        let holders = self.occupancy.places.iter().flat_map(|place| &place.holders);
        holders.for_each(|position| is_shown[*position] = true);
        (0..is_shown.len()).filter(|position| !is_shown[*position]).collect()
    }

    /// The holders of a unit, the living first.
    fn holders(&self, place: &Place<'_>) -> Vec<usize> {
        let mut holders = place.holders.clone();
        holders.sort_by_key(|position| (self.standing)(*position) == Standing::Dead);
        holders
    }

    fn as_json(&self, path: &Path, notes: &Notes) -> String {
        let unit = |place: &Place<'_>| self.unit(place);
        let units = |device: usize| {
            self.occupancy.places.iter().filter(|place| place.unit.device == device).map(unit).collect()
        };
        let devices = self.inventory.devices.iter().enumerate();
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
        fields.insert("waiters".to_owned(), waiters.collect());
        json::document(self.host, fields, notes)
    }

    fn unit(&self, place: &Place<'_>) -> Value {
        let owner = |at: &usize| json::owner(self.host, &self.record.assignments[*at], (self.standing)(*at));
        let owners: Vec<Value> = self.holders(place).iter().map(owner).collect();
        let mut fields = Map::new();
        fields.insert("state".to_owned(), json!(place.state(self.inventory, self.standing).name()));
        fields.insert("reason".to_owned(), json!(self.reason(place)));
        fields.insert("owner".to_owned(), json!(owners.first()));
        fields.insert("other_owners".to_owned(), json!(owners.get(1..).unwrap_or_default()));
        json::unit(self.inventory, &place.unit, fields)
    }

    /// Why a unit is not given although no process holds it.
    fn reason(&self, place: &Place<'_>) -> Option<String> {
        match place.state(self.inventory, self.standing) {
            State::Withheld => place.withheld.map(|withheld| withheld.problem.clone()),
            State::Drained => place.drained.map(|drained| drained.reason.clone()),
            State::Sick => match &self.inventory.devices[place.unit.device].health {
                Health::Sick(reason) => Some(reason.clone()),
                Health::Sound => None,
            },
            State::Free | State::Stale | State::Held | State::Unknown => None,
        }
    }

    fn as_table(&self) -> String {
        let heads = ["INDEX", "MODEL", "STATE", "PID", "UID", "SINCE", "COMMAND"];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        for place in &self.occupancy.places {
            rows.extend(self.rows(place));
        }
        rows.extend(self.elsewhere().into_iter().map(|position| {
            let index = self.record.assignments[position].index.to_string();
            self.row(index, String::new(), "not here".to_owned(), Some(position))
        }));
        table(&rows)
    }

    /// One for each owner, or one for a unit without any.
    fn rows(&self, place: &Place<'_>) -> Vec<Vec<String>> {
        let device = &self.inventory.devices[place.unit.device];
        let (index, model) = (device.index.to_string(), device.name.clone().unwrap_or_default());
        let name = place.state(self.inventory, self.standing).name();
        let state = self.reason(place).map_or_else(|| name.to_owned(), |reason| format!("{name}: {reason}"));
        let holders = self.holders(place);
        if holders.is_empty() {
            return vec![self.row(index, model, state, None)];
        }
        let row = |holder: usize| self.row(index.clone(), model.clone(), state.clone(), Some(holder));
        holders.into_iter().map(row).collect()
    }

    fn row(&self, index: String, model: String, state: String, holder: Option<usize>) -> Vec<String> {
        let assignment = holder.map(|position| &self.record.assignments[position]);
        let is_alive = holder.is_some_and(|position| (self.standing)(position) == Standing::Alive);
        let command = assignment.filter(|_| is_alive).and_then(|held| json::command(self.host, &held.owner));
        let since = assignment.and_then(|held| held.since).and_then(date);
        vec![
            index,
            model,
            state,
            assignment.map(|held| held.owner.pid.to_string()).unwrap_or_default(),
            assignment.and_then(|held| held.owner.uid).map(|uid| uid.to_string()).unwrap_or_default(),
            since.unwrap_or_default(),
            command.unwrap_or_default(),
        ]
    }
}

/// Seconds since the epoch as a date, up to the last that has four digits of a year; the rest is no date.
fn date(seconds: u64) -> Option<String> {
    const LAST: u64 = 253_402_300_799;
    let time = (seconds <= LAST).then(|| UNIX_EPOCH + Duration::from_secs(seconds))?;
    Some(humantime::format_rfc3339_seconds(time).to_string())
}
