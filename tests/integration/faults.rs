//! Every system call of the program fails, in each way that its manual page allows: there is a right answer, or an
//! error with nothing recorded; never a wrong answer, a hang or a panic.
//!
//! The short form has each call fail in one of the ways in turn; with the variable `SWEEP=all` it is all of them, once
//! and from then on.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::thread;

use crate::exec;
use crate::record::{assert_sound, held_in, is_alive, of_the_living, units_of};
use crate::running::{End, Running};
use crate::sandbox::show;
use crate::scene::{ALLOCATIONS, Scene, units};
use crate::strace::{self, Call};

/// What is done to a run.
#[derive(Debug)]
pub(crate) struct Fault<'a> {
    pub(crate) call: &'a Call,
    pub(crate) error: &'static str,
    /// Every later call of the name fails as well.
    lasts: bool,
}

impl Fault<'_> {
    /// In the words of strace's options.
    pub(crate) fn when(&self) -> String {
        format!("{}{}", self.call.nth, if self.lasts { "+" } else { "" })
    }
}

/// The errors of open(2), read(2), ... that are a host's and not a mistake of the caller's.
fn errors(call: &Call) -> &'static [&'static str] {
    let has = |text: &str| call.text.contains(text);
    match call.name.as_str() {
        "openat" if has("O_CREAT") => &["EACCES", "EINTR", "EIO", "EMFILE", "ENOMEM", "ENOSPC"],
        "openat" if has("O_NONBLOCK") => &["EACCES", "EAGAIN", "EINTR", "EIO", "EMFILE", "ENOMEM"],
        "openat" => &["EACCES", "EINTR", "EIO", "EMFILE", "ENOMEM"],
        "read" | "pread64" => &["EINTR", "EIO"],
        // A caller may have made the pipe one that never waits.
        "write" if has("write(1,") || has("write(2,") => &["EAGAIN", "EINTR", "EIO", "ENOSPC"],
        "write" | "pwrite64" => &["EINTR", "EIO", "ENOSPC"],
        "statx" | "fstat" | "newfstatat" | "readlink" | "readlinkat" => &["EACCES", "EIO", "ENOMEM"],
        "access" | "faccessat" | "faccessat2" => &["EACCES", "EIO", "ENOMEM"],
        "flock" => &["EAGAIN", "EINTR", "ENOLCK", "ENOMEM"],
        "getdents64" => &["EIO", "ENOMEM"],
        "getcwd" => &["EACCES", "ENOMEM"],
        "getrandom" if has("GRND_NONBLOCK") => &["EAGAIN"],
        "poll" => &["EAGAIN", "EINTR", "ENOMEM"],
        // brk(2) answers with what there is, and has no errors: see `limits_part_neither_from_the_other`.
        "mmap" => &["ENOMEM"],
        "clock_nanosleep" | "nanosleep" | "wait4" => &["EINTR"],
        "clone" | "clone3" | "fork" | "vfork" => &["EAGAIN", "ENOMEM"],
        "dup" | "dup2" | "dup3" | "inotify_init1" | "pidfd_open" | "pipe2" => &["EMFILE", "ENOMEM"],
        "memfd_create" | "socket" => &["EACCES", "EMFILE", "ENOMEM"],
        "connect" | "sendto" | "sendmsg" => &["EACCES", "EAGAIN", "EINTR", "ENOMEM"],
        "statfs" | "fstatfs" => &["EACCES", "EINTR", "EIO", "ENOMEM"],
        "mkdir" | "mkdirat" | "mknodat" => &["EACCES", "ENOMEM", "ENOSPC"],
        "rmdir" | "unlink" | "unlinkat" => &["EACCES", "EIO", "ENOMEM"],
        "bpf" => &["EACCES", "EAGAIN", "ENOMEM"],
        // F_SETFL returns none of these; for an append-only file it returns EPERM.
        "fcntl" if has("F_SETFL") => &["EPERM"],
        "execve" => &["EACCES", "ENOMEM"],
        _ => &[],
    }
}

/// In the short form each call fails once, in one way after the other. In the long form in every way, and with `last`
/// for good as well.
pub(crate) fn faults(calls: &[Call], last: bool) -> Vec<Fault<'_>> {
    let mut faults = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        let errors = errors(call);
        if strace::sweeps_all() {
            // No host interrupts for ever; and the other getrandom(2) of a run never returns EAGAIN.
            let lasting =
                errors.iter().filter(|error| last && **error != "EINTR" && call.name != "getrandom");
            faults.extend(errors.iter().map(|error| Fault { call, error, lasts: false }));
            faults.extend(lasting.map(|error| Fault { call, error, lasts: true }));
        } else if !errors.is_empty() {
            faults.push(Fault { call, error: errors[at % errors.len()], lasts: false });
        }
    }
    faults
}

