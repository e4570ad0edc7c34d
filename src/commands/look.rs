//! What a look at the record tells a waiter: whether it may be its turn, and for whom it waits.

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
    /// Whether it is its turn and enough units may be free.
    pub(super) may_try: bool,
    /// Whether the end of everybody that it waits for is an event.
    pub(super) is_all_watched: bool,
    /// Living owners of what it could be given.
    holders: BTreeSet<u32>,
    /// How many go before it; one stands for all, if nobody is told.
    before: usize,
}

impl Look {
    /// What cannot be read is left to a try, which says why. `is_told`: somebody reads for how many it waits.
    pub(super) fn at(
        context: &Context<'_>,
        options: &RequestOptions,
        owner: &Owner,
        offer: &Offer,
        watch: &mut Watch,
        is_told: bool,
    ) -> Look {
        let (host, path) = (&context.host, &options.file.coordination_file);
        let _guard = context.guard(path);
        let is_file_watched = watch.file(path);
        let Ok(Some(Snapshot { record, facts, .. })) = Snapshot::glance(host, path) else {
            return Look { may_try: true, ..Look::default() };
        };
        let occupancy = policy::occupancy(&offer.inventory, &record);
        let judged = Judged::new(host, &record, facts, Some(&occupancy));
        let standing = |position: usize| judged.standing(position);
        let inventory = &offer.inventory;
        let holdings = Holdings { inventory, record: &record, occupancy: &occupancy, standing: &standing };
        let liveness = judged.liveness();
        let waiters = Waiters { host, holdings, liveness, units: &offer.units };
        // If the file was removed, another try takes a new place.
        let is_in = turn::of(&record, owner).next().is_some();
        // Each is watched before it is judged, so that nobody ends unseen in between.
        let mut is_watched = false;
        let last = waiters.last_before(owner, |waiter| is_watched = heed(host, watch, [&waiter.owner]));
        if last.is_some() {
            let before = if is_told { waiters.before(owner).len() } else { 1 };
            let Held { holders, .. } = Held::of(&offer.units, &holdings);
            return Look { may_try: !is_in, is_all_watched: is_file_watched && is_watched, holders, before };
        }
        heed(host, watch, owners(&record));
        let is_all_watched =
            heed(host, watch, living(&holdings, &judged)) && is_all_known(&holdings, &judged);
        let Held { free, holders } = Held::of(&offer.units, &holdings);
        Look {
            may_try: !is_in || free as u128 >= options.amount,
            is_all_watched: is_file_watched && is_all_watched,
            holders,
            before: 0,
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

/// Who holds some of the units.
struct Held {
    /// Units that no owner keeps: an attempt tells whether they may be granted.
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

/// All owners and waiters of a record.
fn owners(record: &Record) -> impl Iterator<Item = &Owner> {
    let holders = record.assignments.iter().map(|line| &line.owner);
    holders.chain(record.waiters.iter().map(|waiter| &waiter.owner))
}

/// What is known of each of them.
fn standings<'r>(
    holdings: &Holdings<'r>,
    judged: &Judged<'_>,
) -> impl Iterator<Item = (&'r Owner, Standing)> {
    let Record { assignments, waiters, .. } = holdings.record;
    let holders = assignments.iter().enumerate().map(|(at, line)| (&line.owner, (holdings.standing)(at)));
    holders.chain(waiters.iter().map(|waiter| (&waiter.owner, judged.liveness().of_waiter(waiter))))
}

fn living<'r>(holdings: &Holdings<'r>, judged: &Judged<'_>) -> impl Iterator<Item = &'r Owner> {
    let living = standings(holdings, judged).filter(|(_, standing)| *standing == Standing::Alive);
    living.map(|(owner, _)| owner)
}

/// Of whom it is not known whether it lives, the end would be heard again and again once it is a zombie.
fn is_all_known(holdings: &Holdings<'_>, judged: &Judged<'_>) -> bool {
    !standings(holdings, judged).any(|(_, standing)| matches!(standing, Standing::Doubtful(_)))
}

/// From now on their ends are events, and no others'. `false`: not of all of them.
fn heed<'o>(host: &Host, watch: &mut Watch, owners: impl IntoIterator<Item = &'o Owner>) -> bool {
    let owners: Vec<&Owner> = owners.into_iter().collect();
    let is_all_here = owners.iter().all(|owner| host.has_pids_of(owner));
    watch.processes(&pids(host, owners.into_iter())) && is_all_here
}

/// Those of this pid namespace, but for this process.
fn pids<'o>(host: &Host, owners: impl Iterator<Item = &'o Owner>) -> BTreeSet<u32> {
    let others = owners.filter(|owner| host.has_pids_of(owner) && owner.pid != std::process::id());
    others.map(|owner| owner.pid).collect()
}
