//! Moving an owner and its descendants from group to group.
//!
//! A process is moved with all its threads, and a child is born into its parent's group. Children of a process that has
//! not been moved yet are found by looking again, until no descendant is found elsewhere. A process whose parent has
//! ended can no longer be connected to an owner.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::cgroup::membership::{Location, Version};
use crate::cgroup::namesake::is_name;
use crate::error::Error;
use crate::host::Host;
use crate::host::deadline::Deadline;

/// The control file that lists the processes of a group, and to which processes are written to move them there.
pub(super) const PROCESSES: &str = "cgroup.procs";

/// The pause between looks at a group that is not yet empty.
const PAUSE: Duration = Duration::from_millis(1);

/// The control file that lists the threads of a v2 group.
const THREADS: &str = "cgroup.threads";

/// Which processes were moved, and from where.
#[derive(Debug, Default)]
pub(super) struct Moved {
    from: HashMap<u32, PathBuf>,
    /// Also those that already were where they should be.
    settled: HashSet<u32>,
}

/// Every process that was seen, with its parent.
#[derive(Debug, Default)]
struct Seen {
    parents: HashMap<u32, u32>,
}

impl Moved {
    /// Moves `owner` and its descendants to `group`, except for this process and its children. After an error, those
    /// that were moved must be [put back](Moved::put_back).
    pub(super) fn move_in(
        &mut self,
        host: &Host,
        owner: u32,
        group: &Location,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let processes = group.directory.join(PROCESSES);
        let mut file = open(&processes)?;
        let mut seen = Seen::default();
        loop {
            seen.look(host)?;
            let mut is_complete = true;
            for pid in seen.descendants(owner) {
                if self.settled.insert(pid)
                    && let Some(from) = is_elsewhere(host, pid, group)?
                {
                    self.from.insert(pid, from);
                    enter(&mut file, pid, &processes)?;
                    is_complete = false;
                }
            }
            if is_complete {
                return Ok(());
            }
            if deadline.has_passed() {
                return Err(
                    deadline.error(format!("the descendants of pid {owner}, of which there are ever more"))
                );
            }
        }
    }

    /// Moves every process that was moved back to where it was.
    pub(super) fn take_out(&self) -> Result<(), Error> {
        self.from.iter().try_for_each(|(pid, from)| {
            let processes = from.join(PROCESSES);
            enter(&mut open(&processes)?, *pid, &processes)
        })
    }

    /// Empties `group`: moves every process back to where it was, and those born in the meantime to `parent`.
    pub(super) fn put_back(&self, group: &Location, parent: &Path, deadline: Deadline) -> Result<(), Error> {
        empty(group, deadline, |pid| self.from.get(&pid).map_or(parent, PathBuf::as_path))
    }
}

/// The group that `pid` has to be moved from; `None` if it has exited, or is confined on its own and stays there.
fn is_elsewhere(host: &Host, pid: u32, group: &Location) -> Result<Option<PathBuf>, Error> {
    let location = match Location::of(host, pid, Some(group.version)) {
        Ok(location) => location,
        Err(Error::Owner(_)) => return Ok(None), // it has exited
        Err(error) => return Err(error),
    };
    let path = Path::new(&location.path);
    let above = group.parent().map(|parent| parent.path).unwrap_or_default();
    let below = path.strip_prefix(&above).unwrap_or(path);
    let is_confined = below.components().any(|part| part.as_os_str().to_str().is_some_and(is_name));
    Ok(Some(location.directory).filter(|_| !is_confined))
}

/// Moves every process of `group` to where `to` says.
pub(super) fn empty<'a>(
    group: &Location,
    deadline: Deadline,
    to: impl Fn(u32) -> &'a Path,
) -> Result<(), Error> {
    loop {
        let members = members(group)?;
        if members.is_empty() {
            return Ok(());
        }
        for pid in members {
            let processes = to(pid).join(PROCESSES);
            enter(&mut open(&processes)?, pid, &processes)?;
        }
        thread::sleep(PAUSE);
        if deadline.has_passed() {
            return Err(
                deadline.error(format!("the processes of {}, of which there are ever more", group.path))
            );
        }
    }
}

