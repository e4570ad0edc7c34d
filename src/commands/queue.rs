//! The queue of `exec --wait`: lines of the record that hold nothing.
//!
//! * A waiter takes its place in the call that finds too few units, and gives it up in the one that grants them.
//! * A waiter holds nobody up if it has died, is stopped, wants more than the host has, or cannot be seen from here.

use std::cell::Cell;
use std::collections::HashSet;
use std::path::Path;

use super::Context;
use super::judged::Judged;
use crate::assignment::{Owner, Standing, Waiter};
use crate::coordination::ledger::Ledger;
use crate::coordination::plan::Change;
use crate::device::{Inventory, Unit};
use crate::error::Error;
use crate::host::Host;
use crate::host::events::Signals;
use crate::host::liveness::Liveness;
use crate::policy::{Holdings, Occupancy, State, turn, units};

/// The place of one process in the queue.
pub(super) struct Queue {
    pub(super) signals: Signals,
    /// Whether, as far as it knows, the record has a line of it.
    is_in: Cell<bool>,
}

/// What the record and the host say about the waiters.
pub(super) struct Waiters<'a> {
    pub(super) host: &'a Host,
    pub(super) holdings: Holdings<'a>,
    pub(super) liveness: &'a Liveness<'a>,
    /// What the requester may be granted.
    pub(super) units: &'a [Unit],
}

/// The ranks of units among all units of the host.
fn ranks(occupancy: &Occupancy<'_>, units: &[Unit]) -> Vec<u32> {
    let units: HashSet<&Unit> = units.iter().collect();
    let places = (0..).zip(&occupancy.places);
    places.filter(|(_, place)| units.contains(&place.unit)).map(|(rank, _)| rank).collect()
}

/// A waiter for `amount` of `units`; it gets its ticket when it enters the queue.
pub(super) fn waiter(owner: &Owner, amount: u128, units: &[Unit], inventory: &Inventory) -> Waiter {
    let wanted: HashSet<&Unit> = units.iter().collect();
    let all: Vec<Unit> = inventory.units().collect();
    let ranks = (0..).zip(&all).filter(|(_, unit)| wanted.contains(unit)).map(|(rank, _)| rank);
    let among = (wanted.len() < all.len()).then(|| turn::spans(ranks));
    let amount = u64::try_from(amount).unwrap_or(u64::MAX);
    Waiter { owner: owner.clone(), amount, ticket: 0, among }
}

impl Waiters<'_> {
    /// Who goes before `owner`.
    pub(super) fn before(&self, owner: &Owner) -> Vec<&Waiter> {
        let earlier = turn::earlier(self.holdings.record, owner);
        if earlier.is_empty() {
            return Vec::new();
        }
        let goes_first = self.goes_first();
        earlier.into_iter().filter(|waiter| goes_first(waiter)).collect()
    }

    /// The last of them: as long as it waits it is nobody's turn behind it. `look` is told of everyone before it is
    /// looked at, so that not all of a long queue are.
    pub(super) fn last_before(&self, owner: &Owner, mut look: impl FnMut(&Waiter)) -> Option<&Waiter> {
        let earlier = turn::earlier(self.holdings.record, owner);
        if earlier.is_empty() {
            return None;
        }
        let goes_first = self.goes_first();
        earlier.into_iter().rev().find(|waiter| {
            look(waiter);
            goes_first(waiter)
        })
    }

    /// Whether a waiter would take some of our units if it could.
    fn goes_first(&self) -> impl Fn(&Waiter) -> bool {
        let own = ranks(self.holdings.occupancy, self.units);
        let hopes = self.hopes();
        move |waiter| {
            let wants_ours = own.iter().any(|rank| turn::takes(waiter, *rank));
            let hopes = hopes.iter().filter(|rank| turn::takes(waiter, **rank)).count() as u64;
            wants_ours && waiter.amount <= hopes && self.waits(waiter)
        }
    }

    /// The ranks of units that may become free some day. Sick and drained ones do not count.
    fn hopes(&self) -> Vec<u32> {
        let may_come_free =
            |state| matches!(state, State::Free | State::Stale | State::Held | State::Unknown);
        let places = (0..).zip(&self.holdings.occupancy.places);
        let hopes = places.filter(|(_, place)| may_come_free(self.holdings.state(place)));
        hopes.map(|(rank, _)| rank).collect()
    }

    fn waits(&self, waiter: &Waiter) -> bool {
        let is_from_here = waiter.owner.pid_namespace == self.host.pid_namespace();
        let is_stopped = || match self.host.process(waiter.owner.pid) {
            Ok(Some(process)) => process.is_stopped(),
            Ok(None) | Err(_) => false,
        };
        self.liveness.of_waiter(waiter) == Standing::Alive && !(is_from_here && is_stopped())
    }
}

impl Queue {
    pub(super) fn new() -> Queue {
        Queue { signals: Signals::new(), is_in: Cell::new(false) }
    }

    pub(super) fn is_in(&self) -> bool {
        self.is_in.get()
    }

    /// Fails while it is the turn of others, or if a signal to end this process is pending.
    pub(super) fn check(&self, waiters: &Waiters<'_>, owner: &Owner, amount: u128) -> Result<(), Error> {
        if self.signals.is_one_pending() {
            return Err(Error::Interrupted);
        }
        let asked = units(amount);
        match waiters.before(owner).len() {
            0 => Ok(()),
            1 => Err(Error::NotEnough(format!("{asked} asked for, and one that waits goes first"))),
            count => Err(Error::NotEnough(format!("{asked} asked for, and {count} that wait go first"))),
        }
    }

    /// Takes the last place, unless this process already has one. From then on signals are blocked and must be checked.
    pub(super) fn enter(
        &self,
        host: &Host,
        ledger: Ledger,
        mut change: Change,
        waiter: Waiter,
    ) -> Result<(), Error> {
        super::block_signals();
        let record = ledger.record();
        if turn::of(record, &waiter.owner).next().is_none() {
            change.queued = Some(Waiter { ticket: turn::next_ticket(record), ..waiter });
            ledger.commit(host, &change)?;
        }
        self.is_in.set(true);
        Ok(())
    }

    /// Gives up the place, if there is one. If that fails, the next caller removes it once this process has ended.
    pub(super) fn leave(&self, context: &Context<'_>, path: &Path, owner: &Owner) {
        if self.is_in() {
            let _guard = context.guard(path);
            let _ = remove(context, path, owner);
        }
    }
}

fn remove(context: &Context<'_>, path: &Path, requester: &Owner) -> Result<(), Error> {
    let host = &context.host;
    let Some(ledger) = Ledger::open_existing(host, path, requester.uid, context.deadline)? else {
        return Ok(());
    };
    let record = ledger.record();
    let own: Vec<usize> = turn::of(record, requester).collect();
    if own.is_empty() {
        return Ok(());
    }
    let mut change = Judged::new(host, record, ledger.facts(), None).change(None, false);
    change.gone.extend(own);
    ledger.commit(host, &change).map(drop)
}