/// How a run ended, and what it printed.
pub(crate) type Ended = (End, String, String);

const NOT_ONE_LINE: &str = "not one line";

pub(crate) fn is_one_line(stderr: &str) -> bool {
    stderr.starts_with("gpu-coord: ") && stderr.matches('\n').count() == 1
}

pub(crate) fn is_warnings(stderr: &str) -> bool {
    stderr.lines().all(|line| line.starts_with("gpu-coord: warning: "))
}

/// What is wrong with how a run ended, if anything. `given`: the units that are recorded for `pid` afterwards.
fn wrong(end: &Ended, given: &BTreeSet<u32>, pid: u32) -> Option<&'static str> {
    let (end, stdout, stderr) = end;
    let is_said = stderr.contains(&format!("recorded for pid {pid} and not given: "));
    match end {
        End::Exit(0) if units(stdout) != *given => Some("what is printed is not what is recorded"),
        End::Exit(0) if !is_warnings(stderr) => Some("something but warnings beside an answer"),
        End::Exit(0) => None,
        _ if !stdout.is_empty() => Some("an answer, and a failure"),
        End::Exit(3 | 4) if !given.is_empty() && !is_said => Some("refused, and recorded"),
        End::Exit(3 | 4) if !is_one_line(stderr) => Some(NOT_ONE_LINE),
        End::Exit(3 | 4) => None,
        End::Exit(_) => Some("the status of another failure"),
        End::Killed(_) => Some("killed"),
    }
}

/// How the runs ended.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    done: usize,
    refused: usize,
    wrong: String,
}

impl Tally {
    pub(crate) fn note(&mut self, line: &str, fault: &Fault<'_>, end: &Ended, wrong: Option<&str>) {
        // The message would be written in the same way.
        let is_mute = fault.lasts && ["poll", "write"].contains(&fault.call.name.as_str());
        match wrong {
            Some(NOT_ONE_LINE) if is_mute && end.2.is_empty() => self.refused += 1,
            Some(what) => writeln!(self.wrong, "{line}: {fault:?}: {what}: {end:?}").unwrap(),
            None if end.0 == End::Exit(0) => self.done += 1,
            None => self.refused += 1,
        }
    }

    #[track_caller]
    pub(crate) fn check(&self) {
        assert!(self.wrong.is_empty(), "{}", self.wrong);
        assert!(self.done > 5 && self.refused > 5, "{self:?}");
        if strace::sweeps_all() {
            show(&format!(
                "{} faults: {} times done, {} times refused",
                self.done + self.refused,
                self.done,
                self.refused
            ));
        }
    }
}

fn fail(scene: &Scene, fault: &Fault<'_>, line: &str) -> Ended {
    scene.run_with(&format!("error={}", fault.error), fault.call, &fault.when(), line)
}

/// Runs the command from the same file with each fault. Whatever comes of it, what the living have is as before, and
/// the record is sound. `wrong` says what is not as it should be, if anything is not.
fn sweep(scene: &Scene, line: &str, wrong: impl Fn(&Ended) -> Option<&'static str>) -> Tally {
    let calls = scene.every_call(line);
    let mut tally = Tally::default();
    for fault in faults(&calls, true) {
        let end = fail(scene, &fault, line);
        let held = scene.held();
        assert_sound(&held);
        assert!(of_the_living(&held).is_superset(&scene.others), "{fault:?}: {held:?}");
        tally.note(line, &fault, &end, wrong(&end));
        scene.again(&scene.line("deallocateAll"));
        scene.assert_that_the_next_call_works(fault.call);
    }
    tally
}

/// Each grant is given and recorded whole, or not at all.
fn allocate(scene: &Scene, words: &str) {
    let line = scene.line(&format!("{words} --deadline 1 --log none"));
    let pid = scene.owner.pid();
    let wrong = |end: &Ended| wrong(end, &units_of(&scene.held(), pid), pid);
    sweep(scene, &line, wrong).check();
}

/// Each grant is held whole or free, and done is done.
fn deallocate(scene: &Scene) {
    let wrong = |end: &Ended| {
        let left: Vec<u32> = units_of(&scene.held(), scene.owner.pid()).into_iter().collect();
        let is_whole = [&[][..], &[3], &[0, 1], &[0, 1, 3]].contains(&left.as_slice());
        wrong_release(end, left.is_empty(), is_whole && end.1.is_empty())
    };
    sweep(scene, &scene.line("deallocateAll --deadline 1 --log none"), wrong).check();
}

