//! A record with its owners judged: who is alive, and what every change of the record has to do.

use crate::assignment::{Record, Standing};
use crate::coordination::plan::Change;
use crate::coordination::settle;
use crate::device::Inventory;
use crate::host::Host;
use crate::host::liveness::{FileFacts, Liveness};
use crate::host::owner;
use crate::policy::Occupancy;

pub(super) struct Judged<'a> {
    host: &'a Host,
    record: &'a Record,
    liveness: Liveness<'a>,
    /// For each assignment, whether its device is at hand; `None`: there is no inventory.
    is_here: Option<&'a [bool]>,
}

impl<'a> Judged<'a> {
    /// `occupancy`: that of the inventory. Without one, owners of another boot cannot be judged.
    pub(super) fn new(
        host: &'a Host,
        record: &'a Record,
        facts: FileFacts,
        occupancy: Option<&'a Occupancy<'_>>,
    ) -> Judged<'a> {
        let is_here = occupancy.map(|occupancy| &occupancy.is_here[..]);
        Judged { host, record, liveness: Liveness::new(host, facts), is_here }
    }

    /// For judging others, such as waiters.
    pub(super) fn liveness(&self) -> &Liveness<'a> {
        &self.liveness
    }

    /// Whether the owner of an assignment is alive.
    pub(super) fn standing(&self, position: usize) -> Standing {
        let is_here = self.is_here.is_some_and(|is_here| is_here[position]);
        self.liveness.standing(&self.record.assignments[position], is_here)
    }

    /// What every change begins with: it settles the script's lines and removes dead waiters, and with `clears_stale`
    /// everything that dead owners left. `inventory` identifies the devices of lines without identities.
    pub(super) fn change(&self, inventory: Option<&Inventory>, clears_stale: bool) -> Change {
        let standing = |position: usize| self.standing(position);
        let owner = |pid| owner::of(self.host, pid);
        let named = |index: u32| inventory.map(|inventory| inventory.identity_at(index)).unwrap_or_default();
        let mut change = settle::settle(self.record, clears_stale, standing, owner, named);
        change.gone = settle::gone(self.record, |waiter| self.liveness.of_waiter(waiter));
        change
    }
}
