//! Puts the GPUs that a tool lists into HIP's order.
//!
//! The tools number GPUs by row, by address or by `cardN`, but HIP counts the GPUs of KFD. So each listed GPU is looked
//! up in KFD and gets its index there. HIP cannot use what KFD does not list.

use crate::device::{Device, Health, Identity};
use crate::inventory::amd::{Kfd, Listed};
use crate::inventory::answer::{Found, Silence};
use crate::inventory::health;
use crate::inventory::sysfs::Node;

pub(super) fn in_hip_order(listed: Vec<Listed>, kfd: &Kfd) -> Found {
    let mut found = match kfd {
        Ok(nodes) => joined(listed, nodes),
        Err(Silence::Nothing { .. }) => joined(listed, &[]),
        Err(Silence::Absent(_) | Silence::Late { .. } | Silence::Broken { .. }) => alone(listed),
    };
    found.devices.sort_by_key(|device| device.index);
    found
}

fn joined(listed: Vec<Listed>, nodes: &[Node]) -> Found {
    let mut foreign = (0..).skip(nodes.len());
    let mut found =
        Found { devices: Vec::new(), driver_version: None, warnings: Vec::new(), tells_instances: true };
    for gpu in listed {
        let device = match node(&gpu, nodes) {
            Some(node) => {
                let device = completed(node.device.clone(), gpu);
                found.warnings.extend(health::warning(&device));
                device
            }
            None => {
                let index = foreign.next().unwrap_or(u32::MAX);
                let health = Health::Lost("KFD does not list it, so HIP cannot use it".to_owned());
                found.warnings.push(format!("{} is sick: KFD does not list it", gpu.label));
                Device { health, ..gpu.device(index) }
            }
        };
        found.devices.push(device);
    }
    found
}

/// The node of a GPU. KFD's number is tried first: old tools give all partitions of a card the same address.
fn node<'a>(gpu: &Listed, nodes: &'a [Node]) -> Option<&'a Node> {
    let by_id = |node: &&Node| node.gpu_id.is_some() && node.gpu_id == gpu.gpu_id;
    let by_node = |node: &&Node| gpu.node == Some(u64::from(node.number));
    let by_address = |node: &&Node| gpu.pci.is_some() && node.device.identity.pci == gpu.pci;
    let find = |is_it: &dyn Fn(&&'a Node) -> bool| nodes.iter().find(is_it);
    find(&by_id).or_else(|| find(&by_node)).or_else(|| find(&by_address))
}

/// KFD's device with what only the tool knows: the marketing name. Errors are left out, since the kernel has counted
/// them.
fn completed(device: Device, gpu: Listed) -> Device {
    Device {
        name: gpu.name.or(device.name),
        memory_mib: device.memory_mib.or(gpu.memory_mib),
        memory_used_mib: device.memory_used_mib.or(gpu.memory_used_mib),
        ..device
    }
}

/// Without KFD: the node numbers that a tool reports give KFD's order as well.
fn alone(mut listed: Vec<Listed>) -> Found {
    let mut warnings = Vec::new();
    if listed.iter().all(|gpu| gpu.node.is_some()) {
        listed.sort_by_key(|gpu| gpu.node);
    } else {
        listed.sort_by_key(|gpu| (gpu.pci.is_none(), gpu.pci));
        warnings.push(
            "without KFD the order is that of the PCI addresses, and HIP may count otherwise".to_owned(),
        );
    }
    let devices: Vec<Device> = (0..).zip(listed).map(|(index, gpu)| gpu.device(index)).collect();
    warnings.extend(devices.iter().filter_map(health::warning));
    Found { devices, driver_version: None, warnings, tells_instances: true }
}

