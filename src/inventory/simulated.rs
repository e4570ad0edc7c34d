//! `simulated:N`: devices that need no hardware, for a first try and for tests.

use crate::device::{Device, Identity, PciAddress};

/// PCI domains that no host has: Linux numbers domains from 0 and those of added controllers from 0x10000. So a simulated
/// device is never mistaken for a real one that a coordination file records.
const DOMAINS: u32 = 0xffff_fff0;

pub(super) fn devices(count: u32) -> Vec<Device> {
    (0..count).map(device).collect()
}

fn device(index: u32) -> Device {
    let uuid = format!("GPU-00000000-0000-4000-8000-{index:012x}");
    Device {
        name: Some("Simulated GPU".to_owned()),
        memory_mib: Some(16_384),
        ..Device::new(index, Identity { uuid: Some(uuid), pci: Some(address(index)), id: None })
    }
}

/// The bits of the index, distributed over bus (8), device (5), function (3) and the domain.
fn address(index: u32) -> PciAddress {
    let [_, domain, bus, function] = index.to_be_bytes();
    PciAddress { domain: DOMAINS | u32::from(domain), bus, device: function >> 3, function: function & 7 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn each_index_has_its_own_names() {
        for (index, uuid, pci) in [
            (0,       "GPU-00000000-0000-4000-8000-000000000000", "fffffff0:00:00.0"),
            (9,       "GPU-00000000-0000-4000-8000-000000000009", "fffffff0:00:01.1"),
            (65_535,  "GPU-00000000-0000-4000-8000-00000000ffff", "fffffff0:ff:1f.7"),
            (999_999, "GPU-00000000-0000-4000-8000-0000000f423f", "ffffffff:42:07.7"),
        ] {
            let device = device(index);
            assert_eq!(device.identity.uuid.as_deref(), Some(uuid), "{index}");
            assert_eq!(device.identity.pci.map(|pci| pci.to_string()).as_deref(), Some(pci), "{index}");
        }
    }

    #[test]
    fn no_two_are_one() {
        let devices = devices(70_000);
        assert_eq!(devices.len(), 70_000);
        assert_eq!(crate::inventory::distinct::check(&devices), Ok(()));
    }
}
