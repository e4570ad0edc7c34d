//! The record and the policy together, against a model that is a set: whatever is asked for, given back, appended by
//! Flink's script or by a stranger, and wherever a writer is cut short, who holds what is what the model says.
//!
//! The file is read here by a parser of the test's own, and the model knows nothing of lines, writes or classes.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::assignment::{Assignment, Doubt, Drained, Owner, Standing};
use crate::coordination::plan::{Change, Plan, Write, plan};
use crate::coordination::text::Text;
use crate::coordination::{format, settle};
use crate::device::{Device, Identity, Instance, Inventory, Unit};
use crate::policy::{self, Request, Situation, Used};

/// Pids below this are processes of this host, and from it on of a namespace that cannot be seen from here.
const STRANGER: u32 = 100;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Asks for units, for itself. Two in three calls take over what the dead had.
    Allocate {
        pid: u32,
        amount: usize,
        takes_over: bool,
        packs: bool,
    },
    GiveBack {
        pid: u32,
    },
    Reclaim,
    Die {
        pid: u32,
    },
    /// The script appends its line, as it does to what it sees free.
    Script {
        index: u32,
        pid: u32,
    },
    /// A line of ours, of an owner that cannot be seen from here.
    Stranger {
        index: u32,
        pid: u32,
    },
    /// A line that nobody understands.
    Damage {
        index: u32,
    },
    Drain {
        index: u32,
    },
    Undrain {
        index: u32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (pid, index) = (|| 1..12_u32, || 0..5_u32);
    prop_oneof![
        8 => (pid(), 1..6_usize, prop::bool::weighted(0.6), any::<bool>()).prop_map(
            |(pid, amount, takes_over, packs)| Step::Allocate { pid, amount, takes_over, packs }
        ),
        4 => pid().prop_map(|pid| Step::GiveBack { pid }),
        1 => Just(Step::Reclaim),
        4 => pid().prop_map(|pid| Step::Die { pid }),
        2 => (index(), pid()).prop_map(|(index, pid)| Step::Script { index, pid }),
        1 => (index(), STRANGER..STRANGER + 3).prop_map(|(index, pid)| Step::Stranger { index, pid }),
        1 => index().prop_map(|index| Step::Damage { index }),
        1 => index().prop_map(|index| Step::Drain { index }),
        1 => index().prop_map(|index| Step::Undrain { index }),
    ]
}

/// Of how many shares something is, if it is shared.
type Slots = Option<u32>;

/// Shares of each device, or of each of its instances.
fn inventory() -> impl Strategy<Value = Inventory> {
    let slots = || prop_oneof![2 => Just(None), 1 => (2..5_u32).prop_map(Some)];
    let instances = prop::option::weighted(0.3, prop::collection::vec(slots(), 1..4));
    prop::collection::vec((slots(), instances), 1..5).prop_map(|devices| {
        let device = |(index, (slots, instances)): (u32, (Slots, Option<Vec<Slots>>))| {
            let mut device = Device::new(index, uuid(format!("GPU-{index}")));
            let instance = |(at, slots)| Instance {
                uuid: Some(format!("MIG-{index}-{at}")),
                slots,
                ..Instance::default()
            };
            device.instances = instances.map(|all| all.into_iter().enumerate().map(instance).collect());
            device.slots = slots.filter(|_| device.instances.is_none());
            device
        };
        let devices = (0..).zip(devices).map(device).collect();
        Inventory { source: "test".to_owned(), driver_version: None, devices, tells_instances: true }
    })
}

fn uuid(name: String) -> Identity {
    Identity { uuid: Some(name), ..Identity::default() }
}

/// A name, a share, and who holds it.
type Holding = (String, Option<u32>, u32);

/// What the file says, by nothing of the program's.
fn read(bytes: &[u8]) -> (BTreeSet<Holding>, BTreeSet<(u32, u32)>) {
    let text = std::str::from_utf8(bytes).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "the last line has no end: {text:?}");
    let value = |line: &str, key: &str| -> Option<String> {
        let pairs = line.split(['\t', ';']).filter_map(|pair| pair.split_once('='));
        pairs.filter(|pair| pair.0 == key).map(|pair| pair.1.to_owned()).next()
    };
    let lines = || text.lines().filter(|line| !line.is_empty());
    let ended: BTreeSet<String> =
        lines().filter(|line| line.starts_with('#')).filter_map(|line| value(line, "grant")).collect();
    let (mut held, mut scripts) = (BTreeSet::new(), BTreeSet::new());
    for line in lines().filter(|line| line.as_bytes()[0].is_ascii_digit()) {
        let (index, rest) = line.split_once(' ').unwrap();
        let Ok(pid) = rest.split('\t').next().unwrap().parse() else { continue };
        let slot = value(line, "slot").map(|slot| slot.parse().unwrap());
        match (value(line, "grant"), value(line, "uuid")) {
            (Some(grant), _) if ended.contains(&grant) => {}
            (Some(_), name) => drop(held.insert((name.unwrap(), slot, pid))),
            (None, _) => drop(scripts.insert((index.parse().unwrap(), pid))),
        }
    }
    (held, scripts)
}

