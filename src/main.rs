//! `gpu-coord` hands the GPUs of a Linux host to processes, so that no GPU is held by two of them.

mod assignment;
mod cgroup;
mod check;
mod cli;
mod commands;
mod config;
mod coordination;
mod device;
mod error;
mod exit;
mod host;
mod inventory;
mod nearest;
mod notes;
mod policy;
mod selection;
mod sharing;
mod visible;

use std::process::ExitCode;

use cli::{Request, Stdout, Task};
use error::Error;
use exit::Exit;
use host::deadline::Deadline;
use notes::Notes;

fn main() -> ExitCode {
    let mut notes = Notes::default();
    let exit = match cli::request(&mut notes) {
        Ok(request) => {
            let outcome = run(&request, &mut notes);
            cli::report(&outcome, &notes, request.is_verbose, request.deadline)
        }
        Err(error) => cli::report(&Err(error), &notes, false, Deadline::after(cli::DEFAULT_DEADLINE)),
    };
    exit.into()
}

fn run(request: &Request, notes: &mut Notes) -> Result<Exit, Error> {
    let stdout = Stdout::new();
    match &request.task {
        Task::Print(text) => stdout.write(text, request.deadline).map(|()| Exit::Success),
        Task::Run(command, config) => {
            commands::run(command, config.as_deref(), &request.surroundings, &stdout, request.deadline, notes)
        }
    }
}
