//! `gpu-coord deallocateAll`.

use std::collections::{BTreeSet, HashMap};

use super::Context;
use super::judged::Judged;
use super::remains::{Others, Remains};
use crate::assignment::{Assignment, Owner, Record, Standing};
use crate::cgroup::{self, Group};
use crate::cli::DeallocateAll;
use crate::coordination::ledger::Ledger;
use crate::error::Error;
use crate::host::Host;
use crate::host::owner::{self, Form, Found};
use crate::notes::Notes;
use crate::policy;

pub(super) fn run(context: &Context<'_>, options: &DeallocateAll, notes: &mut Notes) -> Result<(), Error> {
    let service = &context.surroundings.service;
    let found = owner::find(&context.host, Form::DeallocateAll, options.owner.owner, service, notes)?;
    let path = &options.file.coordination_file;
    let _guard = context.guard(path);
    context.check_place(path, notes)?;
    let uid = match &found {
        Found::Owner(owner) => owner.uid,
        Found::Gone(_) | Found::Invocation(_) => None,
    };
    let ledger = Ledger::open_existing(&context.host, path, uid, context.deadline)?;
    let released = match ledger {
        Some(ledger) => release(context, ledger, &found, notes)?,
        None => 0,
    };
    notes.detail(format!("{} given back", policy::units(released as u128)));
    Ok(())
}

/// How many assignments were released. Nothing is written if there are none.
fn release(context: &Context<'_>, ledger: Ledger, found: &Found, notes: &mut Notes) -> Result<usize, Error> {
    let host = &context.host;
    let record = ledger.record();
    let judged = Judged::new(host, record, ledger.facts(), None);
    let standing = |position: usize| judged.standing(position);
    let released = of(host, record, found, &standing);
    check_known(record, found)?;
    context.check_strict(notes)?;
    super::block_signals();
    let (released, emptied) = undo_groups(context, record, released, &standing, notes)?;
    undo_unrecorded(context, record, found)?;
    host.check_read()?;
    if released.is_empty() {
        return Ok(0);
    }
    let mut change = judged.change(None, false);
    let given_back: Vec<Assignment> = released.iter().map(|at| record.assignments[*at].clone()).collect();
    change.release(released);
    change.stale.extend(emptied);
    ledger.commit(host, &change)?;
    context.note_release(&given_back, notes);
    Ok(change.released.len())
}

/// Undoes the control groups of what is released, before the record forgets them: the living go back to where
/// they were. What descendants of a dead owner may have open stays recorded. Positions of what is free by then, and of
/// what the dead had in a group of the living that is there no more.
fn undo_groups(
    context: &Context<'_>,
    record: &Record,
    released: Vec<usize>,
    standing: &dyn Fn(usize) -> Standing,
    notes: &mut Notes,
) -> Result<(Vec<usize>, Vec<usize>), Error> {
    let remains = Remains::of(&context.host, record, standing);
    let all: BTreeSet<usize> = released.iter().copied().collect();
    let others = Others::of(record, |at| all.contains(&at) || standing(at) == Standing::Dead);
    let rest = Others::of(record, |at| all.contains(&at));
    // What somebody dead left in the group is its namesake's to put back.
    let is_shared = |position: usize, name: &str| {
        let owner = &record.assignments[position].owner;
        let is_the_deads = standing(position) == Standing::Alive && !cgroup::is_called_after(name, owner);
        others.share(name) || (is_the_deads && rest.share(name))
    };
    let (mut undone, mut kept, mut dissolved) = (HashMap::new(), BTreeSet::new(), BTreeSet::new());
    for position in released.iter().copied() {
        let assignment = &record.assignments[position];
        let name = assignment.cgroup.as_deref();
        let is_kept = match name {
            // Somebody else in the group has it as well, and goes on having it.
            Some(_) if others.hold(assignment) => continue,
            Some(name) if undone.contains_key(name) => undone[name],
            Some(name) if !is_believed(context, assignment, name, notes) => false,
            // Others in it can open what is given back until the group ends: it stays recorded so long.
            Some(name) if is_shared(position, name) => true,
            _ if standing(position) == Standing::Dead => remains.remove(position, notes)?,
            _ => {
                dissolve(context, assignment)?;
                dissolved.extend(name);
                false
            }
        };
        undone.extend(name.map(|name| (name, is_kept)));
        kept.extend(Some(position).filter(|_| is_kept));
    }
    let mut free = released.clone();
    record.retain_apart(&mut free, &kept);
    let freed: BTreeSet<usize> = free.iter().copied().collect();
    for position in all.difference(&freed) {
        let Assignment { index, cgroup, .. } = &record.assignments[*position];
        let shared = cgroup.as_deref().filter(|name| is_shared(*position, name));
        notes.warnings.extend(shared.map(|name| {
            format!("index {index} stays recorded: others in control group {name} can open it until they end")
        }));
    }
    let is_emptied = |at: &usize| {
        let line = &record.assignments[*at];
        !all.contains(at) && line.cgroup.as_deref().is_some_and(|name| dissolved.contains(name))
    };
    Ok((free, (0..record.assignments.len()).filter(is_emptied).collect()))
}

