//! `gpu-coord` hands the GPUs of a Linux host to processes, so that no GPU is held by two of them.

#![cfg_attr(not(test), no_main)]

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
mod start;
mod visible;

use std::ffi::c_int;

use cli::{Request, Stdout, Task};
use error::Error;
use exit::Exit;
use host::deadline::Deadline;
use notes::Notes;

/// Called by the C library, and not by Rust's runtime, whose part `start` does.
#[cfg_attr(not(test), expect(unsafe_code, reason = "no other function has this name"), unsafe(no_mangle))]
extern "C" fn main() -> c_int {
    let stdout = Stdout::new(start::prepare());
    let mut notes = Notes::default();
    let exit = match cli::request(&mut notes) {
        Ok(request) => {
            let outcome = run(&request, &stdout, &mut notes);
            cli::report(&outcome, &notes, request.is_verbose, request.deadline)
        }
        Err(error) => cli::report(&Err(error), &notes, false, Deadline::after(cli::DEFAULT_DEADLINE)),
    };
    exit as c_int
}

fn run(request: &Request, stdout: &Stdout, notes: &mut Notes) -> Result<Exit, Error> {
    match &request.task {
        Task::Print(text) => stdout.write(text, request.deadline).map(|()| Exit::Success),
        Task::Run(command, config) => {
            commands::run(command, config.as_deref(), &request.surroundings, stdout, request.deadline, notes)
        }
    }
}
