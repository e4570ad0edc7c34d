//! The command line: what can be asked, and how the answer and the notes leave the program.
//!
//! * `arguments`: the words before clap parses them. `options`, `values` and `late`: what clap parses. `message`: what it
//!   refuses. `parse`: all of these in order. `configuration`: the configuration file.
//! * `environment`: the only reader of the environment. `variables`: the options that it sets.
//! * `watchdog`: the end of a run that hangs. `output`: the answer on stdout. `report`: everything on stderr.
//!
//! Not here: what a command does (`commands`).

mod arguments;
mod configuration;
mod environment;
mod late;
mod message;
mod options;
mod output;
mod parse;
#[cfg(test)]
mod prose;
mod report;
mod values;
mod variables;
pub(crate) mod watchdog;

use std::time::{Duration, Instant};

pub(crate) use environment::Surroundings;
pub(crate) use options::{
    Allocation, ByHand, Cgroup, Check, Command, Common, DEFAULT_COORDINATION_FILE, DeallocateAll, Devices,
    Doctor, Exec, Policy, Print, Reclaim, RequestOptions, SelectionOptions, SourceOptions, Status, Word,
};
pub(crate) use output::{Stdout, Terminal};
pub(crate) use parse::{Task, refusal};
pub(crate) use report::{is_told, report, tell};
pub(crate) use values::Wait;
pub(crate) use variables::GRANT;

use crate::error::Error;
use crate::host::deadline::Deadline;
use crate::notes::Notes;

/// The default of `--deadline`, for what is printed before the option is known.
pub(crate) const DEFAULT_DEADLINE: Duration = Duration::from_secs(8);

/// What this process was started to do.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) task: Task,
    pub(crate) surroundings: Surroundings,
    pub(crate) deadline: Deadline,
    pub(crate) is_verbose: bool,
}

/// Reads the command line, the environment and the configuration. The deadline counts from before them.
pub(crate) fn call(notes: &mut Notes) -> Result<Call, Error> {
    let start = Instant::now();
    let environment = environment::Environment::read();
    let task = parse::parse(std::env::args_os().skip(1).collect(), &environment, notes)?;
    let (limit, is_verbose) = match &task {
        Task::Run(command, _) => (command.common().deadline, command.common().verbose),
        Task::Print(_) => (DEFAULT_DEADLINE, false),
    };
    let deadline = Deadline::since(start, limit);
    Ok(Call { task, surroundings: environment.surroundings, deadline, is_verbose })
}
