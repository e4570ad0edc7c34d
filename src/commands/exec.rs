//! `gpu-coord exec`: takes units for itself, and becomes the command.

use super::Context;
use super::becoming::Becoming;
use super::eligible::eligible;
use super::grant::Request;
use super::kin::Kin;
use super::queue::Queue;
use super::waiting;
use crate::assignment::Owner;
use crate::cli::{Exec, Print, Wait, Word};
use crate::device::{Inventory, Unit};
use crate::error::Error;
use crate::host::account::Account;
use crate::host::owner;
use crate::notes::Notes;
use crate::sharing::Resources;
use crate::visible::Seen;

pub(super) fn run(context: &Context<'_>, options: &Exec, notes: &mut Notes) -> Result<(), Error> {
    let asked = &options.request;
    let mut becoming = Becoming::new(context, options)?;
    if asked.amount == 0 && asked.cgroup().is_some() {
        let problem = "--cgroup needs at least one unit: of an owner of none there is no record";
        return Err(Error::Usage(problem.to_owned()));
    }
    if asked.amount == 0 {
        becoming.sees_nothing();
        return becoming.become_it(notes).map(|never| match never {});
    }
    let owner = owner(context, becoming.account())?;
    match options.wait {
        None | Some(Wait::No) => {
            let offer = Offer::read(context, options, notes)?;
            attempt(context, options, &owner, &offer, None, notes)
        }
        Some(Wait::For(patience)) => waiting::run(context, options, &owner, Some(patience), notes),
        Some(Wait::Forever) => waiting::run(context, options, &owner, None, notes),
    }
}

/// What there is, and what of it may be given.
pub(super) struct Offer {
    pub(super) inventory: Inventory,
    pub(super) resources: Resources,
    pub(super) seen: Seen,
    pub(super) units: Vec<Unit>,
}

impl Offer {
    pub(super) fn read(context: &Context<'_>, options: &Exec, notes: &mut Notes) -> Result<Offer, Error> {
        let asked = &options.request;
        let (inventory, resources) = context.inventory(&asked.source, notes)?;
        let (seen, units) = eligible(context, asked, None, (&inventory, &resources), notes)?;
        Ok(Offer { inventory, resources, seen, units })
    }
}

/// Returns only if it fails.
pub(super) fn attempt(
    context: &Context<'_>,
    options: &Exec,
    owner: &Owner,
    offer: &Offer,
    queue: Option<&Queue>,
    notes: &mut Notes,
) -> Result<(), Error> {
    let asked = &options.request;
    let Offer { inventory, resources, seen, units } = offer;
    let mut becoming = Becoming::new(context, options)?;
    let kin = Kin::of(&context.host, inventory, notes);
    let request = Request {
        context,
        options: asked,
        takes_over: true,
        keeps_rights: becoming.account().is_none_or(|account| account.uid == 0),
        is_passed_on: true,
        queue,
        print: Print::Word(Word::Uuid),
        inventory,
        resources,
        seen,
        units,
        kin: kin.as_ref(),
    };
    request.give(owner, &mut becoming, notes)
}

/// This process, by the user that it is about to be.
fn owner(context: &Context<'_>, account: Option<&Account>) -> Result<Owner, Error> {
    let unknown =
        || Error::Owner("gpu-coord cannot find itself in /proc, which is of another host".to_owned());
    let own = owner::of(&context.host, std::process::id()).filter(|_| context.host.is_here());
    let own = own.ok_or_else(unknown)?;
    Ok(Owner { uid: account.map(|account| account.uid).or(own.uid), ..own })
}
