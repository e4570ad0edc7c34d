//! Which devices a process sees and in which order, as AMD's runtime reads its variables: pure.
//!
//! There are two layers, and each numbers what the one below leaves: ROCr reads `ROCR_VISIBLE_DEVICES`; HIP above it
//! reads `HIP_VISIBLE_DEVICES`, or `CUDA_VISIBLE_DEVICES` if that is not set. Both accept indexes and `GPU-` with the
//! unique id in 16 hexadecimal digits, but their rules differ: see `RvdFilter` in ROCr, and `Device::init` in HIP's
//! rocclr, which knows unique ids since ROCm 6.

use super::Variables;
use crate::device::{Device, Inventory};

/// Positions in [`Inventory::devices`], in the order in which the process counts them.
pub(super) fn visible_to_hip(inventory: &Inventory, variables: &Variables) -> Vec<usize> {
    let devices = &inventory.devices;
    let left = match &variables.rocr {
        Some(list) => left_by_rocr(devices, list),
        None => (0..devices.len()).collect(),
    };
    // HIP does not distinguish an empty variable from an unset one.
    let lists = [&variables.hip, &variables.cuda];
    match lists.into_iter().flatten().find(|list| !list.is_empty()) {
        Some(list) => left_by_hip(devices, &left, list),
        None => left,
    }
}

/// The first entry that names no device, or one for the second time, ends the list. An empty list hides everything.
fn left_by_rocr(devices: &[Device], list: &str) -> Vec<usize> {
    let mut left = Vec::new();
    // No more entries are read than there are GPUs.
    for entry in list.split(',').take(devices.len()) {
        match named_to_rocr(devices, &entry.trim().to_ascii_uppercase()) {
            Some(position) if !left.contains(&position) => left.push(position),
            _ => break,
        }
    }
    left
}

/// A prefix of a unique id suffices if it matches only one device; the partitions of a card have equal ids.
fn named_to_rocr(devices: &[Device], entry: &str) -> Option<usize> {
    if !entry.starts_with('G') {
        let index = number(entry)?;
        return devices.iter().position(|device| device.index == index);
    }
    let begins = |at: &usize| {
        entry.len() > "GPU-".len()
            && devices[*at].unique_id.is_some_and(|id| format!("GPU-{id:016X}").starts_with(entry))
    };
    let mut matches = (0..devices.len()).filter(begins);
    matches.next().filter(|_| matches.next().is_none())
}

/// As C's `strtol` reads a number with base 0: `010` is 8 and `0x10` is 16.
fn number(text: &str) -> Option<u32> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    let (digits, radix) = match digits.strip_prefix("0X") {
        Some(digits) => (digits, 16),
        None if digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    u32::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'))
}

/// The first entry that names no device ends the list; a device that is named again is ignored.
fn left_by_hip(devices: &[Device], seen: &[usize], list: &str) -> Vec<usize> {
    let named = list.split(',').map_while(|entry| named_to_hip(devices, seen, entry));
    let mut left = Vec::new();
    for position in named {
        if !left.contains(&position) {
            left.push(position);
        }
    }
    left
}

