//! A record, judged: who of its owners lives, and what has to go with every change of it.

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
    /// Of each assignment, whether it is of a device at hand; `None`: no inventory is at hand.
    is_here: Option<&'a [bool]>,
}

impl<'a> Judged<'a> {
    /// `occupancy`: of the inventory at hand. Without one no owner of another boot is judged.
    pub(super) fn new(
        host: &'a Host,
        record: &'a Record,
        facts: FileFacts,
        occupancy: Option<&'a Occupancy<'_>>,
    ) -> Judged<'a> {
        let is_here = occupancy.map(|occupancy| &occupancy.is_here[..]);
        Judged { host, record, liveness: Liveness::new(host, facts), is_here }
    }

    /// Who of the others lives, too.
    pub(super) fn liveness(&self) -> &Liveness<'a> {
        &self.liveness
    }

    /// Whether the owner of an assignment lives.
    pub(super) fn standing(&self, position: usize) -> Standing {
        let is_here = self.is_here.is_some_and(|is_here| is_here[position]);
        self.liveness.standing(&self.record.assignments[position], is_here)
    }

    /// What every change begins with: the script's lines settled, those of dead waiters gone, and with
    /// `clears_stale` all that dead owners left. `inventory` names the devices of lines that have no name.
    pub(super) fn change(&self, inventory: Option<&Inventory>, clears_stale: bool) -> Change {
        let standing = |position: usize| self.standing(position);
        let owner = |pid| owner::of(self.host, pid);
        let named = |index: u32| inventory.map(|inventory| inventory.identity_at(index)).unwrap_or_default();
        let mut change = settle::settle(self.record, clears_stale, standing, owner, named);
        change.gone = settle::gone(self.record, |waiter| self.liveness.of_waiter(waiter));
        change
    }
}
