//! `gpu-coord AMOUNT` inside of `gpu-coord exec`: the answer is out of what `exec` was given, each unit once, and
//! whoever asks owns it from then on, since a start script may have left by now.

use std::collections::BTreeSet;

use super::allocate::find_owner;
use super::{Context, answer, eligible};
use crate::assignment::{Assignment, Grant, Origin, Owner, Record, Standing};
use crate::cli::Allocation;
use crate::coordination::ledger::Ledger;
use crate::coordination::plan::Change;
use crate::coordination::settle;
use crate::device::Unit;
use crate::error::Error;
use crate::host::liveness::Liveness;
use crate::host::owner::{self, Form};
use crate::notes::Notes;
use crate::policy::{self, Occupancy};
use crate::visible::Seen;

pub(super) fn run(
    context: &Context<'_>,
    grant: &str,
    options: &Allocation,
    notes: &mut Notes,
) -> Result<(), Error> {
    let asked = &options.request;
    if asked.amount == 0 {
        return Ok(());
    }
    context.stdout.ready(context.deadline)?;
    let path = &asked.file.coordination_file;
    let unknown = || {
        let path = path.display();
        Error::Owner(format!(
            "grant `{grant}` of GPU_COORD_GRANT is not in {path}, or its owner has ended; start the command with \
             `gpu-coord exec` again, or unset the variable"
        ))
    };
    let id = u64::from_str_radix(grant, 16).map_err(|_| unknown())?;
    let requester = find_owner(context, Form::Discover, options, notes)?;
    let (inventory, _) = context.inventory(&asked.source, notes)?;
    let seen = eligible::seen(context, asked, options.owner.owner, &inventory, notes);
    let _guard = context.guard(path);
    context.check_place(path, notes)?;
    let ledger = Ledger::open_existing(&context.host, path, requester.uid, context.deadline)?;
    let ledger = ledger.ok_or_else(unknown)?;
    let record = ledger.record();
    let occupancy = policy::occupancy(&inventory, record);
    let liveness = Liveness::new(&context.host, ledger.facts());
    let is_alive = |position: usize| {
        let standing = liveness.standing(&record.assignments[position], occupancy.is_here[position]);
        standing != Standing::Dead
    };
    let passing = Passing::of(record, &occupancy, id, is_alive);
    if passing.all.is_empty() {
        return Err(unknown());
    }
    let count = passing.count(asked.amount)?;
    let units: Vec<Unit> = passing.units[..count].iter().map(|(_, unit)| *unit).collect();
    // Whoever is confined counts what was given to `exec`.
    let seen = if passing.is_confined { Seen::only(&passing.all) } else { seen };
    let answer = answer::line(&inventory, &units, &seen, options.print)?;
    let change = passing.change(record, id, count, &requester);
    owner::recheck(&context.host, &requester)?;
    context.check_strict(notes)?;
    super::block_signals();
    let committed = ledger.commit(&change)?;
    context.stdout.write(&answer, context.deadline).map_err(|error| committed.undo(error))
}

/// What `exec` was given.
struct Passing {
    /// What nobody has asked for yet, in the order of the host's units: positions in the record.
    units: Vec<(usize, Unit)>,
    /// With what somebody has asked for.
    all: Vec<Unit>,
    is_confined: bool,
}

impl Passing {
    fn of(record: &Record, occupancy: &Occupancy<'_>, id: u64, is_alive: impl Fn(usize) -> bool) -> Passing {
        let mut passing = Passing { units: Vec::new(), all: Vec::new(), is_confined: false };
        let holders = occupancy
            .places
            .iter()
            .flat_map(|place| place.holders.iter().map(|holder| (*holder, place.unit)));
        let mut seen = BTreeSet::new();
        for (holder, unit) in holders {
            // Of a line that holds more by now, since its device is shared in another way, the first.
            if !seen.insert(holder) {
                continue;
            }
            let assignment = &record.assignments[holder];
            let Some(origin) = assignment.origin.filter(|origin| origin.grant == id) else { continue };
            if is_alive(holder) {
                passing.all.push(unit);
                passing.units.extend((!origin.is_taken).then_some((holder, unit)));
                passing.is_confined |= assignment.cgroup.is_some();
            }
        }
        passing
    }

    /// How many are asked for, if there are as many left.
    fn count(&self, amount: u128) -> Result<usize, Error> {
        let left = self.units.len();
        usize::try_from(amount).ok().filter(|count| *count <= left).ok_or_else(|| {
            Error::NotEnough(format!(
                "{} asked for, and of the {} that `gpu-coord exec` was given {left} are left; ask for more there, or \
                 with --more beside them",
                policy::units(amount),
                self.all.len()
            ))
        })
    }

    /// All lines of a grant hold or none, so that those that stay are written anew too.
    fn change(&self, record: &Record, id: u64, count: usize, requester: &Owner) -> Change {
        let (given, kept) = self.units.split_at(count);
        let anew = |units: &[(usize, Unit)], owner: Option<&Owner>| {
            let of = u32::try_from(units.len()).unwrap_or(u32::MAX);
            let grant = Some(Grant { id: settle::random(), of });
            let origin = Some(Origin { grant: id, is_taken: owner.is_some() });
            let line = |(position, _): &(usize, Unit)| {
                let line = &record.assignments[*position];
                let owner = owner.unwrap_or(&line.owner).clone();
                (*position, Assignment { owner, grant, origin, ..line.clone() })
            };
            units.iter().map(line).collect::<Vec<_>>()
        };
        let mut passed = anew(given, Some(requester));
        passed.extend(anew(kept, None));
        Change { passed, ..Change::default() }
    }
}
