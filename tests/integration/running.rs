//! The program while it runs: watched, and killed.

use std::fs::{self, File};
use std::io::{PipeReader, Read, Write, pipe};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, Flock, FlockArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::sandbox::{Process, Sandbox};

/// Waits for a condition instead of a fixed time.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(60), "it never came to this: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exit(i32),
    Killed(Signal),
}

/// A process that was started and may still run. It is killed when it is dropped.
pub(crate) struct Running {
    child: Child,
}

impl Running {
    /// Its stdout and stderr are read at its end.
    pub(crate) fn start(mut command: Command) -> Running {
        Running::with_stdout(command.stdin(Stdio::null()), Stdio::piped())
    }

    pub(crate) fn with_stdout(command: &mut Command, stdout: Stdio) -> Running {
        Running { child: command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of its stdout, without the line end.
    pub(crate) fn line(&mut self) -> String {
        #[expect(clippy::unbuffered_bytes, reason = "what follows the line is read later")]
        let bytes = self
            .child
            .stdout
            .as_mut()
            .unwrap()
            .bytes()
            .map(|byte| byte.unwrap())
            .take_while(|byte| *byte != b'\n')
            .collect();
        String::from_utf8(bytes).unwrap()
    }

    /// A line on its stdin, which must be a pipe.
    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.pid()).unwrap()), signal).unwrap();
    }

    /// Whether it has blocked a signal.
    pub(crate) fn has_blocked(&self, signal: Signal) -> bool {
        is_in("SigBlk", &self.pid().to_string(), signal)
    }

    /// Lets it go on after `SIGSTOP`, and waits for its end. It may not have stopped yet, so that it is told
    /// again.
    pub(crate) fn go_on(mut self) -> (End, String, String) {
        wait_until("it has gone on and ended", || {
            self.signal(Signal::SIGCONT);
            self.child.try_wait().unwrap().is_some()
        });
        self.end()
    }

    /// Whether it has the file open.
    pub(crate) fn has_open(&self, path: &Path) -> bool {
        let Ok(file) = fs::metadata(path) else { return false };
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.pid())).into_iter().flatten().flatten();
        let mut open = descriptors.filter_map(|entry| fs::metadata(entry.path()).ok());
        open.any(|open| (open.dev(), open.ino()) == (file.dev(), file.ino()))
    }

    /// Whether it sleeps, has locked the file and has read all of it, as the kernel says.
    pub(crate) fn sleeps_after_reading(&self, path: &Path) -> bool {
        let read =
            |name: &str| fs::read_to_string(format!("/proc/{}/{name}", self.pid())).unwrap_or_default();
        let Ok(file) = fs::metadata(path) else { return false };
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.pid())).into_iter().flatten().flatten();
        let at_end = format!("pos:\t{}\n", file.len());
        let mut ours = descriptors.filter(|entry| {
            fs::metadata(entry.path()).is_ok_and(|open| (open.dev(), open.ino()) == (file.dev(), file.ino()))
        });
        let is_read = ours.any(|entry| {
            let info = read(&format!("fdinfo/{}", entry.file_name().display()));
            info.starts_with(&at_end) && info.contains("FLOCK")
        });
        is_read && read("stat").rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
    }

    /// Waits for its end, and gives what is left of stdout and stderr.
    pub(crate) fn end(mut self) -> (End, String, String) {
        let mut status = None;
        wait_until("it has ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let status = status.unwrap();
        let read = |stream: Option<&mut dyn Read>| {
            let mut text = String::new();
            stream.map(|stream| stream.read_to_string(&mut text).unwrap());
            text
        };
        let stdout = read(self.child.stdout.as_mut().map(|stream| stream as &mut dyn Read));
        let stderr = read(self.child.stderr.as_mut().map(|stream| stream as &mut dyn Read));
        let end = match status.signal() {
            Some(signal) => End::Killed(Signal::try_from(signal).unwrap()),
            None => End::Exit(status.code().unwrap()),
        };
        (end, stdout, stderr)
    }

    /// Sends `SIGKILL` and waits for the end.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether the signal is in a set of `/proc/PID/status`.
fn is_in(set: &str, pid: &str, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let digits = status.lines().find_map(|line| line.strip_prefix(set)?.strip_prefix(':')).unwrap();
    u64::from_str_radix(digits.trim(), 16).unwrap() >> (signal as u32 - 1) & 1 == 1
}

/// What ends the program, but for what it was started to ignore: a test inherits that from `nohup` and `&`.
pub(crate) fn ending_signals() -> Vec<Signal> {
    let signals = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
    signals.into_iter().filter(|signal| !is_in("SigIgn", "self", *signal)).collect()
}

/// The lock, kept by this process until it is dropped.
#[expect(clippy::disallowed_methods, reason = "the test is another process that locks the file")]
pub(crate) fn lock(path: &Path, kind: FlockArg) -> Option<Flock<File>> {
    let file = File::options().read(true).write(true).open(path).unwrap();
    Flock::lock(file, kind).ok()
}

/// The exclusive lock, once nobody else has it.
#[track_caller]
pub(crate) fn locked(path: &Path) -> Flock<File> {
    let mut held = None;
    wait_until("the lock is free", || {
        held = lock(path, FlockArg::LockExclusiveNonblock);
        held.is_some()
    });
    held.unwrap()
}

/// A host of two units whose first is held, and its owner.
pub(crate) fn with_one_held() -> (Sandbox, Process) {
    let (host, holder) = (Sandbox::with_gpus(2), Process::start());
    host.answers(&format!("allocate 1 --owner {}", holder.pid()), "0\n");
    (host, holder)
}

/// How a run ends that goes well.
pub(crate) fn answer(text: &str) -> (End, String, String) {
    (End::Exit(0), text.to_owned(), String::new())
}

/// The program, which waits for the lock that the test keeps.
pub(crate) fn waiting(host: &Sandbox, line: &str) -> Running {
    opened(host, Running::start(host.program(line)))
}

/// The program, which has the coordination file open by now.
pub(crate) fn opened(host: &Sandbox, running: Running) -> Running {
    wait_until("it has the coordination file open", || running.has_open(&host.file()));
    running
}

/// The program, which has recorded what it grants to `owner`, keeps the lock, and cannot print it: its stdout
/// is a pipe that is full. It was not when the program looked, before it waited for the lock.
pub(crate) fn unheard(host: &Sandbox, line: &str, owner: u32) -> (Running, PipeReader) {
    let mut command = host.program(line);
    let lock = locked(&host.file());
    let (reader, mut writer) = pipe().unwrap();
    let running = Running::with_stdout(&mut command, writer.try_clone().unwrap().into());
    let running = opened(host, running);
    let size = fcntl(&writer, FcntlArg::F_GETPIPE_SZ).unwrap();
    // Exactly its size: `O_NONBLOCK` would be the program's too.
    writer.write_all(&vec![b'x'; usize::try_from(size).unwrap()]).unwrap();
    drop(lock);
    command.stdout(Stdio::null()); // it keeps the writer's end otherwise
    wait_until("the grant is recorded", || host.holders().iter().any(|(_, pid)| *pid == owner));
    (running, reader)
}
