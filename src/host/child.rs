//! A vendor's tool, run so that nothing it does can keep us: not by hanging, not even where no signal can
//! end it, not by printing without end, and not through a process that it leaves behind.
//!
//! * It is in a process group of its own, and the whole group is killed once the tool has exited or its
//!   time is up (`what_a_wrapper_started_is_ended_too`).
//! * It is killed when we die (`PR_SET_PDEATHSIG`), and is handed no descriptor but its three streams, so
//!   that an abandoned one holds neither a lock nor the pipe of whoever reads our answer.
//! * There is no wait without an end: a process that hangs in the driver takes no signal.

#![expect(unsafe_code, reason = "what a child does between fork and exec has no safe form")]

mod stream;

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{SigHandler, Signal, killpg, signal};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpid, getppid};

use crate::host::process::parse_stat;
use stream::Stream;

/// A few thousand devices fit in it.
const MOST_STDOUT: u64 = 1 << 20;
const MOST_STDERR: u64 = 1 << 16;
/// How long a killed process is waited for: on a busy host even its end takes a while.
const PATIENCE: Duration = Duration::from_secs(1);
/// After this long one that takes no signal is given up.
const GRACE: Duration = Duration::from_millis(100);
/// How long an exit can go unseen while another process keeps the streams open.
const TICK: Duration = Duration::from_millis(10);
const FIRST_PAUSE: Duration = Duration::from_micros(50);

/// What a program left that ran to its end.
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

/// Runs `command` and takes what it prints, both within `limit`; its standard input is empty.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<Output, Failure> {
    let until = Instant::now() + limit;
    let mut child = start(command)?;
    let heard = listen(&mut child, until, limit);
    let ended = end(&mut child).map_err(Failure::Listen)?;
    match (heard, ended) {
        (Ok([stdout, stderr]), Some(status)) => Ok(Output { status, stdout, stderr }),
        (Ok(_), None) => Err(stuck(&child, Failure::Late { limit })),
        (Err(failure), Some(_)) => Err(failure),
        (Err(failure), None) => Err(stuck(&child, failure)),
    }
}

fn stuck(child: &Child, why: Failure) -> Failure {
    Failure::Stuck { pid: child.id(), why: Box::new(why) }
}

fn start(command: &mut Command) -> Result<Child, Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let parent = getpid();
    // SAFETY: `bind` allocates nothing and makes only system calls, which are safe between fork and exec.
    unsafe { command.pre_exec(move || bind(parent)) };
    // SAFETY: no handler is installed. A caller that ignores SIGCHLD hands that on to us, and the kernel
    // would then reap the child before its exit status is read.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }.map_err(|err| Failure::Start(err.into()))?;
    command.spawn().map_err(Failure::Start)
}

/// Runs in the child: binds its life to `parent`, and keeps every descriptor but the standard ones from
/// the program, those too that we inherited from a careless caller.
fn bind(parent: Pid) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    if getppid() != parent {
        // It died before the request was made, and no signal will come.
        return Err(Errno::ESRCH.into());
    }
    let (first, last) = (3_u32, u32::MAX);
    // SAFETY: the call takes three numbers. Before Linux 5.11 it fails, and what we opened ourselves is
    // closed on exec all the same.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
    Ok(())
}

/// Everything that `child` printed until it exited. A process that it left behind, and that holds the
/// streams open, is not waited for.
fn listen(child: &mut Child, until: Instant, limit: Duration) -> Result<[Vec<u8>; 2], Failure> {
    let mut stdout = Stream::new("standard output", MOST_STDOUT, child.stdout.take())?;
    let mut stderr = Stream::new("standard error", MOST_STDERR, child.stderr.take())?;
    let mut pause = FIRST_PAUSE;
    loop {
        // Asked before the streams are read: what was printed before the exit is in them by then.
        let exited = has_exited(child).map_err(Failure::Listen)?;
        stdout.drain()?;
        stderr.drain()?;
        if exited {
            return Ok([stdout.text, stderr.text]);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Late { limit });
        }
        stream::wait([&stdout, &stderr], left.min(TICK), &mut pause).map_err(Failure::Listen)?;
    }
}

/// The exit is seen and not taken: while the child is not reaped, its pid and the id of its group cannot
/// come to name anyone else.
fn has_exited(child: &Child) -> io::Result<bool> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    match waitid(Id::Pid(pid(child)), flags) {
        Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => Ok(false),
        Ok(_) => Ok(true),
        Err(err) => Err(err.into()),
    }
}

/// Kills what is left of the child's group and takes its status; `None` if it cannot be killed.
fn end(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    // The one error there is means that nobody is left.
    let _ = killpg(pid(child), Signal::SIGKILL);
    let since = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let status = child.try_wait()?;
        let waited = since.elapsed();
        if status.is_some() || waited >= PATIENCE || (waited >= GRACE && hangs(child)) {
            return Ok(status);
        }
        std::thread::sleep(pause);
        pause = TICK.min(pause * 2);
    }
}

/// Whether it is in a system call that no signal ends. If nothing can be seen of it, it is not waited for.
fn hangs(child: &Child) -> bool {
    let stat = std::fs::read(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    parse_stat(&stat).is_none_or(|process| process.state == b'D')
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
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
        assert!(run(&mut Command::new("/nonexistent/tool"), LONG).expect_err("missing").is_missing());
        assert!(!run(&mut Command::new("/"), LONG).expect_err("a directory").is_missing());
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
