//! What a source that looks at the host can answer.

use std::fmt;
use std::time::Duration;

use crate::device::Device;
use crate::host::child;

pub(super) type Answer = Result<Found, Silence>;

/// What to do if NVIDIA's driver is slow to answer.
pub(super) const PERSISTENCE: &str = "without persistence mode the driver starts every GPU anew for each caller: \
                                      turn it on (`nvidia-smi -pm 1`, or nvidia-persistenced)";

/// At least one device, sound or sick.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) devices: Vec<Device>,
    pub(super) driver_version: Option<String>,
    /// One line each: the answer is valid, but somebody should look at something.
    pub(super) warnings: Vec<String>,
    /// Whether the source would have reported that a device is divided into instances.
    pub(super) tells_instances: bool,
}

/// Why a source named no device. "There is none" and "it does not work" are different answers, since different people
/// have to act on them.
#[derive(Debug)]
pub(super) enum Silence {
    /// There is nothing to ask on this host.
    Absent(String),
    /// It works, and there is no device.
    Nothing {
        why: String,
        /// Whether the driver itself said so, so that asking it in another way is useless.
        sure: bool,
    },
    /// It exists and did not answer in time, and what to do about it.
    Late { limit: Duration, why: String, cure: &'static str },
    /// It exists and does not work, and what to do about it.
    Broken { why: anyhow::Error, cure: &'static str },
}

impl Silence {
    /// What the failure of a vendor's tool means. `missing`: the reason if the tool does not exist; `patience`: what to do
    /// if it was slow.
    pub(super) fn of_child(
        failure: child::Failure,
        limit: Duration,
        missing: String,
        patience: &'static str,
    ) -> Silence {
        let why = failure.to_string();
        match failure {
            failure if failure.is_missing() => Silence::Absent(missing),
            child::Failure::Late { .. } => Silence::Late { limit, why, cure: patience },
            child::Failure::Stuck { .. } => Silence::Late { limit, why, cure: "restart the host" },
            failure => Silence::Broken { why: failure.into(), cure: "run it by hand, and look at `dmesg`" },
        }
    }

    /// What to do about it, if anything is wrong.
    pub(super) fn cure(&self) -> Option<&'static str> {
        match self {
            Silence::Late { cure, .. } | Silence::Broken { cure, .. } => Some(cure),
            Silence::Absent(_) | Silence::Nothing { .. } => None,
        }
    }

    /// Whether something is wrong with the source, rather than that there is nothing to find.
    pub(super) fn is_failure(&self) -> bool {
        match self {
            Silence::Absent(_) | Silence::Nothing { sure: true, .. } => false,
            Silence::Nothing { sure: false, .. } | Silence::Late { .. } | Silence::Broken { .. } => true,
        }
    }
}

impl fmt::Display for Silence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Silence::Absent(why) | Silence::Nothing { why, .. } | Silence::Late { why, .. } => {
                out.write_str(why)
            }
            Silence::Broken { why, .. } => write!(out, "{why:#}"),
        }
    }
}
