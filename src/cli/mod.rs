//! The command line: what can be asked, and how the answer and the notes leave the program.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::inventory::Source;

/// The file of Flink's own script, so that both can be used side by side.
pub(crate) const DEFAULT_COORDINATION_FILE: &str = "/var/tmp/flink-gpu-coordination";

#[derive(Debug, Parser)]
#[command(
    name = "gpu-coord",
    version,
    about = "Hands the GPUs of this host to processes, so that no GPU is held by two"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The form that Flink's GPUDriver calls: `gpu-coord AMOUNT [OPTIONS]`
    #[command(hide = true)]
    Discover(Discover),
    /// Give AMOUNT units to the calling process, and print them
    Allocate(Allocate),
    /// Give back every unit of the calling process
    #[command(name = "deallocateAll", alias = "deallocate-all")]
    DeallocateAll(DeallocateAll),
    /// Show who holds what
    Status(Status),
    /// Show the devices of this host
    Devices(Devices),
}

/// Options that every command has.
#[derive(Args, Debug)]
pub(crate) struct Common {
    /// Seconds within which the whole run ends
    #[arg(long, value_name = "SECONDS", default_value = "8", value_parser = seconds)]
    pub(crate) deadline: Duration,
    /// Directory below which /proc, /sys and /dev are read
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// Say on stderr how the answer was found
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Where the devices are read from.
#[derive(Args, Debug)]
pub(crate) struct SourceOptions {
    /// auto, nvidia-smi, procfs, file:PATH or simulated:N
    #[arg(long, value_name = "SOURCE", default_value = "auto")]
    pub(crate) source: Source,
    /// Root of a driver container, for its nvidia-smi
    #[arg(long, value_name = "DIR")]
    pub(crate) driver_root: Option<PathBuf>,
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
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..4_194_304))]
    pub(crate) owner: Option<u32>,
}

/// What the two forms of an allocation share.
#[derive(Args, Debug)]
pub(crate) struct Allocation {
    /// How many units
    #[arg(value_parser = amount)]
    pub(crate) amount: u128,
    /// Record the assignment in the coordination file (the default of `allocate`)
    #[arg(long, alias = "enable-coordination", conflicts_with = "no_coordination")]
    pub(crate) enable_coordination_mode: bool,
    /// Print the first units and record nothing (the default of the bare form)
    #[arg(long)]
    pub(crate) no_coordination: bool,
    /// Take over the units of dead owners (always, in the bare form)
    #[arg(long)]
    pub(crate) check_dead: bool,
    /// What is printed of each unit
    #[arg(long, value_name = "WHAT", default_value = "index")]
    pub(crate) print: Print,
    #[command(flatten)]
    pub(crate) file: FileOptions,
    #[command(flatten)]
    pub(crate) owner: OwnerOptions,
    #[command(flatten)]
    pub(crate) source: SourceOptions,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
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
pub(crate) struct DeallocateAll {
    #[command(flatten)]
    pub(crate) file: FileOptions,
    #[command(flatten)]
    pub(crate) owner: OwnerOptions,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// Print JSON, version 1
    #[arg(long)]
    pub(crate) json: bool,
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
    pub(crate) source: SourceOptions,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What is printed of each unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Print {
    /// What the owner's CUDA will count
    Index,
    /// The position in the vendor tool's order on this host
    HostIndex,
    /// The UUID
    Uuid,
    /// The PCI address
    Pci,
}

/// Digits only: a sign, a fraction or a blank is refused. More digits than a `u128` has are as many units
/// as it can say, which is more than any host has.
fn amount(text: &str) -> Result<u128, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("not a whole number of units".to_owned());
    }
    Ok(text.parse().unwrap_or(u128::MAX))
}

/// More than 0 and at most a day.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if seconds > 0.0 && seconds <= 86_400.0 {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("not between 0 and 86400 seconds".to_owned())
    }
}
