//! Who holds what: every line of the record set against the units of the host.

use std::collections::HashMap;

use crate::assignment::{Drained, Record, Standing, Withheld};
use crate::device::{Health, Identity, Inventory, PciAddress, Relation, Unit};

/// A unit and what the record says of it.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) unit: Unit,
    /// Positions in [`Record::assignments`]; several are no error.
    pub(crate) holders: Vec<usize>,
    pub(crate) withheld: Option<&'a Withheld>,
    pub(crate) drained: Option<&'a Drained>,
}

/// What can be said of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    Free,
    /// Every owner is dead.
    Stale,
    Held,
    /// An owner may live where it cannot be seen.
    Unknown,
    /// A line of the coordination file names it and is no assignment.
    Withheld,
    Drained,
    Sick,
}

impl State {
    /// The word for it in a table and in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            State::Free => "free",
            State::Stale => "stale",
            State::Held => "held",
            State::Unknown => "unknown",
            State::Withheld => "withheld",
            State::Drained => "drained",
            State::Sick => "sick",
        }
    }
}

/// Every line of the record set against the units of the host.
#[derive(Debug)]
pub(crate) struct Occupancy<'a> {
    /// In the order of [`Inventory::units`].
    pub(crate) places: Vec<Place<'a>>,
    /// Of each of the record's assignments, whether a name of it is a name of a device at hand, so that its
    /// owner can be judged by this host's boot.
    pub(crate) is_here: Vec<bool>,
}

pub(crate) fn occupancy<'a>(inventory: &Inventory, record: &'a Record) -> Occupancy<'a> {
    let names = Names::of(inventory);
    let mut places: Vec<Place<'a>> = inventory.units().map(Place::empty).collect();
    let mut is_here = Vec::with_capacity(record.assignments.len());
    for (position, assignment) in record.assignments.iter().enumerate() {
        is_here.push(names.each(assignment.index, &assignment.identity, |part| {
            let is_its = |place: &&mut Place<'a>| {
                let slots = place.unit.slot.zip(assignment.slot);
                slots.is_none_or(|(unit, recorded)| unit == recorded)
            };
            units_of(&mut places, part).filter(is_its).for_each(|place| place.holders.push(position));
        }));
    }
    for withheld in &record.withheld {
        names.each(withheld.index, &Identity::default(), |part| {
            units_of(&mut places, part).for_each(|place| place.withheld = Some(withheld));
        });
    }
    for drained in &record.drained {
        names.each(drained.index, &drained.identity, |part| {
            units_of(&mut places, part).for_each(|place| place.drained = Some(drained));
        });
    }
    Occupancy { places, is_here }
}

/// The places of a device lie side by side.
fn units_of<'p, 'a>(places: &'p mut [Place<'a>], part: Part) -> impl Iterator<Item = &'p mut Place<'a>> {
    let from = places.partition_point(|place| place.unit.device < part.device);
    let of_device = places[from..].iter_mut().take_while(move |place| place.unit.device == part.device);
    of_device.filter(move |place| part.instance.is_none() || place.unit.instance == part.instance)
}

impl Place<'_> {
    /// Nobody holds it.
    pub(super) fn empty(unit: Unit) -> Self {
        Place { unit, holders: Vec::new(), withheld: None, drained: None }
    }

    /// `standing` is asked of the holders alone, and only if they decide.
    pub(crate) fn state(&self, inventory: &Inventory, standing: &dyn Fn(usize) -> Standing) -> State {
        let is_sick = inventory.devices[self.unit.device].health != Health::Sound;
        let mut standings = self.holders.iter().map(|holder| standing(*holder));
        match () {
            () if self.withheld.is_some() => State::Withheld,
            () if standings.clone().any(|standing| standing == Standing::Alive) => State::Held,
            () if standings.any(|standing| standing != Standing::Dead) => State::Unknown,
            () if is_sick => State::Sick,
            () if self.drained.is_some() => State::Drained,
            () if self.holders.is_empty() => State::Free,
            () => State::Stale,
        }
    }
}

