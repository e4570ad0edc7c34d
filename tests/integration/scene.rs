//! A host on which one command is run repeatedly, each time from the same coordination file, and each time with
//! something done to it at another of its system calls.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::reclaim::reclaim;
use crate::record::{Held, assert_sound, held_in, is_alive, of_the_living, units_of};
use crate::running::{End, Running, wait_until};
use crate::sandbox::{Process, Sandbox, dead_pid};
use crate::strace::{self, Call};

type Maker = fn() -> Scene;

/// The allocations that are killed, and made to fail, at each of their calls: the scene and the words of each.
pub(crate) const ALLOCATIONS: [(Maker, &str); 4] = [
    (Scene::empty, "allocate 2"),
    (Scene::with_a_stale_grant, "2 --enable-coordination-mode"),
    (Scene::after_a_crash, "allocate 2"),
    (Scene::beside_the_script, "2 --enable-coordination-mode"),
];

pub(crate) struct Scene {
    pub(crate) host: Sandbox,
    /// What the file holds each time; none: there is no file.
    before: Option<Vec<u8>>,
    /// Who runs the command.
    pub(crate) owner: Process,
    /// The units of owners that stay alive, each with its owner's pid.
    pub(crate) others: BTreeSet<(u32, u32)>,
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

    pub(crate) fn empty() -> Scene {
        let (host, before) = Scene::with(&[], "");
        Scene { host, before, owner: Process::start(), others: BTreeSet::new(), _others: Vec::new() }
    }

    /// A living owner of one unit, and a dead one of two.
    pub(crate) fn with_a_stale_grant() -> Scene {
        let (other, dead) = (Process::start(), Process::start());
        let (host, before) = Scene::with(&[(&other, 1), (&dead, 2)], "");
        dead.kill();
        let others = BTreeSet::from([(0, other.pid())]);
        Scene { host, before, owner: Process::start(), others, _others: vec![other] }
    }

    /// What two crashes left: a grant of which one line was never made to hold, and room that was not filled.
    pub(crate) fn after_a_crash() -> Scene {
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
    pub(crate) fn beside_the_script() -> Scene {
        let other = Process::start();
        let script = format!("2 {}\n3 {}\n", other.pid(), dead_pid());
        let (host, before) = Scene::with(&[], &script);
        let others = BTreeSet::from([(2, other.pid())]);
        Scene { host, before, owner: Process::start(), others, _others: vec![other] }.aged()
    }

    /// The owner holds a grant of two units and one of one, beside those of others.
    pub(crate) fn holding(is_beside_the_script: bool) -> Scene {
        let (owner, other, scripts) = (Process::start(), Process::start(), Process::start());
        let script = if is_beside_the_script { format!("5 {}\n", scripts.pid()) } else { String::new() };
        let (host, before) = Scene::with(&[(&owner, 2), (&other, 1), (&owner, 1)], &script);
        let mut others = BTreeSet::from([(2, other.pid())]);
        if is_beside_the_script {
            others.insert((5, scripts.pid()));
        }
        Scene { host, before, owner, others, _others: vec![other, scripts] }.aged()
    }

    /// A living owner of one unit, a dead one of two, and two that are drained.
    pub(crate) fn with_drained_units() -> Scene {
        let (other, dead) = (Process::start(), Process::start());
        let (host, _) = Scene::with(&[(&other, 1), (&dead, 2)], "");
        dead.kill();
        host.command("drain 3,4").args(["--reason", "fan"]).assert().code(0);
        let before = fs::read(host.file()).ok();
        let others = BTreeSet::from([(0, other.pid())]);
        Scene { host, before, owner: Process::start(), others, _others: vec![other] }
    }

    /// A file that is younger than a second, with lines of the script, would be waited for.
    fn aged(self) -> Scene {
        self.restore();
        let made = fs::metadata(self.host.file()).unwrap().created().unwrap();
        let age = || SystemTime::now().duration_since(made).unwrap_or_default();
        wait_until("the file is a second old", || age() > Duration::from_secs(1));
        self
    }

    pub(crate) fn restore(&self) {
        match &self.before {
            Some(before) => File::create(self.host.file()).unwrap().write_all(before).unwrap(),
            None => drop(fs::remove_file(self.host.file())),
        }
    }

    pub(crate) fn line(&self, words: &str) -> String {
        format!("{words} --owner {}", self.owner.pid())
    }

    /// The calls of a clean run, from the first that names the file.
    pub(crate) fn calls(&self, line: &str) -> Vec<Call> {
        self.restore();
        let calls = strace::calls(&self.program(line));
        let is_first = |call: &&Call| call.name != "execve" && call.text.contains("\"coordination\"");
        let first = calls.iter().position(|call| is_first(&call)).unwrap();
        assert!(calls.len() > first + 15, "{calls:?}");
        calls[first..].to_vec()
    }

    /// Every call of a clean run of the program.
    pub(crate) fn every_call(&self, line: &str) -> Vec<Call> {
        self.restore();
        let calls = strace::calls(&self.program(line));
        let begin = calls.iter().rposition(|call| call.name == "execve").unwrap();
        calls[begin + 1..].to_vec()
    }

    /// Runs the command from the same file with something done to it at this call: how it ended, and what it printed.
    pub(crate) fn run_with(&self, what: &str, call: &Call, when: &str, line: &str) -> (End, String, String) {
        self.restore();
        Running::start(strace::inject(&self.program(line), &call.name, what, when)).end()
    }

    /// Runs the command from what there is.
    pub(crate) fn again(&self, line: &str) -> (End, String, String) {
        Running::start(self.program(line)).end()
    }

    /// `reclaim` looks at the control groups of the host, among which are those of other tests.
    fn program(&self, line: &str) -> Command {
        match line.strip_prefix("reclaim") {
            Some(words) => {
                let mut command = reclaim(&self.host, words);
                command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
                command
            }
            None => self.host.program(line),
        }
    }

    /// The drained units.
    pub(crate) fn drained(&self) -> BTreeSet<u32> {
        let text = self.host.text();
        let lines = text.lines().filter_map(|line| line.strip_prefix("! "));
        lines.map(|line| line.split_once('\t').unwrap().0.parse().unwrap()).collect()
    }

    pub(crate) fn held(&self) -> Vec<Held> {
        held_in(&self.host.file())
    }

    /// Another owner is given two units, without help and without a warning, and none of them is a living one's.
    #[track_caller]
    pub(crate) fn assert_that_the_next_call_works(&self, call: &Call) {
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
pub(crate) fn units(answer: &str) -> BTreeSet<u32> {
    answer.trim_end().split(',').filter(|word| !word.is_empty()).map(|word| word.parse().unwrap()).collect()
}
