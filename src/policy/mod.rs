//! Who holds what, and which units a request is given. Pure: the host has been read before, and is changed
//! after.
//!
//! A unit that nobody holds goes before one whose owner has died: the order of Flink's own script. What
//! cannot be known is treated as held.

mod names;
mod occupancy;

use std::collections::BTreeMap;
use std::fmt;

use crate::assignment::{Record, Standing};
use crate::device::{Inventory, Unit};
use crate::error::Error;

pub(crate) use occupancy::{Occupancy, Place, State, occupancy};

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
    let is_free =
        |place: &&&Place<'_>| place.holders.is_empty() && place.state(inventory, standing) == State::Free;
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

/// How many units the devices have, whatever their state.
pub(crate) fn count(inventory: &Inventory, devices: &[usize]) -> usize {
    let count = |device: &usize| inventory.devices[*device].instances.as_ref().map_or(1, Vec::len);
    devices.iter().map(count).sum()
}

/// The units that can be relied on, whoever holds them.
pub(crate) fn sound_units(inventory: &Inventory, devices: &[usize]) -> Vec<Unit> {
    let places: Vec<Place<'_>> = inventory.units().map(Place::empty).collect();
    let is_sound = |place: &&Place<'_>| place.state(inventory, &|_| Standing::Alive) == State::Free;
    in_order(&places, devices).filter(is_sound).map(|place| place.unit).collect()
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
    Err(Error::NotEnough(format!(
        "{} asked for, and there are {of}: waiting cannot help; ask for fewer",
        units(amount)
    )))
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
    let reasons: Vec<String> =
        states.iter().filter_map(|(state, count)| reason(*state, *count, request)).collect();
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

    use crate::assignment::{Assignment, Doubt, Drained, Grant, Owner, Withheld};
    use crate::device::{Device, Health, Identity, Instance};

    /// A host of devices `GPU-0`, `GPU-1`, ... of which each may be sick.
    fn host(sick: &[bool]) -> Inventory {
        let device = |(index, is_sick): (usize, &bool)| Device {
            health: if *is_sick { Health::Sick("lost".to_owned()) } else { Health::Sound },
            ..Device::new(u32::try_from(index).unwrap(), name(&format!("GPU-{index}")))
        };
        Inventory {
            source: "test".to_owned(),
            devices: sick.iter().enumerate().map(device).collect(),
            tells_instances: true,
        }
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

    fn ask(
        inventory: &Inventory,
        record: &Record,
        amount: u128,
        takes_over: bool,
    ) -> Result<Vec<u32>, String> {
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
            let record =
                Record { assignments: vec![assignment(index, name("GPU-9"), 1)], ..Record::default() };
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

    fn divided(parts: &[&str]) -> Option<Vec<Instance>> {
        let part = |uuid: &&str| Instance { uuid: Some((*uuid).to_owned()), ..Instance::default() };
        Some(parts.iter().map(part).collect())
    }

    #[test]
    fn an_instance_is_held_by_itself_and_a_divided_device_is_not_offered_whole() {
        let mut inventory = host(&[false; 2]);
        inventory.devices[0].instances = divided(&["MIG-a", "MIG-b"]);
        let none = Record::default();
        assert_eq!(ask(&inventory, &none, 3, true), Ok(vec![0, 0, 1]));
        let one = Record { assignments: vec![assignment(0, name("MIG-a"), 1)], ..Record::default() };
        assert_eq!(ask(&inventory, &one, 2, true), Ok(vec![0, 1]));
        for whole in [held(0, 1), by_script(0, 1)] {
            let record = Record { assignments: vec![whole], ..Record::default() };
            assert_eq!(ask(&inventory, &record, 1, true), Ok(vec![1]));
            assert!(ask(&inventory, &record, 2, true).is_err());
        }
    }

    #[test]
    fn an_instance_that_the_source_does_not_tell_holds_its_device() {
        let mut inventory = host(&[false; 2]);
        let record = Record { assignments: vec![assignment(1, name("MIG-a"), 1)], ..Record::default() };
        assert_eq!(ask(&inventory, &record, 2, true), Ok(vec![0, 1]), "it is told, and is not there");
        inventory.tells_instances = false;
        assert_eq!(ask(&inventory, &record, 1, true), Ok(vec![0]));
        assert!(ask(&inventory, &record, 2, true).is_err());
    }

    #[test]
    fn what_is_not_given_is_named() {
        let withheld = Withheld { index: 2, line: 1, problem: String::new() };
        let drained =
            Drained { index: 3, identity: name("GPU-3"), uid: None, since: None, reason: String::new() };
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
