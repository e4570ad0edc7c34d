//! Which devices a process sees, as CUDA reads `CUDA_VISIBLE_DEVICES`: pure.
//!
//! The rules are those of the CUDA C++ Programming Guide, "CUDA Environment Variables": the list is of
//! indexes and UUIDs, of which the beginning is enough while it is unique; what does not name a device ends
//! the list; CUDA then counts what is left from 0.

mod hip;

use crate::device::Inventory;

pub(crate) use hip::{HipVariables, visible_to_hip};

/// Positions in [`Inventory::devices`], in the order in which the process counts them. `None`: the variable
/// is not set, and every device is seen.
pub(crate) fn visible(inventory: &Inventory, variable: Option<&str>) -> Vec<usize> {
    let Some(list) = variable else { return (0..inventory.devices.len()).collect() };
    let named: Vec<usize> = list.split(',').map_while(|entry| device(inventory, entry.trim())).collect();
    let mut distinct = named.clone();
    distinct.sort_unstable();
    distinct.dedup();
    // A device named twice makes CUDA see none at all.
    if distinct.len() == named.len() { named } else { Vec::new() }
}

fn device(inventory: &Inventory, entry: &str) -> Option<usize> {
    let devices = &inventory.devices;
    if !entry.is_empty() && entry.bytes().all(|byte| byte.is_ascii_digit()) {
        let index: u32 = entry.parse().ok()?;
        return devices.iter().position(|device| device.index == index);
    }
    let begins = |at: &usize| {
        let uuid = devices[*at].identity.uuid.as_deref();
        uuid.is_some_and(|uuid| is_prefix(entry, uuid))
    };
    let mut matches = (0..devices.len()).filter(begins);
    matches.next().filter(|_| matches.next().is_none())
}

/// `GPU-` alone names nothing.
fn is_prefix(entry: &str, uuid: &str) -> bool {
    entry.len() > "GPU-".len() && uuid.starts_with(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Device, Identity};

    fn host() -> Inventory {
        let uuids = ["GPU-aa11", "GPU-ab22", "GPU-cc33"];
        let device = |(index, uuid): (usize, &&str)| {
            let identity = Identity { uuid: Some((*uuid).to_owned()), ..Identity::default() };
            Device::new(u32::try_from(index).unwrap(), identity)
        };
        Inventory {
            source: "test".to_owned(),
            devices: uuids.iter().enumerate().map(device).collect(),
            tells_instances: true,
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn as_cuda_reads_it() {
        for (case, variable, seen) in [
            ("not set",                     None,                   vec![0, 1, 2]),
            ("in the order of the list",    Some("2,0"),            vec![2, 0]),
            ("blanks",                      Some(" 1 , 2 "),        vec![1, 2]),
            ("empty",                       Some(""),               vec![]),
            ("an index past the host ends", Some("0,7,1"),          vec![0]),
            ("a negative one ends",         Some("1,-1,0"),         vec![1]),
            ("a word ends",                 Some("NoDevFiles"),     vec![]),
            ("a duplicate hides all",       Some("0,1,0"),          vec![]),
            ("a duplicate by another name", Some("0,GPU-aa11"),     vec![]),
            ("a duplicate after the end",   Some("0,x,0"),          vec![0]),
            ("a UUID",                      Some("GPU-cc33,0"),     vec![2, 0]),
            ("the beginning of a UUID",     Some("GPU-ab"),         vec![1]),
            ("of two UUIDs",                Some("GPU-a"),          vec![]),
            ("of all UUIDs",                Some("GPU-"),           vec![]),
        ] {
            assert_eq!(visible(&host(), variable), seen, "{case}");
        }
    }
}
