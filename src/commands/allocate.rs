//! `gpu-coord AMOUNT` and `gpu-coord allocate AMOUNT`.

use std::os::unix::process::parent_id;

use super::answer::{self, Answer};
use super::choice::Choice;
use super::eligible::eligible;
use super::kin::Kin;
use super::remains::Remains;
use super::request::Request;
use super::told::Told;
use super::{Context, mps};
use crate::assignment::{Owner, Record, Standing};
use crate::cli::{Allocation, Policy};
use crate::error::Error;
use crate::host::owner::{self, Form, Found};
use crate::notes::Notes;
use crate::policy::{self, Holdings, Used};

pub(super) fn run(
    context: &Context<'_>,
    form: Form,
    options: &Allocation,
    notes: &mut Notes,
) -> Result<(), Error> {
    let asked = &options.request;
    if asked.amount == 0 {
        return Ok(());
    }
    // Before the lock: whoever does not read our answer is not to keep others waiting.
    context.stdout.ready(context.deadline)?;
    let coordinates = context.coordinates(form, options);
    if !coordinates && asked.cgroup().is_some() {
        return Err(Error::Usage(
            "--cgroup needs the record of who holds what: add --enable-coordination-mode, and leave \
             --no-coordination out"
                .to_owned(),
        ));
    }
    let owner = if coordinates { Some(find_owner(context, form, options, notes)?) } else { None };
    let (inventory, resources) = context.inventory(&asked.source, notes)?;
    let (seen, units) = eligible(context, asked, options.owner.owner, (&inventory, &resources), notes)?;
    let kin = Kin::of(&context.host, &inventory, notes);
    let request = Request {
        context,
        options: asked,
        takes_over: form == Form::Discover || options.check_dead,
        keeps_rights: true,
        is_passed_on: false,
        queue: None,
        print: options.print,
        inventory: &inventory,
        resources: &resources,
        seen: &seen,
        units: &units,
        kin: kin.as_ref(),
    };
    match owner {
        Some(owner) => request.give(&owner, &mut Answer::new(context, options.print), notes),
        None => first(&request, options, notes),
    }
}

pub(super) fn find_owner(
    context: &Context<'_>,
    form: Form,
    options: &Allocation,
    notes: &mut Notes,
) -> Result<Owner, Error> {
    let found = owner::find(&context.host, form, options.owner.owner, &context.surroundings.service, notes)?;
    match found {
        Found::Owner(owner) => Ok(context.requester.get_or_init(|| owner).clone()),
        Found::Gone(_) | Found::Invocation(_) => {
            Err(Error::Owner("no process holds what is given".to_owned()))
        }
    }
}

/// Without coordination: the first units, whoever else is told the same.
fn first(request: &Request<'_>, options: &Allocation, notes: &mut Notes) -> Result<(), Error> {
    let (context, asked) = (request.context, request.options);
    let record = Record::default();
    // Nobody is an owner, but who asks is not to be kept from what it computes on already.
    let requester = asked.skip_busy.then(|| options.owner.owner.unwrap_or_else(parent_id));
    let requester = requester.and_then(|pid| owner::of(&context.host, pid));
    let standing = |_| Standing::Alive;
    let choice = Choice {
        holdings: Holdings {
            inventory: request.inventory,
            record: &record,
            occupancy: &policy::occupancy(request.inventory, &record),
            standing: &standing,
        },
        requester: requester.as_ref(),
        kin: request.kin,
        remains: &Remains::of(&context.host, &record, &standing),
    };
    let wanted = policy::Wanted {
        amount: asked.amount,
        takes_over: false,
        includes_sick: asked.include_unhealthy,
        in_use: if asked.skip_busy { Used::Withhold } else { Used::GiveAsAny },
        isolates: false,
        packs: asked.policy == Policy::Pack,
        units: request.units,
    };
    let units = choice.make(&context.host, &wanted, notes)?;
    let (inventory, seen) = (request.inventory, request.seen);
    let variables = mps::variables(context, inventory, request.resources, &units);
    let told = Told { inventory, units: &units, seen, is_confined: false, variables: &variables };
    let line = answer::text(&told, options.print)?;
    context.print(&line, notes)
}
