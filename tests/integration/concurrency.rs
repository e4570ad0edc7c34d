//! Many callers at once, some of them killed (G3, G4).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::fcntl::FlockArg;
use serde_json::Value;

use crate::record::{Held, assert_sound, held_in, of_the_living, units_of};
use crate::running::{End, Running, lock, wait_until};
use crate::sandbox::{Process, Sandbox};

/// Numbers that differ from run to run, and are the same again with the seed that a failure shows.
pub(crate) struct Random(u64);

impl Random {
    /// `GPU_COORD_SEED`, when the test is built, sets the seed.
    pub(crate) fn new() -> Random {
        let set = option_env!("GPU_COORD_SEED").and_then(|seed| seed.parse().ok());
        let seed = set.unwrap_or_else(|| RandomState::new().hash_one(())) | 1;
        eprintln!("GPU_COORD_SEED={seed}");
        Random(seed)
    }

    /// xorshift64.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(limit).unwrap()).unwrap()
    }
}

#[test]
fn of_256_callers_at_once_each_is_given_its_own_unit() {
    let host = Sandbox::with_gpus(256);
    let line = "1 --enable-coordination-mode";
    let callers: Vec<Running> = (0..256).map(|_| Running::start(host.program(line))).collect();
    let mut given = BTreeSet::new();
    for caller in callers {
        let (end, stdout, stderr) = caller.end();
        assert_eq!((end, stderr), (End::Exit(0), String::new()));
        assert!(given.insert(stdout.trim_end().parse::<u32>().unwrap()), "{stdout} was given twice");
    }
    assert_eq!(given, (0..256).collect());
    let held = held_in(&host.file());
    assert_sound(&held);
    assert_eq!(units_of(&held, std::process::id()), given);
}

/// Owners come and go, and ask, and give back, eight units between all of them.
struct Crowd {
    host: Sandbox,
    random: Random,
    owners: Vec<Process>,
    /// The units that each owner was told of and has not given back. If its caller was killed there may be more.
    told: BTreeMap<u32, BTreeSet<u32>>,
    /// Owners that a killed caller may have recorded something for, or freed something of.
    unsure: BTreeSet<u32>,
}

/// Too few units are free, or the owner was killed.
pub(crate) fn is_refusal(code: i32, stderr: &str) -> bool {
    match code {
        1 => stderr.contains(" can be given: "),
        2 => stderr.contains(" does not exist; ") || stderr.contains(" has exited (it is a zombie); "),
        4 => stderr.contains(" has exited"),
        _ => false,
    }
}

/// One call, on behalf of an owner.
struct Caller {
    pid: u32,
    is_release: bool,
    running: Running,
}

impl Crowd {
    const UNITS: u32 = 8;

    fn of(owners: usize) -> Crowd {
        let owners = (0..owners).map(|_| Process::start()).collect();
        let host = Sandbox::with_gpus(Crowd::UNITS).recorded("");
        Crowd { host, random: Random::new(), owners, told: BTreeMap::new(), unsure: BTreeSet::new() }
    }

    fn call(&mut self, owner: usize) -> Caller {
        let forms =
            ["1 --enable-coordination-mode", "2 --enable-coordination", "allocate 1", "deallocateAll"];
        let form = forms[self.random.below(forms.len())];
        let pid = self.owners[owner].pid();
        let running = Running::start(self.host.program(&format!("{form} --owner {pid}")));
        Caller { pid, is_release: form == "deallocateAll", running }
    }

    /// Ends a call, by its own end or by a kill.
    fn end(&mut self, caller: Caller) {
        let Caller { pid, is_release, running } = caller;
        if self.random.below(3) == 0 {
            running.kill();
            self.unsure.insert(pid);
            return;
        }
        let (end, stdout, stderr) = running.end();
        match end {
            End::Exit(0) if is_release => {
                self.told.remove(&pid);
                self.unsure.remove(&pid);
            }
            End::Exit(0) => {
                let units = stdout.trim_end().split(',').map(|word| word.parse::<u32>().unwrap());
                self.told.entry(pid).or_default().extend(units);
            }
            End::Exit(code) => {
                assert!(is_refusal(code, &stderr) && stdout.is_empty(), "{code}: {stdout}{stderr}")
            }
            end => panic!("{end:?}: {stderr}"),
        }
    }

    /// The record between two calls: nobody writes while it is read.
    fn held(&self) -> Vec<Held> {
        let mut shared = None;
        wait_until("a shared lock is had", || {
            shared = lock(&self.host.file(), FlockArg::LockSharedNonblock);
            shared.is_some()
        });
        held_in(&self.host.file())
    }

    /// One of the owners ends, and another process takes its place.
    fn replace_an_owner(&mut self) {
        let at = self.random.below(self.owners.len());
        let pid = std::mem::replace(&mut self.owners[at], Process::start()).kill();
        self.told.remove(&pid);
        self.unsure.remove(&pid);
    }

