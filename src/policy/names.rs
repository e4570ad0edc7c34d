//! Which devices at hand a line of the record means, by the identity that it gives.

use std::cell::OnceCell;
use std::collections::HashMap;

use crate::device::{Identity, Inventory, Part, PciAddress, Relation};

pub(super) struct Names<'a> {
    inventory: &'a Inventory,
    /// Built when the first line needs them: most lines are for devices that have not moved.
    tables: OnceCell<Tables<'a>>,
}

impl<'a> Names<'a> {
    pub(super) fn of(inventory: &'a Inventory) -> Names<'a> {
        Names { inventory, tables: OnceCell::new() }
    }

    /// Calls `found` for all that a line of the record means. Returns whether a name matched.
    ///
    /// One equal name decides. If none is equal and every device has a different name of a kind that was recorded, the
    /// recorded device is not here. If it can be neither matched nor excluded it holds its index, or, if the device of
    /// that index is excluded, every device that is not.
    pub(super) fn each(&self, index: u32, identity: &Identity, mut found: impl FnMut(Part)) -> bool {
        if let Some(device) = self.by_all_names(index, identity) {
            found(Part::whole(device));
            return true;
        }
        let tables = self.tables.get_or_init(|| Tables::of(self.inventory));
        let mut matches = tables.matches(identity);
        let is_named = !matches.is_empty();
        if !is_named {
            matches = self.not_excluded(tables, index, identity);
        }
        matches.sort_unstable();
        matches.dedup();
        matches.into_iter().for_each(found);
        is_named
    }

    /// The device that still has the index, if every recorded name is its own. Names are distinct, so none of them
    /// means another device.
    fn by_all_names(&self, index: u32, identity: &Identity) -> Option<usize> {
        let at = usize::try_from(index).ok()?;
        let device = self.inventory.devices.get(at).filter(|device| device.index == index)?;
        let is_all = !identity.is_empty() && device.identity == *identity;
        is_all.then_some(at)
    }

    fn not_excluded(&self, tables: &Tables<'_>, index: u32, identity: &Identity) -> Vec<Part> {
        let is_unseen = self.is_unseen_instance(identity);
        let devices = &self.inventory.devices;
        if tables.exclude_all(devices.len(), identity, is_unseen) {
            return Vec::new();
        }
        let may_be = |at: &usize| is_unseen || devices[*at].identity.relation(identity) == Relation::Unknown;
        match tables.index.get(&index) {
            Some(at) if may_be(at) => vec![Part::whole(*at)],
            None if identity.is_empty() => Vec::new(), // a line of Flink's script, with an index that this host lacks
            _ => (0..devices.len()).filter(may_be).map(Part::whole).collect(),
        }
    }

    /// An instance is compared with instances only: if the source does not report them, no device excludes it.
    fn is_unseen_instance(&self, identity: &Identity) -> bool {
        let is_instance = identity.uuid.as_deref().is_some_and(|uuid| uuid.starts_with("MIG-"));
        is_instance && !self.inventory.tells_instances
    }
}

/// The devices and their instances by each of their names.
struct Tables<'a> {
    uuid: HashMap<&'a str, Part>,
    pci: HashMap<PciAddress, Part>,
    id: HashMap<&'a str, Part>,
    index: HashMap<u32, usize>,
    /// Whether every device has a UUID.
    has_uuids: bool,
}

