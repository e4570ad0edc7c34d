//! `gpu-coord exec --wait`: tries whenever it may be its turn, and sleeps meanwhile.
//!
//! A release changes the file, and an owner that dies ends: both are events. What no event tells is looked for now
//! and then: that somebody who goes first was stopped, that a sick device is sound again, that others compute on a
//! device no more, and the end of an owner that cannot be watched (before Linux 5.3, in another pid namespace).
//! A look reads the record without its lock; only who may have its turn asks the devices, and takes the lock.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use super::Context;
use super::judged::Judged;
use super::offer::Offer;
use super::queue::{self, Queue, Waiters};
use crate::assignment::{Owner, Record, Standing};
use crate::cli::{self, Exec};
use crate::coordination::ledger::Snapshot;
use crate::device::Unit;
use crate::error::{self, Error};
use crate::host::Host;
use crate::host::events::{Event, Watch};
use crate::notes::Notes;
use crate::policy::{self, Holdings, State, turn};

/// The pauses between looks without an event grow from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// The longest pause while there is somebody whose end is no event.
const UNWATCHED: Duration = Duration::from_secs(1);

/// For the line to be taken out of the record: whoever gives up does not wait long for that.
const LEAVES_WITHIN: Duration = Duration::from_secs(2);

/// Pids that a message names.
const MOST_NAMED: usize = 3;

/// Tries until it is given what it asks for, for so long at most.
pub(super) fn run(
    context: &Context<'_>,
    options: &Exec,
    owner: &Owner,
    patience: Option<Duration>,
    notes: &mut Notes,
) -> Result<(), Error> {
    let (queue, watch, since) = (Queue::new(), Watch::new(), Instant::now());
    let mut waiting =
        Waiting { context, options, owner, patience, since, queue, watch, pause: PAUSES.0, said: None };
    let outcome = waiting.run(notes);
    let common = &options.request.common;
    let leaving = context.again(common, common.deadline.min(LEAVES_WITHIN));
    waiting.queue.leave(&leaving, &options.request.file.coordination_file, owner);
    if waiting.queue.signals.is_one_pending() {
        waiting.queue.signals.obey();
    }
    if !waiting.queue.is_in() {
        return outcome;
    }
    outcome.inspect_err(|error| context.note_refusal(owner, error))
}

struct Waiting<'a> {
    context: &'a Context<'a>,
    options: &'a Exec,
    owner: &'a Owner,
    /// `None`: without end.
    patience: Option<Duration>,
    since: Instant,
    queue: Queue,
    watch: Watch,
    pause: Duration,
    /// What was said last on a terminal.
    said: Option<String>,
}

/// What one look at the record tells.
#[derive(Default)]
struct Look {
    /// It is its turn, and as many units may be free.
    may_try: bool,
    /// The end of everybody that keeps it waiting is an event.
    is_all_watched: bool,
    /// Living owners of what it could be given.
    holders: BTreeSet<u32>,
    /// How many go before it.
    before: usize,
}