struct World {
    inventory: Inventory,
    bytes: Vec<u8>,
    dead: BTreeSet<u32>,
    /// The model: what is held, and what the script has said since a writer was last here.
    held: BTreeSet<Holding>,
    scripts: BTreeSet<(u32, u32)>,
    withheld: BTreeSet<u32>,
    drained: BTreeSet<u32>,
}

impl World {
    fn is_dead(&self, pid: u32) -> bool {
        self.dead.contains(&pid)
    }

    fn standing(&self, assignment: &Assignment) -> Standing {
        match assignment.owner.pid {
            STRANGER.. => Standing::Doubtful(Doubt::ForeignNamespace),
            pid if self.is_dead(pid) => Standing::Dead,
            _ => Standing::Alive,
        }
    }

    /// The model's: whoever holds a unit, and whether the script said so.
    fn holders(&self, unit: &Unit) -> Vec<(u32, bool)> {
        let device = &self.inventory.devices[unit.device];
        let name = self.inventory.identity(unit).uuid.clone().unwrap();
        let card = device.identity.uuid.clone().unwrap();
        let is_it =
            |held: &&Holding| (held.0 == name || held.0 == card) && (held.1.is_none() || held.1 == unit.slot);
        let ours = self.held.iter().filter(is_it).map(|held| (held.2, false));
        let scripts = self.scripts.iter().filter(|line| line.0 == device.index).map(|line| (line.1, true));
        ours.chain(scripts).collect()
    }

    /// The model's: what may be given.
    fn is_to_be_had(&self, unit: &Unit, takes_over: bool) -> bool {
        let index = self.inventory.devices[unit.device].index;
        let holders = self.holders(unit);
        let is_left =
            |(pid, is_the_scripts): &(u32, bool)| self.is_dead(*pid) && (takes_over || *is_the_scripts);
        let all_of_the_script = holders.iter().all(|holder| holder.1);
        !self.withheld.contains(&index)
            && !self.drained.contains(&index)
            && holders.iter().all(is_left)
            && (takes_over || all_of_the_script)
    }

    /// The model's: the script's lines have names, and those of its dead go.
    fn settle(&mut self) {
        for (index, pid) in std::mem::take(&mut self.scripts) {
            if !self.is_dead(pid) {
                // A device that this host has not got has no name to be called by.
                let known = self.inventory.devices.iter().any(|device| device.index == index);
                assert!(known);
                self.held.insert((format!("GPU-{index}"), None, pid));
            }
        }
    }

    fn forget_the_dead(&mut self) {
        let dead = &self.dead;
        self.held.retain(|held| !dead.contains(&held.2));
    }

    // What happens.

    fn owner(pid: u32) -> Owner {
        Owner { start: Some(7), boot: Some("0".repeat(32)), pid_namespace: Some(1), ..Owner::of_pid(pid) }
    }

    fn settled(&self, text: &Text, clears_stale: bool) -> Change {
        let record = &text.record;
        let standing = |position: usize| self.standing(&record.assignments[position]);
        let named = |index| self.inventory.identity_at(index);
        settle::settle(record, clears_stale, standing, |pid| Some(World::owner(pid)), named)
    }

