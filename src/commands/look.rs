//! What a look at the record tells somebody who waits: whether it may be its turn, and for whom it waits.

use std::collections::{BTreeSet, HashSet};

use super::Context;
use super::judged::Judged;
use super::offer::Offer;
use super::queue::Waiters;
use crate::assignment::{Owner, Record, Standing};
use crate::cli::RequestOptions;
use crate::coordination::snapshot::Snapshot;
use crate::device::Unit;
use crate::host::Host;
use crate::host::events::Watch;
use crate::policy::{self, Holdings, State, turn};

#[derive(Default)]
pub(super) struct Look {
    /// It is its turn, and as many units may be free.
    pub(super) may_try: bool,
    /// The end of everybody that keeps it waiting is an event.
    pub(super) is_all_watched: bool,
    /// Living owners of what it could be given.
    holders: BTreeSet<u32>,
    /// How many go before it.
    before: usize,
}

impl Look {
    /// What cannot be read is left to a try, which says why.
    pub(super) fn at(
        context: &Context<'_>,
        options: &RequestOptions,
        owner: &Owner,
        offer: &Offer,
        watch: &mut Watch,
    ) -> Look {
        let (host, path) = (&context.host, &options.file.coordination_file);
        let _guard = context.guard(path);
        let is_file_watched = watch.file(path);
        let Ok(Some(Snapshot { record, facts, .. })) = Snapshot::glance(host, path) else {
            return Look { may_try: true, ..Look::default() };
        };
        // Watched before they are judged, so that nobody ends unseen in between.
        watch.processes(&pids(host, owners(&record)));
        let occupancy = policy::occupancy(&offer.inventory, &record);
        let judged = Judged::new(host, &record, facts, Some(&occupancy));
        let standing = |position: usize| judged.standing(position);
        let inventory = &offer.inventory;
        let holdings = Holdings { inventory, record: &record, occupancy: &occupancy, standing: &standing };
        let liveness = judged.liveness();
        let before = Waiters { host, holdings, liveness, units: &offer.units }.before(owner).len();
        // If the file was removed, another try takes a new place.
        let is_in = turn::of(&record, owner).next().is_some();
        let is_all_seen = owners(&record).all(|owner| is_from_here(host, owner));
        let is_all_watched = watch.processes(&pids(host, living(&holdings, &judged)));
        let Held { free, holders } = Held::of(&offer.units, &holdings);
        Look {
            may_try: !is_in || (before == 0 && free as u128 >= options.amount),
            is_all_watched: is_file_watched && is_all_seen && is_all_watched,
            holders,
            before,
        }
    }

    /// `waiting for 2 units, held by pid 4711 (java), 4712 (java), 4713 (java) and 3 more; 2 that wait go first`
    pub(super) fn text(&self, host: &Host, amount: u128) -> String {
        let mut text = format!("waiting for {}", policy::units(amount));
        if !self.holders.is_empty() {
            let holders: Vec<u32> = self.holders.iter().copied().collect();
            text += &format!(", held by pid {}", host.named(&holders));
        }
        match self.before {
            0 => text,
            1 => text + "; one that waits goes first",
            count => text + &format!("; {count} that wait go first"),
        }
    }
}

/// What is held of some units.
struct Held {
    /// Units that no owner keeps: a try tells whether they may be given.
    free: usize,
    holders: BTreeSet<u32>,
}

impl Held {
    fn of(units: &[Unit], holdings: &Holdings<'_>) -> Held {
        let Holdings { record, occupancy, standing, .. } = *holdings;
        let units: HashSet<&Unit> = units.iter().collect();
        let mut held = Held { free: 0, holders: BTreeSet::new() };
        for place in occupancy.places.iter().filter(|place| units.contains(&place.unit)) {
            held.free +=
                usize::from(matches!(holdings.state(place), State::Free | State::Stale | State::Sick));
            let living = place.holders.iter().filter(|holder| standing(**holder) == Standing::Alive);
            held.holders.extend(living.map(|holder| record.assignments[*holder].owner.pid));
        }
        held
    }
}

/// All owners of a record, and all who wait.
fn owners(record: &Record) -> impl Iterator<Item = &Owner> {
    let holders = record.assignments.iter().map(|line| &line.owner);
    holders.chain(record.waiters.iter().map(|waiter| &waiter.owner))
}

/// Those of them that live, or may.
fn living<'r>(holdings: &Holdings<'r>, judged: &Judged<'_>) -> impl Iterator<Item = &'r Owner> {
    let Record { assignments, waiters, .. } = holdings.record;
    let holders = assignments.iter().enumerate().filter(|(position, _)| !holdings.is_dead(*position));
    let waiters = waiters.iter().filter(|waiter| judged.liveness().of_waiter(waiter) != Standing::Dead);
    holders.map(|(_, line)| &line.owner).chain(waiters.map(|waiter| &waiter.owner))
}

pub(super) fn is_from_here(host: &Host, owner: &Owner) -> bool {
    owner.pid_namespace.is_none_or(|namespace| Some(namespace) == host.pid_namespace())
}

/// Those of this pid namespace, but for this process.
fn pids<'o>(host: &Host, owners: impl Iterator<Item = &'o Owner>) -> BTreeSet<u32> {
    let others = owners.filter(|owner| is_from_here(host, owner) && owner.pid != std::process::id());
    others.map(|owner| owner.pid).collect()
}
