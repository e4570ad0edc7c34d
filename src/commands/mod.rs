//! What each command does: the order of calls, and nothing else.
//!
//! Only here do the inventory, the record and the policy meet.

mod allocate;
mod answer;
mod deallocate_all;
mod devices;
mod json;
mod status;
mod table;

use crate::cli::{Command, SourceOptions, Stdout, Surroundings};
use crate::device::Inventory;
use crate::error::Error;
use crate::host::Host;
use crate::host::deadline::Deadline;
use crate::host::owner::Form;
use crate::inventory::{self, Settings};
use crate::notes::Notes;

/// What every command works with.
struct Context<'a> {
    host: Host,
    surroundings: &'a Surroundings,
    stdout: &'a Stdout,
    deadline: Deadline,
}

/// Does what was asked; the answer is on stdout by then.
pub(crate) fn run(
    command: &Command,
    surroundings: &Surroundings,
    stdout: &Stdout,
    deadline: Deadline,
    notes: &mut Notes,
) -> Result<(), Error> {
    let host = Host::new(&command.common().root);
    let context = Context { host, surroundings, stdout, deadline };
    match command {
        Command::Discover(options) => allocate::run(&context, Form::Discover, &options.allocation, notes),
        Command::Allocate(options) => allocate::run(&context, Form::Allocate, &options.allocation, notes),
        Command::DeallocateAll(options) => deallocate_all::run(&context, options, notes),
        Command::Status(options) => status::run(&context, options, notes),
        Command::Devices(options) => devices::run(&context, options, notes),
    }
}

impl Context<'_> {
    fn inventory(&self, options: &SourceOptions, notes: &mut Notes) -> Result<Inventory, Error> {
        let settings = Settings {
            source: options.source.clone(),
            driver_root: options.driver_root.clone(),
            search_path: self.surroundings.search_path(),
        };
        inventory::read(&self.host, &settings, self.deadline, notes)
    }
}
