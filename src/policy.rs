//! Who holds what, and which units a request is given. Pure: the host has been read before, and is changed
//! after.
//!
//! A unit that nobody holds goes before one whose owner has died: the order of Flink's own script. What
//! cannot be known is treated as held.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::assignment::{Drained, Record, Standing, Withheld};
use crate::device::{Health, Identity, Inventory, PciAddress, Relation, Unit};
use crate::error::Error;

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

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) amount: u128,
    /// Whether the units of dead owners may be given. Those that the script recorded always may: it never
    /// gives anything back.
    pub(crate) takes_over: bool,
    /// Positions of the devices that may be given, in the order of preference.
    pub(crate) devices: &'a [usize],
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
        is_here.push(names.each(assignment.index, &assignment.identity, |device| {
            for place in units_of(&mut places, device) {
                if place.unit.slot.is_none() || assignment.slot.is_none() || place.unit.slot == assignment.slot {
                    place.holders.push(position);
                }
            }
        }));
    }
    for withheld in &record.withheld {
        names.each(withheld.index, &Identity::default(), |device| {
            units_of(&mut places, device).for_each(|place| place.withheld = Some(withheld));
        });
    }
    for drained in &record.drained {
        names.each(drained.index, &drained.identity, |device| {
            units_of(&mut places, device).for_each(|place| place.drained = Some(drained));
        });
    }
    Occupancy { places, is_here }
}

/// The places of one device: they lie side by side.
fn units_of<'p, 'a>(places: &'p mut [Place<'a>], device: usize) -> impl Iterator<Item = &'p mut Place<'a>> {
    let from = places.partition_point(|place| place.unit.device < device);
    places[from..].iter_mut().take_while(move |place| place.unit.device == device)
}

impl Place<'_> {
    fn empty(unit: Unit) -> Self {
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

/// The devices by each of their names.
struct Names<'a> {
    inventory: &'a Inventory,
    uuid: HashMap<&'a str, usize>,
    pci: HashMap<PciAddress, usize>,
    id: HashMap<&'a str, usize>,
    index: HashMap<u32, usize>,
}

impl<'a> Names<'a> {
    fn of(inventory: &'a Inventory) -> Names<'a> {
        let devices = || inventory.devices.iter().enumerate();
        Names {
            inventory,
            uuid: devices().filter_map(|(at, device)| Some((device.identity.uuid.as_deref()?, at))).collect(),
            pci: devices().filter_map(|(at, device)| Some((device.identity.pci?, at))).collect(),
            id: devices().filter_map(|(at, device)| Some((device.identity.id.as_deref()?, at))).collect(),
            index: devices().map(|(at, device)| (device.index, at)).collect(),
        }
    }

    /// Calls `found` with every device that a line of the record means, and tells whether by its name.
    ///
    /// Any equal name decides. Where none is equal, and every device has another name of a kind that was
    /// recorded, the recorded device is not here. What can be neither matched nor excluded holds its index,
    /// or, if that device is excluded, every device that is not.
    fn each(&self, index: u32, identity: &Identity, found: impl FnMut(usize)) -> bool {
        let by_uuid = identity.uuid.as_deref().and_then(|uuid| self.uuid.get(uuid)).copied();
        let by_pci = identity.pci.and_then(|pci| self.pci.get(&pci)).copied();
        let by_id = identity.id.as_deref().and_then(|id| self.id.get(id)).copied();
        let mut matches: Vec<usize> = [by_uuid, by_pci, by_id].into_iter().flatten().collect();
        let is_named = !matches.is_empty();
        if !is_named {
            matches = self.not_excluded(index, identity);
        }
        matches.sort_unstable();
        matches.dedup();
        matches.into_iter().for_each(found);
        is_named
    }

    fn not_excluded(&self, index: u32, identity: &Identity) -> Vec<usize> {
        if self.excludes_all(identity) {
            return Vec::new();
        }
        let devices = &self.inventory.devices;
        let may_be = |at: &usize| devices[*at].identity.relation(identity) == Relation::Unknown;
        match self.index.get(&index) {
            Some(at) if may_be(at) => vec![*at],
            None if identity.is_empty() => Vec::new(), // an index of the script's that this host does not have
            _ => (0..devices.len()).filter(may_be).collect(),
        }
    }

    /// The common case, told without a look at every device.
    fn excludes_all(&self, identity: &Identity) -> bool {
        let all = self.inventory.devices.len();
        (identity.uuid.is_some() && self.uuid.len() == all)
            || (identity.pci.is_some() && self.pci.len() == all)
            || (identity.id.is_some() && self.id.len() == all)
    }
}

/// Chooses the units of a request, all or none.
pub(crate) fn grant(
    inventory: &Inventory,
    record: &Record,
    places: &[Place<'_>],
    standing: &dyn Fn(usize) -> Standing,
    request: &Request<'_>,
) -> Result<Vec<Unit>, Error> {
    let eligible: Vec<&Place<'_>> = in_order(places, request.devices).collect();
    can_ever_be_given(request.amount, eligible.len())?;
    let amount = usize::try_from(request.amount).unwrap_or(usize::MAX);
    let is_free = |place: &&&Place<'_>| {
        place.holders.is_empty() && place.state(inventory, standing) == State::Free
    };
    let mut given: Vec<Unit> = eligible.iter().filter(is_free).take(amount).map(|place| place.unit).collect();
    if given.len() < amount {
        let dead = eligible.iter().filter(|place| {
            place.state(inventory, standing) == State::Stale && may_be_taken(&place.holders, record, request)
        });
        given.extend(dead.take(amount - given.len()).map(|place| place.unit));
    }
    if given.len() == amount {
        return Ok(given);
    }
    Err(shortage(inventory, &eligible, standing, given.len(), request))
}

fn in_order<'p, 'a>(places: &'p [Place<'a>], devices: &'p [usize]) -> impl Iterator<Item = &'p Place<'a>> {
    devices.iter().flat_map(move |device| {
        let from = places.partition_point(|place| place.unit.device < *device);
        places[from..].iter().take_while(move |place| place.unit.device == *device)
    })
}

