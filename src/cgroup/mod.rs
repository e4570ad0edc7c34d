//! Control groups: what an owner was not given, it cannot open.
//!
//! One group for each owner, `gpu-coord-PID-START`, below the group that the owner was in. Its rules are the
//! kernel's own from then on: they need no process of ours, and end with the group.
//!
//! Invariants, each with the test that holds it (`tests/integration/isolation.rs`):
//! * A group without our name is never removed, and a program that is not ours never detached
//!   (`a_foreign_program_stays_and_both_deny`).
//! * Nobody is moved into a group that was not proven to deny (`what_is_not_proven_is_undone`).
//!
//! Not here: which nodes are denied to whom (`commands`, which knows the inventory and the record).

pub(crate) mod denylist;
mod members;
pub(crate) mod membership;
mod proof;
mod rights;
mod v1;
mod v2;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::assignment::Owner;
use crate::error::Error;
use crate::host::Host;
use crate::host::deadline::Deadline;
use denylist::{Denylist, Rules};
use members::Moved;
use membership::{Place, Version};

const PREFIX: &str = "gpu-coord-";

/// How long a group is busy after its last process has ended.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);

/// The name of an owner's group; its start tells it from that of a later process of its pid.
fn name(owner: &Owner) -> Option<String> {
    Some(format!("{PREFIX}{}-{}", owner.pid, owner.start?))
}

/// The pid and the start in the name of a group of ours.
fn numbers(name: &str) -> Option<(u32, u64)> {
    let (pid, start) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    Some((pid.parse().ok()?, start.parse().ok()?)).filter(|_| is_number(pid) && is_number(start))
}

/// Whether the process that a group is called after has ended, by its pid and start.
fn has_ended(host: &Host, (pid, start): (u32, u64)) -> bool {
    match host.process(pid) {
        Ok(None) => true,
        Ok(Some(process)) => process.is_dead() || !process.may_have_started_at(Some(start)),
        Err(_) => false,
    }
}

fn is_name(text: &str) -> bool {
    numbers(text).is_some()
}

/// The group of another owner that `/proc/PID/cgroup` shows a process in, and the pid of that owner.
pub(crate) fn confining_another<'a>(cgroup: &'a str, owner: &Owner) -> Option<(&'a str, u32)> {
    let own = name(owner);
    let others = cgroup.split(['/', '\n']).filter(|part| Some(*part) != own.as_deref());
    others.rev().find_map(|group| Some((group, numbers(group)?.0)))
}

/// The control group of an owner; whether it is there is not said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    place: Place,
    parent: Place,
}

impl Group {
    /// The one that `owner` is in, or else the one to be made for it below the one that it is in.
    pub(crate) fn of(host: &Host, owner: &Owner, wanted: Option<Version>) -> Result<Group, Error> {
        let place = Place::of(host, owner.pid, wanted)?;
        let unnamed = || Error::Isolation(format!("it cannot be told when pid {} was started", owner.pid));
        let name = name(owner).ok_or_else(unnamed)?;
        let is_its_own = place.path.rsplit('/').next() == Some(name.as_str());
        match place.parent().filter(|_| is_its_own) {
            Some(parent) => Ok(Group { place, parent }),
            None => Ok(Group { place: place.child(&name), parent: place }),
        }
    }

