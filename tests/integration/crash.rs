//! The program killed at every system call, from the first that names the coordination file to the last (G1
//! to G5). Whatever was recorded by then, the next call takes it as it is.
//!
//! strace kills it before the call is made. After a call is before the next: in between the program changes nothing but
//! its own memory. A write that is cut short cannot be produced this way: `plan::tests` cuts at every byte.

use std::collections::BTreeSet;
use std::thread;

use nix::sys::signal::Signal;

use crate::record::{assert_sound, is_alive, of_the_living, units_of};
use crate::running::{End, ending_signals};
use crate::scene::{ALLOCATIONS, Scene, units};
use crate::strace::{self, Call};

/// Runs the command from the same file with a signal at this call. Returns what it printed, if it ended by itself.
fn run_with(scene: &Scene, signal: Signal, call: &Call, line: &str) -> (End, String) {
    let (end, stdout, stderr) =
        scene.run_with(&format!("signal={signal}"), call, &call.nth.to_string(), line);
    assert_eq!(stderr, "", "{call:?}");
    assert!(end == End::Killed(signal) || end == End::Exit(0), "{end:?}: {call:?}");
    (end, stdout)
}

/// A grant is recorded whole or not at all, and what was printed is recorded.
fn allocate(scene: &Scene, words: &str) {
    let line = scene.line(words);
    let mut killed = 0;
    for call in scene.calls(&line) {
        let (end, stdout) = run_with(scene, Signal::SIGKILL, &call, &line);
        killed += usize::from(end == End::Killed(Signal::SIGKILL));
        let held = scene.held();
        assert_sound(&held);
        let given = units_of(&held, scene.owner.pid());
        assert!(given.is_empty() || given.len() == 2, "{call:?}: {given:?}");
        assert!(
            stdout.is_empty() || units(&stdout) == given,
            "{call:?}: {stdout}, and {given:?} is recorded"
        );
        assert!(of_the_living(&held).is_superset(&scene.others), "{call:?}: {held:?}");
        scene.assert_that_the_next_call_works(&call);
    }
    assert!(killed > 20, "killed {killed} times only");
    strace::show_kills(killed);
}

/// Each grant is held whole or free.
fn deallocate(scene: &Scene) {
    let line = scene.line("deallocateAll");
    let mut killed = 0;
    for call in scene.calls(&line) {
        let (end, _) = run_with(scene, Signal::SIGKILL, &call, &line);
        killed += usize::from(end == End::Killed(Signal::SIGKILL));
        let held = scene.held();
        assert_sound(&held);
        let left = units_of(&held, scene.owner.pid());
        let is_whole = [&[][..], &[3], &[0, 1], &[0, 1, 3]].iter().any(|whole| left.iter().eq(*whole));
        assert!(is_whole, "{call:?}: {left:?}");
        assert!(end != End::Exit(0) || left.is_empty(), "{call:?}: {left:?}");
        assert!(of_the_living(&held).is_superset(&scene.others), "{call:?}: {held:?}");
        scene.host.answers(&line, "");
        assert_eq!(units_of(&scene.held(), scene.owner.pid()), BTreeSet::new(), "{call:?}");
        scene.assert_that_the_next_call_works(&call);
    }
    assert!(killed > 20, "killed {killed} times only");
    strace::show_kills(killed);
}

/// Kills the command at every call at which that may make a difference. Then what the living have is as before, the
/// same command ends well (what it says of what is left to do is `says`), and so does the next.
fn by_hand(scene: &Scene, line: &str, check: impl Fn(&Scene, bool), says: &dyn Fn(&str, &str) -> bool) {
    let mut killed = 0;
    for call in strace::turning_points(scene.calls(line)) {
        let (end, _) = run_with(scene, Signal::SIGKILL, &call, line);
        killed += usize::from(end == End::Killed(Signal::SIGKILL));
        let held = scene.held();
        assert_sound(&held);
        assert!(of_the_living(&held).is_superset(&scene.others), "{call:?}: {held:?}");
        check(scene, end == End::Exit(0));
        let again = scene.again(line);
        assert_eq!(again.0, End::Exit(0), "{call:?}: {again:?}");
        assert!(says(&again.1, &again.2), "{call:?}: {again:?}");
        check(scene, true);
        scene.assert_that_the_next_call_works(&call);
    }
    assert!(killed > 4, "killed {killed} times only");
    strace::show_kills(killed);
}

/// Units that the dead hold.
fn stale(scene: &Scene) -> usize {
    scene.held().iter().filter(|held| !is_alive(held)).count()
}

fn says_nothing(stdout: &str, stderr: &str) -> bool {
    stdout.is_empty() && stderr.is_empty()
}

