//! `gpu-coord AMOUNT` inside of `gpu-coord exec`: the answer is out of what `exec` was given, each unit once, and
//! whoever asks owns it from then on, since a start script may leave after that.

use std::collections::BTreeSet;

use super::allocate::find_owner;
use super::answer::Told;
use super::judged::Judged;
use super::{Context, answer, eligible};
use crate::assignment::{Assignment, Grant, Origin, Owner, Record, Standing};
use crate::cli::{Allocation, Cgroup, RequestOptions};
use crate::coordination::ledger::Ledger;
use crate::coordination::plan::Change;
use crate::coordination::settle;
use crate::device::{Inventory, Unit};
use crate::error::Error;
use crate::host::owner::{self, Form};
use crate::notes::Notes;
use crate::policy::{self, Occupancy};
use crate::sharing::Resources;
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
            "grant `{grant}` of GPU_COORD_GRANT is not in {path}, or its owner has ended (a start script is not to \
             leave before this is asked); start the command with `gpu-coord exec` again, or unset the variable"
        ))
    };
    let id = id(grant).ok_or_else(unknown)?;
    let requester = find_owner(context, Form::Discover, options, notes)?;
    let (inventory, resources) = context.inventory(&asked.source, notes)?;
    let seen = eligible::seen(context, asked, options.owner.owner, &inventory, notes);
    let _guard = context.guard(path);
    context.check_place(path, notes)?;
    let ledger = Ledger::open_existing(&context.host, path, requester.uid, context.deadline)?;
    let ledger = ledger.ok_or_else(unknown)?;
    let record = ledger.record();
    let occupancy = policy::occupancy(&inventory, record);
    let judged = Judged::new(&context.host, record, ledger.facts(), Some(&occupancy));
    let standing = |position: usize| judged.standing(position);
    let mut passing = Passing::of(record, &occupancy, id, |position| standing(position) != Standing::Dead);
    if passing.all.is_empty() {
        return Err(unknown());
    }
    passing.check_isolation(asked.cgroup(), notes)?;
    let seen = passing.limit(asked, (&inventory, &resources), seen)?;
    let count = passing.count(asked.amount)?;
    let units: Vec<Unit> = passing.units[..count].iter().map(|(_, unit)| *unit).collect();
    let is_confined = passing.is_confined;
    let told = Told { inventory: &inventory, units: &units, seen: &seen, is_confined, variables: &[] };
    let answer = answer::text(&told, options.print)?;
    let mut change = passing.change(record, id, count, &requester);
    // What is passed on is none of the script's.
    Change { stale: change.stale, settled: change.settled, gone: change.gone, .. } =
        judged.change(None, false);
    owner::recheck(&context.host, &requester)?;
    context.check_strict(notes)?;
    super::block_signals();
    let committed = ledger.commit(&change)?;
    context.stdout.write(&answer, context.deadline).map_err(|error| committed.undo(error))
}

/// As `exec` has told it.
fn id(text: &str) -> Option<u64> {
    let is_id = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(text, 16).ok().filter(|_| is_id)
}

/// What `exec` was given.
struct Passing {
    /// What may be passed on still, in the order of the host's units: positions in the record.
    units: Vec<(usize, Unit)>,
    /// Other lines of these units: a call was killed while it passed them on, and so has told nobody.
    repeated: Vec<usize>,
    /// With what somebody has asked for.
    all: Vec<Unit>,
    is_confined: bool,
}

impl Passing {
    fn of(record: &Record, occupancy: &Occupancy<'_>, id: u64, is_alive: impl Fn(usize) -> bool) -> Passing {
        let (units, repeated, all) = (Vec::new(), Vec::new(), Vec::new());
        let mut passing = Passing { units, repeated, all, is_confined: false };
        // A line holds more by now if its device is shared in another way: of those, the first.
        let mut seen = BTreeSet::new();
        for place in &occupancy.places {
            let line = |holder: usize| &record.assignments[holder];
            let is_its = |holder: &usize| {
                line(*holder).origin.is_some_and(|origin| origin.grant == id) && is_alive(*holder)
            };
            let lines = place.holders.iter().copied().filter(is_its);
            let lines: Vec<usize> = lines.filter(|holder| seen.insert(*holder)).collect();
            passing.all.extend((!lines.is_empty()).then_some(place.unit));
            passing.is_confined |= lines.iter().any(|holder| line(*holder).cgroup.is_some());
            let is_left = |holder: &usize| line(*holder).origin.is_some_and(|origin| !origin.is_taken);
            if let Some(left) = lines.iter().copied().find(is_left) {
                passing.units.push((left, place.unit));
                passing.repeated.extend(lines.into_iter().filter(|holder| *holder != left));
            }
        }
        passing
    }

    /// The owner was confined before, or is not at all.
    fn check_isolation(&self, how: Option<Cgroup>, notes: &mut Notes) -> Result<(), Error> {
        let problem = "`gpu-coord exec` gave these units without isolation, and its command can open every device; \
                       give --cgroup to `gpu-coord exec`";
        match how {
            Some(_) if self.is_confined => Ok(()),
            None | Some(Cgroup::No) => Ok(()),
            Some(Cgroup::BestEffort) => {
                notes.warn(problem);
                Ok(())
            }
            Some(Cgroup::Any | Cgroup::V1 | Cgroup::V2) => Err(Error::Isolation(problem.to_owned())),
        }
    }

    /// Leaves what may be given, by the options and, unless it is confined, by the environment; and how the owner
    /// counts. Whoever is confined counts what `exec` was given.
    fn limit(
        &mut self,
        asked: &RequestOptions,
        (inventory, resources): (&Inventory, &Resources),
        seen: Seen,
    ) -> Result<Seen, Error> {
        let visible = if self.is_confined { inventory.units().collect() } else { seen.units(inventory) };
        let units = resources.only(visible, asked.resource.as_deref(), inventory).map_err(Error::Usage)?;
        let selection = eligible::selection(inventory, &asked.selection)?;
        self.units.retain(|(_, unit)| units.contains(unit) && selection.takes(unit));
        Ok(if self.is_confined { Seen::only(&self.all) } else { seen })
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

    /// All lines of a grant hold or none, so that those that stay are written anew too, wherever their device is.
    fn change(&self, record: &Record, id: u64, count: usize, requester: &Owner) -> Change {
        let given: Vec<usize> = self.units[..count].iter().map(|(position, _)| *position).collect();
        let is_left = |position: &usize| {
            let origin = record.assignments[*position].origin;
            let is_its = origin == Some(Origin { grant: id, is_taken: false });
            is_its && !given.contains(position) && !self.repeated.contains(position)
        };
        let kept: Vec<usize> = (0..record.assignments.len()).filter(is_left).collect();
        let mut passed = anew(record, &given, id, Some(requester));
        passed.extend(anew(record, &kept, id, None));
        Change { passed, released: self.repeated.clone(), ..Change::default() }
    }
}

/// The same lines in a grant of their own. `owner`: who has asked for them.
fn anew(record: &Record, positions: &[usize], id: u64, owner: Option<&Owner>) -> Vec<(usize, Assignment)> {
    let of = u32::try_from(positions.len()).unwrap_or(u32::MAX);
    let grant = Some(Grant { id: settle::random(), of });
    let origin = Some(Origin { grant: id, is_taken: owner.is_some() });
    let line = |position: &usize| {
        let line = &record.assignments[*position];
        let owner = owner.unwrap_or(&line.owner).clone();
        (*position, Assignment { owner, grant, origin, ..line.clone() })
    };
    positions.iter().map(line).collect()
}
