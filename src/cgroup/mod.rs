//! Control groups: an owner cannot open what it was not granted.
//!
//! Each owner gets one group, named after it, below the group that it was in. From then on the kernel enforces the
//! group's rules, without any process of ours, until the group is removed.
//!
//! Invariants, each with the test that holds it (`tests/integration/isolation/`):
//! * A group without our name is never removed, and a program that is not ours never detached
//!   (`a_foreign_program_stays_and_both_deny`).
//! * Nobody is moved into a group that was not proven to deny (`what_is_not_proven_is_undone`).
//!
//! Not here: who is granted what, and so which nodes are denied to whom (`commands`, which knows the inventory and the
//! record; [`denylist`] turns that into rules).

mod confined;
pub(crate) mod denylist;
mod members;
pub(crate) mod membership;
mod namesake;
mod proof;
mod rights;
mod v1;
mod v2;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::assignment::Owner;
use crate::error::Error;
use crate::host::Host;
use crate::host::deadline::Deadline;
use crate::host::node::NodeNumber;
use denylist::{Denylist, DeviceRules};
use membership::{Location, Version};
use namesake::Namesake;

pub(crate) use confined::Confined;

/// How long a group may stay busy after its last process has ended.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);

/// The group of another owner that a process is in, according to its `/proc/PID/cgroup`, and that owner's pid.
pub(crate) fn confining_another<'a>(cgroup: &'a str, owner: &Owner) -> Option<(&'a str, u32)> {
    let own = Namesake::of(owner);
    cgroup.split(['/', '\n']).rev().find_map(|group| {
        let namesake = Namesake::parse(group).filter(|namesake| Some(*namesake) != own)?;
        Some((group, namesake.pid))
    })
}

/// Whether a group, as the record names it, is named after `owner`: everything in it descends from that owner.
pub(crate) fn is_called_after(name: &str, owner: &Owner) -> bool {
    let namesake = Namesake::parse(name.rsplit('/').next().unwrap_or_default());
    namesake.is_some() && namesake == Namesake::of(owner)
}

/// Proves that groups can be created here that deny devices, with a group that is then removed. Nobody is moved.
pub(crate) fn try_out(host: &Host, owner: &Owner, version: Version, deadline: Deadline) -> Result<(), Error> {
    /// The last possible card of NVIDIA's, which need not exist.
    const NODE: NodeNumber = NodeNumber { major: 195, minor: 253 };
    let group = Group::of(host, owner, Some(version))?;
    rights::check(host, version)?;
    let rules = DeviceRules { denied: Denylist::of([NODE]), ..DeviceRules::default() };
    group.make()?;
    let proven = group.set(&rules).and_then(|()| proof::prove(host, &group.place, &rules, &[], deadline));
    let removed = group.remove();
    proven.and(removed)
}

/// The control group of an owner, which need not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    place: Location,
    parent: Location,
}

impl Group {
    /// The owner's own group if it is in one, or else the one to be created for it below the group that it is in.
    pub(crate) fn of(host: &Host, owner: &Owner, wanted: Option<Version>) -> Result<Group, Error> {
        let place = Location::of(host, owner.pid, wanted)?;
        let unnamed =
            || Error::Isolation(format!("pid {} cannot be told from a later process of its pid", owner.pid));
        let name = Namesake::of(owner).ok_or_else(unnamed)?.to_string();
        let is_its_own = place.path.rsplit('/').next() == Some(name.as_str());
        match place.parent().filter(|_| is_its_own) {
            Some(parent) => Ok(Group { place, parent }),
            None => Ok(Group { place: place.child(&name), parent: place }),
        }
    }

    /// The group that an assignment of `owner` names, `v2:/a/gpu-coord-4711-81526`. Whoever can write the record can
    /// write anything there. So it is believed only if the group is named after the owner; or the owner is in it, since
    /// `exec` passes units on to its descendants; or the owner is dead and the group is named after a dead process.
    pub(crate) fn recorded(host: &Host, owner: &Owner, text: &str) -> Result<Group, Error> {
        let strange =
            |problem: &str| Error::Isolation(format!("control group `{text}` in the record: {problem}"));
        let (version, path) = text.split_once(':').ok_or_else(|| strange("not VERSION:PATH"))?;
        let version = version.parse().map_err(|()| strange("neither v1 nor v2"))?;
        let namesake = Namesake::parse(path.rsplit('/').next().unwrap_or_default());
        let namesake = namesake.ok_or_else(|| strange("not a name of a group of gpu-coord"))?;
        let place = Location::at(host, version, path).map_err(|problem| strange(&problem))?;
        let parent = place.parent().ok_or_else(|| strange("it is the root"))?;
        let own = Namesake::of(owner);
        let is_its = own == Some(namesake)
            || members::members(&place)?.contains(&owner.pid)
            || (own.is_some_and(|own| own.has_ended(host)) && namesake.has_ended(host));
        if is_its { Ok(Group { place, parent }) } else { Err(strange(&format!("not of pid {}", owner.pid))) }
    }

