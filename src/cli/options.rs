//! What can be asked: the commands and their options, as clap reads them.
//!
//! An option with an optional value takes it after `=` alone (`require_equals`), since Flink splits its
//! arguments at blanks and a bare word after an option must not change its meaning.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, PossibleValue};
use clap::{Args, Parser, Subcommand, ValueEnum};

use super::late::Late;
use super::values::{Wait, amount, log, namespace, pid, seconds, wait};
use crate::host::journal::Log;
use crate::inventory::{Source, Vendor};
use crate::selection::List;

/// The file of Flink's own script, so that both can be used side by side.
pub(crate) const DEFAULT_COORDINATION_FILE: &str = "/var/tmp/flink-gpu-coordination";

/// Without a heading over the arguments: an allocation has as many options as a screen has lines.
const ALLOCATION_HELP: &str = "{about-with-newline}\n{usage-heading} {usage}\n\n{options}{after-help}";

/// As short as a screen is high.
const ROOT_HELP: &str = "{about-with-newline}\n{usage-heading} {usage}\n\nCommands:\n{subcommands}\n\n\
                         Options: -h, --help; -V, --version\n{after-help}";

#[derive(Debug, Parser)]
#[command(
    name = "gpu-coord",
    help_template = ROOT_HELP,
    version,
    about = "Hands the GPUs of this host to processes, so that no GPU is held by two",
    override_usage = "gpu-coord AMOUNT [OPTIONS]\n       gpu-coord COMMAND [OPTIONS]",
    after_help = "AMOUNT alone is what Flink calls; its options: gpu-coord 1 --help\n\
                  Example: gpu-coord 2 --source simulated:8",
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The form that Flink calls: no name is typed, and it is read by a parser of its own.
    #[command(skip)]
    Discover(Discover),
    /// Give AMOUNT units to the calling process, and print them
    #[command(
        override_usage = "gpu-coord allocate AMOUNT [OPTIONS]",
        help_template = ALLOCATION_HELP,
        after_help = "Example: gpu-coord allocate 2 --print uuid"
    )]
    Allocate(Late<Allocate>),
    /// Become COMMAND, with AMOUNT units of its own
    #[command(
        override_usage = "gpu-coord exec AMOUNT [OPTIONS] -- COMMAND [ARG...]",
        help_template = ALLOCATION_HELP,
        after_help = "Example: gpu-coord exec 2 --user flink --coordination-file /var/lib/gpu-coord/coordination -- taskmanager.sh start-foreground"
    )]
    Exec(Late<Exec>),
    /// Give back every unit of the calling process
    #[command(
        name = "deallocateAll",
        visible_alias = "deallocate-all",
        override_usage = "gpu-coord deallocateAll [OPTIONS]",
        after_help = "Example: gpu-coord deallocateAll --owner 4711"
    )]
    DeallocateAll(Late<DeallocateAll>),
    /// Release what dead owners left
    #[command(
        override_usage = "gpu-coord reclaim [OPTIONS]",
        after_help = "Example: gpu-coord reclaim --dry-run"
    )]
    Reclaim(Late<Reclaim>),
    /// Free by hand what doubt withholds
    #[command(
        override_usage = "gpu-coord release UNIT --force [OPTIONS]",
        after_help = "Example: gpu-coord release 3 --force"
    )]
    Release(Late<Release>),
    /// Keep a unit from being granted
    #[command(
        override_usage = "gpu-coord drain UNIT --reason TEXT [OPTIONS]",
        after_help = "Example: gpu-coord drain 3 --reason \"fan fails, ticket 4711\""
    )]
    Drain(Late<Drain>),
    /// Let a drained unit be granted again
    #[command(
        override_usage = "gpu-coord undrain UNIT [OPTIONS]",
        after_help = "Example: gpu-coord undrain 3"
    )]
    Undrain(Late<Undrain>),
    /// Show who holds what
    #[command(override_usage = "gpu-coord status [OPTIONS]", after_help = "Example: gpu-coord status --json")]
    Status(Late<Status>),
    /// Whether this host is set up right, and if not, what to do
    #[command(
        override_usage = "gpu-coord doctor [OPTIONS]",
        after_help = "Example: gpu-coord doctor --flink-conf /opt/flink/conf/config.yaml"
    )]
    Doctor(Late<Doctor>),
    /// Show the devices of this host
    #[command(
        override_usage = "gpu-coord devices [OPTIONS]",
        after_help = "Example: gpu-coord devices --source nvidia-smi"
    )]
    Devices(Late<Devices>),
    /// Read configurations of Flink and Kubernetes before they are deployed
    #[command(
        override_usage = "gpu-coord check FILE... [OPTIONS]",
        help_template = ALLOCATION_HELP,
        after_help = "FILE is a config.yaml or flink-conf.yaml of Flink, or has Kubernetes manifests. Prints OK; or, with status 1,\n\
                      FILE:LINE: TEXT for each mistake, and OVER=NAME=COUNT before more than one share of a device.\n\
                      Example: gpu-coord check --host /opt/flink/conf/config.yaml"
    )]
    Check(Late<Check>),
}

/// Which share of what is shared is given first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    Spread,
    Pack,
}

impl Command {
    pub(crate) fn common(&self) -> &Common {
        match self {
            Command::Discover(Discover { allocation, .. })
            | Command::Allocate(Late(Allocate { allocation })) => &allocation.request.common,
            Command::Exec(options) => &options.request.common,
            Command::DeallocateAll(options) => &options.common,
            Command::Reclaim(options) => &options.common,
            Command::Release(options) => &options.by_hand.common,
            Command::Drain(options) => &options.by_hand.common,
            Command::Undrain(options) => &options.by_hand.common,
            Command::Status(options) => &options.common,
            Command::Doctor(options) => &options.common,
            Command::Devices(options) => &options.common,
            Command::Check(options) => &options.common,
        }
    }
}

