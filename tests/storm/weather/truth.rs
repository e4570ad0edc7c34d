//! What has to be so after every step, and after every call.

use std::collections::BTreeSet;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::book::Book;
use super::call::{Call, Outcome, What};
use super::host::Unit;
use super::owner::{Name, Owner};
use super::season::{Season, Seen};

impl Season<'_> {
    /// Units of the living, each with who holds it.
    fn living(&self, book: &Book) -> BTreeSet<(Unit, Name)> {
        let holders = self.owners.iter().filter(|owner| !owner.is_dead);
        holders
            .flat_map(|owner| book.units_of(owner.name).into_iter().map(|unit| (unit, owner.name)))
            .collect()
    }

    /// For whom no call is under way, which could have found it alive, and record something for it still.
    pub(super) fn surely_dead(&self) -> BTreeSet<Name> {
        let is_asking = |name: &&Name| self.calls.iter().any(|call| call.owner == **name);
        self.dead.iter().filter(|name| !is_asking(name)).copied().collect()
    }

    /// No unit has two living owners, and each owner has what it was told.
    pub(super) fn check(&mut self) {
        self.tally.checks += 1;
        let book = self.book();
        let living = self.living(&book);
        let units: BTreeSet<Unit> = living.iter().map(|(unit, _)| *unit).collect();
        assert_eq!(units.len(), living.len(), "a unit has two living owners: {living:?}\n{}", book.text());
        assert!(units.is_subset(&self.host.units()), "{}", book.text());
        for owner in self.owners.iter().filter(|owner| !owner.is_asking && !owner.is_dead) {
            assert_eq!(book.units_of(owner.name), owner.told, "{:?}:\n{}", owner.name, book.text());
        }
        let is_limited = |holding: &&(Unit, Name)| self.is_limited(holding.1);
        let limited = living.iter().filter(is_limited).count();
        assert!(limited <= self.host.limit, "{limited} of {} are held:\n{}", self.host.limit, book.text());
        let elsewhere: BTreeSet<Unit> = book.elsewhere.keys().copied().collect();
        assert_eq!(elsewhere, self.elsewhere, "held elsewhere:\n{}", book.text());
        assert!(units.is_disjoint(&elsewhere), "given, and held elsewhere: {living:?}\n{}", book.text());
        assert_eq!(book.drained, self.drained, "drained:\n{}", book.text());
        self.check_names(&book);
        let is_of_the_dead = |line: &(u32, Unit, Option<u64>)| {
            line.2.is_some_and(|start| self.dead.contains(&(line.0, start)))
        };
        self.seen = Seen {
            left: book.lines().filter(is_of_the_dead).map(|line| line.1).collect(),
            earlier: book.earlier.clone(),
            unsettled: book.unsettled(),
        };
    }

    /// Whoever is recorded has lived.
    fn check_names(&self, book: &Book) {
        let owners = self.owners.iter().map(|owner| owner.name);
        let known: BTreeSet<Name> = self.dead.iter().copied().chain(owners).collect();
        let pids: BTreeSet<u32> = known.iter().map(|name| name.0).collect();
        let is_known = |(pid, _, start): &(u32, Unit, Option<u64>)| {
            start.map_or_else(|| pids.contains(pid), |start| known.contains(&(*pid, start)))
        };
        let strange = book.lines().find(|line| !is_known(line));
        assert_eq!(strange, None, "it is nobody:\n{}", book.text());
    }

    pub(super) fn take_note(&mut self, call: &Call, outcome: &Outcome) {
        let Outcome { status, stdout, stderr } = outcome;
        let what = call.what;
        let told = format!("{what:?} of {:?}: {status}, {stdout:?}, {stderr:?}", call.owner);
        if *status != 0 {
            assert!(self.is_refusal(call, outcome), "{told}, with {:?} of {}", call.known, self.host.devices);
            self.tally.refused += usize::from(!call.is_deaf);
            return;
        }
        assert!(stderr.is_empty() && !call.is_deaf, "{told}");
        let book = self.book();
        self.check_what_it_freed(call, &book, &told);
        if what == What::GiveBack {
            self.owners
                .iter_mut()
                .filter(|owner| owner.name == call.owner)
                .for_each(|owner| owner.told.clear());
        }
        if what.amount() > 0 {
            self.tally.granted += 1;
            self.check_what_was_given(call, &book, stdout, &told);
        }
    }

    /// The answer names the devices of what is recorded, and that was to be had.
    fn check_what_was_given(&mut self, call: &Call, book: &Book, stdout: &str, told: &str) {
        let named: Vec<u32> = stdout.trim_end().split(',').map(|word| word.parse().unwrap()).collect();
        let devices: BTreeSet<u32> = named.iter().copied().collect();
        assert_eq!(devices.len(), named.len(), "{told}");
        // Of one that has ended since, others may have been given it.
        let Some(owner) = self.owners.iter_mut().find(|owner| owner.name == call.owner && !owner.is_dead)
        else {
            return;
        };
        let recorded = book.units_of(owner.name);
        assert!(recorded.is_superset(&owner.told), "{told}: it had {:?}:\n{}", owner.told, book.text());
        let given: BTreeSet<Unit> = recorded.difference(&owner.told).copied().collect();
        let recorded_devices: BTreeSet<u32> = given.iter().map(|unit| unit.0).collect();
        assert_eq!(
            (given.len(), &recorded_devices),
            (call.what.amount(), &devices),
            "{told}:\n{}",
            book.text()
        );
        assert!(devices.is_disjoint(&call.known.drained), "{told}: {:?} are drained", call.known.drained);
        if call.what.leaves_the_dead() {
            assert!(given.is_disjoint(&call.known.left), "{told}: the dead have {:?}", call.known.left);
        }
        owner.told = recorded;
        let is_whole = |owner: &&Owner| {
            let has_some = owner.told.iter().any(|unit| given.contains(unit));
            has_some && owner.name != call.owner && !owner.is_dead && !owner.is_asking
        };
        let other = self.owners.iter().find(is_whole).map(|owner| owner.name);
        assert_eq!(other, None, "{told}, and somebody has it");
    }

    /// Of those that were dead when it began, nothing is left; and the script's lines are settled.
    fn check_what_it_freed(&self, call: &Call, book: &Book, told: &str) {
        let what = call.what;
        if what.clears() {
            let left = call.known.dead.iter().find(|dead| !book.surely_of(**dead).is_empty());
            assert_eq!(left, None, "{told} leaves what was had by somebody dead:\n{}", book.text());
            let earlier = call.known.earlier.intersection(&book.earlier).next();
            assert_eq!(earlier, None, "{told} leaves what is of another boot:\n{}", book.text());
        }
        let is_dead = self.dead.contains(&call.owner);
        if what.clears() || what.amount() > 0 || what == What::GiveBack && !is_dead {
            let unsettled = book.unsettled();
            let left = call.known.unsettled.intersection(&unsettled).next();
            assert_eq!(left, None, "{told} leaves a line of the script:\n{}", book.text());
        }
    }

    /// Too few are free, or more than is allowed were asked for; or the owner has ended; or nobody can be answered.
    fn is_refusal(&self, call: &Call, Outcome { status, stdout, stderr }: &Outcome) -> bool {
        let amount = call.what.amount();
        let is_dead = self.dead.contains(&call.owner);
        // `allocate` leaves to the dead what they had.
        let is_short =
            call.known.most + amount > self.host.units().len() || matches!(call.what, What::Allocate(_));
        let is_over = call.known.most_limited + amount > self.host.limit && self.is_limited(call.owner);
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
                4 if stderr.contains(" the answer to standard output") => call.is_deaf,
                2 | 4 => is_dead && (stderr.contains(" has exited") || stderr.contains(" does not exist; ")),
                6 => is_over && stderr.contains("exceeded quota of namespace "),
                _ => false,
            }
    }

    /// By SIGKILL all of the call was done, or nothing; of a release all of each grant. By a signal that it can put off
    /// nothing was done: else it had ended well.
    pub(super) fn take_note_of_a_kill(&mut self, call: &Call, signal: Signal) {
        let book = self.book();
        let owner = self.owners.iter_mut().find(|owner| owner.name == call.owner).unwrap();
        owner.is_asking = false;
        let recorded = book.units_of(owner.name);
        let told = std::mem::take(&mut owner.told);
        let more = recorded.difference(&told).count();
        let is_allowed = match call.what {
            _ if signal != Signal::SIGKILL => recorded == told,
            What::GiveBack => recorded.is_subset(&told),
            what => recorded.is_superset(&told) && (more == 0 || more == what.amount()),
        };
        assert!(
            owner.is_dead || is_allowed,
            "{signal}: {:?}: {told:?}, then {recorded:?}\n{}",
            call.what,
            book.text()
        );
        owner.told = recorded;
    }

    /// All calls end. Then whatever no living owner holds is given to one caller, and `status` says the same as the
    /// record.
    pub(super) fn calm_down(&mut self) {
        self.wake();
        while let Some(call) = self.calls.pop() {
            self.end(call);
            self.check();
        }
        let book = self.book();
        let mut free = self.host.units();
        free.retain(|unit| !self.elsewhere.contains(unit) && !self.drained.contains(&unit.0));
        for (unit, _) in self.living(&book) {
            free.remove(&unit);
        }
        if !free.is_empty() && self.script.is_none() {
            self.give_all(&free);
        }
        self.check_sums();
    }

    fn give_all(&mut self, free: &BTreeSet<Unit>) {
        let mut owner = self.born(None);
        owner.is_limited = false;
        let what = What::Discover(free.len());
        let known = self.known(what);
        let since = std::time::Instant::now();
        let mut call = Call::start(&self.host, what, &owner, false);
        self.owners.push(owner);
        call.known = known;
        let outcome = call.end().unwrap();
        self.usual = since.elapsed();
        assert_eq!(outcome.status, 0, "{free:?} are free: {}{}", outcome.stderr, self.book().text());
        self.take_note(&call, &outcome);
        self.tally.calls += 1;
        assert_eq!(&self.owners.last().unwrap().told, free);
        self.check();
        self.check_sums();
        let mut owner = self.owners.pop().unwrap();
        owner.kill();
        self.dead.insert(owner.bury());
    }

    fn check_sums(&mut self) {
        let output = self.host.program("status --json").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        let devices = status["devices"].as_array().unwrap();
        let number = |value: &Value| value.as_u64().map(|number| u32::try_from(number).unwrap());
        let said: BTreeSet<(Unit, String, Option<u32>)> = devices
            .iter()
            .flat_map(|device| device["units"].as_array().unwrap().iter().map(move |unit| (device, unit)))
            .map(|(device, unit)| {
                let name = (number(&device["index"]).unwrap(), number(&unit["slot"]).unwrap_or(0));
                let state = unit["state"].as_str().unwrap().to_owned();
                // Of several dead owners any may be named.
                let owner = number(&unit["owner"]["pid"]).filter(|_| state == "held");
                (name, state, owner)
            })
            .collect();
        let book = self.book();
        let living = self.living(&book);
        let state = |unit: Unit| match living.iter().find(|(held, _)| *held == unit) {
            Some((_, owner)) => (unit, "held".to_owned(), Some(owner.0)),
            None if self.elsewhere.contains(&unit) => (unit, "unknown".to_owned(), None),
            None if self.drained.contains(&unit.0) => (unit, "drained".to_owned(), None),
            None if book.names(unit) => (unit, "stale".to_owned(), None),
            None => (unit, "free".to_owned(), None),
        };
        let expected: BTreeSet<_> = self.host.units().into_iter().map(state).collect();
        let differs = said.symmetric_difference(&expected).next();
        assert_eq!(differs, None, "{}", book.text());
    }
}
