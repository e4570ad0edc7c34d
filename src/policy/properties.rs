//! For any devices, shares, record and request, what is given holds the rules, and what is refused was not there.
//!
//! The rules are written down here once more, by hand and unit by unit, with nothing of the code that they test.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::assignment::{Assignment, Doubt, Drained, Grant, Owner, Record, Standing, Withheld};
use crate::device::{Device, Identity, Instance, Inventory, Part};

/// All that there is, in plain values.
#[derive(Clone, Debug)]
struct Scene {
    devices: Vec<Described>,
    lines: Vec<Line>,
    drained: Vec<u32>,
    withheld: Vec<u32>,
    in_use: BTreeSet<usize>,
    asked: Asked,
}

#[derive(Clone, Debug)]
struct Described {
    /// Of it itself, or of each of its instances.
    slots: Slots,
    health: u8,
}

#[derive(Clone, Debug)]
enum Slots {
    Undivided(Option<u32>),
    Divided(Vec<Option<u32>>),
}

/// A line that holds something, or did.
#[derive(Clone, Debug)]
struct Line {
    index: u32,
    named: Named,
    slot: Option<u32>,
    /// Below 10 lives, below 20 is dead, and of the others it cannot be told.
    pid: u32,
    has_orphans: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Named {
    /// By the script: the index alone.
    Nothing,
    Device,
    Instance(usize),
    /// A device that has gone.
    Another,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    amount: usize,
    takes_over: bool,
    includes_sick: bool,
    in_use: Used,
    isolates: bool,
    packs: bool,
    /// Given in the other direction, and without the units of this device.
    backwards: bool,
    but: usize,
}

fn scene() -> impl Strategy<Value = Scene> {
    let slots = || prop_oneof![1 => Just(None), 5 => (2..5_u32).prop_map(Some)];
    let divided = prop::collection::vec(slots(), 0..3).prop_map(Slots::Divided);
    let device = (prop_oneof![5 => slots().prop_map(Slots::Undivided), 1 => divided], 0..20_u8)
        .prop_map(|(slots, health)| Described { slots, health });
    let named = prop_oneof![
        1 => Just(Named::Nothing),
        8 => Just(Named::Device),
        4 => (0..3_usize).prop_map(Named::Instance),
        1 => Just(Named::Another),
    ];
    let line = (0..5_u32, named, prop::option::weighted(0.9, 0..6_u32), 0..30_u32, prop::bool::weighted(0.1))
        .prop_map(|(index, named, slot, pid, has_orphans)| Line { index, named, slot, pid, has_orphans });
    let in_use = prop_oneof![Just(Used::GiveAsAny), Just(Used::GiveLast), Just(Used::Withhold)];
    let flag = prop::bool::ANY;
    let asked = (
        prop_oneof![3 => 1..4_usize, 1 => 0..9_usize],
        flag,
        flag,
        in_use,
        prop::bool::weighted(0.2),
        flag,
        flag,
        0..8_usize,
    )
        .prop_map(|(amount, takes_over, includes_sick, in_use, isolates, packs, backwards, but)| Asked {
            amount,
            takes_over,
            includes_sick,
            in_use,
            isolates,
            packs,
            backwards,
            but,
        });
    (
        prop::collection::vec(device, 1..5),
        prop::collection::vec(line, 0..12),
        prop::collection::vec(0..12_u32, 0..2),
        prop::collection::vec(0..12_u32, 0..2),
        prop::collection::btree_set(0..6_usize, 0..2),
        asked,
    )
        .prop_map(|(devices, lines, drained, withheld, in_use, asked)| Scene {
            devices,
            lines,
            drained,
            withheld,
            in_use,
            asked,
        })
}

fn uuid(name: String) -> Identity {
    Identity { uuid: Some(name), ..Identity::default() }
}

impl Scene {
    fn inventory(&self) -> Inventory {
        let device = |(index, described): (u32, &Described)| {
            let mut device = Device::new(index, uuid(format!("GPU-{index}")));
            match &described.slots {
                Slots::Undivided(slots) => device.slots = *slots,
                Slots::Divided(instances) => {
                    let instance = |(at, slots): (usize, &Option<u32>)| Instance {
                        uuid: Some(format!("MIG-{index}-{at}")),
                        slots: *slots,
                        ..Instance::default()
                    };
                    device.instances = Some(instances.iter().enumerate().map(instance).collect());
                }
            }
            device.health = match described.health {
                0 => Health::Lost("gone".to_owned()),
                1 => Health::Sick("ill".to_owned()),
                _ => Health::Sound,
            };
            device
        };
        let devices = (0..).zip(&self.devices).map(device).collect();
        Inventory { source: "test".to_owned(), driver_version: None, devices, tells_instances: true }
    }

