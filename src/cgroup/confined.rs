//! An owner kept to its devices: in which order that is done, and how it is undone.

use std::path::PathBuf;

use crate::assignment::Owner;
use crate::cgroup::denylist::DeviceRules;
use crate::cgroup::members::Moved;
use crate::cgroup::{Group, PATIENCE, proof, rights};
use crate::error::Error;
use crate::host::Host;
use crate::host::deadline::Deadline;

/// An owner that is kept to its devices by the kernel. To be undone if it cannot be recorded.
#[derive(Debug)]
pub(crate) struct Confined {
    group: Group,
    moved: Moved,
    /// What was in force before; `None`: there was no group.
    before: Option<DeviceRules>,
    deadline: Deadline,
}

impl Confined {
    /// Puts `rules` in force for `owner` and its descendants, and proves it, in an order that confines nobody
    /// to what is not proven. `before`: what was in force for it, if it is confined already. After an error
    /// everything is as it was, but for a group that the record did not name.
    pub(crate) fn confine(
        host: &Host,
        owner: &Owner,
        group: Group,
        rules: &DeviceRules,
        before: Option<DeviceRules>,
        nodes: &[PathBuf],
        deadline: Deadline,
    ) -> Result<Confined, Error> {
        rights::check(host, group.place.version)?;
        let mut confined = Confined { group, moved: Moved::default(), before, deadline };
        if confined.before.is_none() {
            // One that the owner is not in was left by a call that was killed; somebody else's it may be, too.
            confined.group.remove()?;
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
        rules: &DeviceRules,
        nodes: &[PathBuf],
    ) -> Result<(), Error> {
        match self.before {
            None => self.group.set(rules)?,
            Some(_) => self.group.change(rules)?,
        }
        proof::prove(host, &self.group.place, rules, nodes, self.deadline)?;
        self.moved.move_in(host, owner.pid, &self.group.place, self.deadline)
    }

    /// As the group is recorded.
    pub(crate) fn name(&self) -> String {
        self.group.name()
    }

    /// Takes back what was done, since `error` has happened.
    pub(crate) fn undo(&self, error: Error) -> Error {
        match (self.take_back(), error) {
            (Ok(()), Error::Isolation(problem)) => {
                Error::Isolation(format!("{problem}; nothing was changed"))
            }
            (Ok(()), error) => error,
            (Err(problem), error) => Error::HalfIsolated(format!(
                "{}; and {} was not undone: {}; `gpu-coord deallocateAll` for this owner puts it right",
                error.chain(),
                self.group.name(),
                problem.chain()
            )),
        }
    }

    fn take_back(&self) -> Result<(), Error> {
        match &self.before {
            Some(before) => self.moved.take_out().and(self.group.change(before)),
            None => {
                // What is undone after the deadline is undone all the same.
                let deadline = Deadline::after(PATIENCE);
                self.moved.put_back(&self.group.place, &self.group.parent.directory, deadline)?;
                self.group.remove()
            }
        }
    }
}
