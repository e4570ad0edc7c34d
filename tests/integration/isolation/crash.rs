//! The program killed, or ended by a signal, at every system call from the first that names the coordination file.
//!
//! It runs in a pid namespace of its own beside its owner, so that `/proc` has few processes, and every run makes
//! the same calls.

use std::fs;
use std::thread;

use nix::sys::signal::Signal;

use super::cell::versions;
use super::container::Container;
use crate::running::{End, Running};
use crate::strace::{self, Call};

/// The calls of a run that goes well, from the first that names the file.
pub(super) fn calls(scene: &Container, line: &str) -> Vec<Call> {
    let log = scene.stage.sandbox.path().join("log");
    let output = scene.traced(&["-o", log.to_str().unwrap()], line).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let calls = strace::parse(&fs::read_to_string(log).unwrap());
    let is_first = |call: &Call| call.name != "execve" && call.text.contains("/coordination\"");
    let first = calls.iter().position(is_first).unwrap();
    assert!(calls.len() > first + 20, "{calls:?}");
    calls[first..].to_vec()
}

fn run_with(scene: &Container, signal: Signal, call: &Call, line: &str) -> (End, String) {
    let (name, nth) = (&call.name, call.nth);
    let inject = format!("inject={name}:signal={signal}:when={nth}");
    let trace = format!("trace={name}");
    let options = ["-D", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    let (end, stdout, _) = Running::start(scene.traced(&options, line)).end();
    (end, stdout)
}

/// Whatever was done by then, the owner's next call goes on from there, and `deallocateAll` undoes all of it.
fn kill_allocate(mut scene: Container) {
    let line = scene.allocate();
    let calls = calls(&scene, &line);
    scene.answers(&scene.deallocate(), "");
    let (mut killed, mut unrecorded) = (0, 0);
    for call in calls {
        scene.forget();
        let (end, stdout) = run_with(&scene, Signal::SIGKILL, &call, &line);
        killed += usize::from(end == End::Killed(Signal::SIGKILL));
        let is_recorded = scene.stage.sandbox.file().exists() && scene.is_recorded();
        assert!(!is_recorded || scene.is_confined(), "{call:?}: recorded, and not confined");
        assert!(is_recorded || stdout.is_empty(), "{call:?}: answered, and not recorded");
        unrecorded += usize::from(!is_recorded && scene.is_confined());
        let (answer, signs) = if is_recorded { ("1\n", "++-") } else { ("0\n", "+--") };
        scene.answers(&line, answer);
        assert_eq!(scene.owner.reach(), signs, "{call:?}");
        scene.answers(&scene.deallocate(), "");
        scene.assert_free(&format!("{call:?}"));
    }
    assert!(
        killed > 100 && unrecorded > 10,
        "killed {killed} times, between move and commit {unrecorded} times"
    );
    strace::show_kills(killed);
}

/// Without a further allocation in between.
fn kill_allocate_and_give_back(mut scene: Container) {
    let line = scene.allocate();
    let calls = calls(&scene, &line);
    scene.answers(&scene.deallocate(), "");
    let mut killed = 0;
    for call in calls {
        scene.forget();
        let (end, _) = run_with(&scene, Signal::SIGKILL, &call, &line);
        killed += usize::from(end == End::Killed(Signal::SIGKILL));
        scene.answers(&scene.deallocate(), "");
        // An empty group that nobody is in is left to the next call.
        let is_left = !scene.stage.cell.children().is_empty();
        assert!(!scene.is_confined() && scene.owner.reach() == "+++", "{call:?}");
        if is_left {
            scene.answers(&line, "0\n");
            scene.answers(&scene.deallocate(), "");
        }
        scene.assert_free(&format!("{call:?}"));
    }
    strace::show_kills(killed);
}

/// Either it is answered, recorded and in force, or nothing is.
fn end_allocate(mut scene: Container) {
    let line = scene.allocate();
    let calls = calls(&scene, &line);
    scene.answers(&scene.deallocate(), "");
    let mut ends = (0, 0);
    for call in calls {
        scene.forget();
        let (end, stdout) = run_with(&scene, Signal::SIGTERM, &call, &line);
        if end == End::Exit(0) {
            ends.0 += 1;
            assert_eq!((stdout.as_str(), scene.owner.reach().as_str()), ("0\n", "+--"), "{call:?}");
            assert!(scene.is_recorded(), "{call:?}");
            scene.answers(&scene.deallocate(), "");
        } else {
            ends.1 += 1;
            assert_eq!((end, stdout.as_str()), (End::Killed(Signal::SIGTERM), ""), "{call:?}");
        }
        scene.assert_free(&format!("{call:?}"));
    }
    assert!(ends.0 > 100 && ends.1 > 10, "answered and not answered: {ends:?}");
}

fn kill_deallocate(mut scene: Container) {
    let line = scene.deallocate();
    scene.answers(&scene.allocate(), "0\n");
    let mut killed = 0;
    for call in calls(&scene, &line) {
        scene.forget();
        scene.answers(&scene.allocate(), "0\n");
        let (end, _) = run_with(&scene, Signal::SIGKILL, &call, &line);
        killed += usize::from(end == End::Killed(Signal::SIGKILL));
        let is_free = !scene.is_recorded();
        assert!(!is_free || !scene.is_confined(), "{call:?}: free, and confined");
        assert!(is_free || end != End::Exit(0), "{call:?}");
        scene.answers(&line, "");
        scene.assert_free(&format!("{call:?}"));
    }
    strace::show_kills(killed);
}

fn on_both(test: &str, run: impl Fn(Container) + Sync) {
    if !strace::is_there(test) {
        return;
    }
    thread::scope(|scope| {
        for version in versions(test) {
            let run = &run;
            scope.spawn(move || run(Container::new(version)));
        }
    });
}

#[test]
fn killed_at_every_call_allocate_leaves_what_the_next_call_puts_right() {
    on_both("killed_at_every_call_allocate_leaves_what_the_next_call_puts_right", kill_allocate);
}

#[test]
fn killed_at_every_call_allocate_leaves_what_is_given_back() {
    on_both("killed_at_every_call_allocate_leaves_what_is_given_back", kill_allocate_and_give_back);
}

#[test]
fn killed_at_every_call_deallocate_is_finished_by_the_next() {
    on_both("killed_at_every_call_deallocate_is_finished_by_the_next", kill_deallocate);
}

#[test]
fn ended_at_every_call_allocate_confines_whom_it_answers() {
    on_both("ended_at_every_call_allocate_confines_whom_it_answers", end_allocate);
}
