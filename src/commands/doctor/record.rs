//! The record: which lines are stale, cannot be judged, or cannot be understood.

use std::path::Path;

use super::{Context, Findings};
use crate::assignment::{Doubt, Standing};
use crate::commands::isolation;
use crate::commands::judged::Judged;
use crate::coordination::snapshot::Snapshot;
use crate::device::Inventory;
use crate::policy;

const CHECK: &str = "record";

pub(super) fn look(
    context: &Context<'_>,
    path: &Path,
    inventory: Option<&Inventory>,
    findings: &mut Findings,
) {
    let snapshot = match Snapshot::read(&context.host, path, context.deadline) {
        Ok(Some(snapshot)) => snapshot,
        Ok(None) => return,
        Err(error) => return findings.fail(CHECK, error.chain()),
    };
    for line in &snapshot.record.withheld {
        findings.fail(CHECK, line.message(path));
    }
    if let Some(doubts) = &snapshot.doubts {
        findings.fail(CHECK, format!("{}: {doubts}", path.display()));
    }
    judge(context, &snapshot, inventory, findings);
}

fn judge(context: &Context<'_>, snapshot: &Snapshot, inventory: Option<&Inventory>, findings: &mut Findings) {
    let record = &snapshot.record;
    let occupancy = inventory.map(|inventory| policy::occupancy(inventory, record));
    let judged = Judged::new(&context.host, record, snapshot.facts, occupancy.as_ref());
    let standings: Vec<Standing> =
        (0..record.assignments.len()).map(|position| judged.standing(position)).collect();
    let count = |of: Standing| standings.iter().filter(|standing| **standing == of).count();
    findings.ok(CHECK, format!("{} held by living owners", policy::units(count(Standing::Alive) as u128)));
    for line in &record.assignments {
        let escaped = isolation::escaped(&context.host, line);
        escaped.into_iter().for_each(|problem| {
            let name = line.cgroup.as_deref().unwrap_or_default();
            findings.fail(
                CHECK,
                format!("index {} is recorded with control group {name}: {problem}", line.index),
            );
        });
    }
    for (standing, what) in [
        (Standing::Dead, "held by dead owners; `gpu-coord reclaim` releases them"),
        (
            Standing::Doubtful(Doubt::ForeignNamespace),
            "held in another pid namespace, which cannot be seen from here; run `gpu-coord reclaim` on the host",
        ),
        (
            Standing::Doubtful(Doubt::ForeignBoot),
            "held since another boot, which cannot be proven to be this host's; if that host is gone, \
             `gpu-coord release UNIT --force` frees them",
        ),
        (
            Standing::Doubtful(Doubt::Unreadable),
            "held by processes that /proc does not show; run this as root",
        ),
    ] {
        let units = count(standing);
        if units > 0 {
            findings.warn(CHECK, format!("{} {what}", policy::units(units as u128)));
        }
    }
}
