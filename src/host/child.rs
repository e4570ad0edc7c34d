//! Runs a vendor's tool so that nothing it does can block us: neither hanging, even where no signal can end it, nor
//! printing without end, nor leaving a process behind.
//!
//! * It runs in a process group of its own. The whole group is killed once the tool has exited or its time is up
//!   (`what_a_wrapper_started_is_ended_too`).
//! * It is killed when we die (`PR_SET_PDEATHSIG`), and inherits only its three standard streams, so that an abandoned
//!   tool holds neither a lock nor the pipe of whoever reads our answer.
//! * No wait is unbounded: a process that hangs in the driver does not react to signals.

#![expect(unsafe_code, reason = "waitpid(2) with its raw status has no safe form")]

mod command;
mod start;
mod stream;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::pidfd;
use super::process::parse_stat;
pub(crate) use command::Command;
use stream::Stream;

/// Enough for a few thousand devices.
const MOST_STDOUT: u64 = 1 << 20;
const MOST_STDERR: u64 = 1 << 16;
/// How long to wait for a killed process: on a busy host even dying takes a while.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long to wait for a killed process that hangs in the kernel.
const GRACE: Duration = Duration::from_millis(100);
/// How long an exit can go unnoticed while another process keeps the streams open.
const TICK: Duration = Duration::from_millis(10);
const FIRST_PAUSE: Duration = Duration::from_micros(50);

/// The result of a program that ran to its end.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("it cannot be started")]
    Start(#[source] io::Error),
    #[error("it printed more than {limit} bytes on {stream}")]
    Flood { stream: &'static str, limit: u64 },
    #[error("it did not end within {} s", crate::error::seconds(*limit))]
    Late { limit: Duration },
    #[error("{why}, and pid {pid} cannot be killed: it hangs in the kernel")]
    Stuck { pid: u32, why: Box<Failure> },
    #[error("it cannot be listened to")]
    Listen(#[source] io::Error),
}

impl Failure {
    /// Whether there is no such program.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Failure::Start(err) if err.kind() == io::ErrorKind::NotFound)
    }
}

/// A child that has not been reaped: until then neither its pid nor the id of its group can be reused.
struct Child {
    pid: Pid,
    /// Polls as readable once the child has exited; `None` before Linux 5.3.
    exit: Option<OwnedFd>,
}

/// Runs `command` with an empty standard input and collects its output, both within `limit`.
pub(crate) fn run(command: &Command, limit: Duration) -> Result<Output, Failure> {
    let until = Instant::now() + limit;
    let (child, mut streams) = start(command).map_err(Failure::Start)?;
    let heard = listen(&child, &mut streams, until, limit);
    let ended = end(&child).map_err(Failure::Listen)?;
    let [stdout, stderr] = streams.map(|stream| stream.text);
    match (heard, ended) {
        (Ok(()), Some(status)) => Ok(Output { status, stdout, stderr }),
        (Ok(()), None) => Err(stuck(&child, Failure::Late { limit })),
        (Err(failure), Some(_)) => Err(failure),
        (Err(failure), None) => Err(stuck(&child, failure)),
    }
}

fn start(command: &Command) -> io::Result<(Child, [Stream; 2])> {
    let image = command.image()?;
    let (stdout, to_stdout) = Stream::new("standard output", MOST_STDOUT)?;
    let (stderr, to_stderr) = Stream::new("standard error", MOST_STDERR)?;
    let pid = start::start(&image, [to_stdout.as_fd(), to_stderr.as_fd()])?;
    Ok((Child { pid, exit: pidfd::open(pid.as_raw()) }, [stdout, stderr]))
}

fn stuck(child: &Child, why: Failure) -> Failure {
    Failure::Stuck { pid: child.pid.as_raw().cast_unsigned(), why: Box::new(why) }
}

/// Collects what `child` prints until it exits. Does not wait for a process that it leaves behind and that keeps the
/// streams open.
fn listen(child: &Child, streams: &mut [Stream; 2], until: Instant, limit: Duration) -> Result<(), Failure> {
    let mut pause = FIRST_PAUSE;
    loop {
        // Checked before the streams are read: they then contain everything that was printed before the exit.
        let exited = child.has_exited().map_err(Failure::Listen)?;
        streams.iter_mut().try_for_each(Stream::drain)?;
        if exited {
            return Ok(());
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Late { limit });
        }
        stream::wait(&child.events(streams), left.min(TICK), &mut pause).map_err(Failure::Listen)?;
    }
}

/// Kills what is left of the child's group and takes its status; `None` if it cannot be killed.
fn end(child: &Child) -> io::Result<Option<ExitStatus>> {
    // The only possible error means that nobody is left.
    let _ = killpg(child.pid, Signal::SIGKILL);
    let since = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let status = child.reap()?;
        let waited = since.elapsed();
        if status.is_some() || waited >= PATIENCE || (waited >= GRACE && child.hangs()) {
            return Ok(status);
        }
        std::thread::sleep(pause);
        pause = TICK.min(pause * 2);
    }
}

impl Child {
    /// What to wait for: the exit, since a tool's whole output usually fits into a pipe, and waking up for each piece of
    /// it would be in vain. Without a pidfd, the end of its streams.
    fn events<'a>(&'a self, streams: &'a [Stream; 2]) -> Vec<BorrowedFd<'a>> {
        match &self.exit {
            Some(exit) => vec![exit.as_fd()],
            None => streams.iter().filter_map(Stream::descriptor).collect(),
        }
    }

