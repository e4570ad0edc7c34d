//! Who holds what, and which units a request is granted. Pure: the host has been read before, and is changed
//! afterwards.
//!
//! A unit that nobody holds is granted before one whose owner has died, as in Flink's own script. Then come sick units,
//! where they are granted at all, then units on which others compute, and last those that a dead owner's descendants
//! may still have open. What cannot be known is treated as held. For shared devices it matters more how many owners
//! share each of them: see `shares`.

mod in_use;
mod names;
mod occupancy;
#[cfg(test)]
mod properties;
mod quota;
mod shares;
mod shortage;
pub(crate) mod turn;

use crate::device::{Health, Unit};
use crate::error::Error;

pub(crate) use in_use::{InUse, Processes};
pub(crate) use occupancy::{Holdings, Occupancy, Place, State, kept_by_drains, occupancy};
pub(crate) use quota::{Claim, check as check_quotas};
pub(crate) use shortage::{can_ever_be_given, units};

/// A request for units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) amount: u128,
    /// Whether the units of dead owners may be granted. Those that Flink's script recorded always may: the script never
    /// gives anything back.
    pub(crate) takes_over: bool,
    /// Whether sick devices may be granted.
    pub(crate) includes_sick: bool,
    pub(crate) in_use: Used,
    /// Whether the owner shall have its units to itself: no descendant of a dead owner may still use them.
    pub(crate) isolates: bool,
    /// Whether all shares of one device are granted before those of the next; otherwise they are spread.
    pub(crate) packs: bool,
    /// What may be granted, in the order of preference.
    pub(crate) units: &'a [Unit],
}

/// What to do with a device on which others compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Used {
    GiveAsAny,
    GiveLast,
    Withhold,
}

/// What is known of the host.
pub(crate) struct Situation<'a> {
    pub(crate) holdings: Holdings<'a>,
    /// Whether others than its owners and the requester compute on the device at a position of the inventory.
    pub(crate) is_in_use: &'a dyn Fn(usize) -> bool,
    /// Whether descendants of a dead owner live on in its control group, by the position of its assignment.
    pub(crate) has_orphans: &'a dyn Fn(usize) -> bool,
}

/// A class of units, granted only when none of the classes before it has any left.
#[derive(Clone, Copy, Debug)]
struct Class {
    has_orphans: bool,
    is_in_use: bool,
    is_sick: bool,
    is_stale: bool,
}

impl Class {
    fn in_order() -> impl Iterator<Item = Class> {
        let is_set = |number: u8, bit: u8| number & bit != 0;
        (0..16).map(move |rank| Class {
            has_orphans: is_set(rank, 8),
            is_in_use: is_set(rank, 4),
            is_sick: is_set(rank, 2),
            is_stale: is_set(rank, 1),
        })
    }
}

