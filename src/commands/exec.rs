//! `gpu-coord exec`: takes units for itself, and becomes the command.

use super::Context;
use super::becoming::Becoming;
use super::offer::Offer;
use super::waiting;
use crate::assignment::Owner;
use crate::cli::{Exec, Wait};
use crate::error::Error;
use crate::host::account::Account;
use crate::host::owner;
use crate::notes::Notes;

pub(super) fn run(context: &Context<'_>, options: &Exec, notes: &mut Notes) -> Result<(), Error> {
    let asked = &options.request;
    let mut becoming = Becoming::new(context, options)?;
    if asked.amount == 0 && asked.cgroup().is_some() {
        let problem = "--cgroup needs at least one unit: an owner of no units is not recorded";
        return Err(Error::Usage(problem.to_owned()));
    }
    if asked.amount == 0 {
        becoming.sees_nothing();
        context.check_strict(notes)?;
        return becoming.become_it(notes).map(|never| match never {});
    }
    if context.grant(asked).is_some() {
        let problem = "`gpu-coord exec` inside another one cannot use its units: ask with `gpu-coord AMOUNT`, or \
                       add --more for further units";
        return Err(Error::Usage(problem.to_owned()));
    }
    let owner = owner(context, becoming.account())?;
    let owner = context.requester.get_or_init(|| owner);
    match options.wait {
        None | Some(Wait::No) => {
            let offer = Offer::read(context, options, notes)?;
            offer.take(context, options, owner, None, notes)
        }
        Some(Wait::For(patience)) => waiting::run(context, options, owner, Some(patience), notes),
        Some(Wait::Forever) => waiting::run(context, options, owner, None, notes),
    }
}

/// This process, with the user that it is about to become.
fn owner(context: &Context<'_>, account: Option<&Account>) -> Result<Owner, Error> {
    let unknown =
        || Error::Owner("gpu-coord cannot find itself in /proc, which belongs to another host".to_owned());
    let own = owner::of(&context.host, std::process::id()).filter(|_| context.host.is_here());
    context.host.check_read()?;
    let own = own.ok_or_else(unknown)?;
    Ok(Owner { uid: account.map(|account| account.uid).or(own.uid), ..own })
}
