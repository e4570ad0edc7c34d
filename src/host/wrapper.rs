//! Scripts and tools between a JVM and us: administrators wrap the discovery script to set its options, but a wrapper
//! that became the owner would end at once.

use std::ffi::OsStr;
use std::path::Path;

use super::Host;
use super::process::{MOST_ANCESTORS, Process};
use crate::notes::Notes;

/// Shells that run wrapper scripts; each ends with its script.
const SHELLS: [&str; 11] =
    ["sh", "bash", "dash", "ash", "zsh", "ksh", "ksh93", "mksh", "fish", "busybox", "toybox"];

/// Tools that run one command and end with it.
#[rustfmt::skip] // a table
const TOOLS: [&str; 25] = [
    "sudo", "sudo-rs", "doas", "su", "runuser", "setpriv", "capsh", "gosu",
    "env", "timeout", "nice", "ionice", "chrt", "taskset", "numactl", "prlimit", "setsid", "setarch", "stdbuf",
    "flock", "nohup", "time", "strace", "unshare", "nsenter",
];

/// The name of a JVM.
const JVM: &str = "java";

/// A wrapper that has run for this long was not started for one call.
const SETTLED_SECONDS: u64 = 5;

pub(crate) fn is_one(host: &Host, process: &Process) -> bool {
    is_called(host, process, &[&SHELLS, &TOOLS])
}

/// Warns of a caller that ends with this call, for commands that do not look behind wrappers.
pub(crate) fn warn_of_tool(host: &Host, parent: &Process, notes: &mut Notes) {
    if is_called(host, parent, &[&TOOLS]) {
        let (pid, name) = (parent.pid, parent.name.escape_default());
        notes.warn(format!(
            "the owner is {name}, pid {pid}, which ends with this call; name the process that holds the units with \
             --owner PID"
        ));
    }
}

/// The JVM from which a wrapper was started, or else the wrapper itself.
pub(crate) fn behind(host: &Host, wrapper: Process, notes: &mut Notes) -> Process {
    // A process chooses its own name.
    let (pid, name) = (wrapper.pid, wrapper.name.escape_default());
    if let Some(java) = java_above(host, &wrapper) {
        notes.detail(format!("the owner is pid {}, the JVM that started {name}, pid {pid}", java.pid));
        return java;
    }
    let age = wrapper.start.and_then(|start| host.age(start));
    let is_settled = age.is_some_and(|age| age.as_secs() >= SETTLED_SECONDS);
    if !is_settled && !wrapper.is_session_leader() {
        notes.warn(format!(
            "the owner is {name}, pid {pid}, which has just been started and is not below a JVM; when it exits, \
             the units are free again: let it `exec` gpu-coord, or name the owner with --owner PID"
        ));
    }
    wrapper
}

fn java_above(host: &Host, wrapper: &Process) -> Option<Process> {
    let mut pid = wrapper.parent;
    for _ in 0..MOST_ANCESTORS {
        let process = host.process(pid).ok().flatten()?;
        if is_called(host, &process, &[&[JVM]]) {
            return Some(process);
        }
        pid = process.parent;
    }
    None
}

