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
                         Options: -h, --help; -V, --version{after-help}";

#[derive(Debug, Parser)]
#[command(
    name = "gpu-coord",
    help_template = ROOT_HELP,
    version,
    about = "Assign the GPUs of this host to processes, so that no two processes hold the same GPU",
    override_usage = "gpu-coord AMOUNT [OPTIONS]\n       gpu-coord COMMAND [OPTIONS]",
    after_help = "Flink calls the form without a command; for its options see gpu-coord 1 --help\n\
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
    /// Assign AMOUNT units to the calling process and print them
    #[command(
        override_usage = "gpu-coord allocate AMOUNT [OPTIONS]",
        help_template = ALLOCATION_HELP,
        after_help = "Example: gpu-coord allocate 2 --print uuid"
    )]
    Allocate(Late<Allocate>),
    /// Take AMOUNT units and become COMMAND
    #[command(
        override_usage = "gpu-coord exec AMOUNT [OPTIONS] -- COMMAND [ARG...]",
        help_template = ALLOCATION_HELP,
        after_help = "Example: gpu-coord exec 2 --user flink --coordination-file /var/lib/gpu-coord/coordination -- taskmanager.sh start-foreground"
    )]
    Exec(Late<Exec>),
    /// Give back all units of the calling process
    #[command(
        name = "deallocateAll",
        visible_alias = "deallocate-all",
        override_usage = "gpu-coord deallocateAll [OPTIONS]",
        after_help = "Example: gpu-coord deallocateAll --owner 4711"
    )]
    DeallocateAll(Late<DeallocateAll>),
    /// Release what dead owners left behind
    #[command(
        override_usage = "gpu-coord reclaim [OPTIONS]",
        after_help = "Example: gpu-coord reclaim --dry-run"
    )]
    Reclaim(Late<Reclaim>),
    /// Release by hand a unit whose owner cannot be judged
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
    /// Allow a drained unit to be granted again
    #[command(
        override_usage = "gpu-coord undrain UNIT [OPTIONS]",
        after_help = "Example: gpu-coord undrain 3"
    )]
    Undrain(Late<Undrain>),
    /// Show who holds what
    #[command(override_usage = "gpu-coord status [OPTIONS]", after_help = "Example: gpu-coord status --json")]
    Status(Late<Status>),
    /// Check whether this host is set up correctly, and say what to do if not
    #[command(
        override_usage = "gpu-coord doctor [OPTIONS]",
        after_help = "Example: gpu-coord doctor --flink-conf /opt/flink/conf/config.yaml"
    )]
    Doctor(Late<Doctor>),
    /// Show the devices of this host and their health
    #[command(
        override_usage = "gpu-coord devices [OPTIONS]",
        after_help = "Example: gpu-coord devices --source nvidia-smi"
    )]
    Devices(Late<Devices>),
    /// Check Flink and Kubernetes configurations before they are deployed
    #[command(
        override_usage = "gpu-coord check FILE... [OPTIONS]",
        help_template = ALLOCATION_HELP,
        after_help = "FILE is Flink's config.yaml or flink-conf.yaml, or has Kubernetes manifests. Prints OK; or, with status 1,\n\
                      FILE:LINE: TEXT for each mistake, and OVER=NAME=COUNT where more than one share is requested.\n\
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

/// Print the first AMOUNT units, or coordinate with --enable-coordination-mode: the form that Flink calls
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
    /// Run COMMAND as this user, with no more privileges than that user has
    #[arg(long, value_name = "NAME[:GROUP]")]
    pub(crate) user: Option<String>,
    /// Queue until the units are free, for at most SECONDS or without limit (no value)
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
    /// The command to run, and its arguments
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
    /// Print what would be released, and release nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Also release what processes that outlived their owner may still use; they are named, not killed
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
    /// Confirm that no process uses the unit
    #[arg(long, required = true)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) by_hand: ByHand,
}

#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct Drain {
    /// The reason, which `status` shows
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
    /// Print JSON (version 1)
    #[arg(long)]
    pub(crate) json: bool,
    /// Print metrics for node_exporter's textfile collector
    #[arg(long, conflicts_with = "json")]
    pub(crate) prometheus: bool,
    /// Show the table again after every change
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
    /// Print JSON (version 1)
    #[arg(long)]
    pub(crate) json: bool,
    /// Flink's configuration file [default: the one below $FLINK_HOME]
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
    /// Print JSON (version 1)
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
    /// Also check against this host: that the script exists and that there are enough units
    #[arg(long)]
    pub(crate) host: bool,
    #[command(flatten)]
    pub(crate) source: SourceOptions,
    #[command(flatten)]
    pub(crate) common: Common,
}
