//! Owners and assignments: what the coordination file records. Values only.

use std::collections::BTreeSet;
use std::path::Path;

use crate::device::Identity;

/// A process that holds units. What is not known is `None`, and counts against granting.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    /// In the pid namespace `pid_namespace`.
    pub(crate) pid: u32,
    /// Clock ticks from boot to the start of the process (proc_pid_stat(5), field 22), as they are counted
    /// in the initial time namespace. With the boot it tells a process from a later one of the same pid.
    pub(crate) start: Option<u64>,
    /// The boot id, 32 hexadecimal digits; `None` where the kernel's own could not be had.
    pub(crate) boot: Option<String>,
    /// The inode number of the pid namespace.
    pub(crate) pid_namespace: Option<u64>,
    pub(crate) uid: Option<u32>,
}

impl Owner {
    /// Of whom nothing is known but the pid.
    pub(crate) fn of_pid(pid: u32) -> Owner {
        Owner { pid, start: None, boot: None, pid_namespace: None, uid: None }
    }

    /// What tells the process from every other. The uid is not among it: a process can change it.
    pub(crate) fn names(&self) -> (u32, Option<u64>, Option<u64>, Option<&str>) {
        (self.pid, self.start, self.pid_namespace, self.boot.as_deref())
    }

    /// Whether both are one process.
    pub(crate) fn is(&self, other: &Owner) -> bool {
        self.names() == other.names()
    }
}

/// What one request was given, all or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grant {
    /// 64 random bits.
    pub(crate) id: u64,
    /// How many assignments it has.
    pub(crate) of: u32,
}

/// Of a unit that `gpu-coord exec` was given, and that whoever asks inside the command is given beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// The grant that `exec` got, which the command is told.
    pub(crate) grant: u64,
    /// Whether the line is of somebody inside, and not of the command.
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
    /// Whose quota it counts for, if not its user's.
    pub(crate) namespace: Option<String>,
    /// `None` on a line that `exec` did not write.
    pub(crate) origin: Option<Origin>,
    /// Keys of a later version, `key=value;...`, kept when the line is rewritten.
    pub(crate) unknown: String,
}

impl Assignment {
    /// What a line of Flink's script says.
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

    /// The unit for people: `0`, the share `0#1`, the instance `0 (MIG-...)`.
    pub(crate) fn unit(&self) -> String {
        let slot = self.slot.map(|slot| format!("#{slot}")).unwrap_or_default();
        let instance = self.identity.uuid.as_ref().filter(|uuid| uuid.starts_with("MIG-"));
        let instance = instance.map(|uuid| format!(" ({uuid})")).unwrap_or_default();
        format!("{}{slot}{instance}", self.index)
    }

    /// A line of Flink's script names an index and a pid and nothing else.
    pub(crate) fn is_the_scripts(&self) -> bool {
        self.grant.is_none() && self.owner.start.is_none()
    }
}

/// A line that begins with an index and is no assignment: the index is not granted.
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
            "{path}:{line}: {problem}, so that index {index} is withheld; correct the line, or delete it if no process \
             holds the unit"
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
    /// Which units it may be given, if not any: spans of their ranks among the host's, first and last.
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
    /// Leaves of `positions` those that can be freed although the lines `kept` stay: all lines of a grant hold or
    /// none.
    pub(crate) fn retain_apart(&self, positions: &mut Vec<usize>, kept: &BTreeSet<usize>) {
        let grant = |position: &usize| self.assignments[*position].grant.map(|grant| grant.id);
        let grants: BTreeSet<u64> = kept.iter().filter_map(grant).collect();
        let is_kept = |position: &usize| {
            kept.contains(position) || grant(position).is_some_and(|id| grants.contains(&id))
        };
        positions.retain(|position| !is_kept(position));
    }
}

/// Whether an owner still lives. Doubt counts as alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Alive,
    Dead,
    /// It cannot be told.
    Doubtful(Doubt),
}

/// Why it cannot be told whether an owner lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// It lives in a pid namespace that cannot be seen from here.
    ForeignNamespace,
    /// It was recorded in another boot, and it cannot be proven that this boot is of the same host.
    ForeignBoot,
    /// `/proc` does not tell.
    Unreadable,
}
