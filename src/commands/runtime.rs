//! The variables that the vendors' runtimes read, so that they find the granted devices and no others.

use super::told::{self, Told};
use crate::cli::Word;
use crate::error::Error;
use crate::inventory::Vendor;

/// Variables with their values; `None`: to be unset. By default CUDA orders devices by speed.
pub(super) fn variables(told: &Told<'_>) -> Result<Vec<(&'static str, Option<String>)>, Error> {
    let mut variables = if told.inventory.source.starts_with("file:") {
        Vec::new() // devices of any kind, which no variable names
    } else {
        visible(told)?
    };
    variables.extend(told.variables.iter().map(|(name, value)| (*name, Some(value.clone()))));
    Ok(variables)
}

/// The variables that hide the other devices.
fn visible(told: &Told<'_>) -> Result<Vec<(&'static str, Option<String>)>, Error> {
    let inventory = told.inventory;
    // In the host's order, in which units are passed on inside `exec`.
    let mut units = told.units.to_vec();
    units.sort_by_key(|unit| (unit.device, unit.instance, unit.slot));
    let list = |word| told::words(inventory, &units, told.seen, word).map(|words| words.join(","));
    if Vendor::of(&inventory.source) == Some(Vendor::Amd) {
        let list = list(if told.is_confined { Word::Index } else { Word::HostIndex })?;
        // The other variables would renumber what ROCr leaves.
        return Ok(vec![
            ("ROCR_VISIBLE_DEVICES", Some(list)),
            ("HIP_VISIBLE_DEVICES", None),
            ("CUDA_VISIBLE_DEVICES", None),
        ]);
    }
    let uuids = list(Word::Uuid)?;
    Ok(vec![
        ("CUDA_VISIBLE_DEVICES", Some(uuids.clone())),
        ("NVIDIA_VISIBLE_DEVICES", Some(uuids)),
        ("CUDA_DEVICE_ORDER", Some("PCI_BUS_ID".to_owned())),
    ])
}