    /// The one that an assignment of `owner` names, `v2:/a/gpu-coord-4711-81526`. Whoever can write the record can
    /// write anything there, so that it is believed only of a group that is called after the owner, or that the
    /// owner is in (`exec` passes units on to its descendants), or that is called after a process that has ended.
    pub(crate) fn recorded(host: &Host, owner: &Owner, text: &str) -> Result<Group, Error> {
        let strange =
            |problem: &str| Error::Isolation(format!("control group `{text}` in the record: {problem}"));
        let (version, path) = text.split_once(':').ok_or_else(|| strange("not VERSION:PATH"))?;
        let version = version.parse().map_err(|()| strange("neither v1 nor v2"))?;
        let named = path.rsplit('/').next().unwrap_or_default();
        let namesake = numbers(named).ok_or_else(|| strange("not called as gpu-coord calls groups"))?;
        let place = Place::at(host, version, path).map_err(|problem| strange(&problem))?;
        let parent = place.parent().ok_or_else(|| strange("it is the root"))?;
        let is_its = Some(named) == name(owner).as_deref()
            || members::members(&place)?.contains(&owner.pid)
            || has_ended(host, namesake);
        if is_its { Ok(Group { place, parent }) } else { Err(strange(&format!("not of pid {}", owner.pid))) }
    }

    pub(crate) fn version(&self) -> Version {
        self.place.version
    }

    /// As it is recorded.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.place.version, self.place.path)
    }

    /// Every group that is called after a process which has ended.
    pub(crate) fn left(host: &Host) -> Vec<Group> {
        let left = |place: Place| {
            let namesake = numbers(place.path.rsplit('/').next()?)?;
            let parent = place.parent().filter(|_| has_ended(host, namesake))?;
            Some(Group { place, parent })
        };
        membership::groups(host).into_iter().filter_map(left).collect()
    }

    /// The groups that are called after `owner` and that it is in.
    pub(crate) fn occupied(host: &Host, owner: &Owner) -> Vec<Group> {
        let group = |version| Group::of(host, owner, Some(version)).ok();
        [Version::V1, Version::V2].into_iter().filter_map(group).filter(Group::exists).collect()
    }

    pub(crate) fn exists(&self) -> bool {
        self.place.directory.is_dir()
    }

    /// Its processes; none if there is no such group.
    pub(crate) fn members(&self) -> Result<Vec<u32>, Error> {
        members::members(&self.place)
    }

    /// What the kernel denies to its processes: `None` if nothing by us. Version 1 does not tell.
    pub(crate) fn denied(&self) -> Result<Option<Denylist>, Error> {
        match self.place.version {
            Version::V1 => Err(Error::Isolation("cgroup v1 does not tell what it denies".to_owned())),
            Version::V2 => v2::denied(&self.place.directory),
        }
    }

    /// Puts its processes back and removes it. It is no error if it is not there.
    pub(crate) fn dissolve(&self, deadline: Deadline) -> Result<(), Error> {
        let parent = &self.parent.directory;
        members::empty(&self.place, deadline, |_| parent)?;
        self.remove().inspect_err(|_| self.lift())
    }

    /// For groups that somebody made below ours: they are let be, and nothing is denied to them any more. The error
    /// that is told is that of the removal.
    fn lift(&self) {
        if self.place.version == Version::V2 {
            let _ = v2::lift(&self.place.directory);
        }
    }

    /// Removes it unless there are processes in it.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        let since = Instant::now();
        loop {
            match fs::remove_dir(&self.place.directory) {
                Ok(()) => return Ok(()),
                Err(error) if members::is_gone(&error) => return Ok(()),
                // What has ended just now is still counted.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && since.elapsed() < PATIENCE => {
                    std::thread::sleep(PAUSE);
                }
                Err(error) => {
                    let directory = self.place.directory.display();
                    return Err(Error::Isolation(format!("cannot remove {directory}: {error}")));
                }
            }
        }
    }

    /// Puts other rules in the place of those in force.
    pub(crate) fn set(&self, rules: &Rules) -> Result<(), Error> {
        match self.place.version {
            Version::V1 => v1::set(&self.place.directory, &rules.denied, &rules.granted),
            Version::V2 => v2::deny(&self.place.directory, &rules.denied),
        }
    }

    fn make(&self) -> Result<(), Error> {
        let directory = &self.place.directory;
        fs::create_dir(directory).map_err(|error| {
            Error::Isolation(format!("cannot make control group {}: {error}", directory.display()))
        })
    }
}