    fn take(&mut self, step: Step, cut: Option<u16>) {
        let text = Text::read(self.bytes.clone());
        assert_eq!(text.malformed, [], "{}", self.bytes.escape_ascii());
        let count = u32::try_from(self.inventory.devices.len()).unwrap();
        match step {
            Step::Allocate { pid, .. } | Step::Script { pid, .. } if self.is_dead(pid) => {}
            Step::Allocate { pid, amount, takes_over, packs } => {
                self.allocate(&text, (pid, amount), takes_over, packs, cut);
            }
            Step::GiveBack { pid } => self.give_back(&text, pid, cut),
            Step::Reclaim => {
                let change = self.settled(&text, true);
                self.write(&plan(&text, &change, false), cut, |world| {
                    world.settle();
                    world.forget_the_dead();
                });
            }
            Step::Die { pid } => drop(self.dead.insert(pid)),
            Step::Script { index, pid } if index < count => {
                let mut of_device = self.inventory.units().filter(|unit| unit.device == index as usize);
                // It knows neither shares nor drained devices.
                if of_device.all(|unit| self.holders(&unit).is_empty()) {
                    self.bytes.extend(format!("{index} {pid}\n").bytes());
                    self.scripts.insert((index, pid));
                }
            }
            Step::Stranger { index, pid } if index < count => {
                let identity = uuid(format!("GPU-{index}"));
                let grant = Some(settle::grant(1));
                let owner = World::owner(pid);
                let line = Assignment { identity, owner, grant, ..Assignment::of_the_script(index, pid) };
                self.bytes.extend(format!("{}\n", format::print(&line)).bytes());
                self.held.insert((format!("GPU-{index}"), None, pid));
            }
            Step::Damage { index } if index < count => {
                self.bytes.extend(format!("{index} who\n").bytes());
                self.withheld.insert(index);
            }
            Step::Drain { index } if index < count && !self.drained.contains(&index) => {
                let identity = uuid(format!("GPU-{index}"));
                let drained = Drained { index, identity, uid: None, since: None, reason: "x".to_owned() };
                self.drain(&text, Change { drained: vec![drained], ..Change::default() }, cut, index);
            }
            Step::Undrain { index } if self.drained.contains(&index) => {
                let at = text.record.drained.iter().position(|drained| drained.index == index).unwrap();
                self.drain(&text, Change { undrained: vec![at], ..Change::default() }, cut, index);
            }
            Step::Script { .. } | Step::Stranger { .. } | Step::Damage { .. } => {}
            Step::Drain { .. } | Step::Undrain { .. } => {}
        }
        self.check();
    }

    fn allocate(
        &mut self,
        text: &Text,
        (pid, amount): (u32, usize),
        takes_over: bool,
        packs: bool,
        cut: Option<u16>,
    ) {
        let record = &text.record;
        let units: Vec<Unit> = self.inventory.units().collect();
        let occupancy = policy::occupancy(&self.inventory, record);
        let situation = Situation {
            inventory: &self.inventory,
            record,
            occupancy: &occupancy,
            standing: &|position| self.standing(&record.assignments[position]),
            is_in_use: &|_| false,
            has_orphans: &|_| false,
        };
        let request = Request {
            amount: amount as u128,
            takes_over,
            includes_sick: false,
            in_use: Used::GiveAsAny,
            isolates: false,
            packs,
            units: &units,
        };
        let there_are = units.iter().filter(|unit| self.is_to_be_had(unit, takes_over)).count();
        let given = situation.grant(&request).ok();
        assert_eq!(given.is_some(), there_are >= amount, "{amount} of {there_are}");
        let Some(given) = given else { return };
        assert_eq!(given.len(), amount);
        assert!(given.iter().all(|unit| self.is_to_be_had(unit, takes_over)), "{given:?}");
        let grant = Some(settle::grant(amount));
        let line = |unit: &Unit| {
            let (index, owner) = (self.inventory.devices[unit.device].index, World::owner(pid));
            let identity = self.inventory.identity(unit).into_owned();
            Assignment { slot: unit.slot, identity, owner, grant, ..Assignment::of_the_script(index, pid) }
        };
        let granted: Vec<Assignment> = given.iter().map(line).collect();
        let new: Vec<Holding> =
            granted.iter().map(|line| (line.identity.uuid.clone().unwrap(), line.slot, pid)).collect();
        assert_eq!(new.iter().collect::<BTreeSet<_>>().len(), amount, "{new:?}");
        let change = Change { granted, ..self.settled(text, takes_over) };
        self.write(&plan(text, &change, false), cut, |world| {
            world.settle();
            if takes_over {
                world.forget_the_dead();
            }
            world.held.extend(new.iter().cloned());
        });
    }

    fn give_back(&mut self, text: &Text, pid: u32, cut: Option<u16>) {
        let is_its = |position: &usize| text.record.assignments[*position].owner.pid == pid;
        let released: Vec<usize> = (0..text.record.assignments.len()).filter(is_its).collect();
        let mut change = self.settled(text, false);
        change.stale.retain(|position| !released.contains(position));
        change.settled.retain(|(position, _)| !released.contains(position));
        change.released = released;
        if change.released.is_empty() {
            return;
        }
        self.write(&plan(text, &change, false), cut, |world| {
            world.scripts.retain(|line| line.1 != pid);
            world.settle();
            world.held.retain(|held| held.2 != pid);
        });
    }

