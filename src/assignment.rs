//! Owners and assignments: what the coordination file records. Values only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::device::{Identity, numbered};

/// A process that holds units. What is not known is `None`, and counts against granting its units to others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    /// In the pid namespace `pid_namespace`.
    pub(crate) pid: u32,
    /// Clock ticks from boot to the start of the process (proc_pid_stat(5), field 22), in the initial time namespace.
    /// Together with the boot it tells a process from a later one with the same pid.
    pub(crate) start: Option<u64>,
    /// The boot id, 32 hexadecimal digits; `None` where the kernel's own could not be had.
    pub(crate) boot: Option<String>,
    /// The inode number of the pid namespace.
    pub(crate) pid_namespace: Option<u64>,
    pub(crate) uid: Option<u32>,
}

impl Owner {
    /// An owner of which only the pid is known.
    pub(crate) fn of_pid(pid: u32) -> Owner {
        Owner { pid, start: None, boot: None, pid_namespace: None, uid: None }
    }

    /// What tells the process from every other. This does not include the uid, which a process can change.
    pub(crate) fn names(&self) -> (u32, Option<u64>, Option<u64>, Option<&str>) {
        (self.pid, self.start, self.pid_namespace, self.boot.as_deref())
    }

    /// Whether both are the same process.
    pub(crate) fn is(&self, other: &Owner) -> bool {
        self.names() == other.names()
    }
}

/// What one request was given: all of its units or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grant {
    /// 64 random bits.
    pub(crate) id: u64,
    /// How many assignments it has.
    pub(crate) of: u32,
}

/// The `gpu-coord exec` that a unit comes from: processes inside its command share the units that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// The grant that `exec` got; the command finds it in `GPU_COORD_GRANT`.
    pub(crate) grant: u64,
    /// Whether a process inside the command asked for the unit: the line is that process's, not the command's.
    pub(crate) is_taken: bool,
}

/// A unit held by an owner: one line of the coordination file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// The device's index when it was granted.
    pub(crate) index: u32,
    pub(crate) slot: Option<u32>,
    pub(crate) identity: Identity,
    pub(crate) owner: Owner,
    /// `None` on a line of Flink's script.
    pub(crate) grant: Option<Grant>,
    /// Seconds since the epoch.
    pub(crate) since: Option<u64>,
    /// systemd's `INVOCATION_ID` of the unit that asked.
    pub(crate) invocation: Option<String>,
    /// The owner's control group, if one was made for it.
    pub(crate) cgroup: Option<String>,
    /// The namespace whose quota it counts against, if not its user's.
    pub(crate) namespace: Option<String>,
    /// `None` on a line that `exec` did not write.
    pub(crate) origin: Option<Origin>,
    /// Keys of a later version, `key=value;...`, which are preserved when the line is rewritten.
    pub(crate) unknown: String,
}

impl Assignment {
    /// The assignment that a line of Flink's script records.
    pub(crate) fn of_the_script(index: u32, pid: u32) -> Assignment {
        Assignment {
            index,
            slot: None,
            identity: Identity::default(),
            owner: Owner::of_pid(pid),
            grant: None,
            since: None,
            invocation: None,
            cgroup: None,
            namespace: None,
            origin: None,
            unknown: String::new(),
        }
    }

    /// A short name for the unit: `0`, the share `0#1`, or `0 (MIG-...)` for an instance, which has no own index.
    pub(crate) fn unit(&self) -> String {
        let is_instance = self.identity.uuid.as_ref().is_some_and(|uuid| uuid.starts_with("MIG-"));
        if is_instance { self.identity.label(self.index, self.slot) } else { numbered(self.index, self.slot) }
    }

    /// The unit and its owner: `index 0#1 of pid 4711`.
    pub(crate) fn told(&self) -> String {
        format!("index {} of pid {}", self.unit(), self.owner.pid)
    }

    /// Whether it is a line of Flink's script, which has an index and a pid and nothing else.
    pub(crate) fn is_the_scripts(&self) -> bool {
        self.grant.is_none() && self.owner.start.is_none()
    }
}

/// A line that begins with an index but is not an assignment: the index is not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Withheld {
    pub(crate) index: u32,
    /// From 1.
    pub(crate) line: usize,
    pub(crate) problem: String,
}

