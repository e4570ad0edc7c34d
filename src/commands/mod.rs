//! What each command does.
//!
//! Only here do the inventory, the record, the policy and isolation meet: what needs more than one of them is decided
//! here, each decision in a file of its own.

mod allocate;
mod answer;
mod becoming;
mod by_hand;
mod check;
mod choice;
mod deallocate_all;
mod devices;
mod doctor;
mod drain;
mod eligible;
mod exec;
mod grant;
mod groups;
mod handover;
mod history;
mod isolation;
mod json;
mod judged;
mod kept;
mod kin;
mod look;
mod metrics;
mod mps;
mod offer;
mod passing;
mod queue;
mod quota;
mod reclaim;
mod release;
mod remains;
mod request;
mod runtime;
mod status;
mod table;
mod taken;
mod told;
mod view;
mod waiting;

use std::cell::OnceCell;
use std::path::Path;
use std::time::Duration;

use crate::assignment::Owner;
use crate::cli::watchdog::{self, Guard};
use crate::cli::{
    Allocation, Command, Common, DEFAULT_COORDINATION_FILE, RequestOptions, SourceOptions, Stdout,
    Surroundings,
};
use crate::config::Config;
use crate::coordination::place;
use crate::device::Inventory;
use crate::error::Error;
use crate::exit::Exit;
use crate::host::Host;
use crate::host::deadline::Deadline;
use crate::host::journal::Log;
use crate::host::owner::Form;
use crate::inventory::{self, Settings, Source, Vendor};
use crate::notes::Notes;
use crate::sharing::Resources;

/// What every command works with.
struct Context<'a> {
    host: Host,
    config: Option<&'a Config>,
    log: &'a Log,
    is_strict: bool,
    /// Who requests units, once known: the history names it if nothing is granted.
    requester: &'a OnceCell<Owner>,
    surroundings: &'a Surroundings,
    stdout: &'a Stdout,
    deadline: Deadline,
}

/// Runs a command. When it returns, the answer has been written to stdout.
pub(crate) fn run(
    command: &Command,
    config: Option<&Config>,
    surroundings: &Surroundings,
    stdout: &Stdout,
    deadline: Deadline,
    notes: &mut Notes,
) -> Result<Exit, Error> {
    let Common { log, strict, root, .. } = command.common();
    let host = Host::new(root);
    let requester = &OnceCell::new();
    let context =
        Context { host, config, log, is_strict: *strict, requester, surroundings, stdout, deadline };
    let done = match command {
        Command::Doctor(options) => return doctor::run(&context, options, notes),
        Command::Check(options) => return check::run(&context, options, notes),
        Command::Discover(options) => ask(&context, Form::Discover, &options.allocation, notes),
        Command::Allocate(options) => ask(&context, Form::Allocate, &options.allocation, notes),
        Command::Exec(options) => exec::run(&context, options, notes),
        Command::DeallocateAll(options) => deallocate_all::run(&context, options, notes),
        Command::Release(options) => release::run(&context, &options.by_hand, notes),
        Command::Drain(options) => drain::drain(&context, &options.by_hand, &options.reason, notes),
        Command::Undrain(options) => drain::undrain(&context, &options.by_hand, notes),
        Command::Reclaim(options) => reclaim::run(&context, options, notes),
        Command::Status(options) => status::run(&context, options, notes),
        Command::Devices(options) => devices::run(&context, options, notes),
    };
    // Warnings that only arise while running were not known to any check before.
    let done = done.and_then(|()| context.check_strict(notes));
    done.map(|()| Exit::Success).inspect_err(|error| context.note_refusal(command, error))
}

/// A request inside `exec` is answered from the units that `exec` was granted.
fn ask(context: &Context<'_>, form: Form, options: &Allocation, notes: &mut Notes) -> Result<(), Error> {
    match context.grant(&options.request).filter(|_| !options.no_coordination) {
        Some(grant) => taken::run(context, form, grant, options, notes),
        None => allocate::run(context, form, options, notes),
    }
}

