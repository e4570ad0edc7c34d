//! Whether the owner of an assignment still lives.
//!
//! Dead is said only on proof; doubt is an answer of its own, and counts as alive. The rules are of
//! three kinds: by boot, by process, and, for a line of Flink's script, by time.
//!
//! An owner is asked about once: thousands of assignments of one owner cost one read.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::Host;
use crate::assignment::{Assignment, Doubt, Owner, Standing};

/// The steps in which file systems keep times, and `btime` is counted in whole seconds.
const CLOCK_STEP: Duration = Duration::from_secs(1);

/// What the coordination file itself tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileFacts {
    /// Its last change, as read under the lock.
    pub(crate) changed: SystemTime,
    /// It is this host's alone, and older boots may have written it.
    pub(crate) is_on_local_disk: bool,
    /// Other hosts write it too, and date it by their clocks.
    pub(crate) is_on_network: bool,
}

impl FileFacts {
    /// `changed` is the time of the last change of the file at `path`.
    pub(crate) fn of(host: &Host, path: &Path, changed: SystemTime) -> FileFacts {
        let mount = host.mount_of(path);
        FileFacts {
            changed,
            is_on_local_disk: mount.is_some_and(|mount| mount.is_local_disk()),
            is_on_network: mount.is_some_and(|mount| mount.is_network()),
        }
    }

    /// Whether the file was last changed before this boot: then every owner in it is dead.
    pub(crate) fn is_of_an_earlier_boot(&self, host: &Host) -> bool {
        host.boot_began().is_some_and(|began| self.is_before(began))
    }

    /// A tie is no proof.
    fn is_before(&self, time: SystemTime) -> bool {
        let latest = self.changed.checked_add(CLOCK_STEP);
        !self.is_on_network && latest.is_some_and(|latest| latest < time)
    }
}

/// A process by all its pids, the one in the initial namespace first.
type Pids = Vec<u32>;

/// What was found out in this run.
pub(crate) struct Liveness<'a> {
    host: &'a Host,
    file: FileFacts,
    owners: RefCell<HashMap<Owner, Standing>>,
    /// By pid, which is all that a line of the script has.
    scripts: RefCell<HashMap<u32, Standing>>,
    /// Every process of the machine; `None` if not all of them can be seen.
    everyone: OnceCell<Option<Vec<Pids>>>,
}

impl<'a> Liveness<'a> {
    pub(crate) fn new(host: &'a Host, file: FileFacts) -> Liveness<'a> {
        let (owners, scripts) = (RefCell::default(), RefCell::default());
        Liveness { host, file, owners, scripts, everyone: OnceCell::new() }
    }

    /// `is_in_inventory`: a device that the assignment names by identity is in this host's inventory.
    pub(crate) fn standing(&self, assignment: &Assignment, is_in_inventory: bool) -> Standing {
        let owner = &assignment.owner;
        if assignment.is_the_scripts() {
            return cached(&self.scripts, &owner.pid, || self.by_pid(owner.pid));
        }
        if self.is_of_another_boot(owner) {
            return self.by_boot(is_in_inventory);
        }
        cached(&self.owners, owner, || self.by_process(owner))
    }

    fn is_of_another_boot(&self, owner: &Owner) -> bool {
        let boots = owner.boot.as_ref().zip(self.host.boot_id());
        boots.is_some_and(|(recorded, now)| recorded.as_str() != now)
    }

    /// An owner of another boot: of this host, and dead, or of another one that shares the file with us.
    fn by_boot(&self, is_in_inventory: bool) -> Standing {
        let is_this_hosts = is_in_inventory && self.file.is_on_local_disk;
        if is_this_hosts { Standing::Dead } else { Standing::Doubtful(Doubt::ForeignBoot) }
    }

    fn by_process(&self, owner: &Owner) -> Standing {
        let is_ours = owner.pid_namespace == self.host.pid_namespace();
        let standing =
            if is_ours { self.here(owner.pid, owner.start) } else { self.in_another_namespace(owner) };
        // With no boot id on either side, it may be a process of another host.
        let is_boot_known = owner.boot.is_some() && self.host.boot_id().is_some();
        let may_be_elsewhere = self.file.is_on_network && !is_boot_known;
        match standing {
            Standing::Dead if may_be_elsewhere => Standing::Doubtful(Doubt::ForeignBoot),
            standing => standing,
        }
    }

    /// `pid` in our own pid namespace, the process that began at `start`.
    fn here(&self, pid: u32, start: Option<u64>) -> Standing {
        match self.host.process(pid) {
            Err(_) => Standing::Doubtful(Doubt::Unreadable),
            Ok(None) => Standing::Dead,
            Ok(Some(process)) if process.is_dead() || !process.may_have_started_at(start) => Standing::Dead,
            Ok(Some(process)) if process.start.is_some() && start.is_some() => Standing::Alive,
            Ok(Some(_)) => self.unless_a_thread(pid),
        }
    }

    /// A pid alone may be a thread's by now.
    fn unless_a_thread(&self, pid: u32) -> Standing {
        match self.host.is_thread(pid) {
            Err(_) => Standing::Doubtful(Doubt::Unreadable),
            Ok(true) => Standing::Dead,
            Ok(false) => Standing::Alive,
        }
    }

    /// Only from the initial pid namespace are the others seen, as processes with several pids.
    fn in_another_namespace(&self, owner: &Owner) -> Standing {
        if !self.host.is_initial_pid_namespace() {
            return Standing::Doubtful(Doubt::ForeignNamespace);
        }
        let Some(everyone) = self.everyone.get_or_init(|| self.read_everyone()) else {
            return Standing::Doubtful(Doubt::Unreadable);
        };
        let candidates = everyone.iter().filter(|pids| pids.contains(&owner.pid));
        let standings: Vec<_> = candidates.map(|pids| self.here(pids[0], owner.start)).collect();
        let doubt = standings.iter().find(|standing| matches!(standing, Standing::Doubtful(_))).copied();
        if standings.contains(&Standing::Alive) { Standing::Alive } else { doubt.unwrap_or(Standing::Dead) }
    }

    fn read_everyone(&self) -> Option<Vec<Pids>> {
        let listed = self.host.pids().ok()?;
        // What is hidden from us, pid 1 is among it.
        if !listed.contains(&1) {
            return None;
        }
        let statuses = listed.into_iter().map(|pid| self.host.status(pid));
        // One that has ended since the list was made is left out: it is dead.
        let pids = statuses.filter_map(|status| status.transpose()).map(|status| Some(status.ok()?.pids));
        // Before Linux 4.1 there is no list of pids.
        pids.map(|pids| pids.filter(|pids| !pids.is_empty())).collect()
    }

    /// A line of the script: nothing but a pid, so that only the file's own time tells a later process of that pid.
    fn by_pid(&self, pid: u32) -> Standing {
        let is_later = || {
            let process = self.host.process(pid).ok().flatten();
            process.and_then(|process| process.start).is_some_and(|start| self.is_later_than_the_file(start))
        };
        if self.file.is_of_an_earlier_boot(self.host) || is_later() { Standing::Dead } else { self.here(pid, None) }
    }

    fn is_later_than_the_file(&self, start: u64) -> bool {
        self.host.started(start).is_some_and(|started| self.file.is_before(started))
    }
}

fn cached<K: Clone + Eq + std::hash::Hash>(
    known: &RefCell<HashMap<K, Standing>>,
    key: &K,
    find: impl FnOnce() -> Standing,
) -> Standing {
    if let Some(standing) = known.borrow().get(key) {
        return *standing;
    }
    let standing = find();
    known.borrow_mut().insert(key.clone(), standing);
    standing
}
