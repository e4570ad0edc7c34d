//! The lock of the coordination file, while other processes hold it and die.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::fcntl::FlockArg;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::running::{
    End, Running, answer, ending_signals, lock, locked, unheard, wait_until, waiting, with_one_held,
};
use crate::sandbox::{Process, Sandbox, is_root};
use crate::strace;

/// `sh -c`, which has said a line on its stdout.
fn shell(script: &str, host: &Sandbox) -> (Running, String) {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(host.path()).stdin(Stdio::piped());
    let mut shell = Running::with_stdout(&mut command, Stdio::piped());
    let line = shell.line();
    (shell, line)
}

#[test]
fn who_holds_the_lock_is_named() {
    let ((host, _holder), owner) = (with_one_held(), Process::start());
    let (flock, _) = shell("exec flock -o coordination sh -c 'echo; read x'", &host);
    let holder = format!("pid {} (flock -o coordination sh -c echo; read x)", flock.pid());
    assert_held_by(&host, &owner, &holder);
    drop(flock);

    let (flock, _) = shell("exec flock -s -o coordination sh -c 'echo; read x'", &host);
    let holder = format!("pid {} (flock -s -o coordination sh -c echo; read x)", flock.pid());
    assert_held_by(&host, &owner, &holder);
    drop(flock);

    // flock(1) took the lock and is gone, and so is the shell: the lock is the descriptor's.
    let child = "exec 9<coordination; flock 9; sleep 1000 >/dev/null 2>&1 </dev/null & echo $!";
    let (shell, pid) = shell(child, &host);
    shell.end();
    assert_held_by(&host, &owner, &format!("pid {pid} (sleep 1000)"));
    kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL).unwrap();
    wait_until("the lock is free", || lock(&host.file(), FlockArg::LockExclusiveNonblock).is_some());
}

/// On a busy machine the search through all processes may be given up, so that none is named; then it is repeated.
#[track_caller]
fn assert_held_by(host: &Sandbox, owner: &Process, holder: &str) {
    let before = host.text();
    for line in ["allocate 1", "2 --enable-coordination-mode", "deallocateAll"] {
        let command = format!("{line} --deadline 0.1 --owner {}", owner.pid());
        wait_until("the holder is named", || {
            let run = host.command(&command).assert().code(3).stdout("").get_output().clone();
            let stderr = String::from_utf8(run.stderr).unwrap();
            let (waited, named) = stderr.split_once(", which is held by ").unwrap();
            assert_eq!(
                waited,
                "gpu-coord: the deadline of 0.1 s passed while waiting for the lock on coordination"
            );
            assert!([holder, UNSEEN].contains(&named.trim_end()), "{named}");
            named.trim_end() == holder
        });
    }
    assert_eq!(host.text(), before);
}

const UNSEEN: &str = "a process that cannot be seen from here";

