//! Confining an owner to its devices: the order of the steps, and how they are undone.

use std::path::PathBuf;

use crate::assignment::Owner;
use crate::cgroup::denylist::DeviceRules;
use crate::cgroup::members::Moved;
use crate::cgroup::{Group, PATIENCE, proof, rights};
use crate::error::Error;
use crate::host::Host;
use crate::host::deadline::Deadline;

/// An owner that the kernel confines to its devices. Must be undone if it cannot be recorded.
#[derive(Debug)]
pub(crate) struct Confined {
    group: Group,
    moved: Moved,
    /// The rules that were in force before; `None`: there was no group.
    before: Option<DeviceRules>,
    deadline: Deadline,
}

impl Confined {
    /// Enforces `rules` for `owner` and its descendants and proves them, in an order that moves nobody into a group that
    /// is not proven. `before`: the rules in force if the owner is confined already. After an error everything is as it
    /// was, except for a group that the record did not name.
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
            // A group that the owner is not in was left by a call that was killed, or belongs to somebody else.
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

    /// The name under which the group is recorded.
    pub(crate) fn name(&self) -> String {
        self.group.name()
    }

    /// Undoes everything because of `error`. Returns the error to report.
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
                // Undone even if the deadline has passed.
                let deadline = Deadline::after(PATIENCE);
                self.moved.put_back(&self.group.place, &self.group.parent.directory, deadline)?;
                self.group.remove()
            }
        }
    }
}
