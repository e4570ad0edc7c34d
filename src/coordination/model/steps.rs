//! What a step is to the program: read, decided upon, planned and written, as its commands do it.

use std::collections::BTreeSet;

use super::chance::Step;
use super::{Holding, STRANGER, World, uuid};
use crate::assignment::{Assignment, Doubt, Drained, Owner, Standing};
use crate::coordination::plan::{Change, plan};
use crate::coordination::text::Text;
use crate::coordination::{format, settle};
use crate::device::Unit;
use crate::policy::{self, Holdings, Situation, Used, Wanted};

impl World {
    fn standing(&self, assignment: &Assignment) -> Standing {
        match assignment.owner.pid {
            STRANGER.. => Standing::Doubtful(Doubt::ForeignNamespace),
            pid if self.is_dead(pid) => Standing::Dead,
            _ => Standing::Alive,
        }
    }

    fn owner(pid: u32) -> Owner {
        Owner { start: Some(7), boot: Some("0".repeat(32)), pid_namespace: Some(1), ..Owner::of_pid(pid) }
    }

    fn settled(&self, text: &Text, clears_stale: bool) -> Change {
        let record = &text.record;
        let standing = |position: usize| self.standing(&record.assignments[position]);
        let named = |index| self.inventory.identity_at(index);
        settle::settle(record, clears_stale, standing, |pid| Some(World::owner(pid)), named)
    }

    pub(super) fn take(&mut self, step: Step, cut: Option<u16>) {
        let text = Text::read(self.bytes.clone());
        assert_eq!(text.malformed, [], "{}", self.bytes.escape_ascii());
        let count = u32::try_from(self.inventory.devices.len()).unwrap();
        if let Step::Allocate { pid, .. } | Step::Script { pid, .. } = step {
            self.be_born(pid);
        }
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
            Step::Divide { index, slots } if index < count => {
                let device = &mut self.inventory.devices[index as usize];
                match &mut device.instances {
                    Some(instances) => instances.iter_mut().for_each(|instance| instance.slots = slots),
                    None => device.slots = slots,
                }
                self.is_divided_anew = true;
            }
            Step::Script { .. } | Step::Stranger { .. } | Step::Damage { .. } => {}
            Step::Drain { .. } | Step::Undrain { .. } | Step::Divide { .. } => {}
        }
        self.check();
    }

    /// A pid of which the record knows nothing any more is another process's.
    fn be_born(&mut self, pid: u32) {
        let is_recorded = self.held.iter().any(|held| held.2 == pid);
        if !is_recorded && !self.scripts.iter().any(|line| line.1 == pid) {
            self.dead.remove(&pid);
        }
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
            holdings: Holdings {
                inventory: &self.inventory,
                record,
                occupancy: &occupancy,
                standing: &|position| self.standing(&record.assignments[position]),
            },
            is_in_use: &|_| false,
            has_orphans: &|_| false,
        };
        let request = Wanted {
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
        change.release(released);
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
}
