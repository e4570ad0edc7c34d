//! `gpu-coord devices`.

use serde::Serialize;

use super::json::{DeviceJson, UnitJson};
use super::table::table;
use super::{Context, eligible, json};
use crate::cli::Devices;
use crate::device::{Device, Instance, Inventory, Part};
use crate::error::Error;
use crate::notes::Notes;
use crate::selection::Selection;

pub(super) fn run(context: &Context<'_>, options: &Devices, notes: &mut Notes) -> Result<(), Error> {
    let (inventory, _) = context.inventory(&options.source, notes)?;
    let selection = eligible::selection(&inventory, &options.selection)?;
    let shown = eligible::shown(&inventory, &selection);
    let text = if options.json {
        as_json(context, &inventory, &selection, &shown, notes)?
    } else {
        as_table(&inventory, &selection, &shown)
    };
    context.print(&text, notes)
}

fn as_json(
    context: &Context<'_>,
    inventory: &Inventory,
    selection: &Selection,
    shown: &[(usize, &Device)],
    notes: &Notes,
) -> Result<String, Error> {
    let units = |position: usize| {
        let units = inventory.units_of(Part::whole(position)).filter(|unit| selection.takes(unit));
        units.map(|unit| UnitJson::of(inventory, &unit, None)).collect()
    };
    let devices = shown.iter().map(|(position, device)| DeviceJson::of(device, units(*position))).collect();
    let fields = InventoryJson { source: &inventory.source, devices };
    json::document(&context.host, Some(inventory), fields, notes)
}

#[derive(Serialize)]
struct InventoryJson<'a> {
    source: &'a str,
    devices: Vec<DeviceJson<'a>>,
}

/// A column's head, and its cell.
type Column = (&'static str, fn(&Device) -> Option<String>);

/// Columns that appear only if one of the devices has a value: only some sources report them.
const EXTRAS: [Column; 3] = [
    ("MODE", |device| device.compute_mode.clone()),
    ("ERRORS", |device| device.uncorrected_errors.map(|errors| errors.to_string())),
    ("PROCESSES", |device| {
        let pids = device.processes.as_ref()?.iter().map(|user| user.pid.to_string());
        Some(pids.collect::<Vec<_>>().join(" ")).filter(|pids| !pids.is_empty())
    }),
];

fn as_table(inventory: &Inventory, selection: &Selection, shown: &[(usize, &Device)]) -> String {
    let heads = ["INDEX", "MODEL", "MEMORY", "MINOR", "UUID", "PCI", "ID", "HEALTH"];
    let is_told = |extra: &&Column| shown.iter().any(|(_, device)| (extra.1)(device).is_some());
    let extras: Vec<_> = EXTRAS.iter().filter(is_told).collect();
    let heads = heads.into_iter().chain(extras.iter().map(|extra| extra.0));
    let mut rows = vec![heads.map(str::to_owned).collect::<Vec<_>>()];
    for (position, device) in shown {
        let told = extras.iter().map(|extra| (extra.1)(device).unwrap_or_default());
        rows.push(row(device).into_iter().chain(told).collect());
        let units = inventory.units_of(Part::whole(*position)).filter(|unit| selection.takes(unit));
        let parts = units.filter_map(|unit| unit.instance.zip(device.instances.as_ref()));
        let blank = extras.iter().map(|_| String::new());
        rows.extend(parts.map(|(at, instances)| {
            part(device, &instances[at]).into_iter().chain(blank.clone()).collect::<Vec<_>>()
        }));
    }
    table(&rows, None, None)
}

/// An instance, below its device.
fn part(device: &Device, instance: &Instance) -> [String; 8] {
    let profile = instance.profile.as_deref().unwrap_or_default();
    [
        device.index.to_string(),
        format!("MIG {profile}").trim_end().to_owned(),
        memory(None, instance.memory_mib),
        String::new(),
        instance.uuid.clone().unwrap_or_default(),
        String::new(),
        String::new(),
        health(device),
    ]
}

/// Memory in use and in total, as far as known.
fn memory(used: Option<u64>, all: Option<u64>) -> String {
    let used = used.map(|used| format!("{used}/")).unwrap_or_default();
    all.map(|all| format!("{used}{all} MiB")).unwrap_or_default()
}

fn health(device: &Device) -> String {
    device.health.reason().map_or_else(|| "sound".to_owned(), |reason| format!("sick: {reason}"))
}

fn row(device: &Device) -> [String; 8] {
    let Device { index, identity, name, memory_mib, memory_used_mib, minor, .. } = device;
    [
        index.to_string(),
        name.clone().unwrap_or_default(),
        memory(*memory_used_mib, *memory_mib),
        minor.map(|minor| minor.to_string()).unwrap_or_default(),
        identity.uuid.clone().unwrap_or_default(),
        identity.pci.map(|pci| pci.to_string()).unwrap_or_default(),
        identity.id.clone().unwrap_or_default(),
        health(device),
    ]
}
