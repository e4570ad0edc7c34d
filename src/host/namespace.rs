//! The namespaces in which pids and times are counted.
//!
//! A pid means something only together with its pid namespace, and a start time only in one time namespace:
//! the record is shared by all of them.

use std::fs;
use std::io;
use std::path::Path;

use nix::unistd::{SysconfVar, sysconf};

use super::Host;
use super::process::parse_status;
use crate::error::Error;

/// The inode numbers that the kernel gives the first namespaces (`include/linux/proc_ns.h`).
const INITIAL_PID: u64 = 0xEFFF_FFFC;
const INITIAL_TIME: u64 = 0xEFFF_FFFA;

/// `pid:[4026531836]`, as the links below `/proc/PID/ns` read.
pub(crate) fn parse_link(link: &str, kind: &str) -> Option<u64> {
    link.strip_prefix(kind)?.strip_prefix(":[")?.strip_suffix(']')?.parse().ok()
}

/// The boottime offset of `/proc/PID/timens_offsets` in clock ticks; `None` unless it is a whole number of
/// them, since a start time would then be rounded differently in the two namespaces.
pub(crate) fn parse_offset(offsets: &str, ticks_per_second: i64) -> Option<i64> {
    let line = offsets.lines().find_map(|line| line.strip_prefix("boottime"))?;
    let mut numbers = line.split_ascii_whitespace().map(|word| word.parse::<i64>().ok());
    let (seconds, nanoseconds) = (numbers.next()??, numbers.next()??);
    let tick = 1_000_000_000_i64.checked_div(ticks_per_second)?;
    let fraction = (nanoseconds % tick == 0).then_some(nanoseconds / tick)?;
    seconds.checked_mul(ticks_per_second)?.checked_add(fraction)
}

impl Host {
    /// The namespace that the pids of this host's `/proc` are counted in.
    pub(crate) fn pid_namespace(&self) -> Option<u64> {
        *self.found.pid_namespace.get_or_init(|| {
            // Our own is that of `/proc` here (`check_proc`); elsewhere its pid 1 tells.
            match self.is_here() {
                true => self.namespace_of("self", "pid").ok(),
                false => self.namespace_of("1", "pid").or_else(|error| match error.kind() {
                    io::ErrorKind::NotFound => self.namespace_of("self", "pid"),
                    _ => Err(error),
                }),
            }
            .ok()
        })
    }

    /// The namespace that the process itself lives in: that of `/proc`, or one below it.
    pub(crate) fn pid_namespace_of(&self, pid: u32) -> Option<u64> {
        self.namespace_of(&pid.to_string(), "pid").ok()
    }

    /// Whether `/proc` shows every process of the machine.
    pub(crate) fn is_initial_pid_namespace(&self) -> bool {
        self.pid_namespace() == Some(INITIAL_PID)
    }

    /// Fails unless `/proc` is there and is of our own pid namespace: no process could be told dead else.
    pub(crate) fn check_proc(&self) -> Result<(), Error> {
        let problem = self.found.proc_problem.get_or_init(|| self.proc_problem());
        match problem {
            None => Ok(()),
            Some(problem) => Err(Error::File { path: self.proc(""), problem: problem.clone() }),
        }
    }

    fn proc_problem(&self) -> Option<String> {
        let pids = match fs::read(self.proc("self/status")) {
            Ok(status) => parse_status(&status).map(|status| status.pids).unwrap_or_default(),
            // A host made of files, or another namespace's /proc, need not know us.
            Err(_) if !self.is_here() && fs::symlink_metadata(self.proc("1")).is_ok() => return None,
            Err(_) => return Some("there is no process here, and gpu-coord cannot tell which owners live without; mount /proc".to_owned()),
        };
        let is_ours = pids.is_empty() || pids == [std::process::id()];
        (self.is_here() && !is_ours).then(|| {
            "of another pid namespace than gpu-coord's own, so that no pid can be looked up; mount the /proc of this namespace, \
             or name the other host's root with --root"
                .to_owned()
        })
    }

    /// A start time as `/proc` shows it to us, in the initial time namespace.
    pub(crate) fn in_initial_time(&self, ticks: u64) -> Option<u64> {
        let offset = self.time_offset()?;
        ticks.checked_add_signed(offset.checked_neg()?)
    }

    /// How many ticks the boottime clock of our time namespace is ahead (time_namespaces(7)).
    pub(crate) fn time_offset(&self) -> Option<i64> {
        *self.found.time_offset.get_or_init(|| {
            let own = match self.namespace_of("self", "time") {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(0),
                own => own.ok()?,
            };
            if own == INITIAL_TIME {
                return Some(0);
            }
            // The file is of the namespace that our children would get.
            let is_of_own = self.namespace_of("self", "time_for_children").is_ok_and(|next| next == own);
            let offsets = fs::read_to_string(self.proc("self/timens_offsets")).ok().filter(|_| is_of_own)?;
            parse_offset(&offsets, ticks_per_second())
        })
    }

    fn namespace_of(&self, process: &str, kind: &str) -> io::Result<u64> {
        let link = fs::read_link(self.proc(Path::new(process).join("ns").join(kind)))?;
        link.to_str().and_then(|link| parse_link(link, kind)).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// The unit of every time in `/proc`.
pub(crate) fn ticks_per_second() -> i64 {
    sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100)
}
