//! Processes, as `/proc` shows them.
//!
//! That a process is gone is said only when it is certain: `/proc` can hide the living (`hidepid`), be of
//! another pid namespace, or not be there at all, and absence of evidence would give a live owner's units
//! away.
//!
//! Not here: what follows for an assignment (`liveness`), and who becomes an owner (`owner`).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::Host;
use crate::error::Error;

/// How much of a command line a message can bear.
const COMMAND_LENGTH: usize = 60;

/// One process, or one thread: `/proc/TID/stat` can be read although `/proc` does not list it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// The first 15 bytes of the executable's file name, unless the process has renamed itself.
    pub(crate) name: String,
    /// `R`, `S`, `D`, `Z`, ... of proc_pid_stat(5).
    pub(crate) state: u8,
    /// 0 if it lives outside this pid namespace.
    pub(crate) parent: u32,
    pub(crate) session: i32,
    pub(crate) threads: u32,
    /// Clock ticks from boot to its start, in the initial time namespace; `None` if they cannot be told there.
    pub(crate) start: Option<u64>,
}

impl Process {
    /// A zombie leader whose other threads run, or hang in a driver, still has its devices open.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }

    pub(crate) fn is_session_leader(&self) -> bool {
        u32::try_from(self.session) == Ok(self.pid)
    }

    /// Whether it may be the process that was started at `start`: what is not known excludes nothing.
    pub(crate) fn may_have_started_at(&self, start: Option<u64>) -> bool {
        self.start.zip(start).is_none_or(|(own, other)| own == other)
    }
}

/// What `/proc/PID/status` has and `stat` has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    /// The process that it is a thread of: its own pid, unless it is not the first thread.
    pub(crate) leader: u32,
    /// The effective user id.
    pub(crate) uid: u32,
    /// Its pid in every pid namespace from that of `/proc` down to its own; empty before Linux 4.1.
    pub(crate) pids: Vec<u32>,
}

/// A line of proc_pid_stat(5), with the start as it is counted in the reader's time namespace.
pub(crate) fn parse_stat(stat: &[u8]) -> Option<Process> {
    // The name may hold anything, blanks and parentheses too ("UVM global queue", "a) R 1 (b").
    let open = stat.iter().position(|byte| *byte == b'(')?;
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let fields: Vec<&str> = str::from_utf8(stat.get(close + 1..)?).ok()?.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied();
    Some(Process {
        pid: str::from_utf8(&stat[..open]).ok()?.trim().parse().ok()?,
        name: String::from_utf8_lossy(stat.get(open + 1..close)?).into_owned(),
        state: *field(3)?.as_bytes().first()?,
        parent: field(4)?.parse().ok()?,
        session: field(6)?.parse().ok()?,
        threads: field(20)?.parse().ok()?,
        start: Some(field(22)?.parse().ok()?),
    })
}

pub(crate) fn parse_status(status: &[u8]) -> Option<Status> {
    let text = String::from_utf8_lossy(status);
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let numbers = |name: &str| field(name)?.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
    let uids: Vec<u32> = numbers("Uid")?;
    Some(Status {
        leader: field("Tgid")?.trim().parse().ok()?,
        uid: *uids.get(1)?,
        pids: numbers("NSpid").unwrap_or_default(),
    })
}

impl Host {
    /// `None` only if it is certain that there is no such process.
    pub(crate) fn process(&self, pid: u32) -> Result<Option<Process>, Error> {
        let Some(stat) = self.read_of(pid, "stat")? else { return Ok(None) };
        let process = parse_stat(&stat).ok_or_else(|| self.strange(pid, "stat"))?;
        let start = process.start.and_then(|ticks| self.in_initial_time(ticks));
        Ok(Some(Process { start, ..process }))
    }

    /// `None` only if it is certain that there is no such process.
    pub(crate) fn status(&self, pid: u32) -> Result<Option<Status>, Error> {
        let Some(status) = self.read_of(pid, "status")? else { return Ok(None) };
        parse_status(&status).map(Some).ok_or_else(|| self.strange(pid, "status"))
    }

