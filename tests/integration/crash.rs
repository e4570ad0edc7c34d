//! The program killed at every system call, from the first that names the coordination file to the last (G1
//! to G5). Whatever was recorded by then, the next call takes it as it is.
//!
//! A write that is cut short in the middle is not to be had this way: `plan::tests` cuts every byte.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::thread;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;

use crate::record::{Held, assert_sound, held_in, is_alive, of_the_living, units_of};
use crate::running::{End, Running, ending_signals, wait_until};
use crate::sandbox::{Process, Sandbox, dead_pid};
use crate::strace::{self, Call};

/// A host on which one command is run again and again, each time from the same coordination file.
struct Scene {
    host: Sandbox,
    /// What the file holds each time; none: there is no file.
    before: Option<Vec<u8>>,
    /// Who runs the command.
    owner: Process,
    /// The units of owners that live all the time, each with its owner's pid.
    others: BTreeSet<(u32, u32)>,
    _others: Vec<Process>,
}

impl Scene {
    /// Six units, of which `owners` have been given some, and then `script` appended its lines.
    fn with(owners: &[(&Process, u32)], script: &str) -> (Sandbox, Option<Vec<u8>>) {
        let host = Sandbox::with_gpus(6);
        for (owner, amount) in owners {
            host.command(&format!("allocate {amount} --owner {}", owner.pid())).assert().code(0);
        }
        let before = fs::read(host.file()).unwrap_or_default();
        let before = [before, script.as_bytes().to_vec()].concat();
        let before = Some(before).filter(|before| !before.is_empty());
        (host, before)
    }

    fn empty() -> Scene {
        let (host, before) = Scene::with(&[], "");
        Scene { host, before, owner: Process::start(), others: BTreeSet::new(), _others: Vec::new() }
    }

    /// A living owner of one unit, and a dead one of two.
    fn with_a_stale_grant() -> Scene {
        let (other, dead) = (Process::start(), Process::start());
        let (host, before) = Scene::with(&[(&other, 1), (&dead, 2)], "");
        dead.kill();
        let others = BTreeSet::from([(0, other.pid())]);
        Scene { host, before, owner: Process::start(), others, _others: vec![other] }
    }

