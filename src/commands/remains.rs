//! The control groups of dead owners, which are removed once they are empty. Descendants that live on in one are denied
//! every GPU and named, but not killed; they keep what they have open.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::isolation;
use crate::assignment::{Assignment, Record, Standing};
use crate::cgroup::Group;
use crate::device::{Identity, Inventory};
use crate::error::Error;
use crate::host::Host;
use crate::notes::Notes;

/// What the dead owners of a record have left.
pub(super) struct Remains<'a> {
    host: &'a Host,
    record: &'a Record,
    /// The processes of each group, by the group's name in the record.
    orphans: RefCell<BTreeMap<String, Vec<u32>>>,
    /// The groups whose processes are now denied every GPU.
    shut: RefCell<BTreeSet<String>>,
    /// What owners have that may be alive.
    living: Others<'a>,
}

/// The groups of some owners and the units in each: `exec` passes units on to several owners in one group. Collected
/// once, however many lines a record has.
pub(super) struct Others<'a> {
    groups: HashSet<&'a str>,
    units: HashSet<(&'a str, Option<u32>, &'a Identity)>,
}

impl<'a> Others<'a> {
    /// Those of all lines except the ones, by position in the record, for which `is_gone` holds.
    pub(super) fn of(record: &'a Record, is_gone: impl Fn(usize) -> bool) -> Others<'a> {
        let lines = record.assignments.iter().enumerate();
        let confined = lines.filter_map(|(at, line)| Some((at, unit_of(line)?)));
        let units: HashSet<_> = confined.filter(|(at, _)| !is_gone(*at)).map(|(_, unit)| unit).collect();
        Others { groups: units.iter().map(|(name, ..)| *name).collect(), units }
    }

    /// Whether the group is one of theirs.
    pub(super) fn share(&self, name: &str) -> bool {
        self.groups.contains(name)
    }

    /// Whether one of them, in the group of that line, holds its unit as well.
    pub(super) fn hold(&self, line: &Assignment) -> bool {
        unit_of(line).is_some_and(|unit| self.units.contains(&unit))
    }
}

/// The unit of a confined owner, with its group.
fn unit_of(line: &Assignment) -> Option<(&str, Option<u32>, &Identity)> {
    line.cgroup.as_deref().map(|name| (name, line.slot, &line.identity))
}

impl<'a> Remains<'a> {
    pub(super) fn of(
        host: &'a Host,
        record: &'a Record,
        standing: &dyn Fn(usize) -> Standing,
    ) -> Remains<'a> {
        let (orphans, shut) = (RefCell::default(), RefCell::default());
        let living = Others::of(record, |at| standing(at) == Standing::Dead);
        Remains { host, record, orphans, shut, living }
    }

    /// What owners have that may be alive.
    pub(super) fn living(&self) -> &Others<'a> {
        &self.living
    }

    /// Whether processes live on in the group of an assignment whose owner is dead, and no living owner holds the unit. A
    /// group that cannot be read may have some.
    pub(super) fn has_orphans(&self, position: usize) -> bool {
        let line = &self.record.assignments[position];
        let Some(name) = &line.cgroup else { return false };
        if self.is_of_an_earlier_boot(position) || self.living().hold(line) {
            return false;
        }
        if let Some(orphans) = self.orphans.borrow().get(name) {
            return !orphans.is_empty();
        }
        let orphans = self.group(position).and_then(|group| group.members()).unwrap_or(vec![0]);
        let has_orphans = !orphans.is_empty();
        self.orphans.borrow_mut().insert(name.clone(), orphans);
        has_orphans
    }

    /// Whether a living owner is in the group of an assignment whose owner is dead, and can open its unit.
    pub(super) fn is_open_to_the_living(&self, position: usize) -> bool {
        let name = self.record.assignments[position].cgroup.as_deref();
        name.is_some_and(|name| self.living().share(name)) && self.has_orphans(position)
    }

    /// A warning that names them, for a unit that is granted anyway.
    pub(super) fn open_to(&self, position: usize) -> Option<String> {
        if !self.is_open_to_the_living(position) {
            return None;
        }
        let line = &self.record.assignments[position];
        let name = line.cgroup.as_deref()?;
        let pids = self.orphans.borrow().get(name).cloned().unwrap_or_default();
        let pids = self.host.named(&pids);
        Some(format!(
            "device {} is given although pid {pids} in control group {name} can open it, where pid {} held it",
            line.unit(),
            line.owner.pid
        ))
    }

    /// Whether the processes of a group have been denied every GPU.
    pub(super) fn is_shut(&self, name: &str) -> bool {
        self.shut.borrow().contains(name)
    }

    /// No process outlives a boot, and no group does.
    fn is_of_an_earlier_boot(&self, position: usize) -> bool {
        let boots = self.record.assignments[position].owner.boot.as_deref().zip(self.host.boot_id());
        boots.is_some_and(|(recorded, now)| recorded != now)
    }

    fn group(&self, position: usize) -> Result<Group, Error> {
        let assignment = &self.record.assignments[position];
        Group::recorded(self.host, &assignment.owner, assignment.cgroup.as_deref().unwrap_or_default())
    }

    /// Removes the empty groups, and denies every GPU to the others. A failure is only a warning: it must not keep units
    /// from others.
    pub(super) fn clear(&self, inventory: &Inventory, notes: &mut Notes) {
        let mut seen = BTreeSet::new();
        for (position, assignment) in self.record.assignments.iter().enumerate() {
            let Some(name) = &assignment.cgroup else { continue };
            if seen.insert(name) && !self.living().share(name) {
                self.clear_one(position, inventory, notes).unwrap_or_else(|error| notes.warn(error.chain()));
            }
        }
    }

    /// Removes the group of an assignment whose owner is dead, if it is empty. Returns whether it is not.
    pub(super) fn remove(&self, position: usize, notes: &mut Notes) -> Result<bool, Error> {
        if self.record.assignments[position].cgroup.is_none() || self.is_of_an_earlier_boot(position) {
            return Ok(false);
        }
        let group = self.group(position)?;
        if self.has_orphans(position) {
            notes.warn(self.alive(&group, position));
            return Ok(true);
        }
        if group.exists() {
            notes.detail(format!("control group {} is empty, and is removed", group.name()));
            group.remove()?;
        }
        Ok(false)
    }

    /// Who lives on in the group of an assignment whose owner is dead, as a sentence.
    pub(super) fn survivors(&self, position: usize) -> Result<Option<String>, Error> {
        if !self.has_orphans(position) {
            return Ok(None);
        }
        Ok(Some(self.alive(&self.group(position)?, position)))
    }

    fn clear_one(&self, position: usize, inventory: &Inventory, notes: &mut Notes) -> Result<(), Error> {
        if self.remove(position, notes)? {
            let rules = isolation::nodes(self.host, inventory)?.rules_of_orphans(inventory);
            let group = self.group(position)?;
            group.change(&rules)?;
            self.shut.borrow_mut().insert(group.name());
        }
        Ok(())
    }

    fn alive(&self, group: &Group, position: usize) -> String {
        let pids = self.orphans.borrow().get(&group.name()).cloned().unwrap_or_default();
        let owner = self.record.assignments[position].owner.pid;
        format!(
            "pid {} outlived pid {owner} in control group {}, and may have its devices open; end what is \
             left of it",
            self.host.named(&pids),
            group.name()
        )
    }
}
