//! The sources of devices: which answers, how long it takes, and what is not well.

use std::time::{Duration, Instant};

use super::{Context, Findings};
use crate::cli::SourceOptions;
use crate::device::Inventory;
use crate::notes::Notes;
use crate::sharing::Resources;

/// Longer than this a driver takes that loads its firmware for each question.
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
            findings.ok("source", format!("{count} devices by {source}, in {} ms", took.as_millis()));
            if took > SLOW {
                findings.warn(
                    "source",
                    "the driver takes its time: turn persistence mode on (`nvidia-smi -pm 1`, or nvidia-persistenced)",
                );
            }
            Some((inventory, resources))
        }
    }
}
