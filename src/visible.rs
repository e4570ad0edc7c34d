//! Which devices a process sees, according to the variables in its environment: pure.
//!
//! There are two kinds of variables. Those of the runtimes (CUDA, ROCr, HIP) hide devices from the process, and the
//! runtime numbers those that are left: these variables determine the indexes that we print. `NVIDIA_VISIBLE_DEVICES`
//! is read by the container toolkit, never by CUDA: it limits what may be granted and changes no index (`container`).
//!
//! CUDA's rules are those of the CUDA C++ Programming Guide, "CUDA Environment Variables": the list consists of indexes
//! and of UUIDs or unique prefixes of them; an entry that does not name a device ends the list; CUDA numbers the listed
//! devices from 0.
//!
//! No variable hides the devices of an inventory file, which can be of any kind. Simulated devices count as NVIDIA's.

mod container;
mod hip;

use std::collections::HashSet;

use crate::device::{Inventory, Part, Unit};
use crate::selection::Parts;

/// The `..._VISIBLE_DEVICES` variables of a process. An empty one (no device is visible) differs from an unset one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Variables {
    pub(crate) cuda: Option<String>,
    pub(crate) nvidia: Option<String>,
    pub(crate) rocr: Option<String>,
    pub(crate) hip: Option<String>,
}

impl Variables {
    pub(crate) fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Variables {
        Variables {
            cuda: variable("CUDA_VISIBLE_DEVICES"),
            nvidia: variable("NVIDIA_VISIBLE_DEVICES"),
            rocr: variable("ROCR_VISIBLE_DEVICES"),
            hip: variable("HIP_VISIBLE_DEVICES"),
        }
    }
}

/// What a process sees.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// In the order in which the process counts them.
    pub(crate) parts: Vec<Part>,
    /// Those that may be granted; `None`: all of them.
    pub(crate) limit: Option<Vec<Part>>,
    /// Why a variable that is set is ignored, for a warning.
    pub(crate) ignored: Option<String>,
}

impl Seen {
    /// Every device, in the host's order.
    pub(crate) fn all(inventory: &Inventory) -> Seen {
        let parts = (0..inventory.devices.len()).map(Part::whole).collect();
        Seen { parts, limit: None, ignored: None }
    }

    /// The devices of these units and no others, as the kernel enforces it.
    pub(crate) fn only(units: &[Unit]) -> Seen {
        let mut parts: Vec<Part> = units.iter().map(|unit| Part::whole(unit.device)).collect();
        parts.sort_unstable();
        parts.dedup();
        Seen { parts, limit: None, ignored: None }
    }

    /// What a process sees of AMD's devices.
    pub(crate) fn by_hip(inventory: &Inventory, variables: &Variables) -> Seen {
        let parts = hip::visible_to_hip(inventory, variables).into_iter().map(Part::whole).collect();
        Seen { parts, limit: None, ignored: None }
    }

    /// What a process sees of NVIDIA's devices. `is_host`: the indexes of this inventory are certainly those of the host.
    pub(crate) fn by_cuda(inventory: &Inventory, variables: &Variables, is_host: bool) -> Seen {
        let parts = to_cuda(inventory, variables.cuda.as_deref());
        match container::limit(inventory, variables.nvidia.as_deref().unwrap_or_default(), is_host) {
            Ok(limit) => Seen { parts, limit, ignored: None },
            Err(why) => Seen { parts, limit: None, ignored: Some(why) },
        }
    }

    /// The units that may be granted, in the order in which the process counts them.
    pub(crate) fn units(&self, inventory: &Inventory) -> Vec<Unit> {
        if !self.is_relative(inventory) && self.limit.is_none() {
            return inventory.units().collect();
        }
        let limit = self.limit.clone().map(Parts::new);
        let is_within = |unit: &Unit| limit.as_ref().is_none_or(|limit| limit.cover(unit));
        // An instance can be named in addition to its device.
        let mut taken = HashSet::new();
        let units = self.parts.iter().flat_map(|part| inventory.units_of(*part));
        units.filter(|unit| is_within(unit) && taken.insert(*unit)).collect()
    }

