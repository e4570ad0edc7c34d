//! Whether the devices of one inventory can be told apart.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::hash::Hash;

use crate::device::Device;

/// Fails, naming the two, if two devices share an index or an identity: one would be granted in place of the other.
pub(super) fn check(devices: &[Device]) -> Result<(), String> {
    unique(devices, "index", |device| Some(device.index))?;
    unique(devices, "UUID", |device| device.identity.uuid.as_deref())?;
    unique(devices, "PCI address", |device| device.identity.pci)?;
    unique(devices, "id", |device| device.identity.id.as_deref())?;
    let instances = devices.iter().flat_map(|device| device.instances.iter().flatten());
    let mut seen = HashSet::new();
    match instances.filter_map(|instance| instance.uuid.as_ref()).find(|uuid| !seen.insert(*uuid)) {
        Some(uuid) => Err(format!("two MIG instances have one UUID: {uuid}")),
        None => Ok(()),
    }
}

fn unique<'a, K: Copy + Display + Eq + Hash>(
    devices: &'a [Device],
    what: &str,
    key: impl Fn(&'a Device) -> Option<K>,
) -> Result<(), String> {
    let mut seen: HashMap<K, &Device> = HashMap::with_capacity(devices.len());
    for device in devices {
        let Some(key) = key(device) else { continue };
        match seen.entry(key) {
            Entry::Vacant(entry) => entry.insert(device),
            Entry::Occupied(first) => {
                let (first, second) = (label(first.get()), label(device));
                return Err(format!("{first} and {second} have one {what}: {key}"));
            }
        };
    }
    Ok(())
}

/// A device in a sentence: its index and its name, which tells it from another with the same index.
fn label(device: &Device) -> String {
    format!("device {}", device.identity.label(device.index, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Identity, Instance};

    fn device(index: u32, uuid: &str, pci: &str, id: &str) -> Device {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Device::new(index, Identity { uuid: some(uuid), pci: pci.parse().ok(), id: some(id) })
    }

    #[test]
    #[rustfmt::skip] // a table
    fn both_are_named() {
        for (case, one, other, says) in [
            ("index",   device(0, "GPU-a", "", ""),            device(0, "GPU-b", "", ""),        "device 0 (GPU-a) and device 0 (GPU-b) have one index: 0"),
            ("uuid",    device(0, "GPU-a", "", ""),            device(1, "GPU-a", "", ""),        "device 0 (GPU-a) and device 1 (GPU-a) have one UUID: GPU-a"),
            ("address", device(0, "", "00000000:3B:00.0", ""), device(1, "", "0000:3b:00.0", ""), "have one PCI address: 0000:3b:00.0"),
            ("id",      device(0, "", "", "x"),                device(1, "", "", "x"),            "have one id: x"),
        ] {
            let problem = check(&[one, other]).expect_err(case);
            assert!(problem.contains(says), "{case}: {problem}");
        }
    }

    #[test]
    fn what_is_not_known_is_not_equal() {
        assert_eq!(check(&[device(0, "", "", ""), device(1, "", "", "")]), Ok(()));
    }

    #[test]
    fn two_instances_need_two_names() {
        let instance = |uuid: &str| Instance { uuid: Some(uuid.to_owned()), ..Instance::default() };
        let divided = |index, uuid: &str, of: &[&str]| Device {
            instances: Some(of.iter().map(|uuid| instance(uuid)).collect()),
            ..device(index, uuid, "", "")
        };
        assert_eq!(
            check(&[divided(0, "GPU-a", &["MIG-a", "MIG-b"]), divided(1, "GPU-b", &["MIG-c"])]),
            Ok(())
        );
        let problem = "two MIG instances have one UUID: MIG-a";
        for devices in [
            vec![divided(0, "GPU-a", &["MIG-a", "MIG-a"])],
            vec![divided(0, "GPU-a", &["MIG-a"]), divided(1, "GPU-b", &["MIG-a"])],
        ] {
            assert_eq!(check(&devices), Err(problem.to_owned()));
        }
    }
}
