//! Who asks, or gives back, and how a call ends.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::book::PATIENCE;
use super::call::{Call, Known, Outcome, What};
use super::owner::{Name, Owner};
use super::season::Season;

impl Season<'_> {
    /// As many calls as there is room for, without a look between them.
    pub(super) fn gust(&mut self) {
        for _ in self.calls.len()..self.gusts {
            self.call();
        }
    }

    pub(super) fn call(&mut self) {
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
            // The script itself writes another at any time.
            unsettled: if self.script.is_some() { BTreeSet::new() } else { self.seen.unsettled.clone() },
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

    pub(super) fn end_a_call(&mut self) {
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
    pub(super) fn outcome(&mut self, call: &mut Call) -> Outcome {
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
}
