//! Isolation: whether it is to be had, tried out on nobody.

use super::{Context, Findings};
use crate::cgroup;
use crate::cgroup::membership::Version;
use crate::error::Error;
use crate::host::owner;

const CHECK: &str = "cgroup";

/// Not to be had is no fault of a host where nobody asks for it.
pub(super) fn look(context: &Context<'_>, findings: &mut Findings) {
    let host = &context.host;
    let Some(own) = owner::of(host, std::process::id()).filter(|_| host.is_here()) else {
        return findings.warn(CHECK, "isolation is for processes of this host: leave --root out");
    };
    for version in [Version::V1, Version::V2] {
        match cgroup::try_out(host, &own, version, context.deadline) {
            Ok(()) => findings.ok(
                CHECK,
                format!("--cgroup={version} denies, as it is proven with a device that is not there"),
            ),
            Err(error @ Error::Deadline { .. }) => {
                findings.warn(CHECK, format!("--cgroup={version} could not be tried: {}", error.chain()));
            }
            Err(error) => {
                findings.ok(CHECK, format!("--cgroup={version} is not to be had: {}", error.chain()))
            }
        }
    }
}