/// The group that a call left behind which was killed before it recorded anything.
fn undo_unrecorded(context: &Context<'_>, record: &Record, found: &Found) -> Result<(), Error> {
    let Found::Owner(owner) = found else { return Ok(()) };
    let groups = if context.host.is_here() { Group::occupied(&context.host, owner) } else { Vec::new() };
    let is_recorded = |group: &&Group| {
        let name = group.name();
        record.assignments.iter().any(|line| line.cgroup.as_deref() == Some(name.as_str()))
    };
    let mut unrecorded = groups.iter().filter(|group| !is_recorded(group));
    unrecorded.try_for_each(|group| group.dissolve(context.deadline))
}

/// A group that is none of its owner's is none of ours to undo.
fn is_believed(context: &Context<'_>, assignment: &Assignment, name: &str, notes: &mut Notes) -> bool {
    let group = Group::recorded(&context.host, &assignment.owner, name);
    group.map(drop).map_err(|error| notes.warn(error.chain())).is_ok()
}

fn dissolve(context: &Context<'_>, assignment: &Assignment) -> Result<(), Error> {
    match &assignment.cgroup {
        Some(name) => Group::recorded(&context.host, &assignment.owner, name)?.dissolve(context.deadline),
        None => Ok(()),
    }
}

/// Positions of what `found` holds.
fn of(host: &Host, record: &Record, found: &Found, standing: &dyn Fn(usize) -> Standing) -> Vec<usize> {
    let is_theirs = |position: &usize| {
        let assignment = &record.assignments[*position];
        match found {
            Found::Owner(owner) if assignment.is_the_scripts() => {
                assignment.owner.pid == owner.pid && standing(*position) == Standing::Alive
            }
            Found::Owner(owner) => assignment.owner.is(owner),
            Found::Gone(pid) => is_of(host, assignment, *pid) && standing(*position) == Standing::Dead,
            // Whoever can write the record can write an invocation into another's line: the living are not freed
            // from their isolation on its word.
            Found::Invocation(id) => {
                assignment.invocation.as_ref() == Some(id)
                    && (assignment.cgroup.is_none() || standing(*position) == Standing::Dead)
            }
        }
    };
    (0..record.assignments.len()).filter(is_theirs).collect()
}

/// Nothing would be given back in silence, if what the record has to tell a process by cannot be read here.
fn check_known(record: &Record, found: &Found) -> Result<(), Error> {
    let Found::Owner(owner) = found else { return Ok(()) };
    let may_be =
        |line: &&Assignment| !line.is_the_scripts() && !line.owner.is(owner) && may_be(owner, &line.owner);
    match record.assignments.iter().find(may_be) {
        None => Ok(()),
        Some(line) => Err(Error::Owner(format!(
            "index {} is recorded for a process with pid {}, and it cannot be told whether it is this one, since \
             this boot's id, its pid namespace or its start cannot be read in /proc; run it where they can, or end \
             the process, whose units are free then",
            line.index, owner.pid
        ))),
    }
}

/// Whether all that is known of the owner is what was recorded, and something is not known.
fn may_be(owner: &Owner, recorded: &Owner) -> bool {
    fn agrees<T: PartialEq>(known: &Option<T>, recorded: &Option<T>) -> bool {
        known.is_none() || known == recorded
    }
    owner.pid == recorded.pid
        && agrees(&owner.start, &recorded.start)
        && agrees(&owner.boot, &recorded.boot)
        && agrees(&owner.pid_namespace, &recorded.pid_namespace)
}

/// The pid is one of this pid namespace.
fn is_of(host: &Host, assignment: &Assignment, pid: u32) -> bool {
    let is_from_here = assignment.is_the_scripts() || assignment.owner.pid_namespace == host.pid_namespace();
    assignment.owner.pid == pid && is_from_here
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn what_is_not_known_here_may_be_what_was_recorded() {
        let all = Owner { start: Some(5), boot: Some("b".to_owned()), pid_namespace: Some(1), ..Owner::of_pid(4711) };
        for (case, here, may_be_it) in [
            ("all is known",           all.clone(),                                       true),
            ("no boot",                Owner { boot: None, ..all.clone() },               true),
            ("no namespace",           Owner { pid_namespace: None, ..all.clone() },      true),
            ("no start",               Owner { start: None, ..all.clone() },              true),
            ("no boot, another start", Owner { boot: None, start: Some(6), ..all.clone() }, false),
            ("another boot",           Owner { boot: Some("c".to_owned()), ..all.clone() }, false),
            ("another namespace",      Owner { pid_namespace: Some(2), ..all.clone() },   false),
            ("another pid",            Owner { pid: 4712, boot: None, ..all.clone() },    false),
        ] {
            assert_eq!(may_be(&here, &all), may_be_it, "{case}");
        }
        let less = Owner { boot: None, ..all.clone() };
        assert!(!may_be(&all, &less), "what was not recorded is not what is known here");
        for (here, is_refused) in [(all.clone(), false), (less, true)] {
            let line = Assignment {
                owner: all.clone(),
                grant: Some(crate::assignment::Grant { id: 1, of: 1 }),
                ..Assignment::of_the_script(3, 4711)
            };
            let record = Record { assignments: vec![line], ..Record::default() };
            let checked = check_known(&record, &Found::Owner(here));
            let problem = checked.err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(problem.starts_with("index 3 is recorded for a process with pid 4711, and it cannot"), is_refused);
        }
    }
}
