//! `gpu-coord devices`.

use serde_json::{Map, json};

use super::table::table;
use super::{Context, eligible, json};
use crate::cli::Devices;
use crate::device::{Device, Instance, Inventory, Part, Unit};
use crate::error::Error;
use crate::notes::Notes;
use crate::selection::Selection;

pub(super) fn run(context: &Context<'_>, options: &Devices, notes: &mut Notes) -> Result<(), Error> {
    let (inventory, _) = context.inventory(&options.source, notes)?;
    let selection = eligible::selection(&inventory, &options.selection)?;
    let shown = eligible::shown(&inventory, &selection);
    let text = if options.json {
        as_json(context, &inventory, &selection, &shown, notes)
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
) -> String {
    let unit = |unit: Unit| json::unit(inventory, &unit, Map::new());
    let units = |position: usize| {
        let units = inventory.units_of(Part::whole(position));
        units.filter(|unit| selection.takes(unit)).map(unit).collect()
    };
    let devices = shown.iter().copied();
    let devices: Vec<_> = devices.map(|(position, device)| json::device(device, units(position))).collect();
    let mut fields = Map::new();
    fields.insert("source".to_owned(), json!(inventory.source));
    fields.insert("devices".to_owned(), json!(devices));
    json::document(&context.host, Some(inventory), fields, notes)
}

fn as_table(inventory: &Inventory, selection: &Selection, shown: &[(usize, &Device)]) -> String {
    let heads = ["INDEX", "MODEL", "MEMORY", "MINOR", "UUID", "PCI", "ID", "HEALTH"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for (position, device) in shown {
        rows.push(row(device));
        let units = inventory.units_of(Part::whole(*position)).filter(|unit| selection.takes(unit));
        let parts = units.filter_map(|unit| unit.instance.zip(device.instances.as_ref()));
        rows.extend(parts.map(|(at, instances)| part(device, &instances[at])));
    }
    table(&rows, None, None)
}

/// An instance, below its device.
fn part(device: &Device, instance: &Instance) -> Vec<String> {
    let profile = instance.profile.as_deref().unwrap_or_default();
    vec![
        device.index.to_string(),
        format!("MIG {profile}").trim_end().to_owned(),
        memory(instance.memory_mib),
        String::new(),
        instance.uuid.clone().unwrap_or_default(),
        String::new(),
        String::new(),
        health(device),
    ]
}

fn memory(mib: Option<u64>) -> String {
    mib.map(|mib| format!("{mib} MiB")).unwrap_or_default()
}

fn health(device: &Device) -> String {
    device.health.reason().map_or_else(|| "sound".to_owned(), |reason| format!("sick: {reason}"))
}

fn row(device: &Device) -> Vec<String> {
    let Device { index, identity, name, memory_mib, minor, .. } = device;
    vec![
        index.to_string(),
        name.clone().unwrap_or_default(),
        memory(*memory_mib),
        minor.map(|minor| minor.to_string()).unwrap_or_default(),
        identity.uuid.clone().unwrap_or_default(),
        identity.pci.map(|pci| pci.to_string()).unwrap_or_default(),
        identity.id.clone().unwrap_or_default(),
        health(device),
    ]
}
