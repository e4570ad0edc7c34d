//! What `exec` can be granted, and one attempt to take it.

use super::Context;
use super::becoming::Becoming;
use super::eligible::eligible;
use super::kin::Kin;
use super::queue::Queue;
use super::request::Request;
use crate::assignment::Owner;
use crate::cli::{Exec, Print};
use crate::device::{Inventory, Unit};
use crate::error::Error;
use crate::notes::Notes;
use crate::sharing::Resources;
use crate::visible::Seen;

/// The devices of the host, and the units that may be granted.
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

    /// Takes the requested units and becomes the command. Returns only if that fails.
    pub(super) fn take(
        &self,
        context: &Context<'_>,
        options: &Exec,
        owner: &Owner,
        queue: Option<&Queue>,
        notes: &mut Notes,
    ) -> Result<(), Error> {
        let asked = &options.request;
        let Offer { inventory, resources, seen, units } = self;
        let mut becoming = Becoming::new(context, options)?;
        let kin = Kin::of(&context.host, inventory, notes);
        let request = Request {
            context,
            options: asked,
            takes_over: true,
            keeps_rights: becoming.account().is_none_or(|account| account.uid == 0),
            is_passed_on: true,
            queue,
            print: Print::Env,
            inventory,
            resources,
            seen,
            units,
            kin: kin.as_ref(),
        };
        request.give(owner, &mut becoming, notes)
    }
}
