//! `gpu-coord AMOUNT` inside `gpu-coord exec`: the answer comes from the units of `exec`, and no unit goes to two living
//! processes. The requester owns it together with the command, since a start script may exit afterwards.

use super::allocate::find_owner;
use super::answer::Answer;
use super::handover::{Given, Handing};
use super::judged::Judged;
use super::passing::Passing;
use super::{Context, eligible};
use crate::assignment::{Origin, Owner, Standing};
use crate::cli::Allocation;
use crate::cli::watchdog::Guard;
use crate::coordination::ledger::Ledger;
use crate::coordination::settle;
use crate::device::{Inventory, Unit};
use crate::error::Error;
use crate::host::owner::Form;
use crate::notes::Notes;
use crate::policy;
use crate::sharing::Resources;
use crate::visible::Seen;

pub(super) fn run(
    context: &Context<'_>,
    form: Form,
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
            "grant `{grant}` of GPU_COORD_GRANT is not in {path}, or its owner has ended (a start script must not \
             exit before this call); start the command with `gpu-coord exec` again, or unset the variable"
        ))
    };
    let id = id(grant).ok_or_else(unknown)?;
    let requester = find_owner(context, form, options, notes)?;
    let (inventory, resources) = context.inventory(&asked.source, notes)?;
    let seen = eligible::seen(context, asked, options.owner.owner, &inventory, notes);
    let guard = context.guard(path);
    context.check_place(path, notes)?;
    let ledger = Ledger::open_existing(&context.host, path, requester.uid, context.deadline)?;
    let ledger = ledger.ok_or_else(unknown)?;
    let taking = Taking { context, options, requester: &requester, inventory: &inventory, id };
    taking.take(ledger, guard, &resources, seen, notes)?.ok_or_else(unknown)
}

/// Parses the grant id as `exec` has set it.
fn id(text: &str) -> Option<u64> {
    let is_id = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(text, 16).ok().filter(|_| is_id)
}

/// Which process takes what from which grant.
struct Taking<'a> {
    context: &'a Context<'a>,
    options: &'a Allocation,
    requester: &'a Owner,
    inventory: &'a Inventory,
    id: u64,
}

impl Taking<'_> {
    /// `None`: the record has no unit of that grant.
    fn take(
        &self,
        ledger: Ledger,
        guard: Option<Guard>,
        resources: &Resources,
        seen: Seen,
        notes: &mut Notes,
    ) -> Result<Option<()>, Error> {
        let Taking { context, options, requester, inventory, id } = *self;
        let asked = &options.request;
        let record = ledger.record();
        let occupancy = policy::occupancy(inventory, record);
        let judged = Judged::new(&context.host, record, ledger.facts(), Some(&occupancy));
        let is_alive = |position: usize| judged.standing(position) != Standing::Dead;
        let mut passing = Passing::of(record, &occupancy, id, is_alive);
        if passing.all.is_empty() {
            return Ok(None);
        }
        let is_confined = passing.confines(&context.host, requester);
        passing.check_isolation(asked.cgroup(), is_confined, notes)?;
        let seen = passing.limit(asked, (inventory, resources), seen, is_confined)?;
        passing.units.truncate(passing.count(asked.amount)?);
        let units: Vec<Unit> = passing.units.iter().map(|(_, unit)| *unit).collect();
        let grant = settle::grant(units.len());
        let origin = Origin { grant: id, is_taken: true };
        let mut change = judged.change(Some(inventory), false);
        change.granted = passing.granted(record, (origin, grant), requester, is_confined);
        change.stale.extend(&passing.left);

        let variables = Vec::new();
        let given = Given { inventory, units: &units, seen: &seen, is_confined, variables, grant };
        super::block_signals();
        let mut answer = Answer::new(context, options.print);
        let handing = Handing { context, owner: requester, ledger, guard };
        handing.prepare(&given, &mut answer, notes)?;
        let note = |when, notes: &mut Notes| context.note_taken(requester, &change, when, notes);
        handing.commit(&change, &mut answer, &|error| error, &note, notes).map(Some)
    }
}