/// An amount that the host does not have is another error than one that it has not free.
pub(crate) fn can_ever_be_given(amount: u128, of: usize) -> Result<(), Error> {
    if amount <= of as u128 {
        return Ok(());
    }
    Err(Error::NotEnough(format!("{} asked for, and there are {of}: waiting cannot help; ask for fewer", units(amount))))
}

fn may_be_taken(holders: &[usize], record: &Record, request: &Request<'_>) -> bool {
    request.takes_over || holders.iter().all(|holder| record.assignments[*holder].is_the_scripts())
}

fn shortage(
    inventory: &Inventory,
    eligible: &[&Place<'_>],
    standing: &dyn Fn(usize) -> Standing,
    given: usize,
    request: &Request<'_>,
) -> Error {
    let mut states: BTreeMap<State, usize> = BTreeMap::new();
    for place in eligible {
        *states.entry(place.state(inventory, standing)).or_default() += 1;
    }
    let reasons: Vec<String> = states.iter().filter_map(|(state, count)| reason(*state, *count, request)).collect();
    let (asked, all) = (units(request.amount), eligible.len());
    Error::NotEnough(format!("{asked} asked for, {given} of {all} can be given: {}", reasons.join("; ")))
}

/// Why the units in a state are not given, and what to do.
fn reason(state: State, count: usize, request: &Request<'_>) -> Option<String> {
    let why = match state {
        State::Free => return None,
        State::Stale if request.takes_over => return None,
        State::Stale => "held by dead owners (--check-dead takes them over)",
        State::Held => "held by living owners (`gpu-coord status` names them)",
        State::Unknown => {
            return Some(format!(
                "{} held from another pid namespace; run `gpu-coord reclaim` on the host, or use --pid=host",
                are(count)
            ));
        }
        State::Withheld => "withheld by lines that are no assignments (`gpu-coord status` names them)",
        State::Drained => "drained",
        State::Sick => "sick (`gpu-coord devices` says why)",
    };
    Some(format!("{count} {why}"))
}

fn are(count: usize) -> String {
    if count == 1 { "1 unit is".to_owned() } else { format!("{count} units are") }
}

/// `1 unit`, `2 units`.
pub(crate) fn units(count: impl fmt::Display + PartialEq<u128>) -> String {
    if count == 1 { "1 unit".to_owned() } else { format!("{count} units") }
}


#[cfg(test)]
mod tests {
    use super::*;

    use crate::assignment::{Assignment, Doubt, Grant, Owner};
    use crate::device::Device;

    /// A host of devices `GPU-0`, `GPU-1`, ... of which each may be sick.
    fn host(sick: &[bool]) -> Inventory {
        let device = |(index, is_sick): (usize, &bool)| Device {
            index: u32::try_from(index).unwrap(),
            identity: name(&format!("GPU-{index}")),
            name: None,
            memory_mib: None,
            minor: None,
            nodes: Vec::new(),
            health: if *is_sick { Health::Sick("lost".to_owned()) } else { Health::Sound },
        };
        Inventory { source: "test".to_owned(), devices: sick.iter().enumerate().map(device).collect() }
    }

    fn name(uuid: &str) -> Identity {
        Identity { uuid: Some(uuid.to_owned()), ..Identity::default() }
    }

    fn assignment(index: u32, identity: Identity, pid: u32) -> Assignment {
        Assignment {
            index,
            slot: None,
            owner: Owner { pid, start: Some(1), boot: None, pid_namespace: None, uid: None },
            grant: Some(Grant { id: u64::from(pid), of: 1 }),
            identity,
            since: None,
            invocation: None,
            cgroup: None,
            unknown: String::new(),
        }
    }

    fn held(index: u32, pid: u32) -> Assignment {
        assignment(index, name(&format!("GPU-{index}")), pid)
    }

    fn by_script(index: u32, pid: u32) -> Assignment {
        let mut line = assignment(index, Identity::default(), pid);
        (line.owner.start, line.grant) = (None, None);
        line
    }

    /// Owners up to 99 live, up to 199 are dead, and of the others it cannot be told.
    fn standing(record: &Record, position: usize) -> Standing {
        match record.assignments[position].owner.pid {
            ..100 => Standing::Alive,
            100..200 => Standing::Dead,
            200.. => Standing::Doubtful(Doubt::ForeignNamespace),
        }
    }

    fn ask(inventory: &Inventory, record: &Record, amount: u128, takes_over: bool) -> Result<Vec<u32>, String> {
        let devices: Vec<usize> = (0..inventory.devices.len()).collect();
        let request = Request { amount, takes_over, devices: &devices };
        let occupancy = occupancy(inventory, record);
        let standing = |position| standing(record, position);
        match grant(inventory, record, &occupancy.places, &standing, &request) {
            Ok(given) => Ok(given.iter().map(|unit| inventory.devices[unit.device].index).collect()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn grants() {
        for (case, assignments, amount, takes_over, given) in [
            ("nobody holds anything",                 vec![],                              2, true,  Some(vec![0, 1])),
            ("the first free",                        vec![held(0, 1)],                    1, true,  Some(vec![1])),
            ("never assigned before taken over",      vec![held(0, 100)],                  2, true,  Some(vec![1, 2])),
            ("the dead where there is nothing else",  vec![held(0, 100), held(1, 1)],      2, true,  Some(vec![2, 0])),
            ("all or nothing",                        vec![held(0, 1), held(1, 2)],        2, true,  None),
            ("the dead are let lie",                  vec![held(0, 100)],                  3, false, None),
            ("the dead of the script are not",        vec![by_script(0, 100)],             3, false, Some(vec![1, 2, 0])),
            ("one of two owners lives",               vec![held(0, 100), held(0, 1)],      3, true,  None),
            ("both owners are dead",                  vec![held(0, 100), held(0, 101)],    3, true,  Some(vec![1, 2, 0])),
            ("it cannot be told",                     vec![held(0, 200)],                  3, true,  None),
            ("dead, or it cannot be told",            vec![held(0, 100), held(0, 200)],    3, true,  None),
            ("the card is another one by now",        vec![assignment(0, name("GPU-2"), 1)], 2, true, Some(vec![0, 1])),
            ("the card is gone",                      vec![assignment(0, name("GPU-9"), 1)], 3, true, Some(vec![0, 1, 2])),
            ("the script's index past the host",      vec![by_script(9, 1)],               3, true,  Some(vec![0, 1, 2])),
            ("the script's index",                    vec![by_script(1, 1)],               2, true,  Some(vec![0, 2])),
        ] {
            let record = Record { assignments, ..Record::default() };
            let found = ask(&host(&[false; 3]), &record, amount, takes_over);
            assert_eq!(found.as_ref().ok(), given.as_ref(), "{case}: {found:?}");
        }
    }

    /// What can be neither matched nor excluded holds its index, or else all that it may be.
    #[test]
    fn a_name_that_the_source_does_not_give_holds() {
        let mut inventory = host(&[false; 3]);
        inventory.devices[1].identity = Identity::default();
        inventory.devices[2].identity = Identity::default();
        for (index, free) in [(1, vec![0, 2]), (0, vec![0]), (9, vec![0])] {
            let record = Record { assignments: vec![assignment(index, name("GPU-9"), 1)], ..Record::default() };
            let amount = free.len() as u128;
            assert_eq!(ask(&inventory, &record, amount, true), Ok(free), "index {index}");
            assert!(ask(&inventory, &record, amount + 1, true).is_err(), "index {index}");
        }
    }

    #[test]
    fn a_line_whose_names_are_those_of_two_devices_holds_both() {
        let mut inventory = host(&[false; 2]);
        inventory.devices[1].identity.pci = "0000:01:00.0".parse().ok();
        let identity = Identity { pci: "0000:01:00.0".parse().ok(), ..name("GPU-0") };
        let record = Record { assignments: vec![assignment(0, identity, 1)], ..Record::default() };
        assert!(ask(&inventory, &record, 1, true).is_err());
    }

    #[test]
    fn what_is_not_given_is_named() {
        let withheld = Withheld { index: 2, line: 1, problem: String::new() };
        let drained = Drained { index: 3, identity: name("GPU-3"), uid: None, since: None, reason: String::new() };
        let record = Record {
            assignments: vec![held(0, 1), held(1, 200), held(5, 100)],
            withheld: vec![withheld],
            drained: vec![drained],
            waiters: Vec::new(),
        };
        let inventory = host(&[false, false, false, false, true, false, false]);
        let refused = ask(&inventory, &record, 3, false).unwrap_err();
        assert_eq!(
            refused,
            "3 units asked for, 1 of 7 can be given: 1 held by dead owners (--check-dead takes them over); \
             1 held by living owners (`gpu-coord status` names them); \
             1 unit is held from another pid namespace; run `gpu-coord reclaim` on the host, or use --pid=host; \
             1 withheld by lines that are no assignments (`gpu-coord status` names them); 1 drained; \
             1 sick (`gpu-coord devices` says why)"
        );
        let too_many = ask(&inventory, &record, 8, true).unwrap_err();
        assert_eq!(too_many, "8 units asked for, and there are 7: waiting cannot help; ask for fewer");
    }
}
