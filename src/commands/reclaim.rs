//! `gpu-coord reclaim`: releases what dead owners left, in the record and among the control groups.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::Context;
use super::judged::Judged;
use super::kept::Keeping;
use super::kin::Kin;
use super::remains::Remains;
use crate::assignment::{Assignment, Record, Standing};
use crate::cgroup::Group;
use crate::cli::Reclaim;
use crate::coordination::ledger::Ledger;
use crate::coordination::plan::Change;
use crate::device::Inventory;
use crate::error::Error;
use crate::host::Host;
use crate::notes::Notes;
use crate::policy::{self, Holdings};

pub(super) fn run(context: &Context<'_>, options: &Reclaim, notes: &mut Notes) -> Result<(), Error> {
    context.stdout.ready(context.deadline)?;
    // Sharing does not matter here, only who is alive.
    let inventory = context.devices(&options.source, notes)?;
    let path = &options.file.coordination_file;
    let _guard = context.guard(path);
    context.check_place(path, notes)?;
    let ledger = Ledger::open_existing(&context.host, path, None, context.deadline)?;
    let mut done = String::new();
    let mut named = BTreeSet::new();
    if let Some(ledger) = ledger {
        let reclaimer = Reclaimer {
            context,
            host: &context.host,
            inventory: &inventory,
            is_dry: options.dry_run,
            is_forced: options.force,
        };
        named.extend(ledger.record().assignments.iter().filter_map(|assignment| assignment.cgroup.clone()));
        done += &reclaimer.reclaim(ledger, notes)?;
    }
    done += &groups(&context.host, &named, options.dry_run, notes);
    context.print(&done, notes)
}

struct Reclaimer<'a> {
    context: &'a Context<'a>,
    host: &'a Host,
    inventory: &'a Inventory,
    /// Only print what would be done.
    is_dry: bool,
    /// Also release what processes that outlived their owner may use.
    is_forced: bool,
}

