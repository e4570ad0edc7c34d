//! The coordination file replaced, removed and written to by others, who do not ask for its lock.

use std::fs::{self, File};
use std::io::Write;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::running::{End, Running, answer, locked, wait_until, waiting, with_one_held};
use crate::sandbox::{Process, Sandbox};
use crate::strace;

#[test]
#[expect(clippy::disallowed_methods, reason = "what Flink's script does to the file")]
fn a_lock_on_a_replaced_file_is_not_ours() {
    let ((host, holder), owner) = (with_one_held(), Process::start());
    let (old, new) = (host.path().join("old"), host.path().join("new"));
    fs::hard_link(host.file(), &old).unwrap();
    fs::copy(host.file(), &new).unwrap();
    let before = host.text();
    let lock = locked(&host.file());
    let caller = waiting(&host, &format!("allocate 1 --owner {}", owner.pid()));
    fs::rename(&new, host.file()).unwrap();
    drop(lock);
    assert_eq!(caller.end(), answer("1\n"));
    assert_eq!(fs::read_to_string(old).unwrap(), before);
    assert_eq!(host.holders(), [(0, holder.pid()), (1, owner.pid())]);
}

#[test]
fn a_lock_on_a_removed_file_is_not_ours() {
    let ((host, _holder), owner) = (with_one_held(), Process::start());
    let lock = locked(&host.file());
    let allocate = waiting(&host, &format!("allocate 1 --owner {}", owner.pid()));
    let deallocate = waiting(&host, &format!("deallocateAll --owner {}", owner.pid()));
    let status = waiting(&host, "status");
    fs::remove_file(host.file()).unwrap();
    drop(lock);
    assert_eq!(allocate.end(), answer("0\n"), "who removes the file forgets its owners");
    assert_eq!(deallocate.end().0, End::Exit(0));
    assert_eq!(status.end().0, End::Exit(0));
}

#[test]
fn the_directory_goes_while_the_lock_is_waited_for() {
    let ((host, _holder), owner) = (with_one_held(), Process::start());
    let directory = host.path().join("directory");
    fs::create_dir(&directory).unwrap();
    let file = directory.join("coordination");
    fs::copy(host.file(), &file).unwrap();
    let lock = locked(&file);
    let start = |line: &str| {
        let mut command = host.program(&line.replace("OWNER", &format!("--owner {}", owner.pid())));
        let running = Running::start({
            command.current_dir(&directory);
            command
        });
        wait_until("it has the file open", || running.has_open(&file));
        running
    };
    let (allocate, deallocate) = (start("allocate 1 OWNER"), start("deallocateAll OWNER"));
    fs::remove_dir_all(&directory).unwrap();
    drop(lock);
    let problem = "coordination: there is no directory .; make it, or name another file";
    assert_eq!(allocate.end(), (End::Exit(4), String::new(), format!("gpu-coord: {problem}\n")));
    assert_eq!(deallocate.end(), answer(""), "nothing is held where there is no file");
}

/// Stopped between the lock and the record, while somebody removes the file: the next caller makes another,
/// and must not be given what we then print.
#[test]
fn what_is_recorded_in_a_file_that_was_removed_is_not_printed() {
    if !strace::is_there("what_is_recorded_in_a_file_that_was_removed_is_not_printed") {
        return;
    }
    let (host, owner, other) = (Sandbox::with_gpus(2).recorded(""), Process::start(), Process::start());
    let line = format!("allocate 1 --deadline 60 --owner {}", owner.pid());
    let caller = Running::start(strace::inject(&host.program(&line), "pwrite64", "signal=SIGSTOP", "1"));
    wait_until("it has written, and nothing holds yet", || host.text().contains("grant="));
    assert_eq!(host.holders(), []);
    fs::remove_file(host.file()).unwrap();
    host.answers(&format!("allocate 1 --owner {}", other.pid()), "0\n");
    let problem =
        "coordination: was replaced or removed while it was locked; find out by what, and try again";
    assert_eq!(caller.go_on(), (End::Exit(4), String::new(), format!("gpu-coord: {problem}\n")));
    assert_eq!(host.holders(), [(0, other.pid())]);
}

