//! What AMD's tools and kernel driver say.

use std::path::Path;

use crate::device::PciAddress;
use crate::inventory::amd::{Listed, json, order};
use crate::inventory::answer::Silence;
use crate::inventory::sysfs::gpu;
use crate::inventory::sysfs::properties;
use crate::inventory::{amd_smi, rocm_smi};
use crate::{assert_shown, lossy};

/// The JSON values between other lines; they print back to themselves.
fn values(bytes: &[u8]) -> Vec<serde_json::Value> {
    match json::values(&lossy(bytes)) {
        Ok(values) => {
            let text: String = values.iter().map(|value| format!("{value}\n")).collect();
            assert_eq!(json::values(&text).as_ref(), Ok(&values), "{text}");
            values
        }
        Err(problem) => {
            assert_shown(&problem);
            Vec::new()
        }
    }
}

/// In HIP's order, with KFD and without.
fn ordered(listed: Vec<Listed>) {
    for kfd in [
        Err(Silence::Absent(String::new())),
        Err(Silence::Nothing { why: String::new(), sure: true }),
        Ok(Vec::new()),
    ] {
        let found = order::in_hip_order(listed.clone(), &kfd);
        assert_eq!(found.devices.len(), listed.len());
        found.warnings.iter().for_each(|warning| assert_shown(warning));
        for device in &found.devices {
            device.name.iter().for_each(|name| assert_shown(name));
            device.health.reason().into_iter().for_each(assert_shown);
        }
    }
}

pub(crate) fn rocm_smi(bytes: &[u8]) {
    ordered(rocm_smi::cards(&values(bytes)));
}

pub(crate) fn amd_smi(bytes: &[u8]) {
    let values = values(bytes);
    let _ = amd_smi::gpus(&values).filter_map(amd_smi::details).count();
    let _ = amd_smi::gpus(&values).filter_map(amd_smi::errors).count();
    ordered(amd_smi::gpus(&values).filter_map(amd_smi::gpu).collect());
}

/// A node of the topology: its number, and behind the first line end its properties.
pub(crate) fn kfd(bytes: &[u8]) {
    let text = lossy(bytes);
    let (id, text) = text.split_once('\n').unwrap_or(("", &text));
    let _ = properties::local_bytes(text);
    let properties = properties::parse(text);
    for domain in [0, u32::MAX] {
        if let Some(address) = properties.as_ref().and_then(|properties| properties.address(domain)) {
            assert_eq!(address.to_string().parse::<PciAddress>(), Ok(address));
        }
    }
    let problem = || "no node's".to_owned();
    gpu::judge(1, Ok(id.to_owned()), Path::new("gpu_id"), properties.ok_or_else(problem));
}