impl Listed {
    fn device(self, index: u32) -> Device {
        let nameless = self.pci.is_none().then(|| "its PCI address is not told".to_owned());
        let why = nameless.or_else(|| health::of_errors(self.uncorrected_errors));
        Device {
            name: self.name,
            memory_mib: self.memory_mib,
            memory_used_mib: self.memory_used_mib,
            health: why.map_or(Health::Sound, Health::Sick),
            unique_id: self.unique_id,
            uncorrected_errors: self.uncorrected_errors,
            ..Device::new(index, Identity { pci: self.pci, ..Identity::default() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A GPU as KFD lists it: number of the node, of the GPU, and address.
    fn kfd(gpus: &[(u32, u64, &str)]) -> Kfd {
        let node = |(index, (number, gpu_id, pci)): (u32, &(u32, u64, &str))| {
            let identity = Identity { pci: pci.parse().ok(), ..Identity::default() };
            let device = Device {
                minor: Some(128 + index),
                name: Some("chip".to_owned()),
                ..Device::new(index, identity)
            };
            Node { number: *number, gpu_id: Some(*gpu_id), device }
        };
        Ok((0..).zip(gpus).map(node).collect())
    }

    fn listed(label: &str, gpu_id: Option<u64>, node: Option<u64>, pci: &str) -> Listed {
        Listed { label: label.to_owned(), gpu_id, node, pci: pci.parse().ok(), ..Listed::default() }
    }

    /// Index, address and whether it is sound.
    fn summary(found: &Found) -> Vec<(u32, String, bool)> {
        let address = |device: &Device| device.identity.pci.map(|pci| pci.to_string()).unwrap_or_default();
        let summary = |device: &Device| (device.index, address(device), device.health == Health::Sound);
        found.devices.iter().map(summary).collect()
    }

    fn row(index: u32, address: &str, is_sound: bool) -> (u32, String, bool) {
        (index, address.to_owned(), is_sound)
    }

    #[test]
    fn the_index_is_hips() {
        // KFD counts them the other way round.
        let kfd = kfd(&[(1, 11, "0000:43:00.0"), (2, 22, "0000:23:00.0")]);
        let gpus =
            vec![listed("card0", None, None, "0000:23:00.0"), listed("card1", None, None, "0000:43:00.0")];
        let found = in_hip_order(gpus, &kfd);
        assert_eq!(summary(&found), [row(0, "0000:43:00.0", true), row(1, "0000:23:00.0", true)]);
        assert_eq!((found.devices[1].minor, found.warnings.len()), (Some(129), 0));
    }

    #[test]
    fn partitions_that_share_an_address_are_told_apart_by_kfds_number() {
        let kfd = kfd(&[(2, 11, "0000:05:00.0"), (3, 22, "0000:05:00.1")]);
        for (case, second, first) in
            [("number", (Some(22), None), (Some(11), None)), ("node", (None, Some(3)), (None, Some(2)))]
        {
            let gpu = |(id, node)| listed("card", id, node, "0000:05:00.0");
            let found = in_hip_order(vec![gpu(second), gpu(first)], &kfd);
            assert_eq!(
                summary(&found),
                [row(0, "0000:05:00.0", true), row(1, "0000:05:00.1", true)],
                "{case}"
            );
        }
    }

    #[test]
    fn what_kfd_does_not_list_is_not_granted() {
        let kfd = kfd(&[(1, 11, "0000:43:00.0")]);
        let gpus =
            || vec![listed("card0", None, None, "0000:01:00.0"), listed("card1", Some(11), None, "N/A")];
        let found = in_hip_order(gpus(), &kfd);
        assert_eq!(summary(&found), [row(0, "0000:43:00.0", true), row(1, "0000:01:00.0", false)]);
        assert_eq!(found.warnings, ["card0 is sick: KFD does not list it"]);
        let none = Err(Silence::Nothing { why: "processors only".to_owned(), sure: true });
        assert_eq!(summary(&in_hip_order(gpus(), &none)), [row(0, "0000:01:00.0", false), row(1, "", false)]);
    }

    #[test]
    fn without_kfd_the_tools_word_for_its_order_counts() {
        let absent = || Err(Silence::Absent("no KFD".to_owned()));
        let gpus =
            vec![listed("0", None, Some(2), "0000:01:00.0"), listed("1", None, Some(1), "0000:02:00.0")];
        let found = in_hip_order(gpus.clone(), &absent());
        assert_eq!(summary(&found), [row(0, "0000:02:00.0", true), row(1, "0000:01:00.0", true)]);
        assert_eq!(found.warnings.len(), 0);
        let nodeless = gpus.into_iter().map(|gpu| Listed { node: None, ..gpu });
        let nodeless = std::iter::once(listed("2", None, None, "N/A")).chain(nodeless).collect();
        let found = in_hip_order(nodeless, &absent());
        assert_eq!(
            summary(&found),
            [row(0, "0000:01:00.0", true), row(1, "0000:02:00.0", true), row(2, "", false)]
        );
        assert!(found.warnings[0].starts_with("without KFD the order is that of the PCI addresses"));
        assert_eq!(found.warnings[1], "device 2 is sick: its PCI address is not told");
    }

    #[test]
    fn without_kfd_the_tools_count_of_errors_makes_a_gpu_sick() {
        let gpus = [Some(0), Some(3), None].map(|uncorrected_errors| Listed {
            uncorrected_errors,
            ..listed("gpu", None, uncorrected_errors.or(Some(9)), "0000:01:00.0")
        });
        let found = in_hip_order(gpus.to_vec(), &Err(Silence::Absent("no KFD".to_owned())));
        let sound: Vec<bool> = found.devices.iter().map(|device| device.health == Health::Sound).collect();
        assert_eq!((sound, found.devices[1].uncorrected_errors), (vec![true, false, true], Some(3)));
        let warning = "device 1 (0000:01:00.0) is sick: uncorrected errors of its memory since the driver was loaded: 3";
        assert_eq!(found.warnings, [warning]);
    }

    #[test]
    fn each_side_adds_what_it_knows() {
        let gpu = Listed {
            name: Some("Radeon".to_owned()),
            memory_mib: Some(1),
            ..listed("0", Some(11), None, "")
        };
        let found = in_hip_order(vec![gpu], &kfd(&[(1, 11, "0000:43:00.0")]));
        assert_eq!(
            (found.devices[0].name.as_deref(), found.devices[0].memory_mib),
            (Some("Radeon"), Some(1))
        );
    }
}
