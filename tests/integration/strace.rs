//! The program under strace(1), which kills or stops it at one of its system calls, or makes the call fail.

use std::collections::HashMap;
use std::fs;
use std::process::{Command, Output, Stdio};

use tempfile::NamedTempFile;

use crate::sandbox::{show, skip};

/// A system call, by its name and its number among the calls of that name in a run, from 1.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) nth: usize,
    /// As strace prints it.
    pub(crate) text: String,
}

impl Call {
    /// Whether it may change something that outlives the process: what is recorded, locked, confined or told. Two
    /// kills with no such call between them leave the same.
    pub(crate) fn may_change_something(&self) -> bool {
        /// All else is taken for a change.
        const READS: [&str; 38] = [
            "access",
            "arch_prctl",
            "brk",
            "capget",
            "clock_gettime",
            "clock_nanosleep",
            "close",
            "faccessat",
            "faccessat2",
            "fstat",
            "fstatfs",
            "futex",
            "getcwd",
            "getdents64",
            "geteuid",
            "getpid",
            "getppid",
            "getrandom",
            "getuid",
            "lseek",
            "madvise",
            "mmap",
            "mprotect",
            "munmap",
            "newfstatat",
            "nanosleep",
            "poll",
            "pread64",
            "prlimit64",
            "read",
            "readlink",
            "readlinkat",
            "rseq",
            "rt_sigaction",
            "set_robust_list",
            "set_tid_address",
            "statfs",
            "statx",
        ];
        let makes_nothing = self.name == "openat" && !self.text.contains("O_CREAT");
        let asks = self.name == "fcntl" && self.text.contains("F_GET");
        !(READS.contains(&self.name.as_str()) || makes_nothing || asks)
    }
}

/// Of the calls of a run, those before which a kill can leave something else than before the one before. With the
/// variable `SWEEP=all` it is all of them.
pub(crate) fn turning_points(calls: Vec<Call>) -> Vec<Call> {
    if sweeps_all() {
        return calls;
    }
    let follows_a_change: Vec<bool> =
        std::iter::once(true).chain(calls.iter().map(Call::may_change_something)).collect();
    calls.into_iter().zip(follows_a_change).filter(|(_, follows)| *follows).map(|(call, _)| call).collect()
}

/// Whether the long form of a sweep is wanted.
#[expect(clippy::disallowed_methods, reason = "it is the tests' variable, and not the program's")]
pub(crate) fn sweeps_all() -> bool {
    std::env::var_os("SWEEP").is_some_and(|value| value == "all")
}

/// In the long form, prints the size of a sweep.
pub(crate) fn show_kills(killed: usize) {
    if sweeps_all() {
        show(&format!("killed {killed} times"));
    }
}

/// Whether strace is there and may trace; where not, the test is skipped.
pub(crate) fn is_there(test: &str) -> bool {
    let traced = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).output();
    let is_there = traced.is_ok_and(|output| output.status.success());
    if !is_there {
        skip(test, "it needs strace, with the right to trace");
    }
    is_there
}

/// Every system call of a run that goes well, in order.
#[track_caller]
pub(crate) fn calls(command: &Command) -> Vec<Call> {
    let (output, calls) = traced(command);
    assert!(output.status.success(), "{output:?}");
    calls
}

/// The same, however the run goes.
pub(crate) fn every_call(command: &Command) -> Vec<Call> {
    traced(command).1
}

fn traced(command: &Command) -> (Output, Vec<Call>) {
    let log = NamedTempFile::new().unwrap();
    let log = log.path();
    let output = under(command, &["-qq", "-o", log.to_str().unwrap()]).output().unwrap();
    (output, parse(&fs::read_to_string(log).unwrap()))
}

/// What strace has written.
pub(crate) fn parse(text: &str) -> Vec<Call> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    let call = |line: &str| {
        let name = line.split('(').next().unwrap().to_owned();
        let nth = counts.entry(name.clone()).and_modify(|count| *count += 1).or_insert(1);
        Call { name, nth: *nth, text: line.to_owned() }
    };
    // Received signals are listed as well.
    text.lines().filter(|line| !line.starts_with("---")).map(call).collect()
}

/// The command, with `what` (`signal=...` or `error=...`) at a call of the name, by strace's `when=`.
pub(crate) fn inject(command: &Command, name: &str, what: &str, when: &str) -> Command {
    let (trace, inject) = (format!("trace={name}"), format!("inject={name}:{what}:when={when}"));
    // -D: the process that is started is the program's, and the tracer its grandchild.
    under(command, &["-D", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject])
}

fn under(command: &Command, options: &[&str]) -> Command {
    let mut strace = Command::new("strace");
    strace.args(options).arg("--").arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    strace.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    strace.current_dir(command.get_current_dir().unwrap());
    strace
}
