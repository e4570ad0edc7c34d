//! One host and its owners, and what befalls them. What has to be so whatever befalls them is in `truth`.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::FlockArg;
use nix::sys::signal::Signal;

use super::book::{self, Book, PATIENCE};
use super::call::{Call, Known, Outcome, What};
use super::host::{Host, Unit};
use super::owner::{Name, Owner};
use super::random::Random;
use super::watch::Watch;
use super::{Script, Tally, namespace, say};

/// Within a second of its birth, a file with lines of the script is waited upon.
const OF_AGE: Duration = Duration::from_millis(1_200);

pub(crate) struct Season<'a> {
    pub(super) random: &'a mut Random,
    pub(super) tally: &'a mut Tally,
    watch: &'a Watch,
    pub(super) script: Option<&'a Script>,
    pub(super) host: Host,
    since: Instant,
    pub(super) owners: Vec<Owner>,
    /// Zombies, and those that are gone: of this host, all that ever lived.
    pub(super) dead: BTreeSet<Name>,
    pub(super) calls: Vec<Call>,
    /// Calls at once.
    gusts: usize,
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

    // Who lives.

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
            pid.map(namespace::use_next);
            let mut owner = Owner::start(self.script);
            if !self.dead.contains(&owner.name) {
                self.tally.pids_reused += usize::from(self.dead.iter().any(|dead| dead.0 == owner.name.0));
                owner.is_limited = self.script.is_none() && self.random.one_in(3);
                return owner;
            }
        }
    }

    // Who asks.

    /// As many calls as there is room for, without a look between them.
    fn gust(&mut self) {
        for _ in self.calls.len()..self.gusts {
            self.call();
        }
    }

    fn call(&mut self) {
        let what = self.what();
        let Some(at) = self.one_to_ask(what) else { return };
        let known = self.known(what);
        let owner = &mut self.owners[at];
        let mut call = match what {
            What::Script(_) => {
                owner.order(&format!("{} --coordination-file {}", what.words(), self.host.file().display()));
                self.tally.of_the_script += 1;
                Call::ordered(what, owner.name)
            }
            _ => {
                let is_deaf = what.amount() > 0 && self.random.one_in(12);
                Call::start(&self.host, what, owner, is_deaf)
            }
        };
        owner.is_asking = true;
        self.tally.not_answered += usize::from(call.is_deaf);
        call.known = known;
        self.tally.calls += 1;
        if call.is_the_scripts() {
            return self.calls.push(call);
        }
        match self.random.below(8) {
            0..2 => self.cut_short(call),
            2..4 => {
                self.let_run();
                call.stop();
                self.tally.stopped += 1;
                self.calls.push(call);
            }
            _ => self.calls.push(call),
        }
    }

    /// What is known at the beginning of a call, and of what it puts in doubt for the others.
    pub(super) fn known(&mut self, what: What) -> Known {
        let asked = |is_limited: bool| -> usize {
            let is_it = |call: &&Call| !is_limited || self.is_limited(call.owner);
            self.calls.iter().filter(is_it).map(|call| call.what.amount()).sum()
        };
        let told = |is_limited: bool| -> usize {
            let owners =
                self.owners.iter().filter(|owner| !owner.is_dead && (!is_limited || owner.is_limited));
            owners.map(|owner| owner.told.len()).sum()
        };
        let shares = self.host.shares as usize;
        let withheld = self.elsewhere.len() + self.drained.len() * shares;
        let (most, most_limited) = (told(false) + asked(false) + withheld, told(true) + asked(true));
        let is_undisturbed = self.calls.iter().all(|call| call.what.leaves_the_dead());
        if !what.leaves_the_dead() {
            self.seen.left.clear();
        }
        for other in &mut self.calls {
            other.known.most += what.amount();
            other.known.most_limited += what.amount();
            if !what.leaves_the_dead() {
                other.known.left.clear();
            }
        }
        Known {
            dead: self.surely_dead(),
            left: if is_undisturbed { self.seen.left.clone() } else { BTreeSet::new() },
            earlier: self.seen.earlier.clone(),
            unsettled: self.seen.unsettled.clone(),
            drained: self.drained.clone(),
            most,
            most_limited,
        }
    }

    pub(super) fn is_limited(&self, name: Name) -> bool {
        self.owners.iter().any(|owner| owner.name == name && owner.is_limited)
    }

    /// No owner asks twice at once: what it has then would depend on who was first.
    fn one_to_ask(&mut self, what: What) -> Option<usize> {
        let gives_back = what == What::GiveBack;
        let may = |owner: &Owner| !(owner.is_asking || gives_back && owner.told.is_empty());
        let idle: Vec<usize> = (0..self.owners.len()).filter(|at| may(&self.owners[*at])).collect();
        (!idle.is_empty()).then(|| idle[self.random.below(idle.len())])
    }

    /// The call is ended, somewhere on its way.
    fn cut_short(&mut self, mut call: Call) {
        self.let_run();
        if self.random.one_in(4) {
            call.stop();
            // The others go on meanwhile.
            thread::sleep(self.usual);
        }
        let signal = if self.random.one_in(3) { Signal::SIGTERM } else { Signal::SIGKILL };
        if call.end_by(signal) {
            self.tally.callers_killed += 1;
            self.take_note_of_a_kill(&call, signal);
        } else {
            self.calls.push(call);
        }
    }

    /// For a moment in which a call may do anything.
    fn let_run(&mut self) {
        thread::sleep(self.usual.mul_f64(self.random.below(1_000) as f64 / 800.0));
    }

    fn what(&mut self) -> What {
        let most = if self.random.one_in(4) { 8 } else { 2 };
        let amount = 1 + self.random.below(most);
        match self.random.below(12) {
            0..3 if self.script.is_some() => What::Script(amount.min(3)),
            0..4 => What::Discover(amount),
            4..6 => What::Allocate(amount),
            6..8 => What::TakeOver(amount),
            8 if self.script.is_none() => What::Reclaim,
            _ => What::GiveBack,
        }
    }

    fn end_a_call(&mut self) {
        let at = self.random.below(self.calls.len());
        let call = self.calls.swap_remove(at);
        self.end(call);
    }

    pub(super) fn end(&mut self, mut call: Call) {
        let outcome = self.outcome(&mut call);
        if let Some(owner) = self.owners.iter_mut().find(|owner| owner.name == call.owner) {
            owner.is_asking = false;
        }
        self.take_note(&call, &outcome);
    }

    /// Whoever was stopped with the lock goes on as soon as the others wait for it.
    fn outcome(&mut self, call: &mut Call) -> Outcome {
        call.go_on();
        let since = Instant::now();
        while !call.is_over() {
            if since.elapsed() > PATIENCE {
                self.wake();
            }
            thread::sleep(Duration::from_micros(100));
        }
        call.end().unwrap_or_else(|| {
            self.wake();
            let owner = self.owners.iter_mut().find(|owner| owner.name == call.owner).unwrap();
            let (status, stdout) = owner.answer();
            Outcome { status, stdout, stderr: String::new() }
        })
    }

    // What others write.

    pub(super) fn is_of_age(&self) -> bool {
        self.since.elapsed() > OF_AGE
    }

    /// A line that somebody else has written, or its end.
    fn plant(&mut self) {
        let (file, calls) = (self.host.file(), &mut self.calls);
        let mut file = book::lock(&file, FlockArg::LockExclusiveNonblock, || {
            calls.iter_mut().for_each(Call::go_on);
        });
        self.plant_in(&mut file);
    }

    /// An operator keeps a device back, or lets it be granted again.
    fn keep_back(&mut self) {
        let device = u32::try_from(self.random.below(self.host.devices as usize)).unwrap();
        let is_drained = self.drained.contains(&device);
        // On a host of few devices there would be little left to fight for.
        if !is_drained && self.drained.len() * 8 >= self.host.devices as usize {
            return;
        }
        let what = if is_drained { What::Undrain(device) } else { What::Drain(device) };
        if is_drained {
            self.drained.remove(&device);
            for call in &mut self.calls {
                call.known.drained.remove(&device);
            }
        }
        let known = self.known(what);
        let nobody = self.born(None);
        let mut call = Call::start(&self.host, what, &nobody, false);
        call.known = known;
        let outcome = self.outcome(&mut call);
        self.take_note(&call, &outcome);
        self.dead.insert(nobody.bury());
        self.tally.calls += 1;
        if !is_drained {
            self.drained.insert(device);
            let shares = self.host.shares as usize;
            self.calls.iter_mut().for_each(|call| call.known.most += shares);
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
