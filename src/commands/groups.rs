//! Undoes control groups when the units of their owners are given back, before the record forgets them: living owners are
//! moved back to where they were, and what others can still open stays recorded.

use std::collections::{BTreeSet, HashMap};

use super::Context;
use super::remains::{Others, Remains};
use crate::assignment::{Assignment, Owner, Record, Standing};
use crate::cgroup::{self, Group};
use crate::error::Error;
use crate::notes::Notes;

/// The lines that are given back, and those that stay.
pub(super) struct GivenBack<'a> {
    context: &'a Context<'a>,
    record: &'a Record,
    standing: &'a dyn Fn(usize) -> Standing,
    lines: BTreeSet<usize>,
    remains: Remains<'a>,
    /// What owners have that may be alive and give nothing back.
    others: Others<'a>,
    /// What all others have, including dead owners.
    rest: Others<'a>,
}

/// Positions in the record.
pub(super) struct Undone {
    /// Lines that can be freed.
    pub(super) free: Vec<usize>,
    /// Lines of dead owners in a group that no longer exists.
    pub(super) emptied: Vec<usize>,
}

impl<'a> GivenBack<'a> {
    pub(super) fn of(
        context: &'a Context<'a>,
        record: &'a Record,
        lines: &[usize],
        standing: &'a dyn Fn(usize) -> Standing,
    ) -> GivenBack<'a> {
        let lines: BTreeSet<usize> = lines.iter().copied().collect();
        let remains = Remains::of(&context.host, record, standing);
        let others = Others::of(record, |at| lines.contains(&at) || standing(at) == Standing::Dead);
        let rest = Others::of(record, |at| lines.contains(&at));
        GivenBack { context, record, standing, lines, remains, others, rest }
    }

    fn is_dead(&self, position: usize) -> bool {
        (self.standing)(position) == Standing::Dead
    }

    /// Whether the group must stay, since others use it. Only the owner that the group is named after undoes what a dead
    /// owner left in it.
    fn is_shared(&self, position: usize, name: &str) -> bool {
        let owner = &self.record.assignments[position].owner;
        let is_the_deads =
            (self.standing)(position) == Standing::Alive && !cgroup::is_called_after(name, owner);
        self.others.share(name) || (is_the_deads && self.rest.share(name))
    }

    /// Undoes the groups. What a dead owner's descendants may have open stays recorded.
    pub(super) fn undo(&self, notes: &mut Notes) -> Result<Undone, Error> {
        let (mut undone, mut kept, mut dissolved) = (HashMap::new(), BTreeSet::new(), BTreeSet::new());
        for position in self.lines.iter().copied() {
            let assignment = &self.record.assignments[position];
            let name = assignment.cgroup.as_deref();
            let is_kept = match name {
                // Somebody else in the group holds the same unit, and keeps it.
                Some(_) if self.others.hold(assignment) => continue,
                Some(name) if undone.contains_key(name) => undone[name],
                Some(name) if !self.is_believed(assignment, name, notes) => false,
                // Others in it can open what is given back until the group is removed, so it stays recorded until then.
                Some(name) if self.is_shared(position, name) => true,
                _ if self.is_dead(position) => self.remains.remove(position, notes)?,
                _ => {
                    self.dissolve(assignment)?;
                    dissolved.extend(name);
                    false
                }
            };
            undone.extend(name.map(|name| (name, is_kept)));
            kept.extend(Some(position).filter(|_| is_kept));
        }
        let mut free: Vec<usize> = self.lines.iter().copied().collect();
        self.record.retain_apart(&mut free, &kept);
        self.warn_of_shared(&free, notes);
        Ok(Undone { free, emptied: self.emptied(&dissolved) })
    }

    /// Warns of what stays recorded, since others can open it.
    fn warn_of_shared(&self, free: &[usize], notes: &mut Notes) {
        let freed: BTreeSet<usize> = free.iter().copied().collect();
        for position in self.lines.difference(&freed) {
            let Assignment { index, cgroup, .. } = &self.record.assignments[*position];
            let shared = cgroup.as_deref().filter(|name| self.is_shared(*position, name));
            notes.warnings.extend(shared.map(|name| {
                format!(
                    "index {index} stays recorded: others in control group {name} can open it until they end"
                )
            }));
        }
    }

    fn emptied(&self, dissolved: &BTreeSet<&str>) -> Vec<usize> {
        let is_emptied = |at: &usize| {
            let line = &self.record.assignments[*at];
            !self.lines.contains(at) && line.cgroup.as_deref().is_some_and(|name| dissolved.contains(name))
        };
        (0..self.record.assignments.len()).filter(is_emptied).collect()
    }

    /// Whether the group really is its owner's. If not, we must not undo it.
    fn is_believed(&self, assignment: &Assignment, name: &str, notes: &mut Notes) -> bool {
        let group = Group::recorded(&self.context.host, &assignment.owner, name);
        group.map(drop).map_err(|error| notes.warn(error.chain())).is_ok()
    }

    fn dissolve(&self, Assignment { owner, cgroup, .. }: &Assignment) -> Result<(), Error> {
        let Some(name) = cgroup else { return Ok(()) };
        Group::recorded(&self.context.host, owner, name)?.dissolve(self.context.deadline)
    }
}

/// Undoes a group left behind by a call that was killed before it recorded anything.
pub(super) fn undo_unrecorded(context: &Context<'_>, record: &Record, owner: &Owner) -> Result<(), Error> {
    let groups = if context.host.is_here() { Group::occupied(&context.host, owner) } else { Vec::new() };
    let is_recorded = |group: &&Group| {
        let name = group.name();
        record.assignments.iter().any(|line| line.cgroup.as_deref() == Some(name.as_str()))
    };
    let mut unrecorded = groups.iter().filter(|group| !is_recorded(group));
    unrecorded.try_for_each(|group| group.dissolve(context.deadline))
}
