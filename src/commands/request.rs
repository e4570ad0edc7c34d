//! A request for units, what it is granted, and what that changes: decided under the lock, but not yet done.

use std::path::Path;

use super::Context;
use super::choice::Choice;
use super::isolation::{self, Confinee, Isolation};
use super::judged::Judged;
use super::kin::Kin;
use super::mps;
use super::queue::{Queue, Waiters};
use super::quota::Counting;
use super::remains::Remains;
use crate::assignment::Owner;
use crate::cli::{Cgroup, Policy, Print, RequestOptions};
use crate::coordination::ledger::Ledger;
use crate::coordination::plan::Change;
use crate::device::{Inventory, Unit};
use crate::error::Error;
use crate::notes::Notes;
use crate::policy::{self, Holdings, Occupancy, Used, turn};
use crate::sharing::Resources;
use crate::visible::Seen;

/// A request, and what it may be granted.
pub(super) struct Request<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) options: &'a RequestOptions,
    /// Whether the units of dead owners may be granted.
    pub(super) takes_over: bool,
    /// Whether the owner keeps the privileges that it has now.
    pub(super) keeps_rights: bool,
    /// Whether the owner is a command of `exec`, inside which the units may be asked for again.
    pub(super) is_passed_on: bool,
    /// Where the owner waits if there are not enough units; `None`: it does not wait.
    pub(super) queue: Option<&'a Queue>,
    /// What is printed: indexes change with what the owner can open.
    pub(super) print: Print,
    pub(super) inventory: &'a Inventory,
    pub(super) resources: &'a Resources,
    /// How the owner counts.
    pub(super) seen: &'a Seen,
    pub(super) units: &'a [Unit],
    /// `None`: who computes on a device is not considered.
    pub(super) kin: Option<&'a Kin<'a>>,
}

pub(super) struct Decision<'a> {
    /// An error if the owner has to wait.
    pub(super) units: Result<Vec<Unit>, Error>,
    pub(super) change: Change,
    /// `None`: the owner is not confined.
    pub(super) isolation: Option<Isolation<'a>>,
}

/// The requester, and what is known under the lock.
struct Case<'a> {
    requester: &'a Owner,
    holdings: Holdings<'a>,
    judged: &'a Judged<'a>,
    remains: &'a Remains<'a>,
}

impl Request<'_> {
    pub(super) fn decide<'a>(
        &'a self,
        requester: &'a Owner,
        ledger: &Ledger,
        notes: &mut Notes,
    ) -> Result<Decision<'a>, Error> {
        let host = &self.context.host;
        let record = ledger.record();
        let occupancy = policy::occupancy(self.inventory, record);
        warn(&occupancy, &self.options.file.coordination_file, notes);
        let judged = Judged::new(host, record, ledger.facts(), Some(&occupancy));
        let standing = |position: usize| judged.standing(position);
        let confinee =
            Confinee { inventory: self.inventory, owner: requester, record, occupancy: &occupancy };
        let isolation = self.isolation(&confinee, notes)?;
        let remains = Remains::of(host, record, &standing);
        let holdings =
            Holdings { inventory: self.inventory, record, occupancy: &occupancy, standing: &standing };
        let case = Case { requester, holdings, judged: &judged, remains: &remains };
        let units = match self.units(&case, isolation.is_some(), notes) {
            Err(Error::NotEnough(why)) if self.queue.is_some() => Err(Error::NotEnough(why)),
            units => Ok(units?),
        };
        if let Ok(units) = &units {
            self.check_policy(&case, units)?;
        }
        let change = self.change(&case, units.is_ok(), notes);
        Ok(Decision { units, change, isolation })
    }

    /// `None` if the owner shall not be confined, or cannot be and `best-effort` was requested.
    fn isolation<'a>(
        &'a self,
        confinee: &Confinee<'a, '_>,
        notes: &mut Notes,
    ) -> Result<Option<Isolation<'a>>, Error> {
        confinee.check_not_inside_another(&self.context.host)?;
        if !isolation::is_wanted(self.options.cgroup(), confinee) {
            return Ok(None);
        }
        match Isolation::of(self.context, confinee, self.options.cgroup(), self.keeps_rights) {
            Ok(isolation) => isolation.check_numbering(self.print, self.seen).map(|()| Some(isolation)),
            Err(error) => self.without(error, notes).map(|()| None),
        }
    }

    /// Warns and continues without isolation if `best-effort` was requested; otherwise fails with `error`.
    pub(super) fn without(&self, error: Error, notes: &mut Notes) -> Result<(), Error> {
        let is_isolation = matches!(error, Error::Isolation(_));
        if self.options.cgroup() != Some(Cgroup::BestEffort) || !is_isolation {
            return Err(error);
        }
        notes.warn(format!("the owner is not confined, and can open every device: {}", error.chain()));
        Ok(())
    }

    /// The units, if it is the requester's turn.
    fn units(&self, case: &Case<'_>, isolates: bool, notes: &mut Notes) -> Result<Vec<Unit>, Error> {
        let Case { requester, holdings, judged, remains } = *case;
        let host = &self.context.host;
        if let Some(queue) = self.queue {
            let waiters = Waiters { host, holdings, liveness: judged.liveness(), units: self.units };
            queue.check(&waiters, requester, self.options.amount)?;
        }
        let choice = Choice { holdings, requester: Some(requester), kin: self.kin, remains };
        choice.make(host, &self.asked(isolates), notes)
    }

    fn asked(&self, isolates: bool) -> policy::Wanted<'_> {
        policy::Wanted {
            amount: self.options.amount,
            takes_over: self.takes_over,
            includes_sick: self.options.include_unhealthy,
            in_use: if self.options.skip_busy { Used::Withhold } else { Used::GiveLast },
            isolates,
            packs: self.options.policy == Policy::Pack,
            units: self.units,
        }
    }

    /// Fails if a policy refuses units that are available.
    fn check_policy(&self, case: &Case<'_>, units: &[Unit]) -> Result<(), Error> {
        let counting = Counting::new(&self.context.host, self.resources, case.holdings);
        counting.check(self.context.config, case.requester, self.options.namespace.as_deref(), units)?;
        mps::check(self.context, self.resources, units)
    }

    /// The change without the grant. Clears the control groups of dead owners.
    fn change(&self, case: &Case<'_>, has_units: bool, notes: &mut Notes) -> Change {
        let mut change = case.judged.change(Some(self.inventory), self.takes_over);
        if has_units {
            change.gone.extend(turn::of(case.holdings.record, case.requester));
        }
        if self.takes_over {
            case.remains.clear(self.inventory, notes);
        }
        // The record names a group until it is gone.
        let is_kept = |position: &usize| case.remains.has_orphans(*position);
        let kept = change.stale.iter().copied().filter(is_kept).collect();
        case.holdings.record.retain_apart(&mut change.stale, &kept);
        change
    }
}

/// Warns of each line that withholds a unit: such lines stay until somebody corrects them.
fn warn(occupancy: &Occupancy<'_>, path: &Path, notes: &mut Notes) {
    let mut withheld: Vec<_> = occupancy.places.iter().filter_map(|place| place.withheld).collect();
    withheld.dedup();
    notes.warnings.extend(withheld.iter().map(|line| line.message(path)));
}
