//! NVIDIA's Multi-Process Service: whether its daemon is running, and the variables of its clients.
//!
//! Source: NVIDIA's documentation of MPS, "Environment Variables" and "Control Daemon".

use super::Context;
use crate::config::{MpsDirectories, Way};
use crate::device::{Inventory, Unit};
use crate::error::Error;
use crate::host::mps;
use crate::sharing::Resources;

/// Fails if a unit is shared by MPS and the daemon does not answer: without it, the owners would not be limited at all.
pub(super) fn check(context: &Context<'_>, resources: &Resources, units: &[Unit]) -> Result<(), Error> {
    if !units.iter().any(|unit| resources.way(unit) == Some(Way::Mps)) {
        return Ok(());
    }
    let MpsDirectories { pipe, .. } = directories(context);
    if mps::answers(&pipe) {
        return Ok(());
    }
    let problem = format!(
        "no MPS control daemon answers here; start it with `CUDA_MPS_PIPE_DIRECTORY={} nvidia-cuda-mps-control -d`",
        pipe.display()
    );
    Err(Error::File { path: pipe, problem })
}

fn directories(context: &Context<'_>) -> MpsDirectories {
    context.config.map(|config| config.mps.clone()).unwrap_or_default()
}

/// The variables of an MPS client that holds these units, if it is one. Its shares of the threads and of the memory equal
/// its share of the device.
pub(super) fn variables(
    context: &Context<'_>,
    inventory: &Inventory,
    resources: &Resources,
    units: &[Unit],
) -> Vec<(&'static str, String)> {
    // There is at most one, since only one MPS share is granted at a time (`config::sharing`).
    let Some(unit) = units.iter().find(|unit| resources.way(unit) == Some(Way::Mps)) else {
        return Vec::new();
    };
    let MpsDirectories { pipe, log } = directories(context);
    let replicas = inventory.slots_of(unit).unwrap_or(1).max(1);
    let mut variables = vec![
        ("CUDA_MPS_PIPE_DIRECTORY", pipe.to_string_lossy().into_owned()),
        ("CUDA_MPS_LOG_DIRECTORY", log.to_string_lossy().into_owned()),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", (100 / replicas).max(1).to_string()),
    ];
    // Its only device is its device 0.
    let limit = memory(inventory, unit).map(|mib| format!("0={}M", mib / u64::from(replicas)));
    variables.extend(limit.map(|limit| ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", limit)));
    variables
}

/// The memory of the shared device or instance, in MiB.
fn memory(inventory: &Inventory, unit: &Unit) -> Option<u64> {
    let device = &inventory.devices[unit.device];
    match unit.instance {
        Some(at) => device.instances.as_ref()?.get(at)?.memory_mib,
        None => device.memory_mib,
    }
}