/// Of several devices with the same unique id, HIP takes the first.
fn named_to_hip(devices: &[Device], seen: &[usize], entry: &str) -> Option<usize> {
    if entry.contains("GPU-") {
        let is_it =
            |at: &&usize| devices[**at].unique_id.is_some_and(|id| format!("GPU-{id:016x}").contains(entry));
        return seen.iter().find(is_it).copied();
    }
    // Digits only, without blanks and leading zeros.
    let index: usize = entry.parse().ok()?;
    seen.get(index).copied().filter(|_| index.to_string() == entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Identity;

    /// Two cards, and one in two partitions.
    fn host() -> Inventory {
        let ids = [0xaa11, 0xab22_0000_0000_0000, 0xcc33_0000_0000_0000, 0xcc33_0000_0000_0000];
        let device = |(index, id): (u32, u64)| Device {
            unique_id: Some(id),
            ..Device::new(index, Identity::default())
        };
        let devices = (0..).zip(ids).map(device).collect();
        Inventory { source: "sysfs".to_owned(), driver_version: None, devices, tells_instances: true }
    }

    fn seen(rocr: Option<&str>, hip: Option<&str>, cuda: Option<&str>) -> Vec<usize> {
        let [rocr, hip, cuda] = [rocr, hip, cuda].map(|list| list.map(str::to_owned));
        visible_to_hip(&host(), &Variables { rocr, hip, cuda, ..Variables::default() })
    }

    #[test]
    #[rustfmt::skip] // a table
    fn as_rocr_reads_it() {
        for (case, list, expected) in [
            ("not set",                  None,                             vec![0, 1, 2, 3]),
            ("in the list's order",      Some("2,0"),                      vec![2, 0]),
            ("empty",                    Some(""),                         vec![]),
            ("blanks",                   Some(" 1 , 2"),                   vec![1, 2]),
            ("past the host ends",       Some("0,7,1"),                    vec![0]),
            ("a negative one ends",      Some("1,-1,0"),                   vec![1]),
            ("a word ends",              Some("1,x,0"),                    vec![1]),
            ("an empty entry ends",      Some("1,,0"),                     vec![1]),
            ("a duplicate ends",         Some("1,0,1,2"),                  vec![1, 0]),
            ("by another name too",      Some("0,GPU-000000000000aa11,2"), vec![0]),
            ("hexadecimal",              Some("0x2"),                      vec![2]),
            ("octal",                    Some("03"),                       vec![3]),
            ("no octal",                 Some("08"),                       vec![]),
            ("a sign",                   Some("+1"),                       vec![1]),
            ("two signs",                Some("++1"),                      vec![]),
            ("a unique id",              Some("GPU-ab22000000000000,0"),   vec![1, 0]),
            ("in another case",          Some("gpu-AB22"),                 vec![1]),
            ("its beginning",            Some("GPU-a"),                    vec![1]),
            ("padded",                   Some("GPU-0"),                    vec![0]),
            ("nothing of it",            Some("GPU-"),                     vec![]),
            ("one digit too many",       Some("GPU-ab220000000000000"),    vec![]),
            ("of two partitions",        Some("0,GPU-cc33"),               vec![0]),
        ] {
            assert_eq!(seen(list, None, None), expected, "{case}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn as_hip_reads_it() {
        for (case, list, expected) in [
            ("in the list's order",   "2,0",                    vec![2, 0]),
            ("empty is not set",      "",                       vec![0, 1, 2, 3]),
            ("a blank ends",          "1, 2",                   vec![1]),
            ("past the host ends",    "0,7,1",                  vec![0]),
            ("a negative one ends",   "1,-1,0",                 vec![1]),
            ("a word hides all",      "none",                   vec![]),
            ("a leading zero ends",   "1,02",                   vec![1]),
            ("a sign ends",           "1,+2",                   vec![1]),
            ("a duplicate is passed", "1,0,1,2",                vec![1, 0, 2]),
            ("by another name too",   "0,GPU-000000000000aa11,2", vec![0, 2]),
            ("a unique id",           "GPU-ab22000000000000,0", vec![1, 0]),
            ("its beginning",         "GPU-ab",                 vec![1]),
            ("in another case ends",  "0,GPU-AB22",             vec![0]),
            ("of two partitions",     "GPU-cc33",               vec![2]),
            ("a comma at the end",    "1,",                     vec![1]),
        ] {
            assert_eq!(seen(None, Some(list), None), expected, "{case}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn one_counts_what_the_other_leaves() {
        for (case, rocr, hip, cuda, expected) in [
            ("the second of two",       Some("1,3"), Some("1"), None,      vec![3]),
            ("both say 1",              Some("1"),   Some("1"), None,      vec![]),
            ("both by the unique id",   Some("3,1"), Some("GPU-ab"), None, vec![1]),
            ("hidden below",            Some("1"),   Some("GPU-cc"), None, vec![]),
            ("none below",              Some(""),    Some("0"), None,      vec![]),
            ("CUDA's in HIP's place",   Some("1,3"), None,      Some("1"), vec![3]),
            ("HIP's goes before",       None,        Some("2"), Some("1"), vec![2]),
            ("an empty one does not",   None,        Some(""),  Some("1"), vec![1]),
            ("both are empty",          None,        Some(""),  Some(""),  vec![0, 1, 2, 3]),
        ] {
            assert_eq!(seen(rocr, hip, cuda), expected, "{case}");
        }
    }
}
