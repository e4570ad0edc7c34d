//! `gpu-coord exec --wait`: tries whenever it may be its turn, and sleeps in between.
//!
//! A release changes the file, and the end of an owner can be watched: both are events. What causes no event is polled:
//! a waiter before it was stopped, a sick device is sound again, others no longer compute on a device, or an owner has
//! ended that cannot be watched (before Linux 5.3, or in another pid namespace). A look reads the record without its
//! lock; only a process whose turn it may be queries the devices and takes the lock.

use std::time::{Duration, Instant};

use super::Context;
use super::look::Look;
use super::offer::Offer;
use super::queue::Queue;
use crate::assignment::Owner;
use crate::cli::{self, Exec};
use crate::error::{self, Error};
use crate::host::Host;
use crate::host::events::{Event, Watch};
use crate::notes::Notes;

/// The first and the longest pause between looks without an event.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// The longest pause while there is somebody whose end is not an event.
const UNWATCHED: Duration = Duration::from_secs(1);

/// How long to try to remove the line from the record when giving up.
const LEAVES_WITHIN: Duration = Duration::from_secs(2);

/// Tries until the request is granted, for at most `patience`.
pub(super) fn run(
    context: &Context<'_>,
    options: &Exec,
    owner: &Owner,
    patience: Option<Duration>,
    notes: &mut Notes,
) -> Result<(), Error> {
    let (queue, watch, since) = (Queue::new(), Watch::new(), Instant::now());
    let (pause, is_told) = (PAUSES.0, cli::is_told());
    let mut waiting =
        Waiting { context, options, owner, patience, since, queue, watch, pause, is_told, said: None };
    let outcome = waiting.run(notes);
    let common = &options.request.common;
    let leaving = context.again(common.deadline.min(LEAVES_WITHIN));
    waiting.queue.leave(&leaving, &options.request.file.coordination_file, owner);
    if waiting.queue.signals.is_one_pending() {
        waiting.queue.signals.obey();
    }
    outcome
}

struct Waiting<'a> {
    context: &'a Context<'a>,
    options: &'a Exec,
    owner: &'a Owner,
    /// `None`: without limit.
    patience: Option<Duration>,
    since: Instant,
    queue: Queue,
    watch: Watch,
    pause: Duration,
    /// Whether it says for whom it waits.
    is_told: bool,
    /// What was said last on a terminal.
    said: Option<String>,
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
                // A lock that is kept, or a driver that is reset, for longer than a try lasts costs nobody its place.
                Err(late @ (Error::Deadline { .. } | Error::Late { .. })) if self.queue.is_in() => {
                    self.until_its_turn(offer.as_ref(), "").map_err(|error| match error {
                        Error::NotEnough(_) => late,
                        error => error,
                    })?
                }
                outcome => return outcome,
            }
        }
    }

    /// `offer`: the result of the last look at the devices. It is kept if the next one fails, since they may come back.
    fn attempt(&self, offer: &mut Option<Offer>, notes: &mut Notes) -> Result<(), Error> {
        let common = &self.options.request.common;
        let context = self.context.again(common.deadline);
        self.watch.file(&self.options.request.file.coordination_file);
        let offer = offer.insert(Offer::read(&context, self.options, notes)?);
        offer.take(&context, self.options, self.owner, Some(&self.queue), notes)
    }

    /// Returns when it may be its turn. `why`: why the last attempt failed.
    fn until_its_turn(&mut self, offer: Option<&Offer>, why: &str) -> Result<(), Error> {
        let mut was_woken = false;
        loop {
            let request = &self.options.request;
            let context = self.context.again(request.common.deadline);
            let mut look =
                |offer| Look::at(&context, request, self.owner, offer, &mut self.watch, self.is_told);
            let look = offer.map_or_else(Look::default, &mut look);
            if look.may_try && was_woken {
                return Ok(());
            }
            self.say(&look, &context.host);
            let left = self.patience.map(|patience| patience.saturating_sub(self.since.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                let waited = error::seconds(self.since.elapsed());
                return Err(Error::NotEnough(format!("{why}; waited {waited} s")));
            }
            let longest = if look.is_all_watched { PAUSES.1 } else { UNWATCHED };
            self.pause = self.pause.min(longest);
            let event = self.watch.wait(&self.queue.signals, self.pause.min(left.unwrap_or(self.pause)));
            self.pause = match event {
                Event::Signal => return Err(Error::Interrupted),
                Event::Change => PAUSES.0,
                Event::Timeout => self.pause * 2,
            };
            was_woken = true;
        }
    }

    /// Prints for whom it waits, on a terminal and once for each change.
    fn say(&mut self, look: &Look, host: &Host) {
        if !self.is_told {
            return;
        }
        let text = look.text(host, self.options.request.amount);
        if self.said.as_ref() != Some(&text) {
            cli::tell(&text);
            self.said = Some(text);
        }
    }
}
