//! Confining an owner to what it is granted (`--cgroup`): which nodes these are, and in which control group.

use super::Context;
use crate::assignment::{Assignment, Owner, Record};
use crate::cgroup::denylist::{Nodes, Span};
use crate::cgroup::membership::Version;
use crate::cgroup::{self, Confined, Group};
use crate::cli::{Cgroup, Print, Word};
use crate::device::{Inventory, Unit};
use crate::error::Error;
use crate::host::Host;
use crate::host::capability::Capability;
use crate::host::node::Majors;
use crate::host::owner;
use crate::inventory::Vendor;
use crate::policy::Occupancy;
use crate::visible::Seen;

/// What has to be enforced, and what is enforced already.
pub(super) struct Isolation<'a> {
    context: &'a Context<'a>,
    inventory: &'a Inventory,
    owner: &'a Owner,
    nodes: Nodes,
    group: Group,
    /// What the owner already holds and shall keep.
    held: Vec<Unit>,
    /// Whether it is confined to `held` now.
    is_in_force: bool,
    /// Whether it keeps the privileges that it has now.
    keeps_rights: bool,
}

/// An owner that shall be confined, or is already, and the record.
pub(super) struct Confinee<'a, 'r> {
    pub(super) inventory: &'a Inventory,
    pub(super) owner: &'a Owner,
    pub(super) record: &'r Record,
    pub(super) occupancy: &'r Occupancy<'r>,
}

/// What is known about the nodes of an inventory's devices.
pub(super) fn nodes(host: &Host, inventory: &Inventory) -> Result<Nodes, Error> {
    let unreadable =
        |error| Error::Isolation(format!("the nodes of the devices cannot be determined: {error}"));
    let is_nvidia = Vendor::of(&inventory.source) == Some(Vendor::Nvidia);
    let majors = if is_nvidia { host.majors().map_err(unreadable)? } else { Majors::default() };
    let capabilities = match majors.capabilities {
        Some(major) => Some((major, host.mig_capabilities().map_err(unreadable)?)),
        None => None,
    };
    let numbers = inventory.devices.iter().map(|device| host.node_numbers(device, majors.cards));
    let devices = numbers.collect::<Result<_, _>>().map_err(unreadable)?;
    Ok(Nodes { cards: majors.cards, capabilities, devices })
}

/// Whether the owner has to be confined: because it was requested, or because it is already.
pub(super) fn is_wanted(how: Option<Cgroup>, confinee: &Confinee<'_, '_>) -> bool {
    how.is_some() || confinee.recorded().is_some()
}

impl Confinee<'_, '_> {
    /// The group of the owner, as an earlier grant recorded it.
    fn recorded(&self) -> Option<&str> {
        let own = self.record.assignments.iter().filter(|assignment| assignment.owner.is(self.owner));
        own.filter_map(|assignment| assignment.cgroup.as_deref()).next()
    }

    /// What the owner and others in its group hold: `exec` passes units on one by one. For a confined owner a line of
    /// Flink's script is ignored, since anybody may have written it.
    fn held(&self, group: &str, is_confined: bool) -> Vec<Unit> {
        let is_own = |holder: &usize| {
            let assignment = &self.record.assignments[*holder];
            let is_by_pid = assignment.is_the_scripts() && assignment.owner.pid == self.owner.pid;
            assignment.owner.is(self.owner)
                || assignment.cgroup.as_deref() == Some(group)
                || (is_by_pid && !is_confined)
        };
        let places = self.occupancy.places.iter();
        places.filter(|place| place.holders.iter().any(is_own)).map(|place| place.unit).collect()
    }

    /// Fails if the owner is inside another owner's group: it could open what that one was granted, and nothing else.
    pub(super) fn check_not_inside_another(&self, host: &Host) -> Result<(), Error> {
        if self.record.assignments.iter().all(|assignment| assignment.cgroup.is_none()) {
            return Ok(());
        }
        let pid = self.owner.pid;
        match cgroup::confining_another(&host.cgroup(pid)?, self.owner) {
            None => Ok(()),
            Some((group, other)) => Err(Error::Isolation(format!(
                "pid {pid} is in control group {group} and can open what pid {other} was given, and nothing else; \
                 ask for pid {other} with --owner {other}, or start it outside of that group"
            ))),
        }
    }
}

