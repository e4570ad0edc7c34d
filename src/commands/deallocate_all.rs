//! `gpu-coord deallocateAll`.

use super::groups::{GivenBack, Undone};
use super::judged::Judged;
use super::{Context, groups};
use crate::assignment::{Assignment, Owner, Record, Standing};
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
    let Undone { free, emptied } = GivenBack::of(context, record, &released, &standing).undo(notes)?;
    if let Found::Owner(owner) = found {
        groups::undo_unrecorded(context, record, owner)?;
    }
    host.check_read()?;
    if free.is_empty() {
        return Ok(0);
    }
    let mut change = judged.change(None, false);
    let given_back: Vec<Assignment> = free.iter().map(|at| record.assignments[*at].clone()).collect();
    change.release(free);
    change.stale.extend(emptied);
    ledger.commit(host, &change)?;
    context.note_release(&given_back, notes);
    Ok(change.released.len())
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
            // Whoever can write the record can write an invocation id into another's line, so a living owner is not
            // released from its isolation because of it.
            Found::Invocation(id) => {
                assignment.invocation.as_ref() == Some(id)
                    && (assignment.cgroup.is_none() || standing(*position) == Standing::Dead)
            }
        }
    };
    (0..record.assignments.len()).filter(is_theirs).collect()
}

/// Fails if what identifies the owner cannot be read here: otherwise nothing would be given back, silently.
fn check_known(record: &Record, found: &Found) -> Result<(), Error> {
    let Found::Owner(owner) = found else { return Ok(()) };
    let may_be =
        |line: &&Assignment| !line.is_the_scripts() && !line.owner.is(owner) && may_be(owner, &line.owner);
    match record.assignments.iter().find(may_be) {
        None => Ok(()),
        Some(line) => Err(Error::Owner(format!(
            "index {} is recorded for a process with pid {}, and nobody can tell whether it is this one, since \
             this boot's id, its pid namespace or its start cannot be read in /proc; run this where they can be read, \
             or end the process, which frees its units",
            line.index, owner.pid
        ))),
    }
}

/// Whether everything that is known about the owner agrees with the record, although something is not known.
fn may_be(owner: &Owner, recorded: &Owner) -> bool {
    fn agrees<T: PartialEq>(known: &Option<T>, recorded: &Option<T>) -> bool {
        known.is_none() || known == recorded
    }
    owner.pid == recorded.pid
        && agrees(&owner.start, &recorded.start)
        && agrees(&owner.boot, &recorded.boot)
        && agrees(&owner.pid_namespace, &recorded.pid_namespace)
}

/// `pid`: in this pid namespace.
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
            assert_eq!(problem.starts_with("index 3 is recorded for a process with pid 4711, and nobody can tell"), is_refused);
        }
    }
}