/// An owner that is kept to its devices by the kernel. To be undone if it cannot be recorded.
#[derive(Debug)]
pub(crate) struct Confined {
    group: Group,
    moved: Moved,
    /// What was in force before; `None`: there was no group.
    before: Option<Rules>,
    deadline: Deadline,
}

impl Confined {
    /// Puts `rules` in force for `owner` and its descendants, and proves it, in an order that confines nobody
    /// to what is not proven. `before`: what was in force for it, if it is confined already. After an error
    /// everything is as it was.
    pub(crate) fn confine(
        host: &Host,
        owner: &Owner,
        group: Group,
        rules: &Rules,
        before: Option<Rules>,
        nodes: &[PathBuf],
        deadline: Deadline,
    ) -> Result<Confined, Error> {
        rights::check(host, group.place.version)?;
        let mut confined = Confined { group, moved: Moved::default(), before, deadline };
        if confined.before.is_none() {
            // One that the record does not name was left by a call that was killed.
            confined.group.dissolve(deadline)?;
            confined.group.make()?;
        }
        match confined.put_in_force(host, owner, rules, nodes) {
            Ok(()) => Ok(confined),
            Err(error) => Err(confined.undo(error)),
        }
    }

    fn put_in_force(
        &mut self,
        host: &Host,
        owner: &Owner,
        rules: &Rules,
        nodes: &[PathBuf],
    ) -> Result<(), Error> {
        self.group.set(rules)?;
        proof::prove(host, &self.group.place, rules, nodes, self.deadline)?;
        self.moved.move_in(host, owner.pid, &self.group.place, self.deadline)
    }

    /// As the group is recorded.
    pub(crate) fn name(&self) -> String {
        self.group.name()
    }

    /// Takes back what was done, since `error` has happened.
    pub(crate) fn undo(&self, error: Error) -> Error {
        match self.take_back() {
            Ok(()) => error,
            Err(problem) => Error::Isolation(format!(
                "{}; and {} was not undone: {}; `gpu-coord deallocateAll` for this owner puts it right",
                error.chain(),
                self.group.name(),
                problem.chain()
            )),
        }
    }

    fn take_back(&self) -> Result<(), Error> {
        match &self.before {
            Some(before) => self.moved.take_out().and(self.group.set(before)),
            None => {
                // What is undone after the deadline is undone all the same.
                let deadline = Deadline::after(PATIENCE);
                self.moved.put_back(&self.group.place, &self.group.parent.directory, deadline)?;
                self.group.remove()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn a_group_of_ours_is_known_by_its_name() {
        for (text, is_ours) in [
            ("gpu-coord-4711-81526", true),
            ("gpu-coord-4711",       false),
            ("gpu-coord-4711-",      false),
            ("gpu-coord--1",         false),
            ("gpu-coord-1-2-3",      false),
            ("gpu-coord-x-1",        false),
            ("docker-1-2",           false),
        ] {
            assert_eq!(is_name(text), is_ours, "{text}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_recorded_group_is_called_after_its_owner() {
        let host = Host::new(std::path::Path::new("/"));
        let owner = Owner { pid: 4711, start: Some(81526), boot: None, pid_namespace: None, uid: None };
        for (text, problem) in [
            ("/gpu-coord-4711-81526",    "not VERSION:PATH"),
            ("v3:/gpu-coord-4711-81526", "neither v1 nor v2"),
            ("v2:/system.slice",         "not called as gpu-coord calls groups"),
            ("v2:/gpu-coord-1-x",        "not called as gpu-coord calls groups"),
            ("v2:/a/../gpu-coord-4711-81526", "its group /a/../gpu-coord-4711-81526 lies outside the control group namespace of gpu-coord"),
        ] {
            let error = Group::recorded(&host, &owner, text).unwrap_err().to_string();
            assert_eq!(error, format!("control group `{text}` in the record: {problem}"));
        }
    }
}
