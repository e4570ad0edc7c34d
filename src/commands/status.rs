//! `gpu-coord status`: who holds what.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::judged::Judged;
use super::kin::Kin;
use super::quota::Counting;
use super::view::View;
use super::{Context, eligible};
use crate::assignment::{Assignment, Record, Standing};
use crate::cli::Status;
use crate::coordination::snapshot::Snapshot;
use crate::device::Inventory;
use crate::error::Error;
use crate::host::Host;
use crate::host::events::{Signals, Watch};
use crate::notes::Notes;
use crate::policy::{self, Holdings};
use crate::selection::Selection;
use crate::sharing::Resources;

/// How long to wait between looks if every change is an event.
const LONG: Duration = Duration::from_secs(3600);
/// The same if the file does not exist yet, or if the end of a process is not an event.
const SHORT: Duration = Duration::from_secs(1);
/// Events within this time are one change.
const SETTLES: Duration = Duration::from_millis(50);

/// Clears the terminal and moves the cursor to its top left (ECMA-48: ED, CUP).
const ANEW: &str = "\x1b[2J\x1b[H";

pub(super) fn run(context: &Context<'_>, options: &Status, notes: &mut Notes) -> Result<(), Error> {
    if options.watch {
        context.check_strict(notes)?;
        return watch(context, options);
    }
    let (text, _) = look(context, options, notes)?;
    context.print(&text, notes)
}

/// Shows the table after every change, until a signal arrives or the reader is gone.
fn watch(context: &Context<'_>, options: &Status) -> Result<(), Error> {
    let is_terminal = context.stdout.terminal(true).is_some();
    let path = &options.file.coordination_file;
    let (mut watch, signals) = (Watch::new(), Signals::new());
    context.stdout.stream().into_iter().for_each(|stream| watch.reader(stream));
    loop {
        // Each look has the deadline of a whole run.
        let context = &context.again(options.common.deadline);
        let mut notes = Notes::default();
        // Watched before it is read, so that no change is missed.
        let is_file_watched = watch.file(path);
        let (text, owners) = look(context, options, &mut notes)?;
        context.check_strict(&notes)?;
        let is_watched = watch.processes(&owners.living) && owners.are_all_here && is_file_watched;
        let warnings: String = notes.warnings.iter().map(|line| format!("warning: {line}\n")).collect();
        let text = if is_terminal { ANEW.to_owned() + &text + &warnings } else { text + &warnings + "\n" };
        match context.stdout.write(&text, context.deadline) {
            // The reader has seen enough.
            Err(Error::Output(error)) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
        watch.wait(&signals, if is_watched { LONG } else { SHORT });
        thread::sleep(SETTLES);
    }
}

/// Whose end changes what is shown.
struct Owners {
    living: BTreeSet<u32>,
    /// Of no other it is unknown whether it lives.
    are_all_here: bool,
}

impl Owners {
    /// Who is dead is not waited for: that a zombie has ended would be heard again and again.
    fn of(host: &Host, Holdings { record, standing, .. }: Holdings<'_>) -> Owners {
        let mut owners = Owners { living: BTreeSet::new(), are_all_here: true };
        for (position, Assignment { owner, .. }) in record.assignments.iter().enumerate() {
            match standing(position) {
                Standing::Dead => {}
                Standing::Alive if host.has_pids_of(owner) => drop(owners.living.insert(owner.pid)),
                Standing::Alive | Standing::Doubtful(_) => owners.are_all_here = false,
            }
        }
        owners
    }
}

/// What is shown, and the processes on which it depends.
fn look(context: &Context<'_>, options: &Status, notes: &mut Notes) -> Result<(String, Owners), Error> {
    let (inventory, resources, selection) = inventory(context, options, notes)?;
    let path = &options.file.coordination_file;
    let _guard = context.guard(path);
    context.check_place(path, notes).unwrap_or_else(|error| notes.warn(error.to_string()));
    let snapshot = Snapshot::read(&context.host, path, context.deadline)?;
    let empty = Record::default();
    let record = snapshot.as_ref().map_or(&empty, |snapshot| &snapshot.record);
    let occupancy = policy::occupancy(&inventory, record);
    doubts(snapshot.as_ref(), record, path, notes);
    let judged = snapshot
        .as_ref()
        .map(|snapshot| Judged::new(&context.host, &snapshot.record, snapshot.facts, Some(&occupancy)));
    // Without a file there are no assignments, so this is never called.
    let standing =
        |position: usize| judged.as_ref().map_or(Standing::Dead, |judged| judged.standing(position));
    let holdings = Holdings { inventory: &inventory, record, occupancy: &occupancy, standing: &standing };
    let kin = Kin::of(&context.host, &inventory, notes);
    let counting = Counting::new(&context.host, &resources, holdings);
    let quotas = context.config.map(|config| &config.quotas[..]).unwrap_or_default();
    let view = View {
        resources: &resources,
        sums: counting.sums(quotas),
        host: &context.host,
        accounts: counting.accounts(),
        holdings,
        selection: &selection,
        in_use: kin.as_ref().map(|kin| kin.in_use(holdings, None)),
        terminal: context.stdout.terminal(context.surroundings.no_color),
    };
    let is_consistent = snapshot.as_ref().is_none_or(|snapshot| snapshot.is_consistent);
    let text = match () {
        () if options.json => view.as_json(path, notes)?,
        () if options.prometheus => view.as_metrics(is_consistent),
        () => view.as_table(),
    };
    Ok((text, Owners::of(&context.host, holdings)))
}

/// The devices. `status` shows the record even if the driver is broken.
fn inventory(
    context: &Context<'_>,
    options: &Status,
    notes: &mut Notes,
) -> Result<(Inventory, Resources, Selection), Error> {
    match context.inventory(&options.source, notes) {
        Ok((inventory, resources)) => {
            let selection = eligible::selection(&inventory, &options.selection)?;
            Ok((inventory, resources, selection))
        }
        Err(error) => {
            notes.warn(format!("{}; only the record is shown", error.chain()));
            let source = options.source.source.to_string();
            let inventory =
                Inventory { source, driver_version: None, devices: Vec::new(), tells_instances: false };
            // Without devices there is nothing to share, whatever the configuration says.
            let resources = Resources::default();
            Ok((inventory, resources, Selection::default()))
        }
    }
}

fn doubts(snapshot: Option<&Snapshot>, record: &Record, path: &Path, notes: &mut Notes) {
    let Some(snapshot) = snapshot else { return };
    let file = path;
    let path = path.display();
    if !snapshot.is_consistent {
        notes.warn(format!(
            "{path}: read without its lock, which a writer holds; what is shown may mix two states"
        ));
    }
    if let Some(doubts) = &snapshot.doubts {
        notes.warn(format!("{path}: {doubts}"));
    }
    notes.warnings.extend(record.withheld.iter().map(|line| line.message(file)));
}
