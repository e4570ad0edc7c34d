//! What can be asked: the commands and their options, as clap reads them.
//!
//! An option with an optional value takes it after `=` alone (`require_equals`), since Flink splits its
//! arguments at blanks and a bare word after an option must not change its meaning.
//!
//! `group(skip)`: nothing is asked of a structure as a whole, and clap would look for its group at each option.

mod choice;
mod shared;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand};

use super::late::Late;
use super::values::{Wait, wait};

pub(crate) use choice::{Cgroup, Policy, Print, Word};
pub(crate) use shared::{
    Allocation, ByHand, Common, DEFAULT_COORDINATION_FILE, FileOptions, OwnerOptions, RequestOptions,
    SelectionOptions, SourceOptions,
};

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

/// Print the first AMOUNT units, or coordinate them with --enable-coordination-mode: the form that Flink calls
#[derive(Debug, Parser)]
#[group(skip)]
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
#[group(skip)]
pub(crate) struct Allocate {
    #[command(flatten)]
    pub(crate) allocation: Allocation,
}

#[derive(Args, Debug)]
#[group(skip)]
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
#[group(skip)]
pub(crate) struct DeallocateAll {
    #[command(flatten)]
    pub(crate) file: FileOptions,
    #[command(flatten)]
    pub(crate) owner: OwnerOptions,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
#[group(skip)]
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

#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct Release {
    /// It is certain that no process uses the unit
    #[arg(long, required = true)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) by_hand: ByHand,
}

#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct Drain {
    /// Why, for whoever looks at it
    #[arg(long, value_name = "TEXT", required = true, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) by_hand: ByHand,
}

#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct Undrain {
    #[command(flatten)]
    pub(crate) by_hand: ByHand,
}

#[derive(Args, Debug)]
#[group(skip)]
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
#[group(skip)]
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
#[group(skip)]
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
#[group(skip)]
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