/// The processes of a group and of the groups below it; none if there is no such group. With v2, a process whose first
/// thread has ended is listed only by its threads, each of which stands for it.
pub(super) fn members(group: &Location) -> Result<Vec<u32>, Error> {
    let mut members = own_members(group)?;
    for child in children(group) {
        members.extend(self::members(&child)?);
    }
    Ok(members)
}

fn own_members(group: &Location) -> Result<Vec<u32>, Error> {
    let processes = listed(&group.directory.join(PROCESSES))?;
    if !processes.is_empty() || group.version == Version::V1 {
        return Ok(processes);
    }
    listed(&group.directory.join(THREADS))
}

/// The groups directly below a group.
pub(super) fn children(group: &Location) -> Vec<Location> {
    let entries = fs::read_dir(&group.directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.filter_map(|entry| Some(group.child(entry.file_name().to_str()?))).collect()
}

fn listed(path: &Path) -> Result<Vec<u32>, Error> {
    match fs::read_to_string(path) {
        Ok(list) => Ok(list.lines().filter_map(|line| line.parse().ok()).collect()),
        Err(error) if is_gone(&error) => Ok(Vec::new()),
        Err(error) => Err(Error::Isolation(format!("cannot read {}: {error}", path.display()))),
    }
}

/// ENODEV: the group was removed while the file was open.
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

fn open(processes: &Path) -> Result<File, Error> {
    File::options().write(true).open(processes).map_err(|error| {
        Error::Isolation(format!("cannot move a process to {}: {error}", processes.display()))
    })
}

/// Moves a process. It is no error if it has exited.
fn enter(file: &mut File, pid: u32, processes: &Path) -> Result<(), Error> {
    match file.write_all(format!("{pid}\n").as_bytes()) {
        Ok(()) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        Err(error) => {
            let problem = explain(&error);
            Err(Error::Isolation(format!("cannot move pid {pid} to {}: {problem}", processes.display())))
        }
    }
}

pub(super) fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => {
            "the group above is threaded and no longer accepts whole processes; start the owner in a group that is \
             not part of a threaded one"
                .to_owned()
        }
        Some(libc::EBUSY) => {
            "the group above delegates controllers to its children (cgroup.subtree_control), so it may not have \
             processes of its own"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

impl Seen {
    /// Looks for processes that were not seen before.
    fn look(&mut self, host: &Host) -> Result<(), Error> {
        let listed = host.pids().map_err(Error::io("list", host.proc("")))?;
        for pid in listed {
            if !self.parents.contains_key(&pid)
                && let Some(process) = host.process(pid)?
            {
                self.parents.insert(pid, process.parent);
            }
        }
        Ok(())
    }

    /// `owner` and its descendants, without this process and its descendants.
    fn descendants(&self, owner: u32) -> Vec<u32> {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for (pid, parent) in &self.parents {
            children.entry(*parent).or_default().push(*pid);
        }
        let mut found = vec![owner];
        let mut at = 0;
        while let Some(pid) = found.get(at) {
            let of_it = children.remove(pid).unwrap_or_default();
            found.extend(of_it.into_iter().filter(|child| *child != std::process::id()));
            at += 1;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_and_what_comes_of_it_are_no_descendants() {
        let own = std::process::id();
        let parents = [(10, 1), (20, 10), (30, 20), (40, 1), (own, 20), (own + 1, own)];
        let mut found = Seen { parents: parents.into_iter().collect() }.descendants(10);
        found.sort_unstable();
        assert_eq!(found, [10, 20, 30]);
    }

    #[test]
    fn a_circle_of_parents_has_an_end() {
        let seen = Seen { parents: [(10, 20), (20, 10)].into_iter().collect() };
        assert_eq!(seen.descendants(10), [10, 20, 10]);
    }
}
