//! The units that `exec` was granted, and which of them may be passed on to processes that ask inside.

use std::collections::BTreeSet;

use super::eligible;
use crate::assignment::{Assignment, Grant, Origin, Owner, Record};
use crate::cgroup::Group;
use crate::cli::{Cgroup, RequestOptions};
use crate::coordination::settle;
use crate::device::{Inventory, Unit};
use crate::error::Error;
use crate::host::Host;
use crate::notes::Notes;
use crate::policy::{self, Occupancy};
use crate::sharing::Resources;
use crate::visible::Seen;

/// The units of an `exec`.
pub(super) struct Passing<'a> {
    /// Units that may still be passed on, in the host's order, with their positions in the record.
    pub(super) units: Vec<(usize, Unit)>,
    /// All of them, including those that living processes inside have taken.
    pub(super) all: Vec<Unit>,
    /// Lines of processes that asked inside and are dead.
    pub(super) left: Vec<usize>,
    /// The group that the command is confined to, as recorded.
    group: Option<&'a str>,
}

impl<'a> Passing<'a> {
    pub(super) fn of(
        record: &'a Record,
        occupancy: &Occupancy<'_>,
        id: u64,
        is_alive: impl Fn(usize) -> bool,
    ) -> Passing<'a> {
        let origin =
            |position: usize| record.assignments[position].origin.filter(|origin| origin.grant == id);
        let is_taken = |position: usize| origin(position).is_some_and(|origin| origin.is_taken);
        let left = |position: &usize| is_taken(*position) && !is_alive(*position);
        let left = (0..record.assignments.len()).filter(left).collect();
        let mut passing = Passing { units: Vec::new(), all: Vec::new(), left, group: None };
        // A line can hold several units if its device is now shared differently: the first one counts.
        let mut seen: BTreeSet<usize> = BTreeSet::new();
        for place in &occupancy.places {
            let living = place.holders.iter().copied().filter(|holder| is_alive(*holder));
            let (its, others): (Vec<usize>, Vec<usize>) =
                living.partition(|holder| origin(*holder).is_some());
            let lines: Vec<usize> = its.into_iter().filter(|holder| !seen.contains(holder)).collect();
            let Some(first) = lines.first() else { continue };
            passing.all.push(place.unit);
            passing.group = passing.group.or(record.assignments[*first].cgroup.as_deref());
            // Where nobody can see that `exec` has ended, others may have taken over its units. A different share is a
            // different unit, however many shares there are now.
            let slot = |holder: &usize| record.assignments[*holder].slot;
            let is_another =
                |other: &usize| slot(other).zip(slot(first)).is_some_and(|(one, own)| one != own);
            if !others.iter().all(is_another) {
                continue;
            }
            seen.extend(&lines);
            if !lines.iter().any(|line| is_taken(*line)) {
                passing.units.push((*first, place.unit));
            }
        }
        passing
    }

    /// Whether the requester is confined: a process that has left the group can open everything.
    pub(super) fn confines(&self, host: &Host, requester: &Owner) -> bool {
        let group = self.group.map(|name| Group::recorded(host, requester, name));
        let members = group.and_then(|group| group.and_then(|group| group.members()).ok());
        members.is_some_and(|members| members.contains(&requester.pid))
    }

    /// Fails if isolation is requested but the requester is not already confined.
    pub(super) fn check_isolation(
        &self,
        how: Option<Cgroup>,
        is_confined: bool,
        notes: &mut Notes,
    ) -> Result<(), Error> {
        let problem = match self.group {
            Some(name) => format!(
                "it is not in control group {name}, to which `gpu-coord exec` confined its command, and can \
                 open every device; ask from inside that group"
            ),
            None => {
                "`gpu-coord exec` took these units without isolation, and its command can open every device; \
                 give --cgroup to `gpu-coord exec`"
                    .to_owned()
            }
        };
        match how {
            Some(_) if is_confined => Ok(()),
            None | Some(Cgroup::No) => Ok(()),
            Some(Cgroup::BestEffort) => {
                notes.warn(problem);
                Ok(())
            }
            Some(Cgroup::Any | Cgroup::V1 | Cgroup::V2) => Err(Error::Isolation(problem)),
        }
    }

    /// Keeps the units that the options and, unless the requester is confined, its environment allow. Returns how the
    /// requester counts devices; a confined one counts those of `exec`.
    pub(super) fn limit(
        &mut self,
        asked: &RequestOptions,
        (inventory, resources): (&Inventory, &Resources),
        seen: Seen,
        is_confined: bool,
    ) -> Result<Seen, Error> {
        let mut units = if is_confined { inventory.units().collect() } else { seen.units(inventory) };
        // By default the resource is the one that `exec` requested.
        if asked.resource.is_some() {
            units = eligible::of_resource(units, asked, (inventory, resources))?;
        }
        let selection = eligible::selection(inventory, &asked.selection)?;
        self.units.retain(|(_, unit)| units.contains(unit) && selection.takes(unit));
        Ok(if is_confined { Seen::only(&self.all) } else { seen })
    }

    /// The amount, if so many units are left.
    pub(super) fn count(&self, amount: u128) -> Result<usize, Error> {
        let left = self.units.len();
        usize::try_from(amount).ok().filter(|count| *count <= left).ok_or_else(|| {
            Error::NotEnough(format!(
                "{} asked for, and of the {} that `gpu-coord exec` was given {left} are left; ask for more there, or \
                 for further ones with --more",
                policy::units(amount),
                self.all.len()
            ))
        })
    }

    /// The requester's lines, next to those of `exec`: the units are held while either of the two is alive.
    pub(super) fn granted(
        &self,
        record: &Record,
        (origin, grant): (Origin, Grant),
        requester: &Owner,
        is_confined: bool,
    ) -> Vec<Assignment> {
        let line = |(position, _): &(usize, Unit)| {
            let line = &record.assignments[*position];
            let cgroup = line.cgroup.clone().filter(|_| is_confined);
            let since = settle::now();
            let (owner, grant, origin) = (requester.clone(), Some(grant), Some(origin));
            Assignment { owner, grant, since, cgroup, origin, ..line.clone() }
        };
        self.units.iter().map(line).collect()
    }
}
