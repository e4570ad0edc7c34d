//! What an owner is told about its units, and the words for them.

use crate::cli::Word;
use crate::device::{Device, Inventory, Part, Unit};
use crate::error::Error;
use crate::visible::Seen;

/// What an owner is told.
pub(super) struct Told<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) units: &'a [Unit],
    /// How the owner counts devices: like the vendor's tool, unless a variable hides some from it.
    pub(super) seen: &'a Seen,
    /// Whether it can open only these units.
    pub(super) is_confined: bool,
    /// Further variables for its runtime.
    pub(super) variables: &'a [(&'static str, String)],
}

/// A word for each device or instance.
pub(super) fn words(
    inventory: &Inventory,
    units: &[Unit],
    seen: &Seen,
    print: Word,
) -> Result<Vec<String>, Error> {
    let relative = Some(seen).filter(|seen| seen.is_relative(inventory));
    let mut words: Vec<String> = Vec::new();
    for unit in units {
        let word = match unit.instance {
            Some(_) => of_instance(inventory, unit, print)?,
            None => of_device(inventory, unit.device, relative, print)?,
        };
        // Two shares of one device are printed once: CUDA sees no device at all if one is named twice.
        if unit.slot.is_none() || !words.contains(&word) {
            words.push(word);
        }
    }
    Ok(words)
}

/// CUDA accepts an instance only by its UUID.
fn of_instance(inventory: &Inventory, unit: &Unit, print: Word) -> Result<String, Error> {
    let device = &inventory.devices[unit.device];
    let uuid = inventory.identity(unit).uuid.clone();
    match print {
        Word::Index | Word::HostIndex | Word::Uuid => {
            uuid.ok_or_else(|| lacks(inventory, device, "UUID of its instance"))
        }
        Word::Pci => Err(lacks(inventory, device, "PCI address of its instance alone")),
    }
}

/// `relative`: how the owner counts, if not like the vendor's tool.
fn of_device(
    inventory: &Inventory,
    at: usize,
    relative: Option<&Seen>,
    print: Word,
) -> Result<String, Error> {
    let device = &inventory.devices[at];
    let (word, what) = match (print, relative) {
        (Word::Index, Some(seen)) => {
            let position = seen.parts.iter().position(|seen| *seen == Part::whole(at));
            (position.map(|position| position.to_string()), "place among the devices that the owner sees")
        }
        (Word::Index | Word::HostIndex, _) => (Some(device.index.to_string()), "index"),
        (Word::Uuid, _) => (device.identity.uuid.clone(), "UUID"),
        (Word::Pci, _) => (device.identity.pci.map(|pci| pci.to_string()), "PCI address"),
    };
    word.ok_or_else(|| lacks(inventory, device, what))
}

fn lacks(inventory: &Inventory, device: &Device, what: &str) -> Error {
    let Device { index, .. } = device;
    Error::Inventory(format!(
        "device {index} has no {what} in source {}; `--print host-index` has what every device has",
        inventory.source
    ))
}
