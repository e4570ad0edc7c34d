//! The record and the policy together, against a model that is a set: whatever is asked for, given back, appended by
//! Flink's script or by a stranger, and wherever a writer is cut short, who holds what is what the model says.
//!
//! The file is read here by a parser of the test's own, and the model knows nothing of lines, writes or classes.

mod chance;
mod steps;

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::coordination::plan::{Plan, Write};
use crate::device::{Identity, Inventory, Unit};
use chance::{inventory, step};

/// Pids below this are processes of this host, and from it on of a namespace that cannot be seen from here.
const STRANGER: u32 = 100;

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
    /// Whether shares of before lie across those of now.
    is_divided_anew: bool,
}

impl World {
    fn is_dead(&self, pid: u32) -> bool {
        self.dead.contains(&pid)
    }

    /// The model's: whoever holds a unit, and whether the script said so.
    fn holders(&self, unit: &Unit) -> Vec<(u32, bool)> {
        let device = &self.inventory.devices[unit.device];
        let name = self.inventory.identity(unit).uuid.clone().unwrap();
        let card = device.identity.uuid.clone().unwrap();
        // A share that is beyond those of now may be any of them.
        let is_share = |slot: Option<u32>| match (slot, self.inventory.slots_of(unit)) {
            (Some(slot), Some(count)) if slot < count => unit.slot == Some(slot),
            _ => true,
        };
        let is_it = |held: &&Holding| (held.0 == name || held.0 == card) && is_share(held.1);
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
            assert!(living.len() <= 1 || self.is_divided_anew, "{unit:?} is held by {living:?}");
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
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

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
            is_divided_anew: false,
        };
        for (step, cut) in steps {
            world.take(step, cut);
        }
    }
}