    /// Whether `pid` is a thread of a process with another pid.
    pub(crate) fn is_thread(&self, pid: u32) -> Result<bool, Error> {
        Ok(self.status(pid)?.is_some_and(|status| status.leader != pid))
    }

    /// The effective user id, if it can be read.
    pub(crate) fn uid(&self, pid: u32) -> Option<u32> {
        self.status(pid).ok().flatten().map(|status| status.uid)
    }

    /// What a message can call the process: printable ASCII, cut short.
    pub(crate) fn command_line(&self, pid: u32) -> Option<String> {
        let words = fs::read(self.proc(format!("{pid}/cmdline"))).unwrap_or_default();
        let line = words.split(|byte| *byte == 0).collect::<Vec<_>>().join(&b' ');
        let line = line.trim_ascii();
        if line.is_empty() {
            // A zombie and a kernel thread have no command line.
            let name = fs::read(self.proc(format!("{pid}/comm"))).ok()?;
            return Some(printable(name.trim_ascii_end()));
        }
        Some(printable(line))
    }

    /// The environment that the process was started with.
    pub(crate) fn environment(&self, pid: u32) -> io::Result<Vec<(OsString, OsString)>> {
        let block = fs::read(self.proc(format!("{pid}/environ")))?;
        Ok(block.split(|byte| *byte == 0).filter_map(variable).collect())
    }

    /// Every process that `/proc` lists.
    pub(crate) fn pids(&self) -> io::Result<Vec<u32>> {
        let entries = fs::read_dir(self.proc(""))?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_str().and_then(|name| name.parse().ok())));
        Ok(names.collect::<io::Result<Vec<Option<u32>>>>()?.into_iter().flatten().collect())
    }

    /// `None` only if it is certain that there is no such process.
    fn read_of(&self, pid: u32, name: &str) -> Result<Option<Vec<u8>>, Error> {
        self.check_proc()?;
        let path = self.proc(format!("{pid}/{name}"));
        match fs::read(&path) {
            Ok(text) => Ok(Some(text)),
            // It was there when the file was opened, and has been reaped since.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.settle_absence(pid).map(|()| None),
            Err(error) => Err(Error::io("read", path)(error)),
        }
    }

    /// `/proc` shows no such process: is there none, or is it hidden from us?
    fn settle_absence(&self, pid: u32) -> Result<(), Error> {
        let is_absent = if self.is_here() {
            is_no_process(pid)
        } else {
            // No system call speaks of another host. Pid 1 is always there, and hidden first.
            fs::symlink_metadata(self.proc("1")).is_ok()
        };
        let problem = "cannot be seen, and may be hidden by the hidepid option of /proc; run gpu-coord as root, or \
                       as a member of the group that its gid option names"
            .to_owned();
        if is_absent { Ok(()) } else { Err(Error::File { path: self.proc(pid.to_string()), problem }) }
    }

    fn strange(&self, pid: u32, name: &str) -> Error {
        let problem = format!("not in the form of proc_pid_{name}(5)");
        Error::File { path: self.proc(format!("{pid}/{name}")), problem }
    }
}

/// Only ESRCH says so: EPERM is another user's living process.
fn is_no_process(pid: u32) -> bool {
    match i32::try_from(pid) {
        // To kill(2), 0 is our own process group.
        Ok(0) | Err(_) => true,
        Ok(pid) => kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH),
    }
}

fn variable(entry: &[u8]) -> Option<(OsString, OsString)> {
    let equals = entry.iter().position(|byte| *byte == b'=')?;
    let text = |bytes| OsStr::from_bytes(bytes).to_owned();
    Some((text(&entry[..equals]), text(&entry[equals + 1..])))
}

/// A process chooses its own name: no control character of it reaches a terminal or a log.
fn printable(text: &[u8]) -> String {
    let escaped = text.escape_ascii().to_string();
    if escaped.len() <= COMMAND_LENGTH {
        return escaped;
    }
    format!("{}...", &escaped[..COMMAND_LENGTH - 3])
}