    /// A drained unit is a line of its own, which is there or not.
    fn drain(&mut self, text: &Text, change: Change, cut: Option<u16>, index: u32) {
        self.write(&plan(text, &change, false), cut, |_| {});
        let is_drained = Text::read(self.bytes.clone()).record.drained.iter().any(|line| line.index == index);
        assert!(cut.is_some() || is_drained != self.drained.contains(&index));
        if is_drained {
            self.drained.insert(index)
        } else {
            self.drained.remove(&index)
        };
    }

    /// Writes all of it, or up to some byte. Then there is what was before, or what is after; and of what the dead
    /// had, and of what is given back, any part may be gone.
    fn write(&mut self, plan: &Plan, cut: Option<u16>, after: impl Fn(&mut World)) {
        let (held, scripts) = (self.held.clone(), self.scripts.clone());
        let total: usize = plan.clear.iter().chain(&plan.fill).map(|write| write.bytes.len()).sum();
        let total = total + plan.growth.len();
        let left = cut.map_or(total, |cut| total * usize::from(cut) / usize::from(u16::MAX));
        put(&mut self.bytes, plan, left);
        after(self);
        if left == total {
            return;
        }
        let (now, now_scripts) = read(&self.bytes);
        let lives = |held: &&Holding| !self.dead.contains(&held.2);
        let both: BTreeSet<&Holding> = held.union(&self.held).collect();
        assert!(
            now.iter().all(|held| both.contains(held)),
            "{now:?} is neither {held:?} nor {:?}",
            self.held
        );
        let stays: BTreeSet<&Holding> = held.intersection(&self.held).filter(lives).collect();
        assert!(stays.iter().all(|held| now.contains(*held)), "{now:?} lacks some of {stays:?}");
        // What is granted is granted whole, and last.
        let new: Vec<&Holding> =
            self.held.difference(&held).filter(|new| !scripts.iter().any(|s| s.1 == new.2)).collect();
        assert!(new.iter().all(|new| !now.contains(*new)), "cut at {left} of {total}: {now:?} has {new:?}");
        // A line of the script holds, as it was or anew.
        for (index, pid) in scripts
            .iter()
            .filter(|line| !self.dead.contains(&line.1) && self.held.iter().any(|held| held.2 == line.1))
        {
            let name = format!("GPU-{index}");
            assert!(
                now_scripts.contains(&(*index, *pid)) || now.contains(&(name, None, *pid)),
                "{index} {pid}"
            );
        }
        (self.held, self.scripts) = (now, now_scripts);
    }

    /// The file says what the model says, and no unit is two living processes', but for what others put there.
    fn check(&self) {
        let (held, scripts) = read(&self.bytes);
        assert_eq!((&held, &scripts), (&self.held, &self.scripts), "{}", self.bytes.escape_ascii());
        for unit in self.inventory.units() {
            let living = self.holders(&unit).into_iter().map(|holder| holder.0);
            let living: BTreeSet<u32> = living.filter(|pid| *pid < STRANGER && !self.is_dead(*pid)).collect();
            assert!(living.len() <= 1, "{unit:?} is held by {living:?}");
        }
    }
}

/// The first `left` bytes of the writes.
fn put(bytes: &mut Vec<u8>, plan: &Plan, mut left: usize) {
    let growth = Write { at: bytes.len(), bytes: plan.growth.clone() };
    for Write { at, bytes: written } in plan.clear.iter().chain([&growth]).chain(&plan.fill) {
        let count = written.len().min(left);
        if count == 0 {
            continue;
        }
        bytes.resize(bytes.len().max(at + count), 0);
        bytes[*at..at + count].copy_from_slice(&written[..count]);
        left -= count;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_record_says_what_a_set_says(
        inventory in inventory(),
        steps in prop::collection::vec((step(), prop::option::weighted(0.2, 0..u16::MAX)), 1..60),
    ) {
        let mut world = World {
            inventory,
            bytes: Vec::new(),
            dead: BTreeSet::new(),
            held: BTreeSet::new(),
            scripts: BTreeSet::new(),
            withheld: BTreeSet::new(),
            drained: BTreeSet::new(),
        };
        for (step, cut) in steps {
            world.take(step, cut);
        }
    }
}
