//! Which units may be granted to the owner of a request: those that it sees and that are selected.

use super::Context;
use crate::cli::{RequestOptions, SelectionOptions};
use crate::device::{Device, Inventory, Part, Unit};
use crate::error::Error;
use crate::inventory::{Source, Vendor};
use crate::notes::Notes;
use crate::policy;
use crate::selection::Selection;
use crate::sharing::Resources;
use crate::visible::{Seen, Variables};

pub(super) fn selection(inventory: &Inventory, options: &SelectionOptions) -> Result<Selection, Error> {
    let (devices, exclude) = (options.devices.as_ref(), options.exclude.as_ref());
    Selection::of(inventory, devices, exclude).map_err(Error::Usage)
}

/// The devices of which at least one unit is selected, each with its position.
pub(super) fn shown<'a>(inventory: &'a Inventory, selection: &Selection) -> Vec<(usize, &'a Device)> {
    let is_shown = |at: usize| {
        // A divided device may have no instance.
        let itself = Unit { device: at, instance: None, slot: None };
        selection.takes(&itself) || inventory.units_of(Part::whole(at)).any(|unit| selection.takes(&unit))
    };
    inventory.devices.iter().enumerate().filter(|(at, _)| is_shown(*at)).collect()
}

/// How the owner counts devices, and the units that it may be granted. `owner`: the process whose environment is read, if
/// not our own.
pub(super) fn eligible(
    context: &Context<'_>,
    options: &RequestOptions,
    owner: Option<u32>,
    (inventory, resources): (&Inventory, &Resources),
    notes: &mut Notes,
) -> Result<(Seen, Vec<Unit>), Error> {
    let selection = selection(inventory, &options.selection)?;
    let seen = seen(context, options, owner, inventory, notes);
    notes.details.extend(seen.ignored.clone());
    let of_resource = |units| of_resource(units, options, (inventory, resources));
    let mut units = of_resource(seen.units(inventory))?;
    if !selection.takes_all() {
        units.retain(|unit| selection.takes(unit));
    }
    let all = of_resource(inventory.units().collect())?.len();
    policy::can_ever_be_given(options.amount, units.len(), all)?;
    if let Some(refusal) = resources.refusal(options.amount, &units) {
        return Err(Error::Refused(refusal));
    }
    Ok((seen, units))
}

/// Those units that are of the requested resource.
pub(super) fn of_resource(
    units: Vec<Unit>,
    options: &RequestOptions,
    (inventory, resources): (&Inventory, &Resources),
) -> Result<Vec<Unit>, Error> {
    let asked = options.resource.as_deref().map(qualified);
    resources.only(units, asked.as_deref(), inventory).map_err(Error::Usage)
}

pub(super) fn seen(
    context: &Context<'_>,
    options: &RequestOptions,
    owner: Option<u32>,
    inventory: &Inventory,
    notes: &mut Notes,
) -> Seen {
    // With --more, the variables are those that `exec` has set, and name the units that it was granted.
    let is_beside = options.more && context.surroundings.grant.is_some();
    if is_beside || options.ignore_visible_devices || matches!(options.source.source, Source::File(_)) {
        return Seen::all(inventory);
    }
    let variables = variables(context, owner, notes);
    match Vendor::of(&inventory.source) {
        Some(Vendor::Amd) => Seen::by_hip(inventory, &variables),
        Some(Vendor::Nvidia) | None => {
            let is_host = variables.nvidia.is_some() && is_host(context);
            Seen::by_cuda(inventory, &variables, is_host)
        }
    }
}

/// The variables of the owner, which determine how its runtime counts; ours are inherited from it.
fn variables(context: &Context<'_>, owner: Option<u32>, notes: &mut Notes) -> Variables {
    let Some(pid) = owner else { return context.surroundings.visible.clone() };
    match context.host.environment(pid) {
        Ok(environment) => Variables::from_environment(|name| environment.value(name)),
        Err(error) => {
            notes.warn(format!(
                "cannot read the environment of pid {pid} ({error}); if CUDA_VISIBLE_DEVICES or a similar variable is \
                 set there, use identities (--print uuid) instead of indexes"
            ));
            Variables::default()
        }
    }
}

/// Whether this is certainly not a container, whose devices may be different ones or fewer.
fn is_host(context: &Context<'_>) -> bool {
    let root = context.host.mounts().and_then(|mounts| mounts.covering("/".as_ref()));
    context.host.is_initial_pid_namespace() && !root.is_none_or(|root| root.is_container_root())
}

/// A name without a domain is NVIDIA's, as in the configuration.
pub(super) fn qualified(name: &str) -> String {
    if name.contains('/') { name.to_owned() } else { format!("nvidia.com/{name}") }
}
