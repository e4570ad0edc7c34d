//! The namespaces of pids and times.
//!
//! A pid has a meaning only together with its pid namespace, and a start time only within a time namespace. All
//! namespaces share the record.

use std::fs;
use std::io;
use std::path::Path;

use nix::unistd::{SysconfVar, sysconf};

use super::Host;
use super::file;
use super::process::parse_status;
use crate::error::Error;

/// The inode numbers that the kernel gives the first namespaces (`include/linux/proc_ns.h`).
pub(crate) const INITIAL_PID: u64 = 0xEFFF_FFFC;
const INITIAL_TIME: u64 = 0xEFFF_FFFA;

/// The number in `pid:[4026531836]`, the target of a link below `/proc/PID/ns`.
pub(crate) fn parse_link(link: &str) -> Option<u64> {
    link.split_once(":[")?.1.strip_suffix(']')?.parse().ok()
}

/// The boottime offset in `/proc/PID/timens_offsets`, in clock ticks. `None` if it is not a whole number of ticks: a
/// start time would then be rounded differently in the two namespaces.
pub(crate) fn parse_offset(offsets: &str, ticks_per_second: i64) -> Option<i64> {
    let line = offsets.lines().find_map(|line| line.strip_prefix("boottime"))?;
    let mut numbers = line.split_ascii_whitespace().map(|word| word.parse::<i64>().ok());
    let (seconds, nanoseconds) = (numbers.next()??, numbers.next()??);
    let tick = 1_000_000_000_i64.checked_div(ticks_per_second)?;
    let fraction = (nanoseconds % tick == 0).then_some(nanoseconds / tick)?;
    seconds.checked_mul(ticks_per_second)?.checked_add(fraction)
}

impl Host {
    /// The pid namespace of this host's `/proc`.
    pub(crate) fn pid_namespace(&self) -> Option<u64> {
        *self.found.pid_namespace.get_or_init(|| {
            // Here `/proc` is that of our own namespace (`check_proc`); elsewhere its pid 1 tells.
            let namespace = if self.is_here() { None } else { Some(self.namespace_of("1", "pid")) };
            match namespace {
                Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => None,
                Some(Ok(namespace)) => Some(namespace),
                None | Some(Err(_)) => {
                    self.noted(&self.proc("self/ns/pid"), self.namespace_of("self", "pid"))
                }
            }
        })
    }

    /// Whether `/proc` shows every process of the machine.
    pub(crate) fn is_initial_pid_namespace(&self) -> bool {
        self.pid_namespace() == Some(INITIAL_PID)
    }

    /// Fails unless `/proc` is mounted and shows our own pid namespace. Otherwise no process could be proven dead.
    pub(crate) fn check_proc(&self) -> Result<(), Error> {
        let problem = self.found.proc_problem.get_or_init(|| self.proc_problem());
        match problem {
            None => Ok(()),
            Some(problem) => Err(Error::File { path: self.proc(""), problem: problem.clone() }),
        }
    }

    fn proc_problem(&self) -> Option<String> {
        // The /proc of a namespace below would not show us, and there is none above the initial one.
        if self.is_here() && self.is_initial_pid_namespace() {
            return None;
        }
        let own = file::read_piece(self.proc("self/status"));
        if own.is_ok_and(|status| self.is_our_status(&status)) {
            return None;
        }
        // A host made of files, or another namespace's /proc, need not know us.
        let has_processes = fs::symlink_metadata(self.proc("1")).is_ok();
        let problem = match (self.is_here(), has_processes) {
            (false, true) => return None,
            (_, false) => "shows no process, so nobody can tell which owners are alive; mount /proc",
            (true, true) => {
                "belongs to another pid namespace than gpu-coord, so pids cannot be looked up in it; mount the \
                 /proc of this namespace, or name the other host's root with --root"
            }
        };
        Some(problem.to_owned())
    }

    /// From a namespace above, our process has several pids: one in each namespace down to its own.
    fn is_our_status(&self, status: &[u8]) -> bool {
        let pids = parse_status(status).map(|status| status.pids);
        !self.is_here() || pids.is_none_or(|pids| pids.len() <= 1)
    }

    /// Converts a start time that `/proc` shows us to the initial time namespace.
    pub(crate) fn in_initial_time(&self, ticks: u64) -> Option<u64> {
        let offset = self.time_offset()?;
        ticks.checked_add_signed(offset.checked_neg()?)
    }

    /// How many ticks the boottime clock of our time namespace is ahead of the initial one (time_namespaces(7)).
    pub(crate) fn time_offset(&self) -> Option<i64> {
        *self.found.time_offset.get_or_init(|| {
            let own = match self.namespace_of("self", "time") {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(0),
                own => self.noted(&self.proc("self/ns/time"), own)?,
            };
            if own == INITIAL_TIME {
                return Some(0);
            }
            // The file describes the namespace that our children would get.
            let is_of_own = self.namespace_of("self", "time_for_children").is_ok_and(|next| next == own);
            let path = self.proc("self/timens_offsets");
            let offsets = self.noted(&path, file::read_text(&path)).filter(|_| is_of_own)?;
            parse_offset(&offsets, ticks_per_second())
        })
    }

