//! `NVIDIA_VISIBLE_DEVICES`: which devices NVIDIA's container toolkit was told to put into a container.
//!
//! The toolkit reads it when it creates the container. In an ordinary container only those devices exist afterwards,
//! numbered from 0, so the variable has nothing left to hide. In a privileged one every device of the host exists, and
//! only the variable tells which of them were meant for the container. Hence:
//!
//! * Unset, empty, `void` and `all` limit nothing; `none` leaves nothing. Of several words, `void` takes precedence over
//!   `none`, and `none` over `all`, as in the toolkit (nvidia-container-toolkit pull request 1165).
//! * The UUIDs of a list are valid everywhere. One that is not in the inventory is ignored.
//! * The indexes of a list are the host's. They are believed only on the host itself: in a container the devices may
//!   have been renumbered, and `1` may be another device, or none.
//! * A list with anything else in it (`0:1`, a path, the name of a CDI device) is ignored.
//!
//! CUDA does not read the variable, so it changes no index.

use super::is_prefix;
use crate::device::{Inventory, Part};
use crate::plain;

/// What may be granted (`None`: everything), or why the value is ignored.
pub(super) fn limit(inventory: &Inventory, value: &str, is_host: bool) -> Result<Option<Vec<Part>>, String> {
    let entries: Vec<&str> = value.split(',').map(str::trim).collect();
    let says = |word: &str| entries.contains(&word);
    if says("void") || entries.iter().all(|entry| entry.is_empty()) {
        return Ok(None);
    }
    if says("none") {
        return Ok(Some(Vec::new()));
    }
    if says("all") {
        return Ok(None);
    }
    let named = entries.into_iter().filter(|entry| !entry.is_empty());
    let parts: Vec<Vec<Part>> =
        named.map(|entry| parts(inventory, entry, is_host)).collect::<Result<_, _>>()?;
    Ok(Some(parts.concat()))
}

fn parts(inventory: &Inventory, entry: &str, is_host: bool) -> Result<Vec<Part>, String> {
    let ignored =
        |why: &str| Err(format!("NVIDIA_VISIBLE_DEVICES is ignored: `{}` {why}", plain::escaped(entry)));
    if let Ok(index) = entry.parse::<u32>() {
        if !is_host {
            return ignored("is an index of the host, and in a container the devices are counted anew");
        }
        let devices = inventory.devices.iter().enumerate();
        let at = devices.filter(|(_, device)| device.index == index);
        return Ok(at.map(|(at, _)| Part::whole(at)).collect());
    }
    if !entry.starts_with("GPU-") && !entry.starts_with("MIG-") {
        return ignored("is neither a UUID nor an index");
    }
    let matches = inventory.uuids().filter(|(_, uuid)| is_prefix(entry, uuid));
    Ok(matches.map(|(part, _)| part).collect())
}

#[cfg(test)]
mod tests {
    use super::super::tests::host;
    use super::*;

    /// The devices of the limit.
    fn ask(value: &str, is_host: bool) -> Result<Option<Vec<usize>>, String> {
        let devices = |parts: Vec<Part>| parts.into_iter().map(|part| part.device).collect();
        limit(&host(), value, is_host).map(|limit| limit.map(devices))
    }

    #[test]
    #[rustfmt::skip] // a table
    fn as_the_toolkit_reads_it() {
        for (value, expected) in [
            ("",                      None),
            (" , ",                   None),
            ("all",                   None),
            ("void",                  None),
            ("none",                  Some(vec![])),
            ("all,none",              Some(vec![])),
            ("none,void",             None),
            ("0,all",                 None),
            ("GPU-cc33",              Some(vec![2])),
            ("GPU-cc33, GPU-aa11",    Some(vec![2, 0])),
            ("GPU-cc33,",             Some(vec![2])),
            ("GPU-ee55",              Some(vec![])),
            ("GPU-ee55,GPU-aa11",     Some(vec![0])),
            ("MIG-f2",                Some(vec![3])),
        ] {
            for is_host in [true, false] {
                assert_eq!(ask(value, is_host), Ok(expected.clone()), "{value}");
            }
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn indexes_are_those_of_the_host() {
        for (value, expected) in [
            ("1",          vec![1]),
            ("2,0",        vec![2, 0]),
            ("7,0",        vec![0]),
            ("1,GPU-aa11", vec![1, 0]),
        ] {
            assert_eq!(ask(value, true), Ok(Some(expected)), "{value}");
            let ignored = ask(value, false).unwrap_err();
            assert!(ignored.contains("is an index of the host"), "{value}: {ignored}");
        }
    }

    #[test]
    fn what_it_cannot_read_limits_nothing() {
        for value in ["0:1", "/var/run/nvidia-container-devices", "nvidia.com/gpu=0", "GPU-aa11,-1"] {
            let ignored = ask(value, true).unwrap_err();
            assert!(ignored.contains("is neither a UUID nor an index"), "{value}: {ignored}");
        }
    }
}
