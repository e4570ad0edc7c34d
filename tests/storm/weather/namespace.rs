//! A pid namespace of the storm's own, in which pids are used again soon.

use std::fs;
use std::io::Write;
use std::process::Command;

const INSIDE: &str = "STORM_IS_INSIDE";

/// Beyond this pid the next is looked for from the beginning.
const LARGEST: u32 = 600;

/// Runs `storm` in a pid namespace of its own, of which it is the first process: this test is run again there. Only
/// root can make one.
#[expect(clippy::disallowed_methods, reason = "the rule is for the program; a test has its own environment")]
pub(crate) fn within(test: &str, storm: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return storm();
    }
    if !nix::unistd::geteuid().is_root() {
        assert!(std::env::var_os("NOTHING_SKIPS").is_none(), "{test} would be skipped: it needs root");
        let said = std::io::stderr().write_all(format!("SKIPPED {test}: it needs root\n").as_bytes());
        return said.unwrap();
    }
    let mut again = Command::new("unshare");
    again.args(["--pid", "--fork", "--mount-proc", "--kill-child"]).arg(std::env::current_exe().unwrap());
    again.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(INSIDE, "1");
    assert!(again.status().unwrap().success(), "see above");
}

/// To be told the pid of each process that is started.
pub(crate) fn use_pids_again(last: u32) {
    if last > LARGEST {
        go_on_from(2);
    }
}

/// The next process is given the pid, if it is free.
pub(crate) fn use_next(pid: u32) {
    go_on_from(pid - 1);
}

/// It is the namespace's own number: that of others goes on.
fn go_on_from(pid: u32) {
    fs::write("/proc/sys/kernel/ns_last_pid", pid.to_string()).unwrap();
}

/// When a process was started, in clock ticks; and its state.
pub(crate) fn start_and_state(pid: u32) -> Option<(u64, u8)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    Some((fields[19].parse().ok()?, fields[0].as_bytes()[0]))
}
