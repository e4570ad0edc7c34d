//! Which units a host has, and what they are called: the configuration put to the inventory. Pure.
//!
//! Names are those of the device plugin: `nvidia.com/gpu`, `nvidia.com/gpu.shared`, `nvidia.com/mig-1g.10gb`. A
//! device that nobody has configured is a `gpu` of its vendor.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::{Config, Devices, MigStrategy, SharedResource, Way};
use crate::device::{Inventory, Part, Unit};

/// What the units of a host are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resources {
    /// Of what is not offered there is none.
    names: BTreeMap<Part, String>,
    /// How those devices and instances are shared that are.
    shared: BTreeMap<Part, Way>,
    /// Asked for if nothing is said.
    plain: String,
    /// Whether somebody has said what is offered under which name.
    pub(crate) is_configured: bool,
    fails_requests_greater_than_one: bool,
}

impl Resources {
    /// Divides the devices of `inventory` into the shares that `config` says. `domain`: of the vendor, `nvidia.com`.
    pub(crate) fn of(
        config: Option<&Config>,
        inventory: &mut Inventory,
        domain: &str,
    ) -> Result<Resources, String> {
        let plain = format!("{domain}/gpu");
        let names = names(inventory, config.and_then(|config| config.mig), &plain)?;
        let mut resources = Resources {
            names,
            shared: BTreeMap::new(),
            plain,
            is_configured: config.is_some_and(|config| config.mig.is_some() || config.sharing.is_some()),
            fails_requests_greater_than_one: false,
        };
        let Some(sharing) = config.and_then(|config| config.sharing.as_ref()) else { return Ok(resources) };
        resources.fails_requests_greater_than_one = sharing.fails_requests_greater_than_one;
        let chosen = sharing.resources.iter().map(|shared| Ok((shared, resources.parts(shared, inventory)?)));
        for (shared, parts) in chosen.collect::<Result<Vec<_>, String>>()? {
            for part in parts {
                resources.share(part, shared, sharing.way, inventory);
            }
        }
        Ok(resources)
    }

    /// Of a host that has no device.
    pub(crate) fn none() -> Resources {
        Resources {
            names: BTreeMap::new(),
            shared: BTreeMap::new(),
            plain: String::new(),
            is_configured: false,
            fails_requests_greater_than_one: false,
        }
    }

    fn share(&mut self, part: Part, shared: &SharedResource, way: Way, inventory: &mut Inventory) {
        self.shared.insert(part, way);
        if let Some(name) = &shared.rename {
            self.names.insert(part, name.clone());
        }
        let device = &mut inventory.devices[part.device];
        match (part.instance, &mut device.instances) {
            (Some(at), Some(instances)) => instances[at].slots = Some(shared.replicas),
            _ => device.slots = Some(shared.replicas),
        }
    }

    /// Those of the resource that are meant.
    fn parts(&self, shared: &SharedResource, inventory: &Inventory) -> Result<Vec<Part>, String> {
        let of_name: Vec<Part> =
            self.names.iter().filter(|(_, name)| **name == shared.name).map(|(part, _)| *part).collect();
        match &shared.devices {
            Devices::All => Ok(of_name),
            Devices::Count(count) => Ok(of_name.into_iter().take(*count as usize).collect()),
            Devices::List(list) => list.iter().map(|text| named(inventory, &of_name, text, shared)).collect(),
        }
    }

    /// What a unit is called; `None`: it is not offered.
    pub(crate) fn name(&self, unit: &Unit) -> Option<&str> {
        self.names.get(&unit.part()).map(String::as_str)
    }

    /// How a unit is shared with others.
    pub(crate) fn way(&self, unit: &Unit) -> Option<Way> {
        self.shared.get(&unit.part()).copied()
    }

