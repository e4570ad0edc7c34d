//! The sources of devices: which one answers, how long that takes, and which devices are sick.

use std::time::{Duration, Instant};

use super::{Context, Findings};
use crate::cli::SourceOptions;
use crate::device::Inventory;
use crate::inventory::{self, Vendor};
use crate::notes::Notes;
use crate::sharing::Resources;

/// A driver that takes longer than this probably initialises its GPUs for each query.
const SLOW: Duration = Duration::from_secs(1);

pub(super) fn look(
    context: &Context<'_>,
    options: &SourceOptions,
    findings: &mut Findings,
) -> Option<(Inventory, Resources)> {
    let since = Instant::now();
    let mut notes = Notes::default();
    let answer = context.inventory(options, &mut notes);
    let took = since.elapsed();
    notes.details.iter().for_each(|detail| findings.ok("source", detail));
    notes.warnings.iter().for_each(|warning| findings.warn("source", warning));
    match answer {
        Err(error) => {
            findings.fail("source", error.chain());
            None
        }
        Ok((inventory, resources)) => {
            let (count, source) = (inventory.devices.len(), &inventory.source);
            let devices = if count == 1 { "device" } else { "devices" };
            findings.ok("source", format!("{count} {devices} by {source}, in {} ms", took.as_millis()));
            if took > SLOW {
                findings.warn(
                    "source",
                    "the driver is slow: turn persistence mode on (`nvidia-smi -pm 1`, or \
                     nvidia-persistenced)",
                );
            }
            if Vendor::of(&inventory.source) == Some(Vendor::Nvidia) {
                // Half of the time that is left, so that a tool that hangs leaves time for the other checks.
                let limit = context.deadline.left() / 2;
                persistence(inventory::persistence(&inventory, &context.settings(options), limit), findings);
            }
            Some((inventory, resources))
        }
    }
}

/// Whether NVIDIA's driver keeps its GPUs initialised while nobody uses them.
fn persistence(told: Result<Vec<(u32, bool)>, String>, findings: &mut Findings) {
    const CHECK: &str = "persistence";
    let modes = match told {
        Ok(modes) => modes,
        Err(why) => {
            return findings.ok(CHECK, format!("it is not known whether persistence mode is on: {why}"));
        }
    };
    let off: Vec<String> =
        modes.iter().filter(|(_, is_on)| !is_on).map(|(index, _)| index.to_string()).collect();
    if off.is_empty() {
        return findings.ok(CHECK, "persistence mode is on");
    }
    findings.warn(
        CHECK,
        format!(
            "persistence mode is off on device {}, which the driver initialises anew for each caller while nobody \
             uses it: turn it on (`nvidia-smi -pm 1`, or nvidia-persistenced)",
            off.join(", ")
        ),
    );
}
