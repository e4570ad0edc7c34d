//! `gpu-coord` assigns the GPUs of a Linux host to processes and makes sure that no two of them hold the same GPU.

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
mod plain;
mod policy;
mod selection;
mod sharing;
mod start;
mod visible;

use std::ffi::c_int;

use cli::{Call, Stdout, Task};
use error::Error;
use exit::Exit;
use host::deadline::Deadline;
use notes::Notes;

/// Called by the C library and not by Rust's runtime, whose work [`start`] does.
#[cfg_attr(not(test), expect(unsafe_code, reason = "no other function has this name"), unsafe(no_mangle))]
extern "C" fn main() -> c_int {
    let stdout = Stdout::new(start::prepare());
    let mut notes = Notes::default();
    let exit = match cli::call(&mut notes) {
        Ok(call) => {
            let outcome = run(&call, &stdout, &mut notes);
            cli::report(&outcome, &notes, call.is_verbose, call.deadline)
        }
        Err(error) => cli::report(&Err(error), &notes, false, Deadline::after(cli::DEFAULT_DEADLINE)),
    };
    exit as c_int
}

fn run(call: &Call, stdout: &Stdout, notes: &mut Notes) -> Result<Exit, Error> {
    match &call.task {
        Task::Print(text) => stdout.write(text, call.deadline).map(|()| Exit::Success),
        Task::Run(command, config) => {
            commands::run(command, config.as_deref(), &call.surroundings, stdout, call.deadline, notes)
        }
    }
}