    pub(crate) fn version(&self) -> Version {
        self.place.version
    }

    /// The name under which it is recorded.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.place.version, self.place.path)
    }

    /// Every group that is named after a process which has ended.
    pub(crate) fn left(host: &Host) -> Vec<Group> {
        let left = |place: Location| {
            let namesake = Namesake::parse(place.path.rsplit('/').next()?)?;
            let parent = place.parent().filter(|_| namesake.has_ended(host))?;
            Some(Group { place, parent })
        };
        membership::groups(host).into_iter().filter_map(left).collect()
    }

    /// The existing groups that are named after `owner`.
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

    /// Whether a process is certainly neither in it nor in a group below it.
    pub(crate) fn lacks(&self, host: &Host, pid: u32) -> bool {
        let place = Location::of(host, pid, Some(self.place.version));
        place.is_ok_and(|place| !Path::new(&place.path).starts_with(&self.place.path))
    }

    /// Whether the kernel is known to deny any of these nodes to its processes.
    pub(crate) fn denies(&self, nodes: &BTreeSet<NodeNumber>) -> bool {
        let denied = self.denied().ok().flatten().unwrap_or_default();
        nodes.iter().any(|node| denied.denies(*node))
    }

    /// What the kernel denies to its processes because of us; `None`: nothing. Fails for v1, which does not report it.
    pub(crate) fn denied(&self) -> Result<Option<Denylist>, Error> {
        match self.place.version {
            Version::V1 => Err(Error::Isolation("cgroup v1 does not report what it denies".to_owned())),
            Version::V2 => v2::denied(&self.place.directory),
        }
    }

    /// Moves its processes back and removes it. It is no error if it does not exist.
    pub(crate) fn dissolve(&self, deadline: Deadline) -> Result<(), Error> {
        let parent = &self.parent.directory;
        let emptied = members::empty(&self.place, deadline, |_| parent);
        emptied.and_then(|()| self.remove()).inspect_err(|_| self.lift())
    }

    /// Lifts the rules for processes that could not be moved back. An error is ignored: that of the move is reported.
    fn lift(&self) {
        if self.place.version == Version::V2 {
            let _ = v2::lift(&self.place.directory);
        }
    }

    /// Removes it and the groups below it. Fails if one of them has processes.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        remove(&self.place, Instant::now())
    }

    /// Sets the rules of a group that has none.
    fn set(&self, rules: &DeviceRules) -> Result<(), Error> {
        match self.place.version {
            Version::V1 => v1::set(&self.place.directory, &rules.denied, &rules.granted),
            Version::V2 => v2::deny(&self.place.directory, &rules.denied),
        }
    }

    /// Changes the rules of a group that has some. What was denied stays denied unless it is granted, since the inventory
    /// at hand may be of other devices. v1 adds rules by itself.
    pub(crate) fn change(&self, rules: &DeviceRules) -> Result<(), Error> {
        if self.place.version == Version::V1 {
            return self.set(rules);
        }
        let before = v2::denied(&self.place.directory)?.unwrap_or_default();
        v2::deny(&self.place.directory, &rules.denied.with(&before, &rules.granted))
    }

    fn make(&self) -> Result<(), Error> {
        let directory = &self.place.directory;
        fs::create_dir(directory).map_err(|error| {
            Error::Isolation(format!("cannot make control group {}: {error}", directory.display()))
        })
    }
}

/// Removes a group and those below it. Waits, from `since` on, for processes that have just ended and still count.
fn remove(place: &Location, since: Instant) -> Result<(), Error> {
    members::children(place).iter().try_for_each(|child| remove(child, since))?;
    loop {
        match fs::remove_dir(&place.directory) {
            Ok(()) => return Ok(()),
            Err(error) if members::is_gone(&error) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && since.elapsed() < PATIENCE => {
                std::thread::sleep(PAUSE);
            }
            Err(error) => {
                let directory = place.directory.display();
                return Err(Error::Isolation(format!("cannot remove {directory}: {error}")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn a_recorded_group_is_called_after_its_owner() {
        let host = Host::new(std::path::Path::new("/"));
        let owner = Owner { pid: 4711, start: Some(81526), boot: None, pid_namespace: None, uid: None };
        for (text, problem) in [
            ("/gpu-coord-4711-81526",    "not VERSION:PATH"),
            ("v3:/gpu-coord-4711-81526", "neither v1 nor v2"),
            ("v2:/system.slice",         "not a name of a group of gpu-coord"),
            ("v2:/gpu-coord-1-x",        "not a name of a group of gpu-coord"),
            ("v2:/a/../gpu-coord-4711-81526", "its group /a/../gpu-coord-4711-81526 is outside the control group namespace of gpu-coord"),
        ] {
            let error = Group::recorded(&host, &owner, text).unwrap_err().to_string();
            assert_eq!(error, format!("control group `{text}` in the record: {problem}"));
        }
    }
}