    fn record(&self) -> Record {
        let line = |line: &Line| Assignment {
            index: line.index,
            slot: line.slot.filter(|_| line.named != Named::Nothing),
            identity: match line.named {
                Named::Nothing => Identity::default(),
                Named::Device => uuid(format!("GPU-{}", line.index)),
                Named::Instance(at) => uuid(format!("MIG-{}-{at}", line.index)),
                Named::Another => uuid("GPU-gone".to_owned()),
            },
            owner: Owner { start: (line.named != Named::Nothing).then_some(1), ..Owner::of_pid(line.pid) },
            grant: (line.named != Named::Nothing).then_some(Grant { id: 1, of: 1 }),
            cgroup: line.has_orphans.then(|| "v2:/x".to_owned()),
            ..Assignment::of_the_script(line.index, line.pid)
        };
        let drained = |index: &u32| Drained {
            index: *index,
            identity: uuid(format!("GPU-{index}")),
            uid: None,
            since: None,
            reason: String::new(),
        };
        let withheld = |index: &u32| Withheld { index: *index, line: 1, problem: String::new() };
        Record {
            assignments: self.lines.iter().map(line).collect(),
            drained: self.drained.iter().map(drained).collect(),
            withheld: self.withheld.iter().map(withheld).collect(),
            waiters: Vec::new(),
        }
    }

    fn units(&self, inventory: &Inventory) -> Vec<Unit> {
        let mut units: Vec<Unit> = inventory.units().filter(|unit| unit.device != self.asked.but).collect();
        if self.asked.backwards {
            units.reverse();
        }
        units
    }

    fn slots(&self, unit: &Unit) -> Option<u32> {
        match (&self.devices[unit.device].slots, unit.instance) {
            (Slots::Undivided(slots), None) => *slots,
            (Slots::Divided(instances), Some(at)) => instances[at],
            _ => panic!("{unit:?} is no unit of {self:?}"),
        }
    }

    /// The lines that hold a unit, or did.
    fn holders(&self, unit: &Unit) -> Vec<&Line> {
        let is_holder = |line: &&Line| {
            let is_device = usize::try_from(line.index) == Ok(unit.device);
            let is_part = match line.named {
                Named::Nothing | Named::Device => is_device,
                Named::Instance(at) => is_device && unit.instance == Some(at),
                Named::Another => false,
            };
            let slot = line.slot.filter(|_| line.named != Named::Nothing);
            let is_share = match (self.slots(unit), slot) {
                (Some(count), Some(slot)) if slot < count => unit.slot == Some(slot),
                _ => true,
            };
            is_part && is_share
        };
        self.lines.iter().filter(is_holder).collect()
    }

    /// `None`: it must not be given. Else the place of its kind in the order: orphans, in use, sick, stale.
    fn kind(&self, unit: &Unit) -> Option<[bool; 4]> {
        let (asked, holders) = (&self.asked, self.holders(unit));
        let is_named =
            |indexes: &[u32]| indexes.iter().any(|index| usize::try_from(*index) == Ok(unit.device));
        let health = self.devices[unit.device].health;
        let is_stale = !holders.is_empty();
        let is_the_scripts = holders.iter().all(|line| line.named == Named::Nothing);
        let has_orphans = holders.iter().any(|line| line.has_orphans);
        let is_in_use = asked.in_use != Used::GiveAsAny && self.in_use.contains(&unit.device);
        let is_withheld = is_named(&self.withheld)
            || is_named(&self.drained)
            || holders.iter().any(|line| !(10..20).contains(&line.pid))
            || (is_stale && !asked.takes_over && !is_the_scripts)
            || health == 0
            || (health == 1 && !asked.includes_sick)
            || (has_orphans && asked.isolates)
            || (is_in_use && asked.in_use == Used::Withhold);
        (!is_withheld).then_some([has_orphans, is_in_use, health == 1, is_stale])
    }

    /// Shares of a part that somebody holds who may live.
    fn held(&self, part: Part, inventory: &Inventory) -> usize {
        let is_held = |unit: &Unit| self.holders(unit).iter().any(|line| !(10..20).contains(&line.pid));
        inventory.units().filter(|unit| unit.part() == part && is_held(unit)).count()
    }