    /// Every name that the host has, with how many units.
    fn counted(&self, inventory: &Inventory) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for unit in inventory.units() {
            self.name(&unit).into_iter().for_each(|name| *counts.entry(name).or_insert(0) += 1);
        }
        counts
    }

    /// Whether a unit is what is asked for: of that name, or of the plain one if none is said. Where nothing is
    /// configured an instance is a device too, and can be asked for by its profile.
    fn is_of(&self, unit: &Unit, asked: Option<&str>, inventory: &Inventory) -> bool {
        let Some(name) = self.name(unit) else { return false };
        match asked {
            Some(asked) => {
                name == asked || (!self.is_configured && profile(inventory, unit).as_deref() == Some(asked))
            }
            None => !self.is_configured || name == self.plain,
        }
    }

    /// Those of `units` that are of the resource; an error if the host has none of it.
    pub(crate) fn only(
        &self,
        mut units: Vec<Unit>,
        asked: Option<&str>,
        inventory: &Inventory,
    ) -> Result<Vec<Unit>, String> {
        let exists = inventory.units().any(|unit| self.is_of(&unit, asked, inventory));
        if !exists && (asked.is_some() || self.is_configured) {
            let has = self.counted(inventory).into_iter().map(|(name, count)| format!("{name} ({count})"));
            let has: Vec<String> = has.collect();
            let has = if has.is_empty() { "none at all".to_owned() } else { has.join(", ") };
            let name = asked.unwrap_or(&self.plain);
            return Err(format!(
                "this host has no resource `{name}`; it has {has}: name one with --resource"
            ));
        }
        units.retain(|unit| self.is_of(unit, asked, inventory));
        Ok(units)
    }

    /// Why so many shares are not given to one owner.
    pub(crate) fn refusal(&self, amount: u128, units: &[Unit]) -> Option<String> {
        if amount <= 1 || !self.fails_requests_greater_than_one {
            return None;
        }
        let why = match units.iter().find_map(|unit| self.way(unit))? {
            Way::TimeSlicing => {
                "a second share gives no more of a device, which its owners take in turns; ask for 1 (or set \
                 failRequestsGreaterThanOne to false)"
            }
            Way::Mps => {
                "a second share gives no more of a device to a client of MPS, which has the limits of one; ask for 1"
            }
        };
        Some(format!("{amount} shares of shared devices asked for, and at most 1 is given at a time: {why}"))
    }
}

/// `1g.5gb+me` is no name of a resource, `1g.5gb.me` is.
fn profile(inventory: &Inventory, unit: &Unit) -> Option<String> {
    let instance = inventory.devices[unit.device].instances.as_ref()?.get(unit.instance?)?;
    Some(format!("nvidia.com/mig-{}", instance.profile.as_ref()?.replace('+', ".")))
}

/// What every device and instance is called, before it is shared.
fn names(
    inventory: &Inventory,
    strategy: Option<MigStrategy>,
    plain: &str,
) -> Result<BTreeMap<Part, String>, String> {
    if strategy == Some(MigStrategy::Single) {
        check_alike(inventory)?;
    }
    let name = |unit: &Unit| match (unit.instance, strategy) {
        (None, _) | (Some(_), None | Some(MigStrategy::Single)) => Some(plain.to_owned()),
        (Some(_), Some(MigStrategy::None)) => None,
        (Some(_), Some(MigStrategy::Mixed)) => profile(inventory, unit),
    };
    Ok(inventory.units().filter_map(|unit| Some((unit.part(), name(&unit)?))).collect())
}

/// Strategy `single` speaks of one kind of unit.
fn check_alike(inventory: &Inventory) -> Result<(), String> {
    let mut kinds: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for unit in inventory.units() {
        let kind = profile(inventory, &unit).unwrap_or_else(|| {
            if unit.instance.is_some() { "an unknown profile".to_owned() } else { "no MIG".to_owned() }
        });
        kinds.entry(kind).or_default().insert(inventory.devices[unit.device].index);
    }
    if kinds.len() <= 1 {
        return Ok(());
    }
    let told = kinds.into_iter().map(|(kind, devices)| {
        let devices: Vec<String> = devices.into_iter().map(|index| index.to_string()).collect();
        format!("{kind} on device {}", devices.join(", "))
    });
    let told: Vec<String> = told.collect();
    Err(format!(
        "migStrategy single needs instances that are all alike, and there are {}; use mixed",
        told.join("; ")
    ))
}

/// The device that an index, a UUID or `GPU:INSTANCE` names.
fn named(inventory: &Inventory, of: &[Part], text: &str, shared: &SharedResource) -> Result<Part, String> {
    let is_it = |part: &&Part| {
        let device = &inventory.devices[part.device];
        let index = match part.instance {
            Some(at) => format!("{}:{at}", device.index),
            None => device.index.to_string(),
        };
        let instance = part.instance.and_then(|at| device.instances.as_ref()?.get(at)?.uuid.as_deref());
        let uuid = if part.instance.is_some() { instance } else { device.identity.uuid.as_deref() };
        index == text || uuid == Some(text)
    };
    of.iter().find(is_it).copied().ok_or_else(|| {
        format!(
            "`{text}` among the shared devices of {} is no device of that resource on this host",
            shared.name
        )
    })
}