#[test]
fn killed_at_every_call_reclaim_leaves_a_record_that_holds() {
    if !strace::is_there("killed_at_every_call_reclaim_leaves_a_record_that_holds") {
        return;
    }
    // Both units of the grant are named, or neither is left.
    let says = |stdout: &str, stderr: &str| [0, 1, 2].contains(&stdout.lines().count()) && stderr.is_empty();
    let check = |scene: &Scene, is_done: bool| {
        let stale = stale(scene);
        assert!(if is_done { stale == 0 } else { [0, 1, 2].contains(&stale) }, "{stale}");
    };
    thread::scope(|scope| {
        scope.spawn(|| by_hand(&Scene::with_a_stale_grant(), "reclaim", check, &says));
        scope.spawn(|| by_hand(&Scene::beside_the_script(), "reclaim", check, &says));
    });
}

#[test]
fn killed_at_every_call_what_an_operator_does_is_done_again() {
    if !strace::is_there("killed_at_every_call_what_an_operator_does_is_done_again") {
        return;
    }
    let drains = |scene: &Scene, is_done: bool| {
        let drained = scene.drained();
        assert!(if is_done {
            drained == BTreeSet::from([3, 4])
        } else {
            drained.is_subset(&BTreeSet::from([3, 4]))
        });
        assert_eq!(stale(scene), 2);
    };
    let undrains = |scene: &Scene, is_done: bool| {
        let drained = scene.drained();
        assert!(
            if is_done { drained.is_empty() } else { drained.is_subset(&BTreeSet::from([3, 4])) },
            "{drained:?}"
        );
        assert_eq!(stale(scene), 2);
    };
    let warns = |stdout: &str, stderr: &str| {
        let says = "gpu-coord: warning: none of these units is drained; `gpu-coord status` shows which are\n";
        stdout.is_empty() && ["", says].contains(&stderr)
    };
    // One unit of a grant of two: the other is written anew.
    let releases = |scene: &Scene, is_done: bool| {
        let held: BTreeSet<u32> = scene.held().iter().map(|held| held.index).collect();
        let (before, after) = (BTreeSet::from([0, 1, 2]), BTreeSet::from([0, 2]));
        assert!(held == after || (!is_done && held == before), "{held:?}");
    };
    let names = |stdout: &str, stderr: &str| {
        let is_done = stdout.is_empty() && stderr == "gpu-coord: warning: nobody holds these units\n";
        is_done || (stdout.starts_with("released index 1 of pid ") && stderr.is_empty())
    };
    thread::scope(|scope| {
        scope
            .spawn(|| by_hand(&Scene::with_a_stale_grant(), "drain 3,4 --reason fan", drains, &says_nothing));
        scope
            .spawn(|| by_hand(&Scene::with_drained_units(), "drain 3,4 --reason hot", drains, &says_nothing));
        scope.spawn(|| by_hand(&Scene::with_drained_units(), "undrain 3,4", undrains, &warns));
        scope.spawn(|| by_hand(&Scene::with_a_stale_grant(), "release 1 --force", releases, &names));
    });
}

#[test]
fn killed_at_every_call_allocate_leaves_a_record_that_holds() {
    if !strace::is_there("killed_at_every_call_allocate_leaves_a_record_that_holds") {
        return;
    }
    thread::scope(|scope| {
        for (scene, words) in ALLOCATIONS {
            scope.spawn(move || allocate(&scene(), words));
        }
    });
}

#[test]
fn killed_at_every_call_deallocate_leaves_a_record_that_holds() {
    if !strace::is_there("killed_at_every_call_deallocate_leaves_a_record_that_holds") {
        return;
    }
    thread::scope(|scope| {
        scope.spawn(|| deallocate(&Scene::holding(false)));
        scope.spawn(|| deallocate(&Scene::holding(true)));
    });
}

/// Units are answered and recorded, or neither.
#[test]
fn ended_at_every_call_allocate_prints_what_it_records() {
    if !strace::is_there("ended_at_every_call_allocate_prints_what_it_records") {
        return;
    }
    let scene = Scene::with_a_stale_grant();
    let line = scene.line("2 --enable-coordination-mode");
    let mut ends = (0, 0);
    for call in scene.calls(&line) {
        for signal in ending_signals() {
            let (end, stdout) = run_with(&scene, signal, &call, &line);
            let given = units_of(&scene.held(), scene.owner.pid());
            assert_eq!(units(&stdout), given, "{signal} at {call:?}");
            assert_eq!(end == End::Exit(0), given.len() == 2, "{signal} at {call:?}");
            if end == End::Exit(0) { ends.0 += 1 } else { ends.1 += 1 }
        }
    }
    assert!(ends.0 > 10 && ends.1 > 10, "answered and not answered: {ends:?}");
}
