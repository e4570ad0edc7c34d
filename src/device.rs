//! Devices, and the inventory of a host. Values only: nothing here reads a host.

mod identity;

use std::borrow::Cow;
use std::path::PathBuf;

pub(crate) use identity::{Identity, PciAddress, Relation, numbered, uuid};

/// Whether a device can be relied on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Sound,
    /// Not granted, for this reason, unless the administrator insists.
    Sick(String),
    /// No program can reach it, for this reason: it is never granted.
    Lost(String),
}

impl Health {
    /// What is wrong.
    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            Health::Sound => None,
            Health::Sick(reason) | Health::Lost(reason) => Some(reason),
        }
    }
}

/// One GPU or other accelerator. What the source does not report is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    /// The position in the vendor tool's order at this moment: what Flink is told.
    pub(crate) index: u32,
    pub(crate) identity: Identity,
    pub(crate) name: Option<String>,
    pub(crate) memory_mib: Option<u64>,
    /// The minor of the device node, from the driver: never derived from the index.
    pub(crate) minor: Option<u32>,
    pub(crate) nodes: Vec<PathBuf>,
    pub(crate) health: Health,
    /// Its MIG instances. `Some`, even if empty: the device is divided and not offered as a whole.
    pub(crate) instances: Option<Vec<Instance>>,
    pub(crate) memory_used_mib: Option<u64>,
    /// The processes that compute on it, with their pids in the initial pid namespace.
    pub(crate) processes: Option<Vec<Use>>,
    /// Who may use it, in the driver's words: `Default`, `Exclusive_Process`, `Prohibited`.
    pub(crate) compute_mode: Option<String>,
    /// Whether NVIDIA's driver keeps it initialised while nobody uses it.
    pub(crate) persistence_mode: Option<bool>,
    /// Uncorrected memory errors since the driver was loaded.
    pub(crate) uncorrected_errors: Option<u64>,
    /// The number of equal shares it is divided into; `None`: it goes to one owner as a whole. For a device with
    /// instances see [`Instance::slots`].
    pub(crate) slots: Option<u32>,
    /// AMD's number for the card. The card's partitions share it, so it is not an identity; HIP accepts it as a name.
    pub(crate) unique_id: Option<u64>,
}

/// A MIG instance: a part of a device that the hardware keeps apart from the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) uuid: Option<String>,
    /// As NVIDIA names it: `1g.10gb`.
    pub(crate) profile: Option<String>,
    pub(crate) gpu_instance: Option<u32>,
    pub(crate) compute_instance: Option<u32>,
    pub(crate) memory_mib: Option<u64>,
    /// As [`Device::slots`].
    pub(crate) slots: Option<u32>,
}

/// A process that computes on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) pid: u32,
    pub(crate) memory_mib: Option<u64>,
}

impl Device {
    /// A sound device of which nothing else is known.
    pub(crate) fn new(index: u32, identity: Identity) -> Device {
        Device {
            index,
            identity,
            name: None,
            memory_mib: None,
            minor: None,
            nodes: Vec::new(),
            health: Health::Sound,
            instances: None,
            memory_used_mib: None,
            processes: None,
            compute_mode: None,
            persistence_mode: None,
            uncorrected_errors: None,
            slots: None,
            unique_id: None,
        }
    }
}

/// What can be assigned: a whole device, an instance of one, or one slot of a shared one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Unit {
    /// The position in [`Inventory::devices`].
    pub(crate) device: usize,
    /// The position in [`Device::instances`].
    pub(crate) instance: Option<usize>,
    pub(crate) slot: Option<u32>,
}

impl Unit {
    /// The device or instance that the unit is, or is a share of.
    pub(crate) fn part(&self) -> Part {
        Part { device: self.device, instance: self.instance }
    }
}

/// What a name can refer to: a device with everything it is divided into, or one of its instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Part {
    /// The position in [`Inventory::devices`].
    pub(crate) device: usize,
    /// The position in [`Device::instances`].
    pub(crate) instance: Option<usize>,
}

impl Part {
    pub(crate) fn whole(device: usize) -> Part {
        Part { device, instance: None }
    }
}

/// The devices of a host, in index order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inventory {
    /// The source that answered, as `--source` names it.
    pub(crate) source: String,
    /// The version of the kernel driver, as NVIDIA writes it.
    pub(crate) driver_version: Option<String>,
    pub(crate) devices: Vec<Device>,
    /// Whether the source would have reported that a device is divided into instances.
    pub(crate) tells_instances: bool,
}

impl Inventory {
    /// The units of the host in the order in which they are granted.
    pub(crate) fn units(&self) -> impl Iterator<Item = Unit> + '_ {
        (0..self.devices.len()).flat_map(|device| self.units_of(Part::whole(device)))
    }

    pub(crate) fn units_of(&self, part: Part) -> impl Iterator<Item = Unit> + use<> {
        let device = part.device;
        let (one, parts) = match &self.devices[device].instances {
            Some(instances) if part.instance.is_none() => {
                (None, instances.iter().map(|instance| instance.slots).collect())
            }
            _ => (Some((part.instance, self.slots(&part))), Vec::new()),
        };
        let parts = parts.into_iter().enumerate().map(|(at, slots)| (Some(at), slots));
        one.into_iter().chain(parts).flat_map(move |(instance, slots)| {
            let unit = move |slot| Unit { device, instance, slot };
            let whole = slots.is_none().then(|| unit(None));
            whole.into_iter().chain((0..slots.unwrap_or(0)).map(move |slot| unit(Some(slot))))
        })
    }

    /// The number of shares of a device or instance.
    fn slots(&self, part: &Part) -> Option<u32> {
        let device = &self.devices[part.device];
        match part.instance {
            Some(at) => device.instances.as_ref()?.get(at)?.slots,
            None => device.slots,
        }
    }

    /// The number of shares of the device or instance that the unit belongs to.
    pub(crate) fn slots_of(&self, unit: &Unit) -> Option<u32> {
        self.slots(&unit.part())
    }

    /// The identity of the device that has this index now; empty if there is none.
    pub(crate) fn identity_at(&self, index: u32) -> Identity {
        let device = self.devices.iter().find(|device| device.index == index);
        device.map(|device| device.identity.clone()).unwrap_or_default()
    }

    /// Every UUID of a device or an instance.
    pub(crate) fn uuids(&self) -> impl Iterator<Item = (Part, &str)> {
        self.devices.iter().enumerate().flat_map(|(device, described)| {
            let own = described.identity.uuid.as_deref().map(|uuid| (Part::whole(device), uuid));
            let instances = described.instances.iter().flatten().enumerate();
            own.into_iter().chain(instances.filter_map(move |(at, instance)| {
                Some((Part { device, instance: Some(at) }, instance.uuid.as_deref()?))
            }))
        })
    }

    /// The identity of a unit. That of an instance is only its UUID: the PCI address belongs to the device, and all
    /// instances of the device share it.
    pub(crate) fn identity(&self, unit: &Unit) -> Cow<'_, Identity> {
        let device = &self.devices[unit.device];
        match unit.instance.zip(device.instances.as_ref()) {
            None => Cow::Borrowed(&device.identity),
            Some((at, instances)) => {
                Cow::Owned(Identity { uuid: instances[at].uuid.clone(), ..Identity::default() })
            }
        }
    }
}