    fn ask(&self, inventory: &Inventory) -> Result<Vec<Unit>, Error> {
        let record = self.record();
        let (occupancy, units) = (occupancy(inventory, &record), self.units(inventory));
        let situation = Situation {
            holdings: Holdings {
                inventory,
                record: &record,
                occupancy: &occupancy,
                standing: &|position| match record.assignments[position].owner.pid {
                    ..10 => Standing::Alive,
                    10..20 => Standing::Dead,
                    20.. => Standing::Doubtful(Doubt::ForeignBoot),
                },
            },
            is_in_use: &|device| self.in_use.contains(&device),
            has_orphans: &|position| record.assignments[position].cgroup.is_some(),
        };
        let Asked { amount, takes_over, includes_sick, in_use, isolates, packs, .. } = self.asked;
        let amount = amount as u128;
        situation.grant(&Wanted { amount, takes_over, includes_sick, in_use, isolates, packs, units: &units })
    }
}

/// What there is to be given, by its kind.
type Kinds = BTreeMap<[bool; 4], Vec<Unit>>;

/// Nothing comes before what is better; where devices are shared, whoever held a share does not matter.
fn check_order(kinds: &Kinds, given: &BTreeSet<(usize, Option<usize>, Option<u32>)>, shares: bool) {
    let is_given = |unit: &Unit| given.contains(&(unit.device, unit.instance, unit.slot));
    let rank = |kind: &[bool; 4]| if shares { kind[..3].to_vec() } else { kind.to_vec() };
    let worst =
        kinds.iter().filter(|(_, units)| units.iter().any(is_given)).map(|(kind, _)| rank(kind)).max();
    let left =
        kinds.iter().filter(|(_, units)| !units.iter().all(is_given)).map(|(kind, _)| rank(kind)).min();
    if let (Some(worst), Some(left)) = (worst, left) {
        assert!(worst <= left, "{worst:?} is given while {left:?} is left");
    }
}

/// What there is of a part, of one kind but for who held it.
#[derive(Default)]
struct Lot {
    own: usize,
    left: usize,
}

/// How the shares of one request lie, among those of one kind.
fn check_shares(scene: &Scene, inventory: &Inventory, kinds: &Kinds, given: &[Unit]) {
    let mut lots: BTreeMap<[bool; 3], BTreeMap<Part, Lot>> = BTreeMap::new();
    for (kind, unit) in kinds.iter().flat_map(|(kind, units)| units.iter().map(move |unit| (kind, unit))) {
        let of_kind = lots.entry([kind[0], kind[1], kind[2]]).or_default();
        let lot = of_kind.entry(unit.part()).or_default();
        *(if given.contains(unit) { &mut lot.own } else { &mut lot.left }) += 1;
    }
    // Where the shares of a part are of several kinds, the order of the kinds decides.
    let is_of_one_kind =
        |part: &Part| lots.values().filter(|of_kind| of_kind.contains_key(part)).count() == 1;
    for of_kind in lots.values() {
        let of_kind: Vec<_> = of_kind.iter().filter(|(part, _)| is_of_one_kind(part)).collect();
        for (chosen, other) in of_kind.iter().flat_map(|one| of_kind.iter().map(move |other| (one, other))) {
            if chosen.0 != other.0 && chosen.1.own > 0 && other.1.left > 0 {
                let held = [chosen.0, other.0].map(|part| scene.held(*part, inventory));
                check_pair((chosen.1, held[0]), (other.1, held[1]), scene.asked.packs);
            }
        }
    }
}

/// Something was given of one, while the other had more to give; each with what others hold.
fn check_pair((chosen, chosen_held): (&Lot, usize), (other, other_held): (&Lot, usize), packs: bool) {
    let told = format!("{} of {chosen_held} held, beside {} of {other_held} held", chosen.own, other.own);
    if packs {
        assert!(chosen_held >= other_held, "{told}: the fuller is filled first");
        assert!(other.own == 0 || chosen.left == 0, "{told}: one after the other");
    } else {
        assert!((chosen.own - 1, chosen_held) <= (other.own, other_held), "{told}: the emptier comes first");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_given_holds_the_rules(scene in scene()) {
        let inventory = scene.inventory();
        let units = scene.units(&inventory);
        let mut kinds = Kinds::new();
        for unit in &units {
            if let Some(kind) = scene.kind(unit) {
                kinds.entry(kind).or_default().push(*unit);
            }
        }
        let there_are: usize = kinds.values().map(Vec::len).sum();
        match scene.ask(&inventory) {
            Err(error) => prop_assert!(there_are < scene.asked.amount, "{error}, and there are {there_are}"),
            Ok(given) => {
                let distinct: BTreeSet<_> = given.iter().map(|unit| (unit.device, unit.instance, unit.slot)).collect();
                prop_assert_eq!((given.len(), distinct.len()), (scene.asked.amount, scene.asked.amount));
                for unit in &given {
                    prop_assert!(units.contains(unit) && scene.kind(unit).is_some(), "{unit:?} must not be given");
                }
                let shares = units.iter().any(|unit| unit.slot.is_some());
                check_order(&kinds, &distinct, shares);
                if shares {
                    check_shares(&scene, &inventory, &kinds, &given);
                }
            }
        }
    }
}