    /// What two crashes left: a grant of which one line was never made to hold, and room that was not filled.
    fn after_a_crash() -> Scene {
        let (other, unlucky) = (Process::start(), Process::start());
        let (host, before) = Scene::with(&[(&other, 1), (&unlucky, 2)], "");
        let mut before = before.unwrap();
        let last = before[..before.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
        before[last] = b'#';
        before.extend([b'\n'; 300]);
        let others = BTreeSet::from([(0, other.pid())]);
        let others_processes = vec![other, unlucky];
        Scene { host, before: Some(before), owner: Process::start(), others, _others: others_processes }
    }

    /// Lines of Flink's script, of a living owner and of a dead one.
    fn beside_the_script() -> Scene {
        let other = Process::start();
        let script = format!("2 {}\n3 {}\n", other.pid(), dead_pid());
        let (host, before) = Scene::with(&[], &script);
        let others = BTreeSet::from([(2, other.pid())]);
        Scene { host, before, owner: Process::start(), others, _others: vec![other] }.aged()
    }

    /// The owner holds a grant of two units and one of one, beside those of others.
    fn holding(is_beside_the_script: bool) -> Scene {
        let (owner, other, scripts) = (Process::start(), Process::start(), Process::start());
        let script = if is_beside_the_script { format!("5 {}\n", scripts.pid()) } else { String::new() };
        let (host, before) = Scene::with(&[(&owner, 2), (&other, 1), (&owner, 1)], &script);
        let mut others = BTreeSet::from([(2, other.pid())]);
        if is_beside_the_script {
            others.insert((5, scripts.pid()));
        }
        Scene { host, before, owner, others, _others: vec![other, scripts] }.aged()
    }

    /// A file that is younger than a second, with lines of the script, would be waited for.
    fn aged(self) -> Scene {
        self.restore();
        let made = fs::metadata(self.host.file()).unwrap().created().unwrap();
        let age = || SystemTime::now().duration_since(made).unwrap_or_default();
        wait_until("the file is a second old", || age() > Duration::from_secs(1));
        self
    }

    fn restore(&self) {
        match &self.before {
            Some(before) => File::create(self.host.file()).unwrap().write_all(before).unwrap(),
            None => drop(fs::remove_file(self.host.file())),
        }
    }

    fn line(&self, words: &str) -> String {
        format!("{words} --owner {}", self.owner.pid())
    }

    /// The calls of a clean run, from the first that names the file.
    fn calls(&self, line: &str) -> Vec<Call> {
        self.restore();
        let calls = strace::calls(&self.host.program(line));
        let is_first = |call: &&Call| call.name != "execve" && call.text.contains("\"coordination\"");
        let first = calls.iter().position(|call| is_first(&call)).unwrap();
        assert!(calls.len() > first + 20, "{calls:?}");
        calls[first..].to_vec()
    }

    /// Runs the command from the same file with a signal at this call. What it printed is given back, if it
    /// was let end.
    fn run_with(&self, signal: Signal, call: &Call, line: &str) -> (End, String) {
        self.restore();
        let what = format!("signal={signal}");
        let command = strace::inject(&self.host.program(line), &call.name, &what, &call.nth.to_string());
        let (end, stdout, stderr) = Running::start(command).end();
        assert_eq!(stderr, "", "{call:?}");
        assert!(end == End::Killed(signal) || end == End::Exit(0), "{end:?}: {call:?}");
        (end, stdout)
    }

    fn held(&self) -> Vec<Held> {
        held_in(&self.host.file())
    }

    /// Another owner is given two units, without help and without a warning, and none of them is a living one's.
    #[track_caller]
    fn assert_that_the_next_call_works(&self, call: &Call) {
        let before = of_the_living(&self.held());
        let next = Process::start();
        let line = format!("2 --enable-coordination-mode --owner {}", next.pid());
        self.host.command(&line).assert().code(0).stderr("");
        let held = self.held();
        assert_sound(&held);
        let living = of_the_living(&held);
        assert!(living.is_superset(&before), "{call:?}: {before:?}, then {living:?}");
        assert_eq!(units_of(&held, next.pid()).len(), 2, "{call:?}");
        assert!(held.iter().all(is_alive), "{call:?}: what the dead left is taken over or freed: {held:?}");
    }
}

/// `0,1\n` as a set.
fn units(answer: &str) -> BTreeSet<u32> {
    answer.trim_end().split(',').filter(|word| !word.is_empty()).map(|word| word.parse().unwrap()).collect()
}

/// A grant is recorded whole or not at all, and what was printed is recorded.
fn allocate(scene: &Scene, words: &str) {
    let line = scene.line(words);
    let mut killed = 0;
    for call in scene.calls(&line) {
        let (end, stdout) = scene.run_with(Signal::SIGKILL, &call, &line);
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
}

/// Each grant is held whole or free.
fn deallocate(scene: &Scene) {
    let line = scene.line("deallocateAll");
    let mut killed = 0;
    for call in scene.calls(&line) {
        let (end, _) = scene.run_with(Signal::SIGKILL, &call, &line);
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
}

#[test]
fn killed_at_every_call_allocate_leaves_a_record_that_holds() {
    if !strace::is_there("killed_at_every_call_allocate_leaves_a_record_that_holds") {
        return;
    }
    thread::scope(|scope| {
        scope.spawn(|| allocate(&Scene::empty(), "allocate 2"));
        scope.spawn(|| allocate(&Scene::with_a_stale_grant(), "2 --enable-coordination-mode"));
        scope.spawn(|| allocate(&Scene::after_a_crash(), "allocate 2"));
        scope.spawn(|| allocate(&Scene::beside_the_script(), "2 --enable-coordination-mode"));
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

/// Either it is answered and recorded, or neither.
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
            let (end, stdout) = scene.run_with(signal, &call, &line);
            let given = units_of(&scene.held(), scene.owner.pid());
            assert_eq!(units(&stdout), given, "{signal} at {call:?}");
            assert_eq!(end == End::Exit(0), given.len() == 2, "{signal} at {call:?}");
            if end == End::Exit(0) { ends.0 += 1 } else { ends.1 += 1 }
        }
    }
    assert!(ends.0 > 10 && ends.1 > 10, "answered and not answered: {ends:?}");
}