    pub(super) fn namespace_of(&self, process: &str, kind: &str) -> io::Result<u64> {
        let link = fs::read_link(self.proc(Path::new(process).join("ns").join(kind)))?;
        link.to_str().and_then(parse_link).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// The unit of every time in `/proc`.
pub(crate) fn ticks_per_second() -> i64 {
    sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{self, CONTAINER, INITIAL, Running, Tree, can_make_namespaces};
    use super::*;

    #[test]
    fn a_link_has_an_inode_number() {
        assert_eq!(parse_link("pid:[4026531836]"), Some(INITIAL));
        for link in ["pid:[]", "pid:[x]", "pid:[1", "pid:1", "[1]", ""] {
            assert_eq!(parse_link(link), None, "{link}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn an_offset_is_told_in_whole_ticks_or_not_at_all() {
        for (case, offsets, ticks) in [
            ("none",                   "monotonic 0 0\nboottime 0 0\n",       Some(0)),
            ("aligned as the kernel does", "monotonic           1         0\nboottime       86400         0\n", Some(8_640_000)),
            ("back",                   "boottime -3600 0\n",                  Some(-360_000)),
            ("back, with a part of a second", "boottime -1 990000000\n",      Some(-1)),
            ("a fraction of a tick",   "boottime 5 1\n",                      None),
            ("without nanoseconds",    "boottime 5\n",                        None),
            ("another clock only",     "monotonic 5 0\n",                     None),
            ("no numbers",             "boottime x y\n",                      None),
            ("more than can be told",  "boottime 9223372036854775807 0\n",    None),
        ] {
            assert_eq!(parse_offset(offsets, 100), ticks, "{case}");
        }
    }

    fn in_time_namespace(own: u64, children: u64, offsets: &str) -> Tree {
        Tree::new()
            .link("proc/self/ns/time", &format!("time:[{own}]"))
            .link("proc/self/ns/time_for_children", &format!("time:[{children}]"))
            .file("proc/self/timens_offsets", offsets)
            .alive(7, 1_000)
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_start_is_told_in_the_initial_time_namespace() {
        for (case, tree, start) in [
            ("no time namespaces: before Linux 5.6", Tree::new().alive(7, 1_000),           Some(1_000)),
            ("the initial one",  in_time_namespace(INITIAL_TIME, 8, "boottime 9 0"),         Some(1_000)),
            ("ahead",            in_time_namespace(8, 8, "boottime 9 0"),                    Some(100)),
            ("behind",           in_time_namespace(8, 8, "boottime -9 0"),                   Some(1_900)),
            ("before the boot",  in_time_namespace(8, 8, "boottime 11 0"),                   None),
            ("of the children",  in_time_namespace(8, 9, "boottime 9 0"),                    None),
            ("with a fraction",  in_time_namespace(8, 8, "boottime 9 5"),                    None),
        ] {
            assert_eq!(tree.host().process(7).unwrap().unwrap().start, start, "{case}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn the_pids_below_another_root_are_of_its_pid_1() {
        for (case, tree, namespace) in [
            ("the initial one",           Tree::new(),                                             Some(INITIAL)),
            ("a container's",             Tree::new().link("proc/1/ns/pid", "pid:[5]"),            Some(5)),
            ("our own, with no pid 1",    Tree::new().without("proc/1").link("proc/self/ns/pid", "pid:[6]"), Some(6)),
            ("pid 1 keeps it to itself",  Tree::new().without("proc/1/ns/pid").file("proc/1/ns/pid", ""),    None),
            ("neither is known",          Tree::new().without("proc/1").without("proc/self"),      None),
        ] {
            assert_eq!(tree.host().pid_namespace(), namespace, "{case}");
        }
    }

    #[test]
    fn the_constants_are_the_kernels() {
        let here = Host::new(Path::new("/"));
        if !here.is_initial_pid_namespace() {
            fixture::skip("the_constants_are_the_kernels", "it needs the initial pid namespace");
            return;
        }
        // Pid 2 is the kernel's, and in no other namespace than the first ones.
        assert_eq!(here.namespace_of("2", "pid").unwrap_or(INITIAL_PID), INITIAL_PID);
        assert_eq!(here.namespace_of("2", "time").unwrap_or(INITIAL_TIME), INITIAL_TIME);
    }

    #[test]
    fn a_process_in_a_namespace_below_has_another() {
        if !can_make_namespaces("a_process_in_a_namespace_below_has_another") {
            return;
        }
        let script = "readlink /proc/self/ns/pid; exec sleep 60";
        let arguments = [&CONTAINER[..], &["sh", "-c", script]].concat();
        let mut unshare = Running::start("unshare", &arguments);
        let inner = parse_link(&unshare.line());
        let here = Host::new(Path::new("/"));
        let child = here
            .pids()
            .unwrap()
            .into_iter()
            .find(|pid| here.namespace_of(&pid.to_string(), "pid").ok() == inner)
            .unwrap();
        assert_eq!(here.status(child).unwrap().unwrap().pids[1..], [1]);
        assert_ne!(inner, here.pid_namespace());
    }
}
