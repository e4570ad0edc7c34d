//! One host and its owners, and what befalls them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::book::Book;
use super::call::{Call, Outcome, What};
use super::owner::{Name, Owner};
use super::random::Random;
use super::{GPU_COORD, Script, Tally, namespace};

pub(crate) struct Season<'a> {
    random: &'a mut Random,
    tally: &'a mut Tally,
    script: Option<&'a Script>,
    directory: TempDir,
    units: u32,
    owners: Vec<Owner>,
    /// Zombies, and those that are gone: of this host, all that ever lived.
    dead: BTreeSet<Name>,
    calls: Vec<Call>,
    /// Calls at once.
    gusts: usize,
    /// What a call took that had the host to itself.
    usual: Duration,
}

impl<'a> Season<'a> {
    pub(crate) fn new(
        random: &'a mut Random,
        script: Option<&'a Script>,
        tally: &'a mut Tally,
    ) -> Season<'a> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("coordination"), "").unwrap();
        let units = script.map_or_else(|| random.of_these(&[4, 16, 64, 200]), |script| script.units);
        let owners = if script.is_some() { 12 } else { random.of_these(&[20, 100, 250]) };
        let gusts = random.of_these(&[1, 4, 12]);
        let owners = (0..owners).map(|_| Owner::start(script)).collect();
        Season {
            random,
            tally,
            script,
            directory,
            units,
            owners,
            dead: BTreeSet::new(),
            calls: Vec::new(),
            gusts,
            usual: Duration::from_millis(3),
        }
    }

    pub(crate) fn blow(mut self, calls: usize) {
        let until = self.tally.calls + calls;
        while self.tally.calls < until {
            match self.random.below(20) {
                0 if self.script.is_none() => self.kill_an_owner(),
                1 if self.script.is_none() => self.bury_one(),
                2..12 if self.calls.len() < self.gusts => self.call(),
                12 if self.calls.len() < self.gusts && self.random.one_in(4) => self.calm_down(),
                _ if self.calls.is_empty() => self.call(),
                _ => self.end_a_call(),
            }
            self.check();
        }
        self.calm_down();
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("coordination")
    }

    fn book(&self) -> Book {
        Book::read(&self.file())
    }

    // What happens.

    fn kill_an_owner(&mut self) {
        let at = self.random.below(self.owners.len());
        let owner = &mut self.owners[at];
        if !owner.is_dead {
            owner.kill();
            self.dead.insert(owner.name);
            self.tally.owners_killed += 1;
        }
    }

    /// A zombie goes, and another process comes, often of the same pid.
    fn bury_one(&mut self) {
        let is_dead = |owner: &Owner| owner.is_dead && !owner.is_asking;
        if let Some(at) = self.owners.iter().position(is_dead) {
            let (pid, _) = self.owners.swap_remove(at).bury();
            if self.random.one_in(2) {
                namespace::use_next(pid);
            }
            let next = self.born();
            self.owners.push(next);
        }
    }

    /// Within one tick of the clock nothing tells two processes of one pid from each other.
    fn born(&mut self) -> Owner {
        loop {
            let owner = Owner::start(self.script);
            if !self.dead.contains(&owner.name) {
                self.tally.pids_reused += usize::from(self.dead.iter().any(|dead| dead.0 == owner.name.0));
                return owner;
            }
        }
    }

    fn call(&mut self) {
        let what = self.what();
        let Some(at) = self.one_to_ask(what) else { return };
        let file = self.file();
        let asked: usize = self.calls.iter().map(|call| call.what.amount()).sum();
        let most = self.living(&self.book()).len() + asked;
        let dead = self.surely_dead();
        let owner = &mut self.owners[at];
        let mut call = match what {
            What::Script(_) => {
                owner.order(&format!("{} --coordination-file {}", what.words(), file.display()));
                self.tally.of_the_script += 1;
                Call::ordered(what, owner.name)
            }
            _ => Call::start(what, owner.name, &file, self.units),
        };
        owner.is_asking = true;
        (call.dead, call.most) = (dead, most);
        for other in &mut self.calls {
            other.most += what.amount();
        }
        self.tally.calls += 1;
        if !call.is_the_scripts() && self.random.one_in(4) {
            return self.cut_short(call);
        }
        self.calls.push(call);
    }

    /// No owner asks twice at once: what it has then would depend on who was first.
    fn one_to_ask(&mut self, what: What) -> Option<usize> {
        let gives_back = what == What::GiveBack;
        let may = |owner: &Owner| !(owner.is_asking || gives_back && owner.told.is_empty());
        let idle: Vec<usize> = (0..self.owners.len()).filter(|at| may(&self.owners[*at])).collect();
        (!idle.is_empty()).then(|| idle[self.random.below(idle.len())])
    }

    /// The call is killed, somewhere on its way.
    fn cut_short(&mut self, mut call: Call) {
        std::thread::sleep(self.usual.mul_f64(self.random.below(1_000) as f64 / 800.0));
        if call.kill() {
            self.tally.callers_killed += 1;
            self.take_note_of_a_kill(&call);
        } else {
            self.calls.push(call);
        }
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
        let mut call = self.calls.swap_remove(at);
        let owner = self.owners.iter_mut().find(|owner| owner.name == call.owner).unwrap();
        owner.is_asking = false;
        let outcome = call.end().unwrap_or_else(|| {
            let (status, stdout) = owner.answer();
            Outcome { status, stdout, stderr: String::new() }
        });
        self.take_note(&call, &outcome);
    }

    // What must be.

    /// Units of the living, each with who holds it.
    fn living(&self, book: &Book) -> BTreeSet<(u32, Name)> {
        let holders = self.owners.iter().filter(|owner| !owner.is_dead);
        holders.flat_map(|owner| book.of(owner.name).into_iter().map(|unit| (unit, owner.name))).collect()
    }

    /// For whom no call is under way, which could have found it alive, and record something for it still.
    fn surely_dead(&self) -> BTreeSet<Name> {
        let is_asking = |name: &&Name| self.calls.iter().any(|call| call.owner == **name);
        self.dead.iter().filter(|name| !is_asking(name)).copied().collect()
    }

    /// After every step: no unit has two living owners, and each owner has what it was told.
    fn check(&mut self) {
        self.tally.checks += 1;
        let book = self.book();
        let living = self.living(&book);
        let units: BTreeSet<u32> = living.iter().map(|(unit, _)| *unit).collect();
        assert_eq!(units.len(), living.len(), "a unit has two living owners: {living:?}\n{}", book.text());
        assert!(units.iter().all(|unit| *unit < self.units), "{}", book.text());
        for owner in self.owners.iter().filter(|owner| !owner.is_asking && !owner.is_dead) {
            assert_eq!(book.of(owner.name), owner.told, "{:?}:\n{}", owner.name, book.text());
        }
        let known: BTreeSet<Name> =
            self.dead.iter().copied().chain(self.owners.iter().map(|owner| owner.name)).collect();
        for (pid, lines) in &book.held {
            let names = |start: u64| known.contains(&(*pid, start));
            let is_known =
                |start: Option<u64>| start.map_or_else(|| known.iter().any(|name| name.0 == *pid), names);
            let strange = lines.iter().find(|line| !is_known(line.1));
            assert_eq!(strange, None, "pid {pid} is nobody:\n{}", book.text());
        }
    }

    fn take_note(&mut self, call: &Call, outcome: &Outcome) {
        let Outcome { status, stdout, stderr } = outcome;
        let what = call.what;
        let told = || format!("{what:?} of {:?}: {status}, {stdout:?}, {stderr:?}", call.owner);
        assert!(
            *status == 0 && stderr.is_empty() || *status != 0 && self.is_refusal(call, outcome),
            "{}",
            told()
        );
        if *status != 0 {
            self.tally.refused += 1;
            return;
        }
        let units: Vec<u32> = match what {
            What::GiveBack | What::Reclaim => Vec::new(),
            _ => stdout.trim_end().split(',').map(|word| word.parse().unwrap()).collect(),
        };
        let distinct: BTreeSet<u32> = units.iter().copied().collect();
        assert_eq!((units.len(), distinct.len()), (what.amount(), what.amount()), "{}", told());
        self.tally.granted += usize::from(what.amount() > 0);
        let has_some =
            |owner: &&Owner| !owner.is_dead && !owner.is_asking && !owner.told.is_disjoint(&distinct);
        // Whoever has ended since may have been followed by another.
        let twice = self.owners.iter().find(has_some).filter(|_| !self.dead.contains(&call.owner));
        assert!(twice.is_none(), "{}, which {:?} has", told(), twice.map(|owner| owner.name));
        let owner = self.owners.iter_mut().find(|owner| owner.name == call.owner).unwrap();
        match what {
            What::GiveBack => owner.told.clear(),
            _ => owner.told.extend(&distinct),
        }
        if what.clears() {
            let book = self.book();
            let left: Vec<_> = call.dead.iter().filter(|dead| !book.of(**dead).is_empty()).collect();
            assert!(left.is_empty(), "{} leaves what {left:?} had:\n{}", told(), book.text());
        }
    }

    /// Too few are free, and there were; or the owner has ended, and it has.
    fn is_refusal(&self, call: &Call, Outcome { status, stdout, stderr }: &Outcome) -> bool {
        let is_dead = self.dead.contains(&call.owner);
        // `allocate` leaves to the dead what they had.
        let is_short =
            call.most + call.what.amount() > self.units as usize || matches!(call.what, What::Allocate(_));
        if call.is_the_scripts() {
            // A call of ours that was killed while it settled a line of the script leaves the unit with two lines: of
            // those it complains, and takes the unit for held.
            let complains = |line: &&str| line.ends_with(": binary operator expected");
            let says: Vec<&str> = stdout.lines().filter(|line| !complains(line)).collect();
            return *status == 1 && is_short && says == ["Could not get enough GPU resources."];
        }
        let is_one_line =
            stderr.starts_with("gpu-coord: ") && stderr.matches('\n').count() == 1 && stdout.is_empty();
        is_one_line
            && match status {
                1 => is_short && (stderr.contains(" can be given: ") || stderr.contains("units")),
                2 | 4 => is_dead && (stderr.contains(" has exited") || stderr.contains(" does not exist; ")),
                _ => false,
            }
    }

    /// All of the call was done, or nothing; of a release all of each grant.
    fn take_note_of_a_kill(&mut self, call: &Call) {
        let book = self.book();
        let owner = self.owners.iter_mut().find(|owner| owner.name == call.owner).unwrap();
        owner.is_asking = false;
        let recorded = book.of(owner.name);
        let told = std::mem::take(&mut owner.told);
        let is_allowed = match call.what {
            What::GiveBack => recorded.is_subset(&told),
            what => {
                let more = recorded.difference(&told).count();
                recorded.is_superset(&told) && (more == 0 || more == what.amount())
            }
        };
        let is_dead = owner.is_dead;
        assert!(
            is_dead || is_allowed,
            "killed: {:?}: {told:?}, then {recorded:?}\n{}",
            call.what,
            book.text()
        );
        owner.told = recorded;
    }

    /// All calls end. Then whatever no living owner holds is given to one caller, and `status` says the same as the
    /// record.
    fn calm_down(&mut self) {
        while !self.calls.is_empty() {
            self.end_a_call();
            self.check();
        }
        let held = self.living(&self.book());
        let free: BTreeSet<u32> =
            (0..self.units).filter(|unit| held.iter().all(|(other, _)| other != unit)).collect();
        if !free.is_empty() && self.script.is_none() {
            let owner = self.born();
            self.owners.push(owner);
            let name = self.owners.last().unwrap().name;
            let mut call = Call::start(What::Discover(free.len()), name, &self.file(), self.units);
            call.dead = self.surely_dead();
            let since = Instant::now();
            let outcome = call.end().unwrap();
            self.usual = since.elapsed();
            assert_eq!(outcome.status, 0, "{free:?} are free: {}{}", outcome.stderr, self.book().text());
            self.take_note(&call, &outcome);
            self.tally.calls += 1;
            assert_eq!(self.owners.last().unwrap().told, free);
            self.check();
            self.check_sums();
            let mut owner = self.owners.pop().unwrap();
            owner.kill();
            self.dead.insert(owner.bury());
        }
        self.check_sums();
    }

    fn check_sums(&self) {
        let mut command = Command::new(GPU_COORD);
        command
            .env_clear()
            .args(["status", "--json", "--deadline", "100", "--coordination-file"])
            .arg(self.file());
        let output = command.args(["--source", &format!("simulated:{}", self.units)]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        let devices = status["devices"].as_array().unwrap();
        let unit = |device: &Value| -> (u32, String, Option<u64>) {
            let unit = &device["units"][0];
            let index = u32::try_from(device["index"].as_u64().unwrap()).unwrap();
            (index, unit["state"].as_str().unwrap().to_owned(), unit["owner"]["pid"].as_u64())
        };
        let said: Vec<_> = devices.iter().map(unit).collect();
        let book = self.book();
        let living = self.living(&book);
        let expected = (0..self.units).map(|index| {
            let owner = living.iter().find(|(unit, _)| *unit == index).map(|(_, name)| u64::from(name.0));
            match (owner, book.pids(index).first()) {
                (Some(owner), _) => (index, "held".to_owned(), Some(owner)),
                (None, Some(dead)) => (index, "stale".to_owned(), Some(u64::from(*dead))),
                (None, None) => (index, "free".to_owned(), None),
            }
        });
        let differs = said.iter().cloned().zip(expected).find(|(said, expected)| {
            // Of several dead owners any may be named.
            said != expected && !(said.1 == "stale" && expected.1 == "stale")
        });
        assert_eq!((said.len(), differs), (self.units as usize, None), "{}", book.text());
    }
}
