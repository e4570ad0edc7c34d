//! Who computes on a device without holding it.
//!
//! The owners of all units of a device are considered together: no source says on which of its instances a process
//! computes.

use super::Holdings;
use crate::assignment::Owner;

/// What must be known of the host's processes.
pub(crate) trait Processes {
    /// Whether it may still be alive: it can have ended since it was seen on the device.
    fn may_live(&self, pid: u32) -> bool;
    /// Whether it is the owner or a descendant of it.
    fn descends(&self, pid: u32, owner: &Owner) -> bool;
}

/// What is needed to tell who a process belongs to.
pub(crate) struct InUse<'a> {
    pub(crate) holdings: Holdings<'a>,
    /// The owner for which units are requested.
    pub(crate) requester: Option<&'a Owner>,
    pub(crate) processes: &'a dyn Processes,
}

impl InUse<'_> {
    /// Pids of processes on the device at that position that belong neither to the requester nor to any owner.
    pub(crate) fn by_others(&self, device: usize) -> Vec<u32> {
        let uses = self.holdings.inventory.devices[device].processes.iter().flatten();
        let pids = uses.map(|used| used.pid).filter(|pid| self.processes.may_live(*pid));
        pids.filter(|pid| !self.is_an_owners(*pid, device)).collect()
    }

    /// Dead owners are left out: they have no descendants, and their pids may have been reused.
    fn is_an_owners(&self, pid: u32, device: usize) -> bool {
        let Holdings { record, occupancy, .. } = self.holdings;
        let holders = occupancy.of_device(device).iter().flat_map(|place| &place.holders);
        let living = holders.filter(|holder| !self.holdings.is_dead(**holder));
        let owners = living.map(|holder| &record.assignments[*holder].owner);
        self.requester.into_iter().chain(owners).any(|owner| self.processes.descends(pid, owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assignment::{Assignment, Doubt, Record, Standing};
    use crate::device::{Device, Identity, Instance, Inventory, Use};
    use crate::policy::occupancy;

    /// Pids that end with the same digit are a family, and those past 900 have ended.
    struct Families;

    impl Processes for Families {
        fn may_live(&self, pid: u32) -> bool {
            pid < 900
        }

        fn descends(&self, pid: u32, owner: &Owner) -> bool {
            pid % 10 == owner.pid % 10
        }
    }

    /// Device 0 is in two instances, and 1 is not.
    fn host(pids: &[u32]) -> Inventory {
        let processes = || Some(pids.iter().map(|pid| Use { pid: *pid, memory_mib: None }).collect());
        let device = |index, uuid: &str| Device {
            processes: processes(),
            ..Device::new(index, Identity { uuid: Some(uuid.to_owned()), ..Identity::default() })
        };
        let mut devices = vec![device(0, "GPU-0"), device(1, "GPU-1")];
        let instance = |uuid: &str| Instance { uuid: Some(uuid.to_owned()), ..Instance::default() };
        devices[0].instances = Some(vec![instance("MIG-a"), instance("MIG-b")]);
        Inventory { source: "test".to_owned(), driver_version: None, devices, tells_instances: true }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn others() {
        let of = |uuid: &str, pid| Assignment { identity: Identity { uuid: Some(uuid.to_owned()), ..Identity::default() }, ..Assignment::of_the_script(0, pid) };
        for (case, assignments, requester, device, pids, others) in [
            ("nobody holds it",           vec![],                 None,     1, &[11, 22][..], vec![11, 22]),
            ("the owner's",               vec![Assignment::of_the_script(1, 31)],      None,     1, &[11, 22],     vec![22]),
            ("another device's owner's",  vec![of("MIG-a", 31)],  None,     1, &[11, 22],     vec![11, 22]),
            ("of any instance",           vec![of("MIG-a", 31), of("MIG-b", 42)], None, 0, &[11, 22, 33], vec![33]),
            ("the requester's",           vec![],                 Some(42), 1, &[11, 22],     vec![11]),
            ("both",                      vec![Assignment::of_the_script(1, 31)],      Some(42), 1, &[11, 22],     vec![]),
            ("a dead owner has none",     vec![Assignment::of_the_script(1, 131)],     None,     1, &[11],         vec![11]),
            ("one that may live has",     vec![Assignment::of_the_script(1, 231)],     None,     1, &[11],         vec![]),
            ("what has ended",            vec![],                 None,     1, &[911, 22],    vec![22]),
        ] {
            let (inventory, record) = (host(pids), Record { assignments, ..Record::default() });
            let requester = requester.map(Owner::of_pid);
            let in_use = InUse {
                holdings: Holdings {
                    inventory: &inventory,
                    record: &record,
                    occupancy: &occupancy(&inventory, &record),
                    standing: &|at| match record.assignments[at].owner.pid {
                        ..100 => Standing::Alive,
                        100..200 => Standing::Dead,
                        200.. => Standing::Doubtful(Doubt::ForeignNamespace),
                    },
                },
                requester: requester.as_ref(),
                processes: &Families,
            };
            assert_eq!(in_use.by_others(device), others, "{case}");
        }
    }
}
