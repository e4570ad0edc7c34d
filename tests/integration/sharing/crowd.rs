//! Many owners of shared devices at once, some of them killed (G3, G4).

use std::collections::{BTreeMap, BTreeSet};

use nix::fcntl::FlockArg;

use super::{Host, sliced};
use crate::concurrency::{Random, is_refusal};
use crate::record::{Held, assert_whole, held_in, is_alive};
use crate::running::{End, Running, lock, wait_until};
use crate::sandbox::Process;

const GPUS: u32 = 4;
const REPLICAS: u32 = 16;
const OWNERS: usize = 64;

/// Owners come and go, and ask, and give back.
struct Crowd {
    host: Host,
    random: Random,
    owners: Vec<Process>,
    /// Shares that each owner was told of and has not given back, if no caller of its was killed.
    told: BTreeMap<u32, usize>,
    unsure: BTreeSet<u32>,
}

struct Caller {
    pid: u32,
    /// `None`: it gives back.
    amount: Option<usize>,
    running: Running,
}

impl Crowd {
    fn new() -> Crowd {
        let host = Host::new(GPUS, &sliced(REPLICAS));
        let host = Host { sandbox: host.sandbox.recorded("") };
        let owners = (0..OWNERS).map(|_| Process::start()).collect();
        Crowd { host, random: Random::new(), owners, told: BTreeMap::new(), unsure: BTreeSet::new() }
    }

    fn call(&mut self, owner: usize) -> Caller {
        let pid = self.owners[owner].pid();
        let (form, amount) = [
            ("1 --enable-coordination-mode", Some(1)),
            ("3 --enable-coordination-mode --policy pack", Some(3)),
            ("allocate 2", Some(2)),
            ("allocate 5 --check-dead", Some(5)),
            ("deallocateAll", None),
        ][self.random.below(5)];
        let running = Running::start(self.host.program(&format!("{form} --owner {pid}")));
        Caller { pid, amount, running }
    }

    /// Ends a call, by its own end or by a kill.
    fn end(&mut self, Caller { pid, amount, running }: Caller) {
        if self.random.below(4) == 0 {
            running.kill();
            self.unsure.insert(pid);
            return;
        }
        match (running.end(), amount) {
            ((End::Exit(0), ..), None) => {
                self.told.remove(&pid);
                self.unsure.remove(&pid);
            }
            ((End::Exit(0), stdout, _), Some(amount)) => {
                let named: Vec<u32> =
                    stdout.trim_end().split(',').map(|word| word.parse().unwrap()).collect();
                let distinct: BTreeSet<_> = named.iter().collect();
                assert!(named.len() == distinct.len() && named.len() <= amount, "{stdout}");
                *self.told.entry(pid).or_default() += amount;
            }
            ((End::Exit(code), stdout, stderr), _) => {
                assert!(is_refusal(code, &stderr) && stdout.is_empty(), "{code}: {stdout}{stderr}");
            }
            ((end, _, stderr), _) => panic!("{end:?}: {stderr}"),
        }
    }

    /// The record between two calls: nobody writes while it is read.
    fn held(&self) -> Vec<Held> {
        let mut shared = None;
        wait_until("a shared lock is had", || {
            shared = lock(&self.host.sandbox.file(), FlockArg::LockSharedNonblock);
            shared.is_some()
        });
        held_in(&self.host.sandbox.file())
    }

    /// Never over 16 a device, nor two slots alike.
    #[track_caller]
    fn assert_sound(&self) {
        let held = self.held();
        assert_whole(&held);
        let living: Vec<&Held> = held.iter().filter(|held| is_alive(held)).collect();
        let units: BTreeSet<(u32, u32)> =
            living.iter().map(|held| (held.index, held.slot.unwrap())).collect();
        assert_eq!(units.len(), living.len(), "a share has two living owners: {living:?}");
        let is_there = |(index, slot): &(u32, u32)| *index < GPUS && *slot < REPLICAS;
        assert!(units.iter().all(is_there), "{units:?}");
    }

    fn restart_some(&mut self) {
        for _ in 0..self.random.below(8) {
            let at = self.random.below(OWNERS);
            let pid = std::mem::replace(&mut self.owners[at], Process::start()).kill();
            self.told.remove(&pid);
            self.unsure.remove(&pid);
        }
    }

    fn round(&mut self) {
        // No owner calls twice at once: what it holds then would depend on who was first.
        let first = self.random.below(OWNERS);
        let mut callers: Vec<Caller> = (0..8).map(|step| self.call((first + 7 * step) % OWNERS)).collect();
        self.restart_some();
        while !callers.is_empty() {
            self.assert_sound();
            let next = self.random.below(callers.len());
            let caller = callers.swap_remove(next);
            self.end(caller);
        }
        self.assert_sound();
        self.assert_that_all_is_recorded();
    }

    /// What was given is recorded, and nothing else is but what killed callers left.
    fn assert_that_all_is_recorded(&self) {
        let held = self.held();
        for pid in self.owners.iter().map(Process::pid).filter(|pid| !self.unsure.contains(pid)) {
            let count = held.iter().filter(|held| held.pid == pid && is_alive(held)).count();
            assert_eq!(count, self.told.get(&pid).copied().unwrap_or(0), "pid {pid}: {held:?}");
        }
    }

    /// Every share that no living owner holds is given to one caller.
    fn assert_that_nothing_is_withheld(&self) {
        let living = self.held().iter().filter(|held| is_alive(held)).count();
        let free = usize::try_from(GPUS * REPLICAS).unwrap() - living;
        let next = Process::start();
        let line = format!("{free} --enable-coordination-mode --owner {}", next.pid());
        self.host.command(&line).assert().code(0).stderr("");
        let count = self.held().iter().filter(|held| held.pid == next.pid()).count();
        assert_eq!(count, free);
        self.assert_sound();
    }
}

#[test]
fn no_share_has_two_living_owners_whoever_is_killed() {
    let mut crowd = Crowd::new();
    for _ in 0..30 {
        crowd.round();
    }
    crowd.assert_that_nothing_is_withheld();
}

#[test]
fn sixty_four_owners_at_once_fill_four_devices() {
    let host = Host::new(GPUS, &sliced(REPLICAS));
    let owners: Vec<Process> = (0..OWNERS).map(|_| Process::start()).collect();
    let ask = |owner: &Process| {
        Running::start(host.program(&format!("allocate 1 --deadline 60 --owner {}", owner.pid())))
    };
    let callers: Vec<Running> = owners.iter().map(ask).collect();
    let mut given: BTreeMap<String, u32> = BTreeMap::new();
    for caller in callers {
        let (end, stdout, stderr) = caller.end();
        assert_eq!((end, stderr), (End::Exit(0), String::new()));
        *given.entry(stdout).or_default() += 1;
    }
    let even: BTreeMap<String, u32> = (0..GPUS).map(|index| (format!("{index}\n"), REPLICAS)).collect();
    assert_eq!(given, even);
    let all = (0..GPUS).flat_map(|index| (0..REPLICAS).map(move |slot| (index, Some(slot))));
    assert_eq!(host.shares(), all.collect::<Vec<_>>());
}
