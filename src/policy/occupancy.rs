//! Who holds what: every line of the record matched with the units of the host.

use crate::assignment::{Drained, Record, Standing, Withheld};
use crate::device::{Health, Identity, Inventory, Part, Unit};
use crate::policy::names::Names;

/// A unit and what the record says about it.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) unit: Unit,
    /// Positions in [`Record::assignments`]; several are no error.
    pub(crate) holders: Vec<usize>,
    pub(crate) withheld: Option<&'a Withheld>,
    pub(crate) drained: Option<&'a Drained>,
}

/// The state of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    Free,
    /// Every owner is dead.
    Stale,
    Held,
    /// An owner may be alive where it cannot be seen.
    Unknown,
    /// A line of the coordination file names it but is not an assignment.
    Withheld,
    Drained,
    Sick,
}

impl State {
    /// Its name in tables and in JSON.
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

/// The units of the host, each with what the record says about it.
#[derive(Debug)]
pub(crate) struct Occupancy<'a> {
    /// In the order of [`Inventory::units`].
    pub(crate) places: Vec<Place<'a>>,
    /// For each assignment of the record, whether one of its names is that of a device at hand, so that its owner can
    /// be judged by this host's boot.
    pub(crate) is_here: Vec<bool>,
}

impl<'a> Occupancy<'a> {
    /// The places of a device, which are adjacent.
    pub(crate) fn of_device(&self, device: usize) -> &[Place<'a>] {
        let from = self.places.partition_point(|place| place.unit.device < device);
        let count = self.places[from..].partition_point(|place| place.unit.device == device);
        &self.places[from..from + count]
    }

    /// In the order of `units`.
    pub(super) fn of_units(&self, units: &[Unit]) -> impl Iterator<Item = &Place<'a>> {
        let key = |unit: &Unit| (unit.device, unit.instance, unit.slot);
        units.iter().filter_map(move |unit| {
            let at = self.places.binary_search_by_key(&key(unit), |place| key(&place.unit)).ok()?;
            Some(&self.places[at])
        })
    }
}

/// Who holds what, and which owners are alive.
#[derive(Clone, Copy)]
pub(crate) struct Holdings<'a> {
    pub(crate) inventory: &'a Inventory,
    pub(crate) record: &'a Record,
    pub(crate) occupancy: &'a Occupancy<'a>,
    /// The standing of an assignment's owner, by position in the record. Called only for holders, and only where it
    /// matters.
    pub(crate) standing: &'a dyn Fn(usize) -> Standing,
}

impl Holdings<'_> {
    pub(crate) fn state(&self, place: &Place<'_>) -> State {
        let health = &self.inventory.devices[place.unit.device].health;
        place.state(*health != Health::Sound, self.standing)
    }

    pub(crate) fn is_dead(&self, position: usize) -> bool {
        (self.standing)(position) == Standing::Dead
    }
}

pub(crate) fn occupancy<'a>(inventory: &Inventory, record: &'a Record) -> Occupancy<'a> {
    let names = Names::of(inventory);
    let mut places: Vec<Place<'a>> = inventory.units().map(Place::empty).collect();
    let mut is_here = Vec::with_capacity(record.assignments.len());
    for (position, assignment) in record.assignments.iter().enumerate() {
        is_here.push(names.each(assignment.index, &assignment.identity, |part| {
            if let Some(place) = assignment.slot.and_then(|slot| share(&mut places, part, slot)) {
                return place.holders.push(position);
            }
            // A recorded share that the device no longer has may be any of its shares.
            let is_its = |place: &&mut Place<'a>| {
                let slots = inventory.slots_of(&place.unit).zip(assignment.slot);
                slots.is_none_or(|(count, recorded)| recorded >= count || place.unit.slot == Some(recorded))
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

/// The units that each line of the record's drained keeps from being granted, in the order of the lines.
pub(crate) fn kept_by_drains<'a>(
    inventory: &'a Inventory,
    record: &'a Record,
) -> impl Iterator<Item = Vec<Unit>> + 'a {
    let names = Names::of(inventory);
    record.drained.iter().map(move |drained| {
        let mut kept = Vec::new();
        names.each(drained.index, &drained.identity, |part| kept.extend(inventory.units_of(part)));
        kept
    })
}

/// A share of what is not divided itself: the common case, told without a look at the others.
fn share<'p, 'a>(places: &'p mut [Place<'a>], part: Part, slot: u32) -> Option<&'p mut Place<'a>> {
    let key = |place: &Place<'_>| (place.unit.device, place.unit.instance, place.unit.slot);
    let at = places.binary_search_by_key(&(part.device, part.instance, Some(slot)), key).ok()?;
    Some(&mut places[at])
}

/// The places of a device or instance. Those of a device are adjacent.
fn units_of<'p, 'a>(places: &'p mut [Place<'a>], part: Part) -> impl Iterator<Item = &'p mut Place<'a>> {
    let from = places.partition_point(|place| place.unit.device < part.device);
    let of_device = places[from..].iter_mut().take_while(move |place| place.unit.device == part.device);
    of_device.filter(move |place| part.instance.is_none() || place.unit.instance == part.instance)
}

impl Place<'_> {
    /// A place that nobody holds.
    fn empty(unit: Unit) -> Self {
        Place { unit, holders: Vec::new(), withheld: None, drained: None }
    }

    /// `is_sick`: what counts as sick is up to the caller.
    pub(super) fn state(&self, is_sick: bool, standing: &dyn Fn(usize) -> Standing) -> State {
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