impl Waiting<'_> {
    fn run(&mut self, notes: &mut Notes) -> Result<(), Error> {
        let before = notes.clone();
        let mut offer = None;
        loop {
            *notes = before.clone();
            match self.attempt(&mut offer, notes) {
                Err(Error::NotEnough(why)) if self.queue.is_in() => {
                    self.until_its_turn(offer.as_ref(), &why)?
                }
                outcome => return outcome,
            }
        }
    }

    /// `offer`: what there was at the last try, if there is less than that now. It may come back.
    fn attempt(&self, offer: &mut Option<Offer>, notes: &mut Notes) -> Result<(), Error> {
        let common = &self.options.request.common;
        let context = self.context.again(common, common.deadline);
        self.watch.file(&self.options.request.file.coordination_file);
        let offer = offer.insert(Offer::read(&context, self.options, notes)?);
        offer.take(&context, self.options, self.owner, Some(&self.queue), notes)
    }

    /// Returns when it may be its turn. `why`: the last try failed.
    fn until_its_turn(&mut self, offer: Option<&Offer>, why: &str) -> Result<(), Error> {
        let mut was_woken = false;
        loop {
            let look = offer.map_or_else(Look::default, |offer| self.look(offer));
            if look.may_try && was_woken {
                return Ok(());
            }
            self.say(&look);
            let left = self.patience.map(|patience| patience.saturating_sub(self.since.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                let waited = error::seconds(self.since.elapsed());
                return Err(Error::NotEnough(format!("{why}; waited {waited} s")));
            }
            let longest = if look.is_all_watched { PAUSES.1 } else { UNWATCHED };
            self.pause = self.pause.min(longest);
            let event = self.watch.wait(&self.queue.signals, self.pause.min(left.unwrap_or(self.pause)));
            self.pause = match event {
                Event::Signal => return Err(queue::interrupted()),
                Event::Change => PAUSES.0,
                Event::Timeout => self.pause * 2,
            };
            was_woken = true;
        }
    }

    /// What cannot be read is left to a try, which says why.
    fn look(&mut self, offer: &Offer) -> Look {
        let common = &self.options.request.common;
        let context = self.context.again(common, common.deadline);
        let path = &self.options.request.file.coordination_file;
        let _guard = context.guard(path);
        let is_file_watched = self.watch.file(path);
        let try_it = || Look { may_try: true, ..Look::default() };
        let Ok(snapshot) = Snapshot::glance(&context.host, path) else { return try_it() };
        let Some(Snapshot { record, facts, .. }) = snapshot else { return try_it() };
        // Watched before they are judged, so that nobody ends unseen in between.
        let candidates = pids(&context.host, &record, |_| true);
        self.watch.processes(&candidates);
        let occupancy = policy::occupancy(&offer.inventory, &record);
        let judged = Judged::new(&context.host, &record, facts, Some(&occupancy));
        let standing = |position: usize| judged.standing(position);
        let holdings = Holdings {
            inventory: &offer.inventory,
            record: &record,
            occupancy: &occupancy,
            standing: &standing,
        };
        let liveness = judged.liveness();
        let waiters = Waiters { host: &context.host, holdings, liveness, units: &offer.units };
        let before = waiters.before(self.owner);
        // If the file was removed, another try takes a new place.
        let is_in = turn::of(&record, self.owner).next().is_some();
        let lives = |line: Line| match line {
            Line::Held(position) => standing(position) != Standing::Dead,
            Line::Waiting(position) => liveness.of_waiter(&record.waiters[position]) != Standing::Dead,
        };
        let is_all_seen = record.assignments.iter().all(|line| is_from_here(&context.host, &line.owner));
        let is_all_watched = self.watch.processes(&pids(&context.host, &record, lives));
        let seen = Held::of(&offer.units, &holdings);
        Look {
            may_try: !is_in || (before.is_empty() && seen.free as u128 >= self.options.request.amount),
            is_all_watched: is_file_watched && is_all_seen && is_all_watched,
            holders: seen.holders,
            before: before.len(),
        }
    }

    /// On a terminal, for whom it waits; once for each change.
    fn say(&mut self, look: &Look) {
        let text = look.text(&self.context.host, self.options.request.amount);
        if self.said.as_ref() != Some(&text) {
            cli::tell(&text);
            self.said = Some(text);
        }
    }
}

/// A line of the record, by its position among those of its kind.
#[derive(Clone, Copy)]
enum Line {
    Held(usize),
    Waiting(usize),
}

fn is_from_here(host: &Host, owner: &Owner) -> bool {
    owner.pid_namespace.is_none_or(|namespace| Some(namespace) == host.pid_namespace())
}

/// Of the owners and waiters of this pid namespace, but for this process.
fn pids(host: &Host, record: &Record, takes: impl Fn(Line) -> bool) -> BTreeSet<u32> {
    let held = record.assignments.iter().map(|line| &line.owner).enumerate();
    let held = held.filter(|(position, _)| takes(Line::Held(*position)));
    let waiting = record.waiters.iter().map(|line| &line.owner).enumerate();
    let waiting = waiting.filter(|(position, _)| takes(Line::Waiting(*position)));
    let owners = held.chain(waiting).map(|(_, owner)| owner);
    let others = owners.filter(|owner| is_from_here(host, owner) && owner.pid != std::process::id());
    others.map(|owner| owner.pid).collect()
}

/// What is held of an offer.
struct Held {
    /// Units that no owner keeps: a try tells whether they may be given.
    free: usize,
    holders: BTreeSet<u32>,
}

impl Held {
    fn of(units: &[Unit], holdings: &Holdings<'_>) -> Held {
        let Holdings { record, occupancy, standing, .. } = *holdings;
        let offered: HashSet<&Unit> = units.iter().collect();
        let mut held = Held { free: 0, holders: BTreeSet::new() };
        for place in occupancy.places.iter().filter(|place| offered.contains(&place.unit)) {
            let state = holdings.state(place);
            held.free += usize::from(matches!(state, State::Free | State::Stale | State::Sick));
            let living = place.holders.iter().filter(|holder| standing(**holder) == Standing::Alive);
            held.holders.extend(living.map(|holder| record.assignments[*holder].owner.pid));
        }
        held
    }
}

impl Look {
    /// `waiting for 2 units, held by pid 4711 (java) and 3 more; 2 go first`
    fn text(&self, host: &Host, amount: u128) -> String {
        let named = self.holders.iter().take(MOST_NAMED).map(|pid| match host.command_line(*pid) {
            Some(command) => format!("pid {pid} ({command})"),
            None => format!("pid {pid}"),
        });
        let mut holders: Vec<String> = named.collect();
        let more = self.holders.len().saturating_sub(MOST_NAMED);
        holders.extend((more > 0).then(|| format!("{more} more")));
        let mut text = format!("waiting for {}", policy::units(amount));
        if let Some((last, others)) = holders.split_last() {
            let and = if others.is_empty() { "" } else { " and " };
            text += &format!(", held by {}{and}{last}", others.join(", "));
        }
        match self.before {
            0 => text,
            1 => text + "; one that waits goes first",
            count => text + &format!("; {count} that wait go first"),
        }
    }
}