/// Judged by its own name and its executable or, where that may not be read, its first argument: a shell that was started
/// by a script's `#!` bears the name of the script.
fn is_called(host: &Host, process: &Process, names: &[&[&str]]) -> bool {
    let first_word = || Some(host.arguments(process.pid)?.into_iter().next()?.into());
    let is_one = |path: &Path| {
        let Some(name) = path.file_name().and_then(OsStr::to_str) else { return false };
        // A login shell's first argument begins with a dash. An executable that was upgraded is marked as deleted.
        let bare = name.trim_start_matches('-').trim_end_matches(" (deleted)");
        names.iter().any(|names| names.contains(&bare))
    };
    is_one(Path::new(&process.name))
        || host.executable(process.pid).or_else(first_word).is_some_and(|path| is_one(&path))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::fixture::{Running, Tree, stat, wait_for};
    use super::*;

    /// java 10 - sh 20 - the parent 30, and sh 40 with no JVM above it.
    fn wrapped(name: &str, parent: u32) -> Tree {
        Tree::new()
            .alive(10, 100)
            .process(20, "sh", 'S', 10, 1, 200)
            .process(30, name, 'S', parent, 1, 9_999)
            .process(40, "sh", 'S', 1, 1, 300)
            .file("proc/uptime", "100.00 1.00\n")
    }

    /// Who owns what process 30 asks for.
    fn owner(tree: &Tree) -> (u32, Vec<String>) {
        let (host, mut notes) = (tree.host(), Notes::default());
        let parent = host.process(30).unwrap().unwrap();
        let owner = if is_one(&host, &parent) { behind(&host, parent, &mut notes) } else { parent };
        (owner.pid, notes.warnings)
    }

    #[test]
    fn behind_every_wrapper_the_jvm_is_found() {
        for name in SHELLS.into_iter().chain(TOOLS) {
            assert_eq!(owner(&wrapped(name, 20)), (10, Vec::new()), "{name}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn only_behind_a_wrapper_is_looked() {
        let (exe, words) = ("proc/30/exe", "proc/30/cmdline");
        for (case, tree, pid) in [
            ("no wrapper",             wrapped("python3", 20),                              30),
            ("a JVM below a JVM",      wrapped("java", 20),                                 30),
            ("no JVM",                 wrapped("sh", 40),                                   30),
            ("an ancestor has exited", wrapped("sh", 50),                                   30),
            ("a circle",               wrapped("sh", 30),                                   30),
            ("a script, by its shell", wrapped("x.sh", 20).link(exe, "/usr/bin/dash"),      10),
            ("a script, by its words", wrapped("x.sh", 20).file(words, "/bin/bash\0x.sh\0"), 10),
            ("upgraded meanwhile",     wrapped("x.sh", 20).link(exe, "/usr/bin/bash (deleted)"), 10),
            ("not by its words",       wrapped("x", 20).link(exe, "/usr/bin/x").file(words, "sh\0"), 30),
            ("a login shell",          wrapped("x", 20).file(words, "-bash\0"),             10),
            ("a later word",           wrapped("x", 20).file(words, "x\0sh\0"),             30),
            ("a JVM by another name",  wrapped("sh", 20).process(10, "flink", 'S', 1, 9, 100).link("proc/10/exe", "/jdk/bin/java"), 10),
        ] {
            assert_eq!(owner(&tree).0, pid, "{case}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_young_wrapper_without_a_jvm_is_warned_of() {
        let with = |session: i32, start: u64| {
            wrapped("sh", 40).file("proc/30/stat", stat(30, "sh", 'S', 40, session, 1, start))
        };
        for (case, tree, warns) in [
            ("young",              with(1, 9_999),  true),
            ("just under 5 s old", with(1, 9_501),  true),
            ("5 s old",            with(1, 9_500),  false),
            ("a session leader",   with(30, 9_999), false),
            ("no uptime",          with(1, 1).without("proc/uptime"), true),
            ("no wrapper",         wrapped("python3", 40), false),
        ] {
            let (pid, warnings) = owner(&tree);
            assert_eq!((pid, warnings.len()), (30, usize::from(warns)), "{case}: {warnings:?}");
            assert!(warnings.iter().all(|line| line.contains("sh, pid 30") && line.contains("--owner")), "{case}");
        }
    }

    #[test]
    fn a_warning_is_one_line() {
        let tree = wrapped("x\ny\x1b[2J", 40).link("proc/30/exe", "/bin/dash");
        let (_, warnings) = owner(&tree);
        assert!(warnings[0].starts_with(r"the owner is x\ny\u{1b}[2J, pid 30, "), "{}", warnings[0]);
    }

    #[test]
    fn a_script_is_known_by_its_shell() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("gpus.sh");
        std::fs::write(&script, "#!/bin/sh\nread x\n").unwrap();
        let running = Running::start("sh", &["-c", "chmod +x \"$0\"; exec \"$0\"", script.to_str().unwrap()]);
        let process = wait_for(running.pid(), |process| process.name == "gpus.sh");
        let here = Host::new(Path::new("/"));
        assert!(is_called(&here, &process, &[&SHELLS]));
        assert!(!is_called(&here, &process, &[&[JVM]]));
    }
}
