//! What is printed on stdout is recorded, and what could not be printed is not (G2). Here stdout fails after
//! the program checked it, with the record written; `command_line` tests a stdout that fails at once.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::Command;
use std::time::Instant;

use crate::record::{assert_sound, held_in, units_of};
use crate::running::{End, Running, answer, ending_signals, unheard, wait_until};
use crate::sandbox::{Process, Sandbox, may_mount};
use crate::strace;

/// A host of three units, of which `others` holds the first.
fn with_one_held() -> (Sandbox, Process, Process) {
    let (host, other, owner) = (Sandbox::with_gpus(3), Process::start(), Process::start());
    host.answers(&format!("allocate 1 --owner {}", other.pid()), "0\n");
    (host, other, owner)
}

fn refused(code: i32, problem: &str) -> (End, String, String) {
    (End::Exit(code), String::new(), format!("gpu-coord: {problem}\n"))
}

#[test]
fn a_reader_that_goes_away_leaves_nothing_recorded() {
    let (host, other, owner) = with_one_held();
    let (caller, reader) = unheard(&host, &format!("allocate 2 --owner {}", owner.pid()), owner.pid());
    drop(reader);
    let problem = "cannot write the answer to standard output: Broken pipe (os error 32)";
    assert_eq!(caller.end(), refused(4, problem));
    assert_eq!(host.holders(), [(0, other.pid())]);
    host.answers(&format!("allocate 2 --owner {}", other.pid()), "1,2\n");
}

#[test]
fn a_reader_that_never_reads_leaves_nothing_recorded() {
    let (host, other, owner) = with_one_held();
    let line = format!("allocate 2 --deadline 2 --owner {}", owner.pid());
    let (caller, _reader) = unheard(&host, &line, owner.pid());
    for signal in ending_signals() {
        caller.signal(signal);
    }
    let problem = "the deadline of 2 s passed while waiting for the reader of standard output";
    assert_eq!(caller.end(), refused(3, problem), "the signals do not keep the record from being taken back");
    assert_eq!(host.holders(), [(0, other.pid())]);
}

#[test]
fn a_reader_that_is_late_gets_the_answer_and_the_record_stays() {
    let (host, other, owner) = with_one_held();
    let line = format!("allocate 2 --deadline 60 --owner {}", owner.pid());
    let (caller, mut reader) = unheard(&host, &line, owner.pid());
    for signal in ending_signals() {
        caller.signal(signal);
    }
    let mut read = String::new();
    reader.read_to_string(&mut read).unwrap();
    assert_eq!(read.trim_start_matches('x'), "1,2\n");
    assert_eq!(
        caller.end(),
        (End::Exit(0), String::new(), String::new()),
        "it was answered, whatever the signals"
    );
    assert_eq!(host.holders(), [(0, other.pid()), (1, owner.pid()), (2, owner.pid())]);
}

/// There, a thread watches that the run ends until the record is written, and must not take a signal that the
/// main thread has blocked. Stopped while it writes the record.
#[test]
fn on_a_network_file_system_a_signal_parts_neither_from_the_other() {
    const TEST: &str = "on_a_network_file_system_a_signal_parts_neither_from_the_other";
    if !may_mount(TEST) || !strace::is_there(TEST) {
        return;
    }
    let (host, other, owner) = with_one_held();
    let before = host.text();
    fs::write(host.path().join("mountinfo"), "1 0 0:9 / / rw - nfs server:/x rw\n").unwrap();
    let program = host.program(&format!("allocate 2 --deadline 60 --owner {}", owner.pid()));
    let stopped = strace::inject(&program, "pwrite64", "signal=SIGSTOP", "1");
    let mut command = Command::new("unshare");
    // A mount of its own, or the kernel itself would tell that it lies on a disk.
    let mounts = "mount --bind \"$PWD\" \"$PWD\" && cd \"$PWD\" && mount --bind mountinfo /proc/$$/mountinfo && \
                  exec \"$0\" \"$@\"";
    command.args(["-m", "sh", "-c", mounts]).arg(stopped.get_program()).args(stopped.get_args());
    command.current_dir(host.path());
    let caller = Running::start(command);
    wait_until("it writes the record", || host.text() != before);
    let threads = fs::read_dir(format!("/proc/{}/task", caller.pid())).unwrap().count();
    assert_eq!(threads, 2, "the thread that watches is there");
    for signal in ending_signals() {
        caller.signal(signal);
    }
    assert_eq!(caller.go_on(), answer("1,2\n"));
    assert_eq!(host.holders(), [(0, other.pid()), (1, owner.pid()), (2, owner.pid())]);
}

#[test]
fn a_full_disk_behind_stdout_leaves_the_record_as_it_was() {
    let (host, other, owner) = with_one_held();
    let before = host.text();
    let mut command = host.program(&format!("allocate 2 --owner {}", owner.pid()));
    let full = File::options().write(true).open("/dev/full").unwrap();
    let problem = "cannot write the answer to standard output: No space left on device (os error 28)";
    assert_eq!(Running::with_stdout(&mut command, full.into()).end(), refused(4, problem));
    assert_eq!(host.holders(), [(0, other.pid())]);
    let after = host.text();
    assert_eq!(&after[..before.len()], before, "what others hold is not touched");
    assert!(after[before.len()..].lines().all(|line| line.starts_with('#')), "{after}");
}