/// Options that every command has.
#[derive(Args, Debug)]
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
pub(crate) struct SelectionOptions {
    /// Only these: indexes, ranges (2-5), UUIDs or their beginnings, PCI addresses, ids
    #[arg(long, value_name = "LIST")]
    pub(crate) devices: Option<List>,
    /// All but these
    #[arg(long, value_name = "LIST")]
    pub(crate) exclude: Option<List>,
}

#[derive(Args, Debug)]
pub(crate) struct FileOptions {
    /// The record of who holds what
    #[arg(long, value_name = "PATH", default_value = DEFAULT_COORDINATION_FILE)]
    pub(crate) coordination_file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct OwnerOptions {
    /// Process that holds the units, instead of the calling one
    #[arg(long, value_name = "PID", value_parser = pid)]
    pub(crate) owner: Option<u32>,
}

/// What every request for units says.
#[derive(Args, Debug)]
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

/// Print the first AMOUNT units, or coordinate them with --enable-coordination-mode: the form that Flink calls
#[derive(Debug, Parser)]
#[command(
    name = "gpu-coord AMOUNT",
    override_usage = "gpu-coord AMOUNT [OPTIONS]",
    help_template = ALLOCATION_HELP,
    after_help = "Example: gpu-coord 2 --enable-coordination-mode"
)]
pub(crate) struct Discover {
    #[command(flatten)]
    pub(crate) allocation: Allocation,
}

#[derive(Args, Debug)]
pub(crate) struct Allocate {
    #[command(flatten)]
    pub(crate) allocation: Allocation,
}

#[derive(Args, Debug)]
pub(crate) struct Exec {
    /// Run COMMAND as this user, with no more rights than it has
    #[arg(long, value_name = "NAME[:GROUP]")]
    pub(crate) user: Option<String>,
    /// Wait in a queue until the units are free: so long at most, or without end (no value)
    #[arg(
        long,
        value_name = "SECONDS",
        require_equals = true,
        num_args = 0..=1,
        default_missing_value = "forever",
        value_parser = wait
    )]
    pub(crate) wait: Option<Wait>,
    #[command(flatten)]
    pub(crate) request: RequestOptions,
    /// What to run, and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct DeallocateAll {
    #[command(flatten)]
    pub(crate) file: FileOptions,
    #[command(flatten)]
    pub(crate) owner: OwnerOptions,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Reclaim {
    /// Say what would be released, and release nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Release also what processes that outlived their owner may use; they are named, and not ended
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) file: FileOptions,
    #[command(flatten)]
    pub(crate) source: SourceOptions,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What is done to units by an operator.
#[derive(Args, Debug)]
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

#[derive(Args, Debug)]
pub(crate) struct Release {
    /// It is certain that no process uses the unit
    #[arg(long, required = true)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) by_hand: ByHand,
}

#[derive(Args, Debug)]
pub(crate) struct Drain {
    /// Why, for whoever looks at it
    #[arg(long, value_name = "TEXT", required = true, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) by_hand: ByHand,
}

#[derive(Args, Debug)]
pub(crate) struct Undrain {
    #[command(flatten)]
    pub(crate) by_hand: ByHand,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// Print JSON, version 1
    #[arg(long)]
    pub(crate) json: bool,
    /// Print metrics, for node_exporter's textfile collector
    #[arg(long, conflicts_with = "json")]
    pub(crate) prometheus: bool,
    /// Show it again whenever something changes
    #[arg(long, conflicts_with_all = ["json", "prometheus"])]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) file: FileOptions,
    #[command(flatten)]
    pub(crate) selection: SelectionOptions,
    #[command(flatten)]
    pub(crate) source: SourceOptions,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Print JSON, version 1
    #[arg(long)]
    pub(crate) json: bool,
    /// Flink's configuration file [default: that below $FLINK_HOME]
    #[arg(long, value_name = "FILE")]
    pub(crate) flink_conf: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) file: FileOptions,
    #[command(flatten)]
    pub(crate) source: SourceOptions,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Devices {
    /// Print JSON, version 1
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) selection: SelectionOptions,
    #[command(flatten)]
    pub(crate) source: SourceOptions,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// They are for this host: look for the script, and whether there are as many units
    #[arg(long)]
    pub(crate) host: bool,
    #[command(flatten)]
    pub(crate) source: SourceOptions,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What is printed of what was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Print {
    Word(Word),
    Env,
    Json,
    Spark,
}

/// What is printed of each unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Index,
    HostIndex,
    Uuid,
    Pci,
}

impl ValueEnum for Print {
    fn value_variants<'a>() -> &'a [Self] {
        use Word::{HostIndex, Index, Pci, Uuid};
        const ALL: [Print; 7] = [
            Print::Word(Index),
            Print::Word(HostIndex),
            Print::Word(Uuid),
            Print::Word(Pci),
            Print::Env,
            Print::Json,
            Print::Spark,
        ];
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            Print::Word(Word::Index) => "index",
            Print::Word(Word::HostIndex) => "host-index",
            Print::Word(Word::Uuid) => "uuid",
            Print::Word(Word::Pci) => "pci",
            Print::Env => "env",
            Print::Json => "json",
            Print::Spark => "spark",
        }))
    }
}

/// How an owner is kept to what it is given.
///
/// As a flag of the environment it can also be 1 or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cgroup {
    #[value(hide = true, aliases = ["1", "true", "yes"])]
    Any,
    V1,
    V2,
    BestEffort,
    #[value(hide = true, aliases = ["0", "false"])]
    No,
}