    /// Whether the child has exited; does not reap it.
    fn has_exited(&self) -> io::Result<bool> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(self.pid), flags) {
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => Ok(false),
            Ok(_) => Ok(true),
            Err(err) => Err(err.into()),
        }
    }

    fn reap(&self) -> io::Result<Option<ExitStatus>> {
        let mut status = 0;
        // SAFETY: the call writes only to `status`.
        let reaped = unsafe { libc::waitpid(self.pid.as_raw(), &raw mut status, libc::WNOHANG) };
        Ok((Errno::result(reaped)? != 0).then(|| ExitStatus::from_raw(status)))
    }

    /// Whether it is in a system call that no signal can interrupt, or cannot be seen at all.
    fn hangs(&self) -> bool {
        let stat = std::fs::read(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        parse_stat(&stat).is_none_or(|process| process.state == b'D')
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::path::Path;

    use nix::fcntl::{FcntlArg, fcntl};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str, limit: Duration) -> Result<Output, Failure> {
        run(Command::new("sh").args(["-c", script]), limit)
    }

    #[test]
    fn both_streams_and_the_status_come_back() {
        let output = shell("echo out; echo err >&2; read line || exit 7", LONG).expect("it runs");
        assert_eq!((output.stdout, output.stderr), (b"out\n".to_vec(), b"err\n".to_vec()));
        assert_eq!(output.status.code(), Some(7));
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_program_that_misbehaves_is_ended() {
        let short = Duration::from_millis(100);
        for (case, script, limit, says) in [
            ("floods stdout",          "while :; do echo 0123456789012345678901234567890123456789; done",     LONG,  "it printed more than 1048576 bytes on standard output"),
            ("floods stderr",          "while :; do echo 0123456789012345678901234567890123456789 >&2; done", LONG,  "it printed more than 65536 bytes on standard error"),
            ("sleeps",                 "exec sleep 1000",                                                    short, "it did not end within 0.1 s"),
            ("closes its streams",     "exec >&- 2>&-; exec sleep 1000",                                     short, "it did not end within 0.1 s"),
            ("ignores signals",        "trap '' TERM INT HUP; while :; do sleep 1; done",                    short, "it did not end within 0.1 s"),
        ] {
            assert_eq!(shell(script, limit).expect_err(case).to_string(), says, "{case}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_missing() {
        assert!(run(&Command::new("/nonexistent/tool"), LONG).expect_err("missing").is_missing());
        assert!(!run(&Command::new("/"), LONG).expect_err("a directory").is_missing());
    }

    #[test]
    fn what_may_not_be_run_is_not_missing_and_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("sh"), "no program").unwrap();
        let place = directory.path().to_str().unwrap();
        let run =
            |path: &str| run(Command::new("sh").args(["-c", "echo $0"]).env_clear().env("PATH", path), LONG);
        assert!(!run(&format!("{place}:/nonexistent")).expect_err("no right to").is_missing());
        assert!(run("/nonexistent").expect_err("nowhere").is_missing());
        let output = run(&format!("/nonexistent:{place}:/usr/bin:/bin")).expect("the last one");
        assert_eq!(output.stdout, b"sh\n");
    }

    #[test]
    fn the_program_has_a_group_of_its_own_and_dies_of_a_broken_pipe() {
        let output = shell("cat /proc/$$/stat /proc/$$/status", LONG).expect("it runs");
        let text = String::from_utf8(output.stdout).unwrap();
        let fields: Vec<&str> = text.rsplit_once(") ").unwrap().1.split(' ').collect();
        assert_eq!(fields[2], text.split(' ').next().unwrap(), "the group");
        let ignored = text.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
        assert_eq!(ignored >> (Signal::SIGPIPE as i32 - 1) & 1, 0, "SIGPIPE is ignored");
    }

    /// As before Linux 5.3.
    #[test]
    fn without_a_pidfd_the_streams_tell_of_the_exit() {
        let (mut child, mut streams) = start(Command::new("sh").args(["-c", "echo out"])).expect("it starts");
        child.exit = None;
        listen(&child, &mut streams, Instant::now() + LONG, LONG).expect("it ends");
        assert_eq!(streams[0].text, b"out\n");
        assert!(end(&child).expect("it is ours").is_some());
    }

    /// A zombie counts as ended: only its parent, whoever that is by now, can do away with it.
    fn is_running(pid: &str) -> bool {
        let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    #[track_caller]
    fn assert_ends(pid: &str) {
        let since = Instant::now();
        while is_running(pid) {
            assert!(since.elapsed() < Duration::from_secs(20), "pid {pid} is still running");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn what_a_wrapper_started_is_ended_too() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let failure = shell(&script, Duration::from_secs(1)).expect_err("it hangs");
        assert!(matches!(failure, Failure::Late { .. }), "{failure}");
        assert_ends(fs::read_to_string(file).unwrap().trim());
    }

    #[test]
    fn a_process_left_behind_is_not_waited_for() {
        let output = shell("sleep 1000 & echo $!", Duration::from_secs(20)).expect("the shell has exited");
        assert_ends(String::from_utf8(output.stdout).unwrap().trim());
    }

    #[test]
    fn one_that_leaves_the_group_is_not_waited_for() {
        let output = shell("setsid sleep 1000 & echo $!", Duration::from_secs(20)).expect("it has exited");
        let pid = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }

    #[test]
    fn no_descriptor_of_ours_reaches_it() {
        let file = fs::File::open("/dev/null").unwrap();
        let inheritable = fcntl(&file, FcntlArg::F_DUPFD(100)).unwrap();
        assert_ne!(inheritable, file.as_raw_fd());
        let output = shell(&format!("test ! -e /proc/self/fd/{inheritable}"), LONG).expect("it runs");
        assert!(output.status.success(), "descriptor {inheritable} was inherited");
    }
}