/// A write past `RLIMIT_FSIZE` fails like one on a full disk, where by default its signal would kill.
#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_no_death() {
    let (host, other, owner) = with_one_held();
    let before = host.text();
    let limited = |limit: usize, line: &str| {
        let program = host.program(line);
        let mut command = Command::new("prlimit");
        command.arg(format!("--fsize={limit}")).arg(program.get_program()).args(program.get_args());
        command.current_dir(host.path());
        command
    };
    let line = format!("allocate 2 --owner {}", owner.pid());
    let grown = Running::start(limited(before.len(), &line));
    assert_eq!(
        grown.end(),
        refused(
            4,
            "cannot grow coordination: File too large (os error 27); raise the limit of the size of files (ulimit -f)"
        )
    );
    assert_eq!(host.text(), before);

    let answer = host.path().join("answer");
    let mut stdout = File::options().create(true).append(true).open(&answer).unwrap();
    stdout.write_all(&[b'x'; 4096]).unwrap();
    let printed = Running::with_stdout(&mut limited(4096, &line), stdout.into());
    let problem = "cannot write the answer to standard output: File too large (os error 27)";
    assert_eq!(printed.end(), refused(4, problem));
    assert_eq!(fs::metadata(answer).unwrap().len(), 4096);
    assert_eq!(host.holders(), [(0, other.pid())]);
}

#[test]
fn what_can_neither_be_handed_over_nor_taken_back_is_said() {
    if !strace::is_there("what_can_neither_be_handed_over_nor_taken_back_is_said") {
        return;
    }
    let (host, other, owner) = with_one_held();
    let (pid, line) = (owner.pid(), format!("allocate 2 --owner {}", owner.pid()));
    // Body, first bytes of two lines; the fourth write would be the first of the undo.
    let mut command = strace::inject(&host.program(&line), "pwrite64", "error=EIO", "4+");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let problem = format!(
        "recorded for pid {pid} and not given: cannot write the answer to standard output: No space left on device (os error 28), and cannot write to coordination: Input/output error (os error 5); the units are free again when pid {pid} has ended"
    );
    assert_eq!(Running::with_stdout(&mut command, full.into()).end(), refused(4, &problem));
    assert_eq!(host.holders(), [(0, other.pid()), (1, pid), (2, pid)]);
    host.answers(&format!("deallocateAll --owner {pid}"), "");
    assert_eq!(host.holders(), [(0, other.pid())]);
}

/// Whatever write of the record fails, first, last or one between, nothing is held and nothing printed.
#[test]
fn a_write_that_fails_leaves_nothing_recorded() {
    if !strace::is_there("a_write_that_fails_leaves_nothing_recorded") {
        return;
    }
    for (at, name, nth, action) in [
        ("the growth", "write", "1", "grow"),
        ("the body", "pwrite64", "1", "write to"),
        ("the first byte of one", "pwrite64", "2", "write to"),
        ("the first byte of the other", "pwrite64", "3", "write to"),
        // It cannot be undone then, and need not be.
        ("the body and all after it", "pwrite64", "1+", "write to"),
        ("the first byte of one and all after it", "pwrite64", "2+", "write to"),
    ] {
        let (host, other, owner) = with_one_held();
        let line = format!("allocate 2 --owner {}", owner.pid());
        let command = strace::inject(&host.program(&line), name, "error=ENOSPC", nth);
        let problem = format!(
            "cannot {action} coordination: No space left on device (os error 28); make room on its file system"
        );
        assert_eq!(Running::start(command).end(), refused(4, &problem), "{at}");
        let held = held_in(&host.file());
        assert_sound(&held);
        assert_eq!(host.holders(), [(0, other.pid())], "{at}");
        host.answers(&line, "1,2\n");
    }
}

/// The moment varies with the machine's load, so there are many runs, and each must be consistent.
#[test]
fn a_signal_at_any_moment_parts_neither_from_the_other() {
    let (host, _other, owner) = with_one_held();
    let line = format!("allocate 2 --owner {}", owner.pid());
    let release = format!("deallocateAll --owner {}", owner.pid());
    let since = Instant::now();
    host.answers(&line, "1,2\n");
    let usual = since.elapsed();
    host.answers(&release, "");
    let signals = ending_signals();
    for (run, signal) in (0..90_u32).zip(signals.into_iter().cycle()) {
        let (since, wait) = (Instant::now(), usual * run / 60);
        let caller = Running::start(host.program(&line));
        while since.elapsed() < wait {
            std::hint::spin_loop();
        }
        caller.signal(signal);
        let (end, stdout, stderr) = caller.end();
        let given = units_of(&held_in(&host.file()), owner.pid());
        let expected = if given.is_empty() { (End::Killed(signal), "") } else { (End::Exit(0), "1,2\n") };
        assert_eq!((end, stdout.as_str()), expected, "after {wait:?}: {stderr}");
        host.answers(&release, "");
    }
}