    fn round(&mut self) {
        // No owner calls twice at once: what it holds then would depend on who was first.
        let first = self.random.below(self.owners.len());
        let mut callers: Vec<Caller> =
            (0..6).map(|step| self.call((first + 7 * step) % self.owners.len())).collect();
        if self.random.below(2) == 0 {
            self.replace_an_owner();
        }
        while !callers.is_empty() {
            assert_sound(&self.held());
            let next = self.random.below(callers.len());
            let caller = callers.swap_remove(next);
            self.end(caller);
        }
        self.assert_that_all_is_recorded();
        self.assert_that_nothing_is_withheld();
    }

    /// What was printed is recorded, and nothing else is but what killed callers left.
    fn assert_that_all_is_recorded(&self) {
        let held = self.held();
        for owner in self.owners.iter().map(Process::pid).filter(|pid| !self.unsure.contains(pid)) {
            let told = self.told.get(&owner).cloned().unwrap_or_default();
            assert_eq!(units_of(&held, owner), told, "pid {owner}: {held:?}");
        }
    }

    /// The next call of the bare form is given every unit that no living owner holds.
    fn assert_that_nothing_is_withheld(&self) {
        let living: BTreeSet<u32> = of_the_living(&self.held()).iter().map(|(index, _)| *index).collect();
        let free: BTreeSet<u32> = (0..Crowd::UNITS).filter(|index| !living.contains(index)).collect();
        let next = Process::start();
        let line = format!("{} --enable-coordination-mode --owner {}", free.len(), next.pid());
        self.host.command(&line).assert().code(0).stderr("");
        assert_eq!(units_of(&self.held(), next.pid()), free);
        assert_sound(&self.held());
    }
}

#[test]
fn no_unit_has_two_living_owners_whoever_is_killed() {
    let mut crowd = Crowd::of(40);
    for _ in 0..40 {
        crowd.round();
    }
}

/// A reader sees whole grants and well-formed JSON while others allocate and give back.
#[test]
fn status_is_whole_while_others_write() {
    const WRITERS: usize = 3;
    let host = Sandbox::with_gpus(5);
    let is_over = AtomicBool::new(false);
    let owners: Vec<Process> = (0..WRITERS).map(|_| Process::start()).collect();
    let (asked, seen) = thread::scope(|scope| {
        let writers: Vec<_> =
            owners.iter().map(|owner| scope.spawn(|| take_and_give_back(&host, owner))).collect();
        let reader = scope.spawn(|| {
            let mut seen = 0;
            while !is_over.load(Ordering::Relaxed) {
                seen += look(&host, 5).unwrap_or(0);
            }
            seen
        });
        // The reader looks until it is told not to, whatever has become of them.
        let asked: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        let asked: usize = asked.into_iter().map(|asked| asked.unwrap()).sum();
        (asked, reader.join().unwrap())
    });
    assert!(asked > WRITERS && seen > 0, "{asked} grants were made, and {seen} were seen");
    assert_eq!(host.holders(), []);
}

/// How many grants of two units it was given. For three owners there are five units.
fn take_and_give_back(host: &Sandbox, owner: &Process) -> usize {
    let run =
        |words: &str| host.command(&format!("{words} --owner {}", owner.pid())).assert().get_output().clone();
    let mut count = 0;
    for _ in 0..12 {
        let given = run("allocate 2");
        let is_given = given.status.success();
        assert!(is_given || given.status.code() == Some(1), "{given:?}");
        count += usize::from(is_given);
        let released = run("deallocateAll");
        assert!(released.status.success() && released.stderr.is_empty(), "{released:?}");
    }
    count
}

/// A crowd that starts at once, as after a restart of the host.
#[test]
fn status_is_whole_while_100_callers_allocate() {
    const CALLERS: usize = 100;
    let host = Sandbox::with_gpus(2 * CALLERS as u32);
    let owners: Vec<Process> = (0..CALLERS).map(|_| Process::start()).collect();
    let start =
        |owner: &Process| Running::start(host.program(&format!("allocate 2 --owner {}", owner.pid())));
    let callers: Vec<Running> = owners.iter().map(start).collect();
    let mut seen = 0;
    wait_until("all grants are seen", || {
        if let Some(now) = look(&host, 2 * CALLERS) {
            assert!(now >= seen, "{seen} grants were seen, and then {now}");
            seen = now;
        }
        seen == CALLERS
    });
    for caller in callers {
        assert_eq!(caller.end().0, End::Exit(0));
    }
    assert_eq!(look(&host, 2 * CALLERS), Some(CALLERS));
}

/// One look: how many grants are seen, none of them in part; `None` on a machine so slow that the lock was not had
/// in a second.
fn look(host: &Sandbox, units: usize) -> Option<usize> {
    let output = host.program("status --json").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let devices = status["devices"].as_array().unwrap();
    assert_eq!(devices.len(), units);
    if status["warnings"] != serde_json::json!([]) {
        return None;
    }
    let mut grants: BTreeMap<&str, usize> = BTreeMap::new();
    for unit in devices.iter().map(|device| &device["units"][0]).filter(|unit| unit["state"] == "held") {
        assert_eq!(unit["other_owners"], serde_json::json!([]), "{unit}");
        *grants.entry(unit["owner"]["grant"].as_str().unwrap()).or_default() += 1;
    }
    assert!(grants.values().all(|lines| *lines == 2), "{status:#}");
    Some(grants.len())
}