impl<'a> Isolation<'a> {
    pub(super) fn of(
        context: &'a Context<'a>,
        confinee: &Confinee<'a, '_>,
        how: Option<Cgroup>,
        keeps_rights: bool,
    ) -> Result<Isolation<'a>, Error> {
        let Confinee { inventory, owner, .. } = *confinee;
        let host = &context.host;
        if owner.pid == 1 && host.is_initial_pid_namespace() {
            let problem = "confining pid 1 would confine every process of the host";
            return Err(Error::Isolation(problem.to_owned()));
        }
        let wanted = match how {
            Some(Cgroup::V1) => Some(Version::V1),
            Some(Cgroup::V2) => Some(Version::V2),
            Some(Cgroup::Any | Cgroup::BestEffort | Cgroup::No) | None => None,
        };
        let recorded = confinee.recorded().map(|text| Group::recorded(host, owner, text)).transpose()?;
        let version = recorded.as_ref().map_or(wanted, |group| Some(group.version()));
        // It can be in another group by now: somebody may have moved it, or removed the group. The group that it is in
        // counts, whatever the record says: undoing it first would let the owner open everything in the meantime.
        let group = Group::of(host, owner, version)?;
        let is_in_force = group.exists() && group.members()?.contains(&owner.pid);
        let nodes = nodes(host, inventory)?;
        let mut held = confinee.held(&group.name(), is_in_force);
        if is_in_force {
            // What the owner cannot open now it does not hold.
            held.retain(|unit| !group.denies(&nodes.given(&[*unit])));
        }
        Ok(Isolation { context, inventory, owner, nodes, group, held, is_in_force, keeps_rights })
    }

    /// Whether the owner is confined to what it holds.
    pub(super) fn is_in_force(&self) -> bool {
        self.is_in_force
    }

    /// Fails if indexes that were printed before would become wrong: CUDA renumbers when the owner can open more.
    pub(super) fn check_numbering(&self, print: Print, seen: &Seen) -> Result<(), Error> {
        let is_counted = matches!(print, Print::Word(Word::Index) | Print::Spark);
        // AMD's runtime gets an index in these.
        let is_set = matches!(print, Print::Env | Print::Json);
        let is_set_by_index = is_set && Vendor::of(&self.inventory.source) == Some(Vendor::Amd);
        if (is_counted || is_set_by_index) && !self.held.is_empty() {
            return Err(Error::Refused(format!(
                "pid {} already holds devices, whose indexes would change if it could open more; ask with --print uuid \
                 (or pci, or host-index)",
                self.owner.pid
            )));
        }
        if is_counted && seen.is_relative(self.inventory) {
            return Err(Error::Usage(
                "a variable such as CUDA_VISIBLE_DEVICES names devices in the owner's environment that it cannot \
                 open once it is confined, and its runtime would see none; unset it there, or use \
                 --ignore-visible-devices"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Enforces the isolation and proves it. After an error everything is as it was.
    pub(super) fn confine(&self, units: &[Unit]) -> Result<Confined, Error> {
        let all: Vec<Unit> = self.held.iter().chain(units).copied().collect();
        self.check_instances(&all)?;
        let rules = |units: &[Unit]| self.nodes.rules(self.inventory, units).map_err(Error::Isolation);
        let before = if self.is_in_force { Some(rules(&self.held)?) } else { None };
        let host = &self.context.host;
        let named = self.inventory.devices.iter().flat_map(|device| device.nodes.iter().cloned());
        let nodes: Vec<_> = named.chain(host.gpu_nodes()).collect();
        let deadline = self.context.deadline;
        Confined::confine(host, self.owner, self.group.clone(), &rules(&all)?, before, &nodes, deadline)
    }

    /// NVIDIA's driver lets a process with CAP_SYS_ADMIN use every instance of a card that it can open.
    fn check_instances(&self, units: &[Unit]) -> Result<(), Error> {
        let pid = self.owner.pid;
        let is_divided = units.iter().any(|unit| unit.instance.is_some()) && self.keeps_rights;
        if is_divided && self.context.host.capabilities_of(&pid.to_string())?.has(Capability::SysAdmin) {
            return Err(Error::Isolation(format!(
                "pid {pid} has CAP_SYS_ADMIN, which opens every MIG instance of a card to it; run it as an \
                 ordinary user"
            )));
        }
        Ok(())
    }
}

/// What the kernel says about the isolation that an assignment records: the nodes that the owner may not open, or why
/// they are not known.
pub(super) fn in_force(host: &Host, assignment: &Assignment) -> Option<Result<Vec<Span>, String>> {
    let name = assignment.cgroup.as_ref()?;
    if let Some(problem) = escaped(host, assignment) {
        return Some(Err(problem));
    }
    let denied = Group::recorded(host, &assignment.owner, name).and_then(|group| match group.exists() {
        true => group.denied(),
        false => Err(Error::Isolation(format!("control group {name} no longer exists"))),
    });
    Some(denied.map(|denied| denied.unwrap_or_default().spans).map_err(|error| error.chain()))
}

/// Why a living owner is not confined as the record says, if it is not: a `deallocateAll` that was killed, or root, may
/// have moved it out of its group.
pub(super) fn escaped(host: &Host, assignment: &Assignment) -> Option<String> {
    let Assignment { owner, cgroup, .. } = assignment;
    // The pid of an owner in another pid namespace says nothing here.
    let lives_here = owner.pid_namespace == host.pid_namespace()
        && owner::of(host, owner.pid).is_some_and(|found| found.start == owner.start);
    let group = Group::recorded(host, owner, cgroup.as_deref()?).ok().filter(|_| lives_here)?;
    let pid = owner.pid;
    group.lacks(host, pid).then(|| {
        format!(
            "pid {pid} is not in it, and can open every device; `gpu-coord deallocateAll --owner {pid}` gives back \
             what it holds"
        )
    })
}