/// Flink's script writes to a new file while it has locked the old one.
#[test]
fn a_line_that_is_appended_without_the_lock_is_kept() {
    if !strace::is_there("a_line_that_is_appended_without_the_lock_is_kept") {
        return;
    }
    let ((host, holder), owner, scripts) = (with_one_held(), Process::start(), Process::start());
    let before = host.text();
    let line = format!("allocate 1 --deadline 60 --owner {}", owner.pid());
    // The signals are blocked after all is read, and before anything is written.
    let caller =
        Running::start(strace::inject(&host.program(&line), "rt_sigprocmask", "signal=SIGSTOP", "1"));
    wait_until("it has blocked them", || caller.has_blocked(Signal::SIGTERM));
    let mut file = File::options().append(true).open(host.file()).unwrap();
    writeln!(file, "1 {}", scripts.pid()).unwrap();
    let problem = "coordination: was written to without its lock; find out by what, and try again";
    assert_eq!(caller.go_on(), (End::Exit(4), String::new(), format!("gpu-coord: {problem}\n")));
    assert_eq!(host.text().trim_end(), format!("{before}1 {}", scripts.pid()));
    let problem =
        "1 unit asked for, 0 of 2 can be given: 2 held by living owners (`gpu-coord status` names them)";
    host.refuses(&line, 1, problem);
    assert_eq!(host.holders(), [(0, holder.pid()), (1, scripts.pid())]);
}

/// A path that names another file at every look is given up at the deadline, and not looked at for ever.
#[test]
fn a_file_that_is_replaced_again_and_again_is_given_up() {
    if !strace::is_there("a_file_that_is_replaced_again_and_again_is_given_up") {
        return;
    }
    let (host, owner) = (Sandbox::with_gpus(2).recorded(""), Process::start());
    let line = format!("allocate 1 --deadline 0.3 --owner {}", owner.pid());
    // Its looks at the file, until it has the lock and looks whether the path still names what it locked.
    let calls = strace::calls(&host.program(&line));
    let from = calls.iter().position(|call| call.text.contains("\"coordination\", AT")).unwrap();
    let lock = calls.iter().position(|call| call.name == "flock").unwrap();
    let look =
        lock + calls[lock..].iter().position(|call| call.text.contains("\"coordination\", AT")).unwrap();
    let looks = calls[from..=look].iter().filter(|call| call.name == calls[look].name).count();
    let when = format!("{}+{looks}", calls[look].nth);
    host.answers(&format!("deallocateAll --owner {}", owner.pid()), "");
    let before = host.text();
    let caller =
        Running::start(strace::inject(&host.program(&line), &calls[look].name, "error=ENOENT", &when));
    let problem = "the deadline of 0.3 s passed while waiting for coordination to stay one file";
    assert_eq!(caller.end(), (End::Exit(3), String::new(), format!("gpu-coord: {problem}\n")));
    assert_eq!(host.text(), before);
}

/// Flink's script may still write to a file that is younger than a second. A test that was too slow for that
/// second, by the clock that it looks at itself, is begun again.
#[track_caller]
fn beside_the_script(test: impl Fn(&Sandbox, &Process, Instant) -> bool) {
    let is_done = (0..20).any(|_| {
        let (scripts, since) = (Process::start(), Instant::now());
        let host = Sandbox::with_gpus(4).recorded(format!("1 {}\n", scripts.pid()));
        test(&host, &scripts, since)
    });
    assert!(is_done, "this machine is too slow: twenty times the second was over");
}

#[test]
fn a_deadline_before_the_script_has_written_refuses() {
    for line in ["allocate 1", "1 --enable-coordination-mode", "deallocateAll"] {
        beside_the_script(|host, _scripts, since| {
            let (owner, before) = (Process::start(), host.text());
            let caller =
                Running::start(host.program(&format!("{line} --deadline 0.3 --owner {}", owner.pid())));
            let end = caller.end();
            if since.elapsed() > Duration::from_millis(650) {
                return false;
            }
            let problem = "the deadline of 0.3 s passed while waiting for Flink's script to finish writing the coordination file";
            assert_eq!(end, (End::Exit(3), String::new(), format!("gpu-coord: {problem}\n")), "{line}");
            assert_eq!(host.text(), before, "{line}");
            true
        });
    }
}

#[test]
fn what_the_script_writes_meanwhile_is_heeded() {
    for (appended, answer_is, holds) in [(None, "0,2\n", [0, 2]), (Some(0), "2,3\n", [2, 3])] {
        beside_the_script(|host, scripts, since| {
            let owner = Process::start();
            let caller = Running::start(host.program(&format!("allocate 2 --owner {}", owner.pid())));
            let mut is_over = false;
            wait_until("it has read the file and waits, with the lock", || {
                is_over = since.elapsed() > Duration::from_millis(800);
                is_over || caller.sleeps_after_reading(&host.file())
            });
            if let Some(index) = appended {
                let mut file = File::options().append(true).open(host.file()).unwrap();
                writeln!(file, "{index} {}", scripts.pid()).unwrap();
            }
            if is_over || since.elapsed() > Duration::from_millis(900) {
                return false;
            }
            assert_eq!(caller.end(), answer(answer_is), "{appended:?}");
            let scripts = appended.into_iter().chain([1]).map(|index| (index, scripts.pid()));
            let mut expected: Vec<_> = scripts.chain(holds.map(|index| (index, owner.pid()))).collect();
            expected.sort_unstable();
            assert_eq!(host.holders(), expected, "{appended:?}");
            true
        });
    }
}