impl Withheld {
    /// What is wrong in the file at `path`, and what to do.
    pub(crate) fn message(&self, path: &Path) -> String {
        let Withheld { index, line, problem } = self;
        let path = path.display();
        format!(
            "{path}:{line}: {problem}, so that index {index} is withheld; correct the line, or delete it if \
             no process holds the unit"
        )
    }
}

/// A unit that an operator keeps from being granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drained {
    pub(crate) index: u32,
    pub(crate) identity: Identity,
    pub(crate) uid: Option<u32>,
    pub(crate) since: Option<u64>,
    pub(crate) reason: String,
}

/// A process that waits its turn for units (`gpu-coord exec --wait`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) owner: Owner,
    /// How many units it asks for.
    pub(crate) amount: u64,
    /// Its place in the queue: a lower ticket goes first.
    pub(crate) ticket: u64,
    /// Which units it may be given, if not any: ranges of their positions among the host's units, first and last.
    pub(crate) among: Option<Vec<(u32, u32)>>,
}

/// What the coordination file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) assignments: Vec<Assignment>,
    pub(crate) withheld: Vec<Withheld>,
    pub(crate) drained: Vec<Drained>,
    pub(crate) waiters: Vec<Waiter>,
}

impl Record {
    /// Those of `lines` that are among `others` or share a grant with one of them, each with that other line: the lines
    /// of a grant hold all together or not at all.
    pub(crate) fn bound(
        &self,
        lines: impl IntoIterator<Item = usize>,
        others: &BTreeSet<usize>,
    ) -> BTreeMap<usize, usize> {
        let grant = |position: usize| self.assignments[position].grant.map(|grant| grant.id);
        let mut of_grant: BTreeMap<u64, usize> = BTreeMap::new();
        for position in others {
            if let Some(id) = grant(*position) {
                of_grant.entry(id).or_insert(*position);
            }
        }
        let other = |line: usize| match others.contains(&line) {
            true => Some(line),
            false => of_grant.get(&grant(line)?).copied(),
        };
        lines.into_iter().filter_map(|line| Some((line, other(line)?))).collect()
    }

    /// Keeps those of `positions` that can be freed although the lines `kept` stay.
    pub(crate) fn retain_apart(&self, positions: &mut Vec<usize>, kept: &BTreeSet<usize>) {
        let bound = self.bound(positions.iter().copied(), kept);
        positions.retain(|position| !bound.contains_key(position));
    }
}

/// Whether an owner is still alive. Doubt counts as alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Alive,
    Dead,
    /// Nobody can tell from here.
    Doubtful(Doubt),
}

/// Why nobody can tell whether an owner is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// It lives in a pid namespace that cannot be seen from here.
    ForeignNamespace,
    /// It was recorded in another boot, and it cannot be proven that this boot is of the same host.
    ForeignBoot,
    /// `/proc` does not say.
    Unreadable,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line for each grant, 0 being none.
    fn record(grants: &[u64]) -> Record {
        let grant = |id: u64| (id > 0).then_some(Grant { id, of: 1 });
        let line = |id: &u64| Assignment { grant: grant(*id), ..Assignment::of_the_script(0, 1) };
        Record { assignments: grants.iter().map(line).collect(), ..Record::default() }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn all_lines_of_a_grant_hold_or_none() {
        for (case, grants, lines, others, bound) in [
            ("of one grant",             &[7, 7, 8][..], vec![0, 1, 2], vec![1],    vec![(0, 1), (1, 1)]),
            ("of none",                  &[0, 0],        vec![0, 1],    vec![1],    vec![(1, 1)]),
            ("of two",                   &[7, 8, 8, 7],  vec![0, 1],    vec![2, 3], vec![(0, 3), (1, 2)]),
            ("each is itself",           &[7, 7, 7],     vec![0, 1, 2], vec![1, 2], vec![(0, 1), (1, 1), (2, 2)]),
            ("nobody asks about others", &[7, 7],        vec![0],       vec![1],    vec![(0, 1)]),
        ] {
            let others = others.into_iter().collect();
            assert_eq!(record(grants).bound(lines.clone(), &others), bound.iter().copied().collect(), "{case}");
            let mut apart = lines.clone();
            record(grants).retain_apart(&mut apart, &others);
            let free: Vec<usize> = lines.into_iter().filter(|line| bound.iter().all(|(at, _)| at != line)).collect();
            assert_eq!(apart, free, "{case}");
        }
    }
}
