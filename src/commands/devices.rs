//! `gpu-coord devices`.

use serde_json::{Map, json};

use super::table::table;
use super::{Context, json};
use crate::cli::Devices;
use crate::device::{Device, Health, Inventory};
use crate::error::Error;
use crate::notes::Notes;

pub(super) fn run(context: &Context<'_>, options: &Devices, notes: &mut Notes) -> Result<(), Error> {
    let inventory = context.inventory(&options.source, notes)?;
    let text = if options.json { as_json(context, &inventory, notes) } else { as_table(&inventory) };
    context.stdout.write(&text, context.deadline)
}

fn as_json(context: &Context<'_>, inventory: &Inventory, notes: &Notes) -> String {
    let units = |position: usize| {
        let units = inventory.units().filter(|unit| unit.device == position);
        units.map(|unit| json::unit(inventory, &unit, Map::new())).collect()
    };
    let devices = inventory.devices.iter().enumerate();
    let devices: Vec<_> = devices.map(|(position, device)| json::device(device, units(position))).collect();
    let mut fields = Map::new();
    fields.insert("source".to_owned(), json!(inventory.source));
    fields.insert("devices".to_owned(), json!(devices));
    json::document(&context.host, fields, notes)
}

fn as_table(inventory: &Inventory) -> String {
    let heads = ["INDEX", "MODEL", "MEMORY", "MINOR", "UUID", "PCI", "ID", "HEALTH"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(inventory.devices.iter().map(row));
    table(&rows)
}

fn row(device: &Device) -> Vec<String> {
    let Device { index, identity, name, memory_mib, minor, health, .. } = device;
    vec![
        index.to_string(),
        name.clone().unwrap_or_default(),
        memory_mib.map(|mib| format!("{mib} MiB")).unwrap_or_default(),
        minor.map(|minor| minor.to_string()).unwrap_or_default(),
        identity.uuid.clone().unwrap_or_default(),
        identity.pci.map(|pci| pci.to_string()).unwrap_or_default(),
        identity.id.clone().unwrap_or_default(),
        match health {
            Health::Sound => "sound".to_owned(),
            Health::Sick(reason) => format!("sick: {reason}"),
        },
    ]
}