impl<'a> Tables<'a> {
    fn of(inventory: &'a Inventory) -> Tables<'a> {
        let devices = || inventory.devices.iter().enumerate();
        let by = |at| Part::whole(at);
        let mut uuid: HashMap<&str, Part> =
            devices().filter_map(|(at, device)| Some((device.identity.uuid.as_deref()?, by(at)))).collect();
        let has_uuids = uuid.len() == inventory.devices.len();
        uuid.extend(devices().flat_map(|(device, described)| {
            let instances = described.instances.iter().flatten().enumerate();
            instances.filter_map(move |(at, instance)| {
                Some((instance.uuid.as_deref()?, Part { device, instance: Some(at) }))
            })
        }));
        Tables {
            uuid,
            pci: devices().filter_map(|(at, device)| Some((device.identity.pci?, by(at)))).collect(),
            id: devices().filter_map(|(at, device)| Some((device.identity.id.as_deref()?, by(at)))).collect(),
            index: devices().map(|(at, device)| (device.index, at)).collect(),
            has_uuids,
        }
    }

    /// The devices and instances that any of the names matches.
    fn matches(&self, identity: &Identity) -> Vec<Part> {
        let by_uuid = identity.uuid.as_deref().and_then(|uuid| self.uuid.get(uuid));
        let by_pci = identity.pci.and_then(|pci| self.pci.get(&pci));
        let by_id = identity.id.as_deref().and_then(|id| self.id.get(id));
        [by_uuid, by_pci, by_id].into_iter().flatten().copied().collect()
    }

    /// The common case of a device that is not here, without a look at every device.
    fn exclude_all(&self, count: usize, identity: &Identity, is_unseen_instance: bool) -> bool {
        (identity.uuid.is_some() && self.has_uuids && !is_unseen_instance)
            || (identity.pci.is_some() && self.pci.len() == count)
            || (identity.id.is_some() && self.id.len() == count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;

    /// The names of a device: of the kinds `u` (UUID), `p` (PCI) and `i` (id), each with that number.
    fn identity(kinds: &str, number: u32) -> Identity {
        let has = |kind| kinds.contains(kind);
        Identity {
            uuid: has('u').then(|| format!("GPU-{number}")),
            pci: has('p').then(|| format!("0000:0{number}:00.0").parse().unwrap()),
            id: has('i').then(|| format!("slot {number}")),
        }
    }

    /// What a line means on a host of devices with names of these kinds, and whether by its name.
    fn meant(kinds: &[&str], index: u32, recorded: &Identity) -> (Vec<usize>, bool) {
        let devices = (0..).zip(kinds).map(|(index, kinds)| Device::new(index, identity(kinds, index)));
        let devices = devices.collect();
        let inventory =
            Inventory { source: "test".to_owned(), driver_version: None, devices, tells_instances: true };
        let mut found = Vec::new();
        let is_named = Names::of(&inventory).each(index, recorded, |part| found.push(part.device));
        (found, is_named)
    }

    #[test]
    #[rustfmt::skip] // a table
    fn any_equal_name_decides_whatever_the_index() {
        let two = Identity { pci: identity("p", 1).pci, ..identity("u", 0) };
        for (case, kinds, index, recorded, means) in [
            ("by its UUID",           ["u", "u", "u"],       0, identity("u", 2),   vec![2]),
            ("by its address",        ["u", "up", "p"],      0, identity("p", 2),   vec![2]),
            ("by its id",             ["u", "i", "i"],       0, identity("i", 2),   vec![2]),
            ("by one of several",     ["upi", "u", "u"],     1, identity("pi", 0),  vec![0]),
            ("where it always was",   ["upi", "upi", "upi"], 1, identity("upi", 1), vec![1]),
            ("of two devices",        ["u", "p", ""],        2, two,                vec![0, 1]),
        ] {
            assert_eq!(meant(&kinds, index, &recorded), (means, true), "{case}");
        }
    }

    /// A unit whose holder is not seen is given twice, one that is held by nobody is only withheld: so a device is
    /// excluded by another name of the same kind alone.
    #[test]
    #[rustfmt::skip] // a table
    fn only_another_name_of_the_same_kind_excludes_a_device() {
        for kind in ["u", "p", "i"] {
            let others: String = "upi".replace(kind, "");
            let (all, others) = ("upi", others.as_str());
            let gone = identity(kind, 9);
            for (case, kinds, index, means) in [
                ("all have another",             [all, kind, all],       1, vec![]),
                ("its index has none",           [all, others, all],     1, vec![1]),
                ("none has any",                 [others, others, ""],   1, vec![1]),
                ("another has its index",        [kind, others, ""],     0, vec![1, 2]),
                ("there is no such index",       [kind, others, ""],     7, vec![1, 2]),
            ] {
                assert_eq!(meant(&kinds, index, &gone), (means, false), "{kind}: {case}");
            }
        }
    }

    #[test]
    fn a_line_without_a_name_means_its_index_and_is_not_here_by_name() {
        for kinds in [["", "", ""], ["u", "u", "u"]] {
            assert_eq!(meant(&kinds, 1, &Identity::default()), (vec![1], false));
            assert_eq!(meant(&kinds, 7, &Identity::default()), (vec![], false));
        }
    }
}