impl Reclaimer<'_> {
    /// A line for each assignment that is released or kept, each group that is removed or left, and each waiter that
    /// has ended.
    fn reclaim(&self, ledger: Ledger, notes: &mut Notes) -> Result<String, Error> {
        let record = ledger.record();
        let occupancy = policy::occupancy(self.inventory, record);
        let judged = Judged::new(self.host, record, ledger.facts(), Some(&occupancy));
        let standing = |position: usize| judged.standing(position);
        let mut change = judged.change(Some(self.inventory), true);
        let remains = Remains::of(self.host, record, &standing);
        let kin = Kin::of(self.host, self.inventory, notes);
        let holdings =
            Holdings { inventory: self.inventory, record, occupancy: &occupancy, standing: &standing };
        let keeping = Keeping { host: self.host, holdings, remains: &remains, kin: kin.as_ref() };
        let kept = keeping.kept(&change.stale, self.is_forced, notes);
        change.stale.retain(|position| !kept.contains_key(position));
        self.host.check_read()?;
        // If warnings are errors, they must be known before anything is done.
        self.context.check_strict(notes)?;
        let groups = self.groups(record, &remains, &standing, notes)?;
        let left = self.left(record, &remains, &change.stale);
        let done = self.released(record, &change) + &self.kept(record, &kept) + &groups + &left;
        let done = done + &self.gone(record, &change);
        let is_idle = change.stale.is_empty() && change.settled.is_empty() && change.gone.is_empty();
        let stale: Vec<Assignment> = change.stale.iter().map(|at| record.assignments[*at].clone()).collect();
        if !self.is_dry && !is_idle {
            super::block_signals();
            ledger.commit(self.host, &change)?;
            self.context.note_reclaimed(&stale, notes);
        }
        Ok(done)
    }

    /// Clears the groups of dead owners.
    fn groups(
        &self,
        record: &Record,
        remains: &Remains<'_>,
        standing: &dyn Fn(usize) -> Standing,
        notes: &mut Notes,
    ) -> Result<String, Error> {
        let group = |position: usize| {
            let Assignment { owner, cgroup, .. } = &record.assignments[position];
            Group::recorded(self.host, owner, cgroup.as_deref()?).ok().filter(Group::exists)
        };
        let mut named = BTreeSet::new();
        let dead = (0..record.assignments.len()).filter(|position| standing(*position) == Standing::Dead);
        let positions = dead.filter(|position| named.insert(record.assignments[*position].cgroup.as_ref()));
        let groups: Vec<(usize, Group)> = positions.filter_map(|at| Some((at, group(at)?))).collect();
        if self.is_dry || self.context.is_strict {
            // Processes in the group of a living owner are not orphans.
            for (position, _) in groups.iter().filter(|(_, group)| !remains.living().share(&group.name())) {
                match remains.survivors(*position) {
                    Ok(survivors) => notes.warnings.extend(survivors),
                    Err(error) => notes.warn(error.chain()),
                }
            }
            self.context.check_strict(notes)?;
        }
        if !self.is_dry {
            remains.clear(self.inventory, notes);
            let removed = groups.iter().filter(|(_, group)| !group.exists());
            return Ok(removed
                .map(|(_, group)| format!("removed control group {}\n", group.name()))
                .collect());
        }
        let is_empty = |(position, group): &&(usize, Group)| {
            !remains.has_orphans(*position) && !remains.living().share(&group.name())
        };
        let empty = groups.iter().filter(is_empty);
        Ok(empty.map(|(_, group)| format!("would remove control group {}\n", group.name())).collect())
    }

    fn released(&self, record: &Record, change: &Change) -> String {
        let verb = if self.is_dry { "would release" } else { "released" };
        let line = |position: &usize| format!("{verb} {}\n", record.assignments[*position].told());
        change.stale.iter().map(line).collect()
    }

    fn kept(&self, record: &Record, kept: &BTreeMap<usize, String>) -> String {
        let verb = if self.is_dry { "would keep" } else { "kept" };
        let line = |(position, reason): (&usize, &String)| {
            format!("{verb} {}: {reason}\n", record.assignments[*position].told())
        };
        kept.iter().map(line).collect()
    }

    /// A line for each group that the record no longer names but that still has processes.
    fn left(&self, record: &Record, remains: &Remains<'_>, released: &[usize]) -> String {
        let verb = if self.is_dry { "would leave" } else { "left" };
        let orphaned = released.iter().filter(|position| remains.has_orphans(**position));
        let names: BTreeSet<_> = orphaned.filter_map(|at| record.assignments[*at].cgroup.as_ref()).collect();
        let line = |name: &String| {
            let shut = match remains.is_shut(name) {
                true => ", which are kept from every GPU but for what they have open",
                false => "",
            };
            format!(
                "{verb} control group {name} to its processes{shut}; reclaim removes it once they have ended\n"
            )
        };
        names.into_iter().map(line).collect()
    }

    fn gone(&self, record: &Record, change: &Change) -> String {
        let verb = if self.is_dry { "would remove" } else { "removed" };
        let pids = change.gone.iter().map(|position| record.waiters[*position].owner.pid);
        pids.map(|pid| format!("{verb} pid {pid} from the queue\n")).collect()
    }
}

/// Removes empty groups of dead owners that the record does not name: a call was killed before it recorded anything, or
/// another record was used. Groups with processes are left alone.
fn groups(host: &Host, named: &BTreeSet<String>, is_dry: bool, notes: &mut Notes) -> String {
    let mut done = String::new();
    if !host.is_here() || !host.is_initial_pid_namespace() {
        return done;
    }
    for group in Group::left(host) {
        let name = group.name();
        let is_used = group.members().is_ok_and(|members| !members.is_empty());
        if named.contains(&name) || is_used || !group.exists() {
            continue;
        }
        let verb = if is_dry { "would remove" } else { "removed" };
        match if is_dry { Ok(()) } else { group.remove() } {
            Ok(()) => drop(writeln!(done, "{verb} control group {name}")),
            // No line of the record names it. It may be somebody else's, which we may not be allowed to remove.
            Err(error) => notes.detail(error.chain()),
        }
    }
    done
}