    /// Whether the process counts devices differently from the vendor's tool.
    pub(crate) fn is_relative(&self, inventory: &Inventory) -> bool {
        !self.parts.iter().copied().eq((0..inventory.devices.len()).map(Part::whole))
    }
}

fn to_cuda(inventory: &Inventory, variable: Option<&str>) -> Vec<Part> {
    let Some(list) = variable else { return Seen::all(inventory).parts };
    let named: Vec<Part> = list.split(',').map_while(|entry| part(inventory, entry.trim())).collect();
    let mut distinct = named.clone();
    distinct.sort_unstable();
    distinct.dedup();
    // A device named twice makes CUDA see none at all.
    if distinct.len() == named.len() { named } else { Vec::new() }
}

fn part(inventory: &Inventory, entry: &str) -> Option<Part> {
    if !entry.is_empty() && entry.bytes().all(|byte| byte.is_ascii_digit()) {
        let index: u32 = entry.parse().ok()?;
        return inventory.devices.iter().position(|device| device.index == index).map(Part::whole);
    }
    let mut matches = inventory.uuids().filter(|(_, uuid)| is_prefix(entry, uuid));
    matches.next().filter(|_| matches.next().is_none()).map(|(part, _)| part)
}

/// `GPU-` alone names nothing.
fn is_prefix(entry: &str, uuid: &str) -> bool {
    entry.len() > "GPU-".len() && uuid.starts_with(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Device, Identity, Instance};

    /// Three devices, and a fourth in two instances.
    pub(super) fn host() -> Inventory {
        let uuids = ["GPU-aa11", "GPU-ab22", "GPU-cc33", "GPU-dd44"];
        let device = |(index, uuid): (u32, &str)| {
            let identity = Identity { uuid: Some(uuid.to_owned()), ..Identity::default() };
            Device::new(index, identity)
        };
        let mut devices: Vec<Device> = (0..).zip(uuids).map(device).collect();
        let instance = |uuid: &str| Instance { uuid: Some(format!("MIG-{uuid}")), ..Instance::default() };
        devices[3].instances = Some(vec![instance("e1"), instance("f2")]);
        Inventory { source: "test".to_owned(), driver_version: None, devices, tells_instances: true }
    }

    fn instance(at: usize) -> Part {
        Part { device: 3, instance: Some(at) }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn as_cuda_reads_it() {
        for (case, variable, seen) in [
            ("not set",                     None,                   vec![0, 1, 2, 3]),
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
            ("an instance that is not",     Some("0,MIG-99"),       vec![0]),
        ] {
            let seen: Vec<Part> = seen.into_iter().map(Part::whole).collect();
            assert_eq!(to_cuda(&host(), variable), seen, "{case}");
        }
        assert_eq!(to_cuda(&host(), Some("MIG-f2,0")), [instance(1), Part::whole(0)]);
    }

    #[test]
    fn the_containers_variable_changes_no_index() {
        let variables = Variables {
            cuda: Some("2,1,0".to_owned()),
            nvidia: Some("GPU-aa11,MIG-e1".to_owned()),
            ..Variables::default()
        };
        let seen = Seen::by_cuda(&host(), &variables, false);
        assert_eq!(seen.parts, [2, 1, 0].map(Part::whole));
        assert_eq!(seen.limit, Some(vec![Part::whole(0), instance(0)]));
        let unit = |device, instance| Unit { device, instance, slot: None };
        assert_eq!(seen.units(&host()), [unit(0, None)]);
        let all =
            Seen { parts: vec![instance(1), Part::whole(3), Part::whole(0)], limit: None, ignored: None };
        assert_eq!(all.units(&host()), [unit(3, Some(1)), unit(3, Some(0)), unit(0, None)], "each once");
        assert!(seen.is_relative(&host()));
        assert!(!Seen::all(&host()).is_relative(&host()));
    }
}
