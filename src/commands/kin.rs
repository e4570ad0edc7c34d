//! Who a process belongs to that computes on a device.
//!
//! The driver reports pids of the initial pid namespace. In any other namespace they mean other processes or none, so
//! they are ignored there.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::assignment::Owner;
use crate::device::Inventory;
use crate::host::Host;
use crate::host::process::{MOST_ANCESTORS, Process};
use crate::notes::Notes;
use crate::policy::{Holdings, InUse, Processes};

/// The processes of the host, each looked up once.
pub(super) struct Kin<'a> {
    host: &'a Host,
    lines: RefCell<HashMap<u32, Rc<[Process]>>>,
}

impl<'a> Kin<'a> {
    /// `None` if the pids of the inventory cannot be looked up here, or if it has none.
    pub(super) fn of(host: &'a Host, inventory: &Inventory, notes: &mut Notes) -> Option<Kin<'a>> {
        let is_used = inventory.devices.iter().any(|device| device.processes.is_some());
        if is_used && !host.is_initial_pid_namespace() {
            notes.detail(
                "processes that compute on the devices are not considered: the driver reports their pids in the \
                 initial pid namespace, and this is another one",
            );
            return None;
        }
        is_used.then(|| Kin { host, lines: RefCell::default() })
    }

    /// Who computes on the devices, besides `requester` and their owners.
    pub(super) fn in_use<'b>(&'b self, holdings: Holdings<'b>, requester: Option<&'b Owner>) -> InUse<'b> {
        InUse { holdings, requester, processes: self }
    }

    /// A process and its ancestors, itself first; empty if it cannot be read.
    fn line(&self, pid: u32) -> Rc<[Process]> {
        if let Some(line) = self.lines.borrow().get(&pid) {
            return Rc::clone(line);
        }
        let process = |pid: u32| self.host.process(pid).ok().flatten();
        let line = std::iter::successors(process(pid), |child| process(child.parent));
        let line: Rc<[Process]> = line.take(MOST_ANCESTORS).collect();
        self.lines.borrow_mut().insert(pid, Rc::clone(&line));
        line
    }

    /// Whether the process is the owner. In a pid namespace below ours it has another pid, which is the recorded one.
    fn is(&self, process: &Process, owner: &Owner) -> bool {
        if !process.may_have_started_at(owner.start) {
            return false;
        }
        if self.host.has_pids_of(owner) {
            return process.pid == owner.pid;
        }
        let status = self.host.status(process.pid).ok().flatten();
        status.is_some_and(|status| status.pids.contains(&owner.pid))
    }
}

impl Processes for Kin<'_> {
    fn may_live(&self, pid: u32) -> bool {
        !matches!(self.host.process(pid), Ok(None))
    }

    fn descends(&self, pid: u32, owner: &Owner) -> bool {
        self.line(pid).iter().any(|process| self.is(process, owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fixture::Tree;

    fn owner(pid: u32, start: Option<u64>, pid_namespace: Option<u64>) -> Owner {
        Owner { pid, start, boot: None, pid_namespace, uid: None }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_process_descends_from_its_ancestors_and_itself() {
        let tree = Tree::new()
            .process(10, "java", 'S', 1, 1, 100)
            .process(20, "python", 'S', 10, 1, 200)
            .process(30, "worker", 'S', 20, 1, 300)
            .file("proc/10/status", "Name:\tjava\nTgid:\t10\nUid:\t0\t0\t0\t0\nNSpid:\t10\t7\n")
            .process(40, "other", 'S', 1, 1, 400)
            .process(50, "a", 'S', 51, 1, 500)
            .process(51, "b", 'S', 50, 1, 500);
        let host = tree.host();
        let kin = Kin { host: &host, lines: RefCell::default() };
        let here = host.pid_namespace();
        for (case, pid, owner, descends) in [
            ("itself",              30, owner(30, Some(300), here),   true),
            ("a grandchild",        30, owner(10, Some(100), here),   true),
            ("the other way",       10, owner(30, Some(300), here),   false),
            ("not its",             40, owner(10, Some(100), here),   false),
            ("a later process",     30, owner(10, Some(99), here),    false),
            ("the script's line",   30, owner(10, None, None),        true),
            ("in a container",      30, owner(7, Some(100), Some(5)), true),
            ("in it, another one",  30, owner(7, Some(99), Some(5)),  false),
            ("its pid is not ours", 30, owner(7, Some(100), here),    false),
            ("gone",                99, owner(10, Some(100), here),   false),
            ("in circles",          50, owner(10, Some(100), here),   false),
        ] {
            assert_eq!(kin.descends(pid, &owner), descends, "{case}");
        }
        assert!(kin.may_live(40) && !kin.may_live(99));
    }
}
