//! The answer of an allocation: one line, which Flink takes for the indexes.

use crate::cli::Print;
use crate::device::{Device, Inventory, Part, Unit};
use crate::error::Error;
use crate::visible::Seen;

/// `seen`: how the owner counts; where no variable hides a device from it, as the vendor's tool does.
pub(super) fn line(
    inventory: &Inventory,
    units: &[Unit],
    seen: &Seen,
    print: Print,
) -> Result<String, Error> {
    let relative = Some(seen).filter(|seen| seen.is_relative(inventory));
    let word = |unit: &Unit| match unit.instance {
        Some(_) => of_instance(inventory, unit, print),
        None => of_device(inventory, unit.device, relative, print),
    };
    let mut words: Vec<String> = Vec::new();
    for unit in units {
        let word = word(unit)?;
        // Two shares of one device are one device: CUDA sees none at all if one is named twice.
        if unit.slot.is_none() || !words.contains(&word) {
            words.push(word);
        }
    }
    Ok(words.join(",") + "\n")
}

/// CUDA takes an instance by its UUID only.
fn of_instance(inventory: &Inventory, unit: &Unit, print: Print) -> Result<String, Error> {
    let device = &inventory.devices[unit.device];
    let uuid = inventory.identity(unit).uuid.clone();
    match print {
        Print::Index | Print::HostIndex | Print::Uuid => {
            uuid.ok_or_else(|| lacks(inventory, device, "UUID of its instance"))
        }
        Print::Pci => Err(lacks(inventory, device, "PCI address of its instance alone")),
    }
}

/// `relative`: how the owner counts, if not as the vendor's tool does.
fn of_device(
    inventory: &Inventory,
    at: usize,
    relative: Option<&Seen>,
    print: Print,
) -> Result<String, Error> {
    let device = &inventory.devices[at];
    let (word, what) = match (print, relative) {
        (Print::Index, Some(seen)) => {
            let position = seen.parts.iter().position(|seen| *seen == Part::whole(at));
            (position.map(|position| position.to_string()), "place among the devices that the owner sees")
        }
        (Print::Index | Print::HostIndex, _) => (Some(device.index.to_string()), "index"),
        (Print::Uuid, _) => (device.identity.uuid.clone(), "UUID"),
        (Print::Pci, _) => (device.identity.pci.map(|pci| pci.to_string()), "PCI address"),
    };
    word.ok_or_else(|| lacks(inventory, device, what))
}

fn lacks(inventory: &Inventory, device: &Device, what: &str) -> Error {
    let Device { index, .. } = device;
    Error::Inventory(format!(
        "device {index} has no {what} in source {}; print something else",
        inventory.source
    ))
}
