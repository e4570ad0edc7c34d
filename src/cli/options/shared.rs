//! Options that several commands have.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::choice::{Cgroup, Policy, Print};
use crate::cli::values::{amount, log, namespace, pid, seconds};
use crate::host::journal::Log;
use crate::inventory::{Source, Vendor};
use crate::selection::List;

/// The file of Flink's own script, so that both can be used side by side.
pub(crate) const DEFAULT_COORDINATION_FILE: &str = "/var/tmp/flink-gpu-coordination";

/// Options that every command has.
#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct Common {
    /// Seconds within which the whole run ends
    #[arg(long, hide_short_help = true, value_name = "SECONDS", default_value = "8", value_parser = seconds)]
    pub(crate) deadline: Duration,
    /// What is shared, quotas, and defaults of options [default: /etc/gpu-coord/config.yaml, if it is there]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) config: Option<PathBuf>,
    /// Which of the configurations of a ConfigMap
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) config_key: Option<String>,
    /// Where what has happened is written: auto (journal or syslog), none, or the path of a file
    #[arg(long, value_name = "WHERE", default_value = "auto", value_parser = log, hide_short_help = true)]
    pub(crate) log: Log,
    /// Directory below which /proc, /sys and /dev are read
    #[arg(long, hide_short_help = true, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// Take every warning for an error: then there is no answer, and nothing is given
    #[arg(long, hide_short_help = true)]
    pub(crate) strict: bool,
    /// Say on stderr how the answer was found
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Where the devices are read from.
#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct SourceOptions {
    /// auto, nvml, nvidia-smi, procfs, sysfs, amd-smi, rocm-smi, file:PATH or simulated:N
    #[arg(long, value_name = "SOURCE", default_value = "auto")]
    pub(crate) source: Source,
    /// Whose GPUs auto takes on a host that has both: nvidia or amd
    #[arg(long, hide_short_help = true, value_name = "VENDOR")]
    pub(crate) vendor: Option<Vendor>,
    /// Root of a driver container, for its NVML library and its nvidia-smi
    #[arg(long, hide_short_help = true, value_name = "DIR")]
    pub(crate) driver_root: Option<PathBuf>,
}

/// Which of the devices are meant.
#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct SelectionOptions {
    /// Only these: indexes, ranges (2-5), UUIDs or their beginnings, PCI addresses, ids
    #[arg(long, value_name = "LIST")]
    pub(crate) devices: Option<List>,
    /// All but these
    #[arg(long, value_name = "LIST")]
    pub(crate) exclude: Option<List>,
}

#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct FileOptions {
    /// The record of who holds what
    #[arg(long, value_name = "PATH", default_value = DEFAULT_COORDINATION_FILE)]
    pub(crate) coordination_file: PathBuf,
}

#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct OwnerOptions {
    /// Process that holds the units, instead of the calling one
    #[arg(long, value_name = "PID", value_parser = pid)]
    pub(crate) owner: Option<u32>,
}

/// What every request for units says.
#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct RequestOptions {
    /// How many units
    #[arg(value_parser = amount, allow_negative_numbers = true)]
    pub(crate) amount: u128,
    /// What kind of units: nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.10gb, ...
    #[arg(long, value_name = "NAME")]
    pub(crate) resource: Option<String>,
    /// Of shared devices: spread over as many as there are, or pack
    #[arg(
        long,
        value_name = "HOW",
        default_value = "spread",
        hide_possible_values = true,
        hide_short_help = true
    )]
    pub(crate) policy: Policy,
    /// Whose quota the units count for, instead of the owner's user
    #[arg(long, value_name = "NAME", value_parser = namespace, hide_short_help = true)]
    pub(crate) namespace: Option<String>,
    #[command(flatten)]
    pub(crate) selection: SelectionOptions,
    /// Let the owner open only what it is given: v1, v2, either (no value), or best-effort
    #[arg(
        long,
        value_name = "HOW",
        require_equals = true,
        num_args = 0..=1,
        default_missing_value = "any",
        hide_possible_values = true
    )]
    pub(crate) cgroup: Option<Cgroup>,
    /// Pass over CUDA_, NVIDIA_, ROCR_ and HIP_VISIBLE_DEVICES
    #[arg(long)]
    pub(crate) ignore_visible_devices: bool,
    /// Give sick devices too, after the sound ones
    #[arg(long)]
    pub(crate) include_unhealthy: bool,
    /// Never give a device that others compute on (without this: last)
    #[arg(long)]
    pub(crate) skip_busy: bool,
    /// Inside of `gpu-coord exec`: give units beside those that it gave, and not of these
    #[arg(long, hide_short_help = true)]
    pub(crate) more: bool,
    #[command(flatten)]
    pub(crate) file: FileOptions,
    #[command(flatten)]
    pub(crate) source: SourceOptions,
    #[command(flatten)]
    pub(crate) common: Common,
}

impl RequestOptions {
    /// How the owner is to be confined, if it was asked for.
    pub(crate) fn cgroup(&self) -> Option<Cgroup> {
        self.cgroup.filter(|how| *how != Cgroup::No)
    }
}

/// What the two forms of an allocation share.
#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct Allocation {
    /// Record the assignment in the coordination file (the default of `allocate`)
    #[arg(long, alias = "enable-coordination", conflicts_with = "no_coordination")]
    pub(crate) enable_coordination_mode: bool,
    /// Print the first units and record nothing (the default of the bare form)
    #[arg(long)]
    pub(crate) no_coordination: bool,
    /// Take over the units of dead owners (always, in the bare form)
    #[arg(long)]
    pub(crate) check_dead: bool,
    /// index (as the owner's CUDA counts), host-index, uuid, pci; or env, json, spark
    #[arg(long, value_name = "WHAT", default_value = "index", hide_possible_values = true)]
    pub(crate) print: Print,
    #[command(flatten)]
    pub(crate) owner: OwnerOptions,
    #[command(flatten)]
    pub(crate) request: RequestOptions,
}

/// What is done to units by an operator.
#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct ByHand {
    /// Index, range, UUID or its beginning, PCI address or id; several with commas
    #[arg(value_name = "UNIT")]
    pub(crate) units: List,
    #[command(flatten)]
    pub(crate) file: FileOptions,
    #[command(flatten)]
    pub(crate) source: SourceOptions,
    #[command(flatten)]
    pub(crate) common: Common,
}