/// What is reported as freed is free, or there is an error. An owner whose state is unknown counts as alive.
fn reclaim(scene: &Scene) {
    let stale = || scene.held().iter().filter(|held| !is_alive(held)).count();
    scene.restore();
    let before = stale();
    let wrong = |end: &Ended| {
        let freed = before - stale();
        wrong_release(end, end.1.lines().count() == freed, [0, before].contains(&freed))
    };
    sweep(scene, "reclaim --deadline 1 --log none", wrong).check();
}

fn wrong_release(end: &Ended, is_done: bool, is_whole: bool) -> Option<&'static str> {
    let (end, stdout, stderr) = end;
    match end {
        _ if !is_whole => Some("half of a grant"),
        End::Exit(0) if !is_done => Some("not done"),
        End::Exit(0) if !is_warnings(stderr) => Some("something but warnings"),
        End::Exit(0) => None,
        End::Exit(3 | 4) if !stdout.is_empty() => Some("an answer, and a failure"),
        End::Exit(3 | 4) if !is_one_line(stderr) => Some(NOT_ONE_LINE),
        End::Exit(3 | 4) => None,
        End::Exit(_) => Some("the status of another failure"),
        End::Killed(_) => Some("killed"),
    }
}

#[test]
fn whatever_fails_an_allocation_is_given_and_recorded_or_neither() {
    if !strace::is_there("whatever_fails_an_allocation_is_given_and_recorded_or_neither") {
        return;
    }
    thread::scope(|scope| {
        for (scene, words) in ALLOCATIONS {
            scope.spawn(move || allocate(&scene(), words));
        }
    });
}

#[test]
fn whatever_fails_a_release_is_done_or_the_error_is_told() {
    if !strace::is_there("whatever_fails_a_release_is_done_or_the_error_is_told") {
        return;
    }
    thread::scope(|scope| {
        scope.spawn(|| deallocate(&Scene::holding(false)));
        scope.spawn(|| deallocate(&Scene::holding(true)));
        scope.spawn(|| reclaim(&Scene::with_a_stale_grant()));
        scope.spawn(|| reclaim(&Scene::beside_the_script()));
    });
}

/// The command is begun with its units recorded, or not begun and nothing is.
fn exec(words: &str, dead: bool) {
    let scene = if dead { Scene::with_a_stale_grant() } else { Scene::empty() };
    let line = format!("exec {words} --deadline 1 --log none");
    let program = exec::exec(&scene.host, &line["exec ".len()..], &["cp", "coordination", "seen"]);
    let (seen, mut tally) = (scene.host.path().join("seen"), Tally::default());
    scene.restore();
    let calls = strace::calls(&program);
    let becomes = calls.iter().rposition(|call| call.name == "execve").unwrap();
    assert!(becomes > 20, "{calls:?}");
    // A permanent failure would make the command fail too.
    for fault in faults(&calls[1..=becomes], false) {
        scene.restore();
        let _ = fs::remove_file(&seen);
        let what = format!("error={}", fault.error);
        let running = Running::start(strace::inject(&program, &fault.call.name, &what, &fault.when()));
        let (pid, end) = (running.pid(), running.end());
        let has_begun = seen.exists();
        let given = units_of(&if has_begun { held_in(&seen) } else { scene.held() }, pid);
        let is_right = match &end {
            (End::Exit(0), stdout, stderr) => given.len() == 2 && stdout.is_empty() && is_warnings(stderr),
            (End::Exit(3 | 4 | 126), stdout, stderr) => {
                !has_begun && given.is_empty() && stdout.is_empty() && is_one_line(stderr)
            }
            _ => false,
        };
        let what = format!("begun: {has_begun}, with {given:?}");
        tally.note(&line, &fault, &end, Some(what.as_str()).filter(|_| !is_right));
        assert!(of_the_living(&scene.held()).is_superset(&scene.others), "{fault:?}");
        // Without the boot's id, what an owner holds is free only after a reboot.
        if fault.error != "EACCES" {
            scene.assert_that_the_next_call_works(fault.call);
        }
    }
    tally.check();
}

#[test]
fn whatever_fails_a_command_is_begun_with_its_units_or_not_at_all() {
    if !strace::is_there("whatever_fails_a_command_is_begun_with_its_units_or_not_at_all") {
        return;
    }
    thread::scope(|scope| {
        scope.spawn(|| exec("2", false));
        scope.spawn(|| exec("2 --wait=5", true));
    });
}