/// What a name can mean: a device with all that it is divided into, or one instance of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    device: usize,
    instance: Option<usize>,
}

impl Part {
    fn whole(device: usize) -> Part {
        Part { device, instance: None }
    }
}

/// The devices and their instances by each of their names.
struct Names<'a> {
    inventory: &'a Inventory,
    uuid: HashMap<&'a str, Part>,
    pci: HashMap<PciAddress, Part>,
    id: HashMap<&'a str, Part>,
    index: HashMap<u32, usize>,
    /// Whether every device has a UUID.
    has_uuids: bool,
}

impl<'a> Names<'a> {
    fn of(inventory: &'a Inventory) -> Names<'a> {
        let devices = || inventory.devices.iter().enumerate();
        let by = |at| Part::whole(at);
        let mut uuid: HashMap<&str, Part> =
            devices().filter_map(|(at, device)| Some((device.identity.uuid.as_deref()?, by(at)))).collect();
        let has_uuids = uuid.len() == inventory.devices.len();
        uuid.extend(devices().flat_map(|(device, described)| {
            let instances = described.instances.iter().flatten().enumerate();
            instances.filter_map(move |(at, instance)| {
                Some((instance.uuid.as_deref()?, Part { device, instance: Some(at) }))
            })
        }));
        Names {
            inventory,
            uuid,
            pci: devices().filter_map(|(at, device)| Some((device.identity.pci?, by(at)))).collect(),
            id: devices().filter_map(|(at, device)| Some((device.identity.id.as_deref()?, by(at)))).collect(),
            index: devices().map(|(at, device)| (device.index, at)).collect(),
            has_uuids,
        }
    }

    /// Calls `found` with all that a line of the record means, and tells whether by its name.
    ///
    /// Any equal name decides. Where none is equal, and every device has another name of a kind that was
    /// recorded, the recorded device is not here. What can be neither matched nor excluded holds its index,
    /// or, if that device is excluded, every device that is not.
    fn each(&self, index: u32, identity: &Identity, found: impl FnMut(Part)) -> bool {
        let by_uuid = identity.uuid.as_deref().and_then(|uuid| self.uuid.get(uuid)).copied();
        let by_pci = identity.pci.and_then(|pci| self.pci.get(&pci)).copied();
        let by_id = identity.id.as_deref().and_then(|id| self.id.get(id)).copied();
        let mut matches: Vec<Part> = [by_uuid, by_pci, by_id].into_iter().flatten().collect();
        let is_named = !matches.is_empty();
        if !is_named {
            matches = self.not_excluded(index, identity);
        }
        matches.sort_unstable();
        matches.dedup();
        matches.into_iter().for_each(found);
        is_named
    }

    fn not_excluded(&self, index: u32, identity: &Identity) -> Vec<Part> {
        if self.excludes_all(identity) {
            return Vec::new();
        }
        let devices = &self.inventory.devices;
        let is_unseen = self.is_unseen_instance(identity);
        let may_be = |at: &usize| is_unseen || devices[*at].identity.relation(identity) == Relation::Unknown;
        match self.index.get(&index) {
            Some(at) if may_be(at) => vec![Part::whole(*at)],
            None if identity.is_empty() => Vec::new(), // an index of the script's that this host does not have
            _ => (0..devices.len()).filter(may_be).map(Part::whole).collect(),
        }
    }

    /// The common case, told without a look at every device.
    fn excludes_all(&self, identity: &Identity) -> bool {
        let all = self.inventory.devices.len();
        (identity.uuid.is_some() && self.has_uuids && !self.is_unseen_instance(identity))
            || (identity.pci.is_some() && self.pci.len() == all)
            || (identity.id.is_some() && self.id.len() == all)
    }

    /// An instance is compared with instances only: where the source does not tell them, no device excludes it.
    fn is_unseen_instance(&self, identity: &Identity) -> bool {
        let is_instance = identity.uuid.as_deref().is_some_and(|uuid| uuid.starts_with("MIG-"));
        is_instance && !self.inventory.tells_instances
    }
}
