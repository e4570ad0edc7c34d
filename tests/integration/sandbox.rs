//! A directory with a coordination file, processes that can own units, and the program run against them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use assert_cmd::Command;
use assert_cmd::assert::Assert;
use tempfile::TempDir;

/// The program, with an empty environment.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_gpu-coord");

#[must_use = "a sandbox checks nothing until the program is run in it"]
pub(crate) struct Sandbox {
    directory: TempDir,
    source: String,
}

impl Sandbox {
    /// A host of `count` simulated GPUs, and no coordination file yet.
    pub(crate) fn with_gpus(count: u32) -> Sandbox {
        Sandbox { directory: tempfile::tempdir().unwrap(), source: format!("simulated:{count}") }
    }

    /// A host whose devices are read from this source.
    pub(crate) fn with_source(source: &str) -> Sandbox {
        Sandbox { directory: tempfile::tempdir().unwrap(), source: source.to_owned() }
    }

    /// With this text as the coordination file.
    pub(crate) fn recorded(self, text: impl AsRef<[u8]>) -> Sandbox {
        fs::write(self.file(), text).unwrap();
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The coordination file; the program is told the name `coordination` in its working directory.
    pub(crate) fn file(&self) -> PathBuf {
        self.path().join("coordination")
    }

    pub(crate) fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }

    /// The pairs of index and pid that the file holds, as Flink's script would read them, sorted.
    pub(crate) fn holders(&self) -> Vec<(u32, u32)> {
        let pair = |line: &str| -> (u32, u32) {
            let mut words = line.split_ascii_whitespace().map(|word| word.parse().unwrap());
            (words.next().unwrap(), words.next().unwrap())
        };
        let text = self.text();
        let held = text.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
        let mut holders: Vec<_> = held.map(pair).collect();
        holders.sort_unstable();
        holders
    }

    /// `gpu-coord`, with the words of `line`, the coordination file and, where it has one, the source.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::from_std(self.program(line));
        command.timeout(Duration::from_secs(60)); // what hangs fails
        command
    }

    /// The same, to be started and not waited for.
    pub(crate) fn program(&self, line: &str) -> std::process::Command {
        let mut command = std::process::Command::new(PROGRAM);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").current_dir(self.path());
        command.args(line.split_ascii_whitespace()).args(["--coordination-file", "coordination"]);
        if !line.starts_with("deallocate") && !line.contains("--source") {
            command.args(["--source", &self.source]);
        }
        command
    }

    /// Runs it and expects this answer and nothing on stderr.
    #[track_caller]
    pub(crate) fn answers(&self, line: &str, stdout: &str) {
        self.command(line).assert().code(0).stderr("").stdout(stdout.to_owned());
    }

    /// A refusal prints nothing on stdout, which Flink would take for indexes, and one line on stderr.
    #[track_caller]
    pub(crate) fn refuses(&self, line: &str, code: i32, stderr: &str) -> Assert {
        self.command(line).assert().code(code).stdout("").stderr(format!("gpu-coord: {stderr}\n"))
    }
}

/// A process that lives until it is dropped.
pub(crate) struct Process {
    child: Child,
}

impl Process {
    pub(crate) fn start() -> Process {
        let mut command = std::process::Command::new("sleep");
        let child = command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        Process { child }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it and waits until it is gone.
    pub(crate) fn kill(mut self) -> u32 {
        self.end();
        self.pid()
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// A pid that no process has, nor will: of one that has just ended, or, where the kernel soon gives such a number out
/// again, one beyond those that it gives out (`/proc/sys/kernel/pid_max`, proc_sys_kernel(5); 4,194,304 at most).
pub(crate) fn dead_pid() -> u32 {
    const LIMIT: u32 = 4_194_304;
    static BEYOND: AtomicU32 = AtomicU32::new(LIMIT - 1);
    let pid_max: u32 = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap().trim_end().parse().unwrap();
    if pid_max < LIMIT / 2 { BEYOND.fetch_sub(1, Ordering::Relaxed) } else { Process::start().kill() }
}

/// A copy of the program, by another process: one that this process has open for writing, if only in a child
/// that another test is about to start, cannot be executed.
#[track_caller]
pub(crate) fn install(path: &Path) {
    let status =
        std::process::Command::new("install").args(["-m", "755", PROGRAM]).arg(path).status().unwrap();
    assert!(status.success(), "install failed");
}

/// Prints a notice even if the test passes; the output of `eprintln!` is shown only if it fails.
#[expect(clippy::explicit_write, reason = "the test harness captures what eprintln! prints")]
pub(crate) fn show(text: &str) {
    writeln!(std::io::stderr(), "{text}").unwrap();
}

/// Prints that a test did not run. If the variable `NOTHING_SKIPS` is set, as in CI, the test fails.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "it is the tests' variable, and not the program's")]
pub(crate) fn skip(test: &str, why: &str) {
    assert!(std::env::var_os("NOTHING_SKIPS").is_none(), "{test} would be skipped: {why}");
    show(&format!("SKIPPED {test}: {why}"));
}

/// For tests that only root can run.
pub(crate) fn is_root(test: &str) -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        skip(test, "it needs root");
    }
    is_root
}

/// For tests that mount something in a mount namespace of their own.
pub(crate) fn may_mount(test: &str) -> bool {
    if !is_root(test) {
        return false;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new("unshare");
    command.args(["-m", "mount", "-t", "tmpfs", "none"]).arg(directory.path());
    let may_mount = command.output().unwrap().status.success();
    if !may_mount {
        skip(test, "root may not mount here");
    }
    may_mount
}