impl Situation<'_> {
    /// Chooses the units of a request, all or none.
    pub(crate) fn grant(&self, request: &Wanted<'_>) -> Result<Vec<Unit>, Error> {
        let eligible: Vec<&Place<'_>> = self.holdings.occupancy.of_units(request.units).collect();
        can_ever_be_given(request.amount, eligible.len(), self.holdings.occupancy.places.len())?;
        let amount = usize::try_from(request.amount).unwrap_or(usize::MAX);
        let given = if request.units.iter().any(|unit| unit.slot.is_some()) {
            self.shares(&eligible, amount, request)
        } else {
            let all = Class::in_order().flat_map(|class| self.of_class(&eligible, class, request));
            all.take(amount).map(|place| place.unit).collect()
        };
        if given.len() == amount {
            return Ok(given);
        }
        Err(self.shortage(&eligible, given.len(), request))
    }

    fn of_class<'r>(
        &self,
        eligible: &[&'r Place<'r>],
        class: Class,
        request: &Wanted<'_>,
    ) -> impl Iterator<Item = &'r Place<'r>> {
        eligible.iter().copied().filter(move |place| self.is_of(place, class, request))
    }

    /// Whether the unit may be granted and is of that class. The cheapest questions come first.
    fn is_of(&self, place: &Place<'_>, class: Class, request: &Wanted<'_>) -> bool {
        place.holders.is_empty() != class.is_stale
            && self.is_sick(place) == class.is_sick
            && self.may_be_given(self.state(place, request), place, request)
            && self.has_orphans(place) == class.has_orphans
            && !(class.has_orphans && request.isolates)
            && self.is_in_use(place, request) == class.is_in_use
            && !(class.is_in_use && request.in_use == Used::Withhold)
    }

    /// Whether the record and the device allow it.
    fn may_be_given(&self, state: State, place: &Place<'_>, request: &Wanted<'_>) -> bool {
        let is_the_scripts = |holder: &usize| self.holdings.record.assignments[*holder].is_the_scripts();
        match state {
            State::Free => true,
            State::Stale => request.takes_over || place.holders.iter().all(is_the_scripts),
            State::Held | State::Unknown | State::Withheld | State::Drained | State::Sick => false,
        }
    }

    /// The state for this request: only what it may not be granted for its health counts as sick.
    fn state(&self, place: &Place<'_>, request: &Wanted<'_>) -> State {
        let inventory = self.holdings.inventory;
        let may_be_given = match inventory.devices[place.unit.device].health {
            Health::Sound => true,
            // A device without an identity cannot be recorded.
            Health::Sick(_) => request.includes_sick && !inventory.identity(&place.unit).is_empty(),
            Health::Lost(_) => false,
        };
        place.state(!may_be_given, self.holdings.standing)
    }

    fn is_sick(&self, place: &Place<'_>) -> bool {
        self.holdings.inventory.devices[place.unit.device].health != Health::Sound
    }

    /// Only asked of units that may be granted, whose holders are all dead.
    fn has_orphans(&self, place: &Place<'_>) -> bool {
        place.holders.iter().any(|holder| (self.has_orphans)(*holder))
    }

    fn is_in_use(&self, place: &Place<'_>, request: &Wanted<'_>) -> bool {
        request.in_use != Used::GiveAsAny && (self.is_in_use)(place.unit.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::assignment::{Assignment, Doubt, Drained, Grant, Owner, Record, Standing, Withheld};
    use crate::device::{Device, Health, Identity, Instance, Inventory};

    /// A host of devices `GPU-0`, `GPU-1`, ... of which each may be sick.
    fn host(sick: &[bool]) -> Inventory {
        let device = |(index, is_sick): (usize, &bool)| Device {
            health: if *is_sick { Health::Sick("lost".to_owned()) } else { Health::Sound },
            ..Device::new(u32::try_from(index).unwrap(), name(&format!("GPU-{index}")))
        };
        Inventory {
            source: "test".to_owned(),
            driver_version: None,
            devices: sick.iter().enumerate().map(device).collect(),
            tells_instances: true,
        }
    }

    fn name(uuid: &str) -> Identity {
        Identity { uuid: Some(uuid.to_owned()), ..Identity::default() }
    }

    fn assignment(index: u32, identity: Identity, pid: u32) -> Assignment {
        Assignment {
            owner: Owner { start: Some(1), ..Owner::of_pid(pid) },
            grant: Some(Grant { id: u64::from(pid), of: 1 }),
            identity,
            ..Assignment::of_the_script(index, pid)
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
            200..300 => Standing::Doubtful(Doubt::ForeignNamespace),
            300..400 => Standing::Doubtful(Doubt::ForeignBoot),
            400.. => Standing::Doubtful(Doubt::Unreadable),
        }
    }

    fn ask(
        inventory: &Inventory,
        record: &Record,
        amount: u128,
        takes_over: bool,
    ) -> Result<Vec<u32>, String> {
        let units: Vec<Unit> = inventory.units().collect();
        grant(inventory, record, &[], &Wanted { takes_over, ..wanted(amount, &units) })
    }

    /// As asked for without options.
    fn wanted(amount: u128, units: &[Unit]) -> Wanted<'_> {
        Wanted {
            amount,
            takes_over: true,
            includes_sick: false,
            in_use: Used::GiveLast,
            isolates: false,
            packs: false,
            units,
        }
    }

    /// Others compute on the devices `used`.
    fn grant(
        inventory: &Inventory,
        record: &Record,
        used: &[usize],
        request: &Wanted<'_>,
    ) -> Result<Vec<u32>, String> {
        let occupancy = occupancy(inventory, record);
        let standing = |position| standing(record, position);
        let is_in_use = |device| used.contains(&device);
        let situation = Situation {
            holdings: Holdings { inventory, record, occupancy: &occupancy, standing: &standing },
            is_in_use: &is_in_use,
            has_orphans: &|position| record.assignments[position].cgroup.is_some(),
        };
        let given = situation.grant(request).map_err(|error| error.to_string())?;
        Ok(given.iter().map(|unit| inventory.devices[unit.device].index).collect())
    }

    #[test]
    #[rustfmt::skip] // a table
    fn what_others_use_comes_last_and_what_is_sick_only_if_it_is_wanted() {
        use Used::{GiveAsAny, GiveLast, Withhold};
        for (case, used, sick, held, includes_sick, in_use, amount, given) in [
            ("used last",                &[0][..], [false; 3],           None,      false, GiveLast,  2, Some(vec![1, 2])),
            ("used where there is no other", &[0], [false; 3],           None,      false, GiveLast,  3, Some(vec![1, 2, 0])),
            ("used after the dead",      &[1],     [false; 3],           Some(100), false, GiveLast,  3, Some(vec![2, 0, 1])),
            ("used and dead",            &[0, 1],  [false; 3],           Some(100), false, GiveLast,  3, Some(vec![2, 1, 0])),
            ("used as any",              &[0],     [false; 3],           None,      false, GiveAsAny, 2, Some(vec![0, 1])),
            ("used never",               &[0],     [false; 3],           None,      false, Withhold,  3, None),
            ("but all others",           &[0],     [false; 3],           None,      false, Withhold,  2, Some(vec![1, 2])),
            ("sick not",                 &[],      [true, false, false], None,      false, GiveLast,  3, None),
            ("sick after the sound",     &[],      [true, false, false], None,      true,  GiveLast,  3, Some(vec![1, 2, 0])),
            ("sick after the dead",      &[],      [false, true, false], Some(100), true,  GiveLast,  3, Some(vec![2, 0, 1])),
            ("sick before the used",     &[1],     [true, false, false], None,      true,  GiveLast,  3, Some(vec![2, 0, 1])),
            ("sick and held",            &[],      [true, false, false], Some(1),   true,  GiveLast,  3, None),
            ("sick and dead",            &[],      [true, false, false], Some(100), true,  GiveLast,  3, Some(vec![1, 2, 0])),
        ] {
            let record = Record { assignments: held.map(|pid| super::tests::held(0, pid)).into_iter().collect(), ..Record::default() };
            let inventory = host(&sick);
            let units: Vec<Unit> = inventory.units().collect();
            let request = Wanted { includes_sick, in_use, ..wanted(amount, &units) };
            let found = grant(&inventory, &record, used, &request);
            assert_eq!(found.as_ref().ok(), given.as_ref(), "{case}: {found:?}");
        }
    }

    #[test]
    fn what_orphans_may_have_open_comes_last_and_is_no_isolation() {
        let mut orphaned = held(0, 100);
        orphaned.cgroup = Some("v2:/gpu-coord-100-1".to_owned());
        let record = Record { assignments: vec![orphaned, held(1, 101)], ..Record::default() };
        let inventory = host(&[false; 3]);
        let units: Vec<Unit> = inventory.units().collect();
        let ask = |amount, used: &[usize], isolates| {
            grant(&inventory, &record, used, &Wanted { isolates, ..wanted(amount, &units) })
        };
        assert_eq!(ask(3, &[2], false), Ok(vec![1, 2, 0]));
        assert_eq!(ask(2, &[], true), Ok(vec![2, 1]));
        let says = "3 units asked for, 2 of 3 can be given: 1 open to descendants of dead owners that live on \
                    (`gpu-coord status` names the control group)";
        assert_eq!(ask(3, &[], true), Err(says.to_owned()));
    }

    /// What could be given is no reason, and what is held is held, whoever else computes on it.
    #[test]
    fn only_what_keeps_a_unit_from_being_given_is_a_reason() {
        let mut orphaned = held(0, 100);
        orphaned.cgroup = Some("v2:/gpu-coord-100-1".to_owned());
        let record = Record { assignments: vec![orphaned, held(1, 1)], ..Record::default() };
        let inventory = host(&[false; 3]);
        let units: Vec<Unit> = inventory.units().collect();
        const HELD: &str = "1 held by living owners (`gpu-coord status` names them)";
        const USED: &str = "1 in use by others (`gpu-coord status` names them)";
        for (used, in_use, given, reasons) in [
            (&[0, 1, 2][..], Used::GiveAsAny, 2, HELD.to_owned()),
            (&[0, 2], Used::GiveLast, 2, HELD.to_owned()),
            (&[1], Used::Withhold, 2, HELD.to_owned()),
            (&[1, 2], Used::Withhold, 1, format!("{HELD}; {USED}")),
        ] {
            let request = Wanted { in_use, ..wanted(3, &units) };
            let says = format!("3 units asked for, {given} of 3 can be given: {reasons}");
            assert_eq!(grant(&inventory, &record, used, &request), Err(says), "{used:?}, {in_use:?}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn shares_are_spread_or_packed() {
        let mut inventory = host(&[false; 3]);
        inventory.devices.iter_mut().for_each(|device| device.slots = Some(3));
        let share = |index: u32, slot: u32, pid: u32| Assignment { slot: Some(slot), ..held(index, pid) };
        let units: Vec<Unit> = inventory.units().collect();
        for (case, assignments, amount, packs, given) in [
            ("different devices first",  vec![],                                   4, false, Some(vec![0, 1, 2, 0])),
            ("the least shared first",   vec![share(0, 0, 1), share(1, 2, 1)],     3, false, Some(vec![2, 0, 1])),
            ("the dead count for none",  vec![share(0, 0, 100), share(1, 0, 1)],   2, false, Some(vec![0, 2])),
            ("packed",                   vec![],                                   4, true,  Some(vec![0, 0, 0, 1])),
            ("packed where most are",    vec![share(1, 0, 1)],                     3, true,  Some(vec![1, 1, 0])),
            ("all",                      vec![share(1, 0, 1)],                     8, false, Some(vec![0, 2, 1, 0, 2, 1, 0, 2])),
            ("more than there are",      vec![share(1, 0, 1)],                     9, false, None),
            ("a whole device is held",   vec![held(1, 1)],                         6, false, Some(vec![0, 2, 0, 2, 0, 2])),
            ("a share that is no more",  vec![share(1, 7, 1)],                     7, false, None),
        ] {
            let record = Record { assignments, ..Record::default() };
            let found = grant(&inventory, &record, &[], &Wanted { packs, ..wanted(amount, &units) });
            assert_eq!(found.as_ref().ok(), given.as_ref(), "{case}: {found:?}");
        }
    }

    /// Of device 0 one share is free, and so is none of device 1: the next comes from there, though others have more
    /// of it, since two of one device are not twice the power.
    #[test]
    fn shares_that_were_given_before_those_of_orphans_count() {
        let mut inventory = host(&[false; 2]);
        inventory.devices.iter_mut().for_each(|device| device.slots = Some(3));
        let share = |index: u32, slot: u32, pid: u32| Assignment {
            slot: Some(slot),
            cgroup: (pid >= 100).then(|| "v2:/gpu-coord-100-1".to_owned()),
            ..held(index, pid)
        };
        let assignments =
            vec![share(0, 1, 100), share(0, 2, 100), share(1, 0, 1), share(1, 1, 1), share(1, 2, 100)];
        let record = Record { assignments, ..Record::default() };
        assert_eq!(ask(&inventory, &record, 2, true), Ok(vec![0, 1]));
        assert_eq!(ask(&inventory, &record, 4, true), Ok(vec![0, 1, 0, 0]));
    }

    #[test]
    fn what_is_lost_or_nameless_is_never_given() {
        let mut inventory = host(&[true, true, true]);
        inventory.devices[0].health = Health::Lost("off the bus".to_owned());
        inventory.devices[1].identity = Identity::default();
        let units: Vec<Unit> = inventory.units().collect();
        let request = Wanted { includes_sick: true, ..wanted(1, &units) };
        assert_eq!(grant(&inventory, &Record::default(), &[], &request), Ok(vec![2]));
        let refused = grant(&inventory, &Record::default(), &[], &Wanted { amount: 2, ..request });
        let says = "2 units asked for, 1 of 3 can be given: 2 sick (`gpu-coord devices` says why)";
        assert_eq!(refused, Err(says.to_owned()));
    }

    #[test]
    fn only_what_is_eligible_is_given_and_in_its_order() {
        let inventory = host(&[false; 4]);
        let all: Vec<Unit> = inventory.units().collect();
        let units = [all[3], all[1]];
        let ask = |amount, used: &[usize], in_use| {
            grant(&inventory, &Record::default(), used, &Wanted { in_use, ..wanted(amount, &units) })
        };
        assert_eq!(ask(2, &[], Used::GiveLast), Ok(vec![3, 1]));
        let says = "3 units asked for, and of this host's 4 the options and the owner's environment leave 2: \
                    waiting cannot help; ask for fewer";
        assert_eq!(ask(3, &[], Used::GiveLast), Err(says.to_owned()));
        let says =
            "2 units asked for, 1 of 2 can be given: 1 in use by others (`gpu-coord status` names them)";
        assert_eq!(ask(2, &[3], Used::Withhold), Err(says.to_owned()));
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
             1 withheld by damaged lines of the coordination file (`gpu-coord status` names them); 1 drained; \
             1 sick (`gpu-coord devices` says why)"
        );
        let too_many = ask(&inventory, &record, 8, true).unwrap_err();
        assert_eq!(too_many, "8 units asked for, and there are 7: waiting cannot help; ask for fewer");
    }

    #[test]
    #[rustfmt::skip] // a table
    fn every_doubt_has_its_own_cure() {
        const BOOT: &str = "held since another boot, which cannot be proven to be this host's; if that host is gone, `gpu-coord release UNIT \
                            --force` frees them";
        const HIDDEN: &str = "held by processes that /proc hides from this user; run as root, or as a member of the \
                              group that the mount option gid= of /proc names";
        const NAMESPACE: &str = "held from another pid namespace; run `gpu-coord reclaim` on the host, or use --pid=host";
        for (case, assignments, reasons) in [
            ("a namespace",          vec![held(0, 200), held(1, 201)], format!("2 units are {NAMESPACE}")),
            ("a boot",               vec![held(0, 300)],               format!("1 {BOOT}")),
            ("hidden",               vec![held(0, 400)],               format!("1 unit is {HIDDEN}")),
            ("hidden twice",         vec![held(0, 400), held(1, 400)], format!("2 units are {HIDDEN}")),
            ("one of each",          vec![held(0, 400), held(1, 300)], format!("1 unit is {HIDDEN}; 1 {BOOT}")),
            ("two owners",           vec![held(0, 300), held(0, 200)], format!("1 {BOOT}")),
            ("and a dead one",       vec![held(0, 100), held(0, 200)], format!("1 unit is {NAMESPACE}")),
            ("and a living one",     vec![held(0, 200), held(0, 1)],   "1 held by living owners (`gpu-coord status` names them)".to_owned()),
        ] {
            let record = Record { assignments, ..Record::default() };
            let refused = ask(&host(&[false; 2]), &record, 2, true).unwrap_err();
            let (_, why) = refused.split_once(" of 2 can be given: ").unwrap();
            assert_eq!(why, reasons, "{case}");
        }
    }
}
