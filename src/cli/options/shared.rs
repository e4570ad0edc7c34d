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
    /// Time limit for the whole run, in seconds
    #[arg(long, hide_short_help = true, value_name = "SECONDS", default_value = "8", value_parser = seconds)]
    pub(crate) deadline: Duration,
    /// Shared devices, quotas and defaults of options [default: /etc/gpu-coord/config.yaml, if it exists]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) config: Option<PathBuf>,
    /// Which entry of a ConfigMap with several configurations
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) config_key: Option<String>,
    /// Where to write the history: auto (journal or syslog), none, or the path of a file
    #[arg(long, value_name = "WHERE", default_value = "auto", value_parser = log, hide_short_help = true)]
    pub(crate) log: Log,
    /// Read /proc, /sys and /dev below this directory
    #[arg(long, hide_short_help = true, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// Treat every warning as an error: print no answer and assign nothing
    #[arg(long, hide_short_help = true)]
    pub(crate) strict: bool,
    /// Explain on stderr how the answer was found
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Where the devices are read from.
#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct SourceOptions {
    /// Where devices are read: auto, nvml, nvidia-smi, procfs, sysfs, amd-smi, rocm-smi, file:PATH, simulated:N
    #[arg(long, value_name = "SOURCE", default_value = "auto")]
    pub(crate) source: Source,
    /// Which GPUs auto uses on a host that has both: nvidia or amd
    #[arg(long, hide_short_help = true, value_name = "VENDOR")]
    pub(crate) vendor: Option<Vendor>,
    /// Use the NVML library and nvidia-smi below this directory, the root of a driver container
    #[arg(long, hide_short_help = true, value_name = "DIR")]
    pub(crate) driver_root: Option<PathBuf>,
}

/// Which of the devices are meant.
#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct SelectionOptions {
    /// Only these devices: indexes, ranges (2-5), UUIDs or prefixes, PCI addresses, ids
    #[arg(long, value_name = "LIST")]
    pub(crate) devices: Option<List>,
    /// All devices but these
    #[arg(long, value_name = "LIST")]
    pub(crate) exclude: Option<List>,
}

#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct FileOptions {
    /// The file that records who holds what
    #[arg(long, value_name = "PATH", default_value = DEFAULT_COORDINATION_FILE)]
    pub(crate) coordination_file: PathBuf,
}

#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct OwnerOptions {
    /// The process that holds the units, instead of the calling one
    #[arg(long, value_name = "PID", value_parser = pid)]
    pub(crate) owner: Option<u32>,
}

/// What every request for units says.
#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct RequestOptions {
    /// Number of units
    #[arg(value_parser = amount, allow_negative_numbers = true)]
    pub(crate) amount: u128,
    /// Kind of units: nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.10gb, ...
    #[arg(long, value_name = "NAME")]
    pub(crate) resource: Option<String>,
    /// How to choose shares of shared devices: spread over many devices, or pack few
    #[arg(
        long,
        value_name = "HOW",
        default_value = "spread",
        hide_possible_values = true,
        hide_short_help = true
    )]
    pub(crate) policy: Policy,
    /// Count the units against this namespace's quota, instead of the owner's user
    #[arg(long, value_name = "NAME", value_parser = namespace, hide_short_help = true)]
    pub(crate) namespace: Option<String>,
    #[command(flatten)]
    pub(crate) selection: SelectionOptions,
    /// Let the owner open only what it is granted: v1, v2, either (no value), or best-effort
    #[arg(
        long,
        value_name = "HOW",
        require_equals = true,
        num_args = 0..=1,
        default_missing_value = "any",
        hide_possible_values = true
    )]
    pub(crate) cgroup: Option<Cgroup>,
    /// Ignore CUDA_, NVIDIA_, ROCR_ and HIP_VISIBLE_DEVICES
    #[arg(long)]
    pub(crate) ignore_visible_devices: bool,
    /// Grant sick devices too, after the sound ones
    #[arg(long)]
    pub(crate) include_unhealthy: bool,
    /// Never grant a device on which others compute (by default it is granted last)
    #[arg(long)]
    pub(crate) skip_busy: bool,
    /// Inside `gpu-coord exec`: ask for units in addition to those of exec
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
    /// Record the assignment in the coordination file (default for `allocate`)
    #[arg(long, alias = "enable-coordination", conflicts_with = "no_coordination")]
    pub(crate) enable_coordination_mode: bool,
    /// Print the first units and record nothing (default for the bare form)
    #[arg(long)]
    pub(crate) no_coordination: bool,
    /// Take over the units of dead owners (the bare form always does)
    #[arg(long)]
    pub(crate) check_dead: bool,
    /// What to print: index (as the owner's CUDA counts), host-index, uuid, pci, env, json or spark
    #[arg(long, value_name = "WHAT", default_value = "index", hide_possible_values = true)]
    pub(crate) print: Print,
    #[command(flatten)]
    pub(crate) owner: OwnerOptions,
    #[command(flatten)]
    pub(crate) request: RequestOptions,
}

/// What an operator does to units.
#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct ByHand {
    /// Index, range, UUID or prefix, PCI address or id; several separated by commas
    #[arg(value_name = "UNIT")]
    pub(crate) units: List,
    #[command(flatten)]
    pub(crate) file: FileOptions,
    #[command(flatten)]
    pub(crate) source: SourceOptions,
    #[command(flatten)]
    pub(crate) common: Common,
}
