//! One host and its owners, and what befalls them: who dies, and what comes next. Who asks for what is in `asking`, what
//! others write in `planted`, and what has to be so whatever happens in `truth`.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use super::book::Book;
use super::call::Call;
use super::host::{Host, Unit};
use super::owner::{Name, Owner};
use super::random::Random;
use super::watch::Watch;
use super::{Script, Tally, namespace, say};

pub(crate) struct Season<'a> {
    pub(super) random: &'a mut Random,
    pub(super) tally: &'a mut Tally,
    watch: &'a Watch,
    pub(super) script: Option<&'a Script>,
    pub(super) host: Host,
    pub(super) since: Instant,
    pub(super) owners: Vec<Owner>,
    /// Zombies, and those that are gone: of this host, all that ever lived.
    pub(super) dead: BTreeSet<Name>,
    pub(super) calls: Vec<Call>,
    /// Calls at once.
    pub(super) gusts: usize,
    /// What a call took that had the host to itself.
    pub(super) usual: Duration,
    /// Devices that an operator keeps back.
    pub(super) drained: BTreeSet<u32>,
    /// Units that somebody has of whom nothing can be told from here.
    pub(super) elsewhere: BTreeSet<Unit>,
    /// What the record said when it was last looked at.
    pub(super) seen: Seen,
}

#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Units of the dead, if nobody has been at work since who may have freed them.
    pub(super) left: BTreeSet<Unit>,
    pub(super) earlier: BTreeSet<Unit>,
    pub(super) unsettled: BTreeSet<u32>,
}

impl<'a> Season<'a> {
    pub(crate) fn new(
        random: &'a mut Random,
        script: Option<&'a Script>,
        tally: &'a mut Tally,
        watch: &'a Watch,
    ) -> Season<'a> {
        let host = Host::new(random, script);
        let owners = if script.is_some() { 12 } else { random.of_these(&[20, 100, 250]) };
        let gusts = random.of_these(&[1, 4, 12]);
        let mut season = Season {
            random,
            tally,
            watch,
            script,
            host,
            since: Instant::now(),
            owners: Vec::new(),
            dead: BTreeSet::new(),
            calls: Vec::new(),
            gusts,
            usual: Duration::from_millis(3),
            drained: BTreeSet::new(),
            elsewhere: BTreeSet::new(),
            seen: Seen::default(),
        };
        for _ in 0..owners {
            let owner = season.born(None);
            season.owners.push(owner);
        }
        season
    }

    pub(crate) fn blow(mut self, calls: usize) {
        let until = self.tally.calls + calls;
        while self.tally.calls < until {
            self.watch.now(format!("after {} calls, with {} under way", self.tally.calls, self.calls.len()));
            let has_room = self.calls.len() < self.gusts;
            let is_ours = self.script.is_none();
            match self.random.below(30) {
                0..3 if is_ours => self.kill_an_owner(),
                3 if is_ours => self.bury_one(),
                4..14 if has_room => self.call(),
                14..16 if has_room => self.gust(),
                16 if has_room && self.random.one_in(4) => self.calm_down(),
                17..20 if is_ours => self.plant(),
                20 if is_ours => self.keep_back(),
                21 => self.wake(),
                _ if self.calls.is_empty() => self.call(),
                _ => self.end_a_call(),
            }
            self.check();
        }
        self.calm_down();
    }

    /// Those that were stopped go on.
    pub(super) fn wake(&mut self) {
        self.calls.iter_mut().for_each(Call::go_on);
    }

    pub(super) fn book(&mut self) -> Book {
        let (file, calls) = (self.host.file(), &mut self.calls);
        Book::read(&file, || calls.iter_mut().for_each(Call::go_on))
    }

    /// More often than not one that holds something. Then it is a zombie, or, soon enough for the record to name it
    /// still, another process has its pid.
    fn kill_an_owner(&mut self) {
        let lives = |owner: &Owner| !owner.is_dead && !self.seen.unsettled.contains(&owner.name.0);
        let has_some = |at: &usize| !self.owners[*at].told.is_empty();
        let living: Vec<usize> = (0..self.owners.len()).filter(|at| lives(&self.owners[*at])).collect();
        let holders: Vec<usize> = living.iter().copied().filter(has_some).collect();
        let from = if self.random.one_in(4) || holders.is_empty() { living } else { holders };
        // The storm goes on with those that are left.
        if from.len() < 4 {
            return;
        }
        let at = from[self.random.below(from.len())];
        let owner = &mut self.owners[at];
        owner.kill();
        self.dead.insert(owner.name);
        self.tally.owners_killed += 1;
        if !owner.is_asking && self.random.one_in(2) {
            self.replace(at, true);
        }
    }

    /// A zombie goes, and another process comes, often of the same pid.
    fn bury_one(&mut self) {
        let is_settled = |owner: &Owner| !self.seen.unsettled.contains(&owner.name.0);
        let is_dead = |owner: &Owner| owner.is_dead && !owner.is_asking && is_settled(owner);
        if let Some(at) = self.owners.iter().position(is_dead) {
            let is_of_its_pid = self.random.one_in(2);
            self.replace(at, is_of_its_pid);
        }
    }

    fn replace(&mut self, at: usize, is_of_its_pid: bool) {
        let (pid, _) = self.owners.swap_remove(at).bury();
        let next = self.born(is_of_its_pid.then_some(pid));
        self.owners.push(next);
    }

    /// Within one tick of the clock nothing tells two processes of one pid from each other.
    pub(super) fn born(&mut self, pid: Option<u32>) -> Owner {
        loop {
            pid.into_iter().for_each(namespace::use_next);
            let mut owner = Owner::start(self.script);
            if !self.dead.contains(&owner.name) {
                self.tally.pids_reused += usize::from(self.dead.iter().any(|dead| dead.0 == owner.name.0));
                owner.is_limited = self.script.is_none() && self.random.one_in(3);
                return owner;
            }
        }
    }
}

/// How far it came.
impl Drop for Season<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            say(&format!("failed after {} calls, of which {:?}", self.tally.calls, self.tally));
        }
    }
}
