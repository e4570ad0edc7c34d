//! Isolation: whether it is available. Tried out without confining anybody.

use super::{Context, Findings};
use crate::cgroup;
use crate::cgroup::membership::Version;
use crate::error::Error;
use crate::host::owner;

const CHECK: &str = "cgroup";

/// If isolation is not available, that is not a fault, since nobody may need it.
pub(super) fn look(context: &Context<'_>, findings: &mut Findings) {
    let host = &context.host;
    let Some(own) = owner::of(host, std::process::id()).filter(|_| host.is_here()) else {
        return findings.warn(CHECK, "isolation is for processes of this host: leave --root out");
    };
    for version in [Version::V1, Version::V2] {
        match cgroup::try_out(host, &own, version, context.deadline) {
            Ok(()) => findings
                .ok(CHECK, format!("--cgroup={version} works: proven with a device that does not exist")),
            Err(error @ Error::Deadline { .. }) => {
                findings.warn(CHECK, format!("--cgroup={version} could not be tried: {}", error.chain()));
            }
            Err(error) => {
                findings.ok(CHECK, format!("--cgroup={version} is not available: {}", error.chain()))
            }
        }
    }
}