#[test]
fn who_holds_the_lock_may_not_be_seen() {
    if !is_root("who_holds_the_lock_may_not_be_seen") {
        return;
    }
    let ((host, _holder), owner) = (with_one_held(), Process::start());
    fs::set_permissions(host.path(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(host.file(), Permissions::from_mode(0o666)).unwrap();
    let _lock = locked(&host.file());
    let mut command = host.program(&format!("allocate 1 --deadline 0.1 --owner {}", owner.pid()));
    command.uid(65_534).gid(65_534);
    let problem = format!(
        "the deadline of 0.1 s passed while waiting for the lock on coordination, which is held by {UNSEEN}"
    );
    let refused = (End::Exit(3), String::new(), format!("gpu-coord: {problem}\n"));
    assert_eq!(Running::start(command).end(), refused);
}

#[test]
fn a_lock_that_comes_free_is_taken() {
    let ((host, _holder), owner) = (with_one_held(), Process::start());
    let (flock, _) = shell("exec flock -o coordination sh -c 'echo; read x'", &host);
    let caller = waiting(&host, &format!("allocate 1 --deadline 60 --owner {}", owner.pid()));
    flock.kill();
    assert_eq!(caller.end(), answer("1\n"));
}

#[test]
fn status_answers_while_a_writer_keeps_the_lock() {
    let (host, _holder) = with_one_held();
    let table = host.command("status").assert().code(0).stderr("").get_output().stdout.clone();
    let lock = locked(&host.file());
    let doubt = "coordination: read without its lock, which a writer holds; what is shown may mix two states";
    for line in ["status", "status --deadline 0.1"] {
        let answered = host.command(line).assert().code(0).stdout(table.clone());
        answered.stderr(format!("gpu-coord: warning: {doubt}\n"));
    }
    let warnings =
        |output: &[u8]| serde_json::from_slice::<serde_json::Value>(output).unwrap()["warnings"].clone();
    let output = host.command("status --json").assert().code(0).get_output().stdout.clone();
    assert_eq!(warnings(&output), serde_json::json!([doubt]));
    drop(lock);
    let output = host.command("status --json").assert().code(0).stderr("").get_output().stdout.clone();
    assert_eq!(warnings(&output), serde_json::json!([]));
}

#[test]
fn readers_share_the_lock_and_keep_writers_out() {
    let ((host, holder), owner) = (with_one_held(), Process::start());
    let readers: Vec<_> =
        (0..20).map(|_| lock(&host.file(), FlockArg::LockSharedNonblock).unwrap()).collect();
    host.command("status").assert().code(0).stderr("");
    let caller = waiting(&host, &format!("allocate 1 --deadline 60 --owner {}", owner.pid()));
    host.command("status").assert().code(0).stderr("");
    assert_eq!(host.holders(), [(0, holder.pid())]);
    drop(readers);
    assert_eq!(caller.end(), answer("1\n"));
}

#[test]
fn a_caller_that_dies_while_it_waits_leaves_nothing() {
    let ((host, _holder), owner) = (with_one_held(), Process::start());
    let before = host.text();
    for signal in ending_signals().into_iter().chain([Signal::SIGKILL]) {
        let lock = locked(&host.file());
        let caller = waiting(&host, &format!("allocate 1 --owner {}", owner.pid()));
        caller.signal(signal);
        assert_eq!(caller.end(), (End::Killed(signal), String::new(), String::new()));
        drop(lock);
        assert_eq!(host.text(), before, "{signal}");
    }
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "1\n");
}

/// What is recorded was never read, and still the owner may be told of it by nobody else: it holds as long as
/// the owner lives, and not longer.
#[test]
fn whoever_is_killed_with_the_lock_lets_go_of_it() {
    for frees in ["deallocateAll", "the owner ends"] {
        let ((host, _holder), owner, other) = (with_one_held(), Process::start(), Process::start());
        let (caller, _reader) =
            unheard(&host, &format!("allocate 1 --deadline 60 --owner {}", owner.pid()), owner.pid());
        assert!(lock(&host.file(), FlockArg::LockExclusiveNonblock).is_none(), "it keeps the lock");
        caller.kill();
        assert!(lock(&host.file(), FlockArg::LockExclusiveNonblock).is_some());

        let next = format!("1 --enable-coordination-mode --owner {}", other.pid());
        let problem =
            "1 unit asked for, 0 of 2 can be given: 2 held by living owners (`gpu-coord status` names them)";
        host.refuses(&next, 1, problem);
        if frees == "deallocateAll" {
            host.answers(&format!("deallocateAll --owner {}", owner.pid()), "");
        } else {
            owner.kill();
        }
        host.answers(&next, "1\n");
    }
}

/// The descriptor is made close-on-exec by the call that opens it, so that no child can inherit it.
#[test]
fn no_child_inherits_the_lock() {
    let owner = Process::start();
    let host = Sandbox::with_gpus(2).recorded("");
    let lock = locked(&host.file());
    let line = format!("--owner {}", owner.pid());
    for caller in [
        waiting(&host, &format!("allocate 1 {line}")),
        waiting(&host, &format!("deallocateAll {line}")),
        waiting(&host, "status"),
    ] {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", caller.pid())).unwrap();
        let names = descriptors.map(|entry| entry.unwrap());
        let ours = names
            .filter(|entry| fs::read_link(entry.path()).is_ok_and(|path| path.ends_with("coordination")));
        for entry in ours {
            let info = format!("/proc/{}/fdinfo/{}", caller.pid(), entry.file_name().display());
            let info = fs::read_to_string(info).unwrap();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
            let flags = i32::from_str_radix(flags, 8).unwrap();
            assert_ne!(flags & nix::libc::O_CLOEXEC, 0, "{info}");
        }
        caller.kill();
    }
    drop(lock);
}

/// Some network file systems have no locks: without one, nothing is read, granted or released.
#[test]
fn a_file_system_without_locks_is_refused() {
    if !strace::is_there("a_file_system_without_locks_is_refused") {
        return;
    }
    let (host, holder) = with_one_held();
    let before = host.text();
    let owner = format!("--owner {}", holder.pid());
    let lines = ["allocate 1", "1 --enable-coordination-mode", "deallocateAll"];
    let lines = lines.map(|line| format!("{line} {owner}"));
    for line in lines.iter().map(String::as_str).chain(["status"]) {
        let command = strace::inject(&host.program(line), "flock", "error=ENOLCK", "1+");
        let problem = "coordination: its file system gives no locks (ENOLCK); name a file on a local disk";
        let refused = (End::Exit(4), String::new(), format!("gpu-coord: {problem}\n"));
        assert_eq!(Running::start(command).end(), refused, "{line}");
        assert_eq!(host.text(), before, "{line}");
    }
}

/// Every other failure is reported as such, and an interrupted call is repeated.
#[test]
fn a_lock_that_fails_is_told_and_one_that_is_interrupted_is_taken() {
    if !strace::is_there("a_lock_that_fails_is_told_and_one_that_is_interrupted_is_taken") {
        return;
    }
    let (host, holder) = with_one_held();
    let program = host.program(&format!("allocate 1 --owner {}", holder.pid()));
    let before = host.text();
    let failed = Running::start(strace::inject(&program, "flock", "error=EIO", "1+")).end();
    let says = "gpu-coord: cannot lock coordination: Input/output error (os error 5)\n";
    assert_eq!(failed, (End::Exit(4), String::new(), says.to_owned()));
    assert_eq!(host.text(), before);
    let interrupted = Running::start(strace::inject(&program, "flock", "error=EINTR", "1")).end();
    assert_eq!(interrupted, (End::Exit(0), "1\n".to_owned(), String::new()));
}