impl Context<'_> {
    /// The grant of the `exec` that we run inside, unless further units are requested.
    fn grant(&self, options: &RequestOptions) -> Option<&str> {
        self.surroundings.grant.as_deref().filter(|_| !options.more)
    }

    /// Whether a grant is recorded.
    fn coordinates(&self, form: Form, options: &Allocation) -> bool {
        let is_asked_for = match form {
            // Inside `exec` every grant is.
            Form::Discover => options.enable_coordination_mode || self.surroundings.grant.is_some(),
            Form::Allocate | Form::DeallocateAll => true,
        };
        is_asked_for && !options.no_coordination
    }

    /// With `--strict`, fails if there is a warning: then there is no answer.
    fn check_strict(&self, notes: &Notes) -> Result<(), Error> {
        match notes.warnings.first().filter(|_| self.is_strict) {
            Some(warning) => Err(Error::Strict(warning.clone())),
            None => Ok(()),
        }
    }

    /// Prints the answer, unless `--strict` forbids it.
    fn print(&self, text: &str, notes: &Notes) -> Result<(), Error> {
        self.check_strict(notes)?;
        self.stdout.write(text, self.deadline)
    }

    /// A context for another attempt, which knows nothing of what was found out before.
    fn again(&self, limit: Duration) -> Context<'_> {
        Context { host: self.host.again(), deadline: Deadline::after(limit), ..*self }
    }

    /// Bounds what follows if the coordination file is on a file system that can hang.
    fn guard(&self, path: &Path) -> Option<Guard> {
        let what = || format!("the file system of {}, which does not answer", path.display());
        place::may_hang(&self.host, path).then(|| self.watch(what()))
    }

    fn watch(&self, what: String) -> Guard {
        watchdog::guard(self.deadline, what)
    }

    /// Checks that others see a file at `path`. Only the default path is checked: whoever chooses another path is
    /// responsible for it.
    fn check_place(&self, path: &Path, notes: &mut Notes) -> Result<(), Error> {
        if path == Path::new(DEFAULT_COORDINATION_FILE) {
            place::check(&self.host, path, notes)
        } else {
            Ok(())
        }
    }

    /// The devices of the host, and the resource names of their units.
    fn inventory(&self, options: &SourceOptions, notes: &mut Notes) -> Result<(Inventory, Resources), Error> {
        let mut inventory = self.devices(options, notes)?;
        let resources = self.resources(&mut inventory)?;
        Ok((inventory, resources))
    }

    /// Divides the devices into shares as configured.
    fn resources(&self, inventory: &mut Inventory) -> Result<Resources, Error> {
        let domain = match Vendor::of(&inventory.source) {
            Some(Vendor::Amd) => "amd.com",
            Some(Vendor::Nvidia) | None => "nvidia.com",
        };
        Resources::of(self.config, inventory, domain)
    }

    fn settings(&self, options: &SourceOptions) -> Settings {
        Settings {
            source: options.source.clone(),
            vendor: options.vendor,
            driver_root: options.driver_root.clone(),
            search_path: self.surroundings.search_path(),
            inherited_path: self.surroundings.path.clone(),
        }
    }

    fn devices(&self, options: &SourceOptions, notes: &mut Notes) -> Result<Inventory, Error> {
        let settings = self.settings(options);
        // This process reads a driver's files in /proc and /sys itself, and a driver that hangs blocks its readers.
        let asks_the_host = !matches!(options.source, Source::File(_) | Source::Simulated(_));
        let asks_a_driver = asks_the_host && inventory::has_driver_files(&self.host);
        let _guard =
            asks_a_driver.then(|| self.watch("a driver, which does not answer; restart the host".to_owned()));
        inventory::read(&self.host, &settings, self.deadline, notes)
    }
}

/// Blocks signals from the commit to the exit.
fn block_signals() {
    // It fails only for a set that is not one.
    let _ = watchdog::blocked_signals().thread_block();
}
