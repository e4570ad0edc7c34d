//! Which shares of devices or instances a request is granted.
//!
//! When spreading, the shares of one request are taken from as many devices as possible, since two shares of one device
//! do not give twice the power, and from those first that others share least. When packing, the device that is shared
//! most is filled first. Whether a share is free or held by a dead owner matters only among the shares of one device.

use std::collections::{HashMap, VecDeque};

use super::{Class, Place, Situation, Wanted};
use crate::device::{Part, Unit};

/// A shared device or instance.
struct Shared {
    /// Shares that this request is granted.
    own: usize,
    /// Shares that others hold or may hold.
    held: usize,
    /// Shares that are left to be granted, in order.
    left: VecDeque<Unit>,
}

impl Shared {
    /// The device with the lowest rank comes next.
    fn rank(&self, packs: bool) -> (usize, usize) {
        if packs { (usize::MAX - self.own - self.held, 0) } else { (self.own, self.held) }
    }
}

impl Situation<'_> {
    /// As many shares as there are, up to `amount`. Devices that are sick, in use by others or open to orphans come after
    /// all others, however many owners share them.
    pub(super) fn shares(&self, eligible: &[&Place<'_>], amount: usize, request: &Wanted<'_>) -> Vec<Unit> {
        let mut given: Vec<Unit> = Vec::new();
        for class in Class::in_order().filter(|class| !class.is_stale) {
            let stale = Class { is_stale: true, ..class };
            let fits = self.of_class(eligible, class, request).chain(self.of_class(eligible, stale, request));
            let fits: Vec<Unit> = fits.map(|place| place.unit).collect();
            let chosen = self.choose(&fits, amount - given.len(), request.packs, &given);
            given.extend(chosen);
        }
        given
    }

    fn choose(&self, fits: &[Unit], wanted: usize, packs: bool, given: &[Unit]) -> Vec<Unit> {
        let mut all: Vec<Shared> = Vec::new();
        let mut positions: HashMap<Part, usize> = HashMap::new();
        for unit in fits {
            let at = *positions.entry(unit.part()).or_insert_with(|| {
                let own = given.iter().filter(|other| other.part() == unit.part()).count();
                all.push(Shared { own, held: self.held(unit.part()), left: VecDeque::new() });
                all.len() - 1
            });
            all[at].left.push_back(*unit);
        }
        let mut chosen = Vec::new();
        while chosen.len() < wanted {
            let left = all.iter_mut().filter(|shared| !shared.left.is_empty());
            let Some(next) = left.min_by_key(|shared| shared.rank(packs)) else { break };
            chosen.extend(next.left.pop_front());
            next.own += 1;
        }
        chosen
    }

    fn held(&self, part: Part) -> usize {
        let is_dead = |holder: &usize| self.holdings.is_dead(*holder);
        let places = self.holdings.occupancy.of_device(part.device).iter();
        let shares = places.filter(|place| place.unit.part() == part);
        shares.filter(|place| !place.holders.iter().all(is_dead)).count()
    }
}
