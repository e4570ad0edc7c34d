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
    let is_relative = seen.is_relative(inventory);
    let word = |unit: &Unit| -> Result<String, Error> {
        let device = &inventory.devices[unit.device];
        match print {
            // CUDA takes an instance by its UUID only.
            Print::Index | Print::HostIndex | Print::Uuid if unit.instance.is_some() => {
                let uuid = inventory.identity(unit).uuid.clone();
                uuid.ok_or_else(|| lacks(inventory, device, "UUID of its instance"))
            }
            Print::Pci if unit.instance.is_some() => {
                Err(lacks(inventory, device, "PCI address of its instance alone"))
            }
            Print::Index if is_relative => seen
                .parts
                .iter()
                .position(|seen| *seen == Part::whole(unit.device))
                .map(|position| position.to_string())
                .ok_or_else(|| lacks(inventory, device, "place among the devices that the owner sees")),
            Print::Index | Print::HostIndex => Ok(device.index.to_string()),
            Print::Uuid => device.identity.uuid.clone().ok_or_else(|| lacks(inventory, device, "UUID")),
            Print::Pci => match device.identity.pci {
                Some(pci) => Ok(pci.to_string()),
                None => Err(lacks(inventory, device, "PCI address")),
            },
        }
    };
    let words = units.iter().map(word).collect::<Result<Vec<String>, Error>>()?;
    Ok(words.join(",") + "\n")
}

fn lacks(inventory: &Inventory, device: &Device, what: &str) -> Error {
    let Device { index, .. } = device;
    Error::Inventory(format!(
        "device {index} has no {what} in source {}; print something else",
        inventory.source
    ))
}
