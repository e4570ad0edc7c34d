//! Devices and their identities, and the inventory of a host. Values only: nothing here reads a host.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The address of a PCI function, `domain:bus:device.function`, all hexadecimal.
///
/// Tools write the domain with four or with eight digits (nvidia-smi: eight; sysfs and KFD: four), so
/// addresses are compared as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PciAddress {
    pub(crate) domain: u32,
    pub(crate) bus: u8,
    /// 0 to 31.
    pub(crate) device: u8,
    /// 0 to 7.
    pub(crate) function: u8,
}

impl FromStr for PciAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_pci(text).ok_or_else(|| format!("`{text}` is not a PCI address such as 0000:3b:00.0"))
    }
}

fn parse_pci(text: &str) -> Option<PciAddress> {
    let (domain, rest) = hex(text.as_bytes(), 8)?;
    let (bus, rest) = hex(rest.strip_prefix(b":")?, 2)?;
    let (device, rest) = hex(rest.strip_prefix(b":")?, 2)?;
    let (function, rest) = hex(rest.strip_prefix(b".")?, 1)?;
    let byte = |number: u32, most: u32| u8::try_from(number).ok().filter(|_| number <= most);
    let (bus, device, function) = (byte(bus, 255)?, byte(device, 31)?, byte(function, 7)?);
    rest.is_empty().then_some(PciAddress { domain, bus, device, function })
}

/// A number of one to `longest` hexadecimal digits, of which eight fit, and what follows it.
fn hex(text: &[u8], longest: usize) -> Option<(u32, &[u8])> {
    let (mut number, mut count) = (0, 0);
    while let Some(digit) = text.get(count).and_then(|byte| char::from(*byte).to_digit(16)) {
        count += 1;
        if count > longest {
            return None;
        }
        number = number << 4 | digit;
    }
    (count > 0).then(|| (number, &text[count..]))
}

impl fmt::Display for PciAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PciAddress { domain, bus, device, function } = self;
        write!(out, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

/// All that names one device for ever; never its index, which moves when another card falls off the bus.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    /// An NVIDIA or MIG UUID, as the driver writes it.
    pub(crate) uuid: Option<String>,
    pub(crate) pci: Option<PciAddress>,
    /// The `id` that an inventory file gives.
    pub(crate) id: Option<String>,
}

/// What two identities say of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// At least one name is equal.
    Same,
    /// There are names of one kind on both sides, and none is equal.
    Different,
    /// There is no kind of name that both have.
    Unknown,
}

impl Identity {
    /// Whether anything at all names the device.
    pub(crate) fn is_empty(&self) -> bool {
        self.uuid.is_none() && self.pci.is_none() && self.id.is_none()
    }

    /// One name for people: an inventory file's, else the UUID, else the address.
    pub(crate) fn name(&self) -> Option<String> {
        let pci = || self.pci.map(|pci| pci.to_string());
        self.id.clone().or_else(|| self.uuid.clone()).or_else(pci)
    }

    /// A unit for people, by index and name: `0 (GPU-5...)`, the share `0#1 (GPU-5...)`.
    pub(crate) fn label(&self, index: u32, slot: Option<u32>) -> String {
        let number = numbered(index, slot);
        self.name().map_or_else(|| number.clone(), |name| format!("{number} ({name})"))
    }

    pub(crate) fn relation(&self, other: &Identity) -> Relation {
        let kinds = [
            compare(self.uuid.as_ref(), other.uuid.as_ref()),
            compare(self.pci.as_ref(), other.pci.as_ref()),
            compare(self.id.as_ref(), other.id.as_ref()),
        ];
        if kinds.contains(&Some(true)) {
            Relation::Same
        } else if kinds.contains(&Some(false)) {
            Relation::Different
        } else {
            Relation::Unknown
        }
    }
}

/// The device `0`, or the share `0#1`.
pub(crate) fn numbered(index: u32, slot: Option<u32>) -> String {
    slot.map_or_else(|| index.to_string(), |slot| format!("{index}#{slot}"))
}

fn compare<T: PartialEq>(one: Option<&T>, other: Option<&T>) -> Option<bool> {
    Some(one? == other?)
}

/// A UUID as a driver prints it, or none: a placeholder (`GPU-????????-...`, of a card whose board memory
/// cannot be read) and a non-value (`[N/A]`) name nothing.
pub(crate) fn uuid(text: &str) -> Option<String> {
    let names_something = !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'/' | b'_'));
    names_something.then(|| text.to_owned())
}

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

/// One GPU, or one other accelerator. What the source does not tell is `None`.
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
    /// What it is divided into. `Some`, even of nothing: it is not offered whole.
    pub(crate) instances: Option<Vec<Instance>>,
    pub(crate) memory_used_mib: Option<u64>,
    /// The processes that compute on it, by pids of the initial pid namespace.
    pub(crate) processes: Option<Vec<Use>>,
    /// The driver's word for who may use it: `Default`, `Exclusive_Process`, `Prohibited`.
    pub(crate) compute_mode: Option<String>,
    /// Whether NVIDIA's driver keeps it started while nobody uses it.
    pub(crate) persistence_mode: Option<bool>,
    /// Errors of the memory that were not corrected, since the driver was loaded.
    pub(crate) uncorrected_errors: Option<u64>,
    /// Into how many equal shares it is given; `None`: to one owner, whole. Of what is divided, each instance says.
    pub(crate) slots: Option<u32>,
    /// AMD's number of the card. Its partitions share it, so it is no identity; HIP knows it as a name.
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
    /// As of a device.
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
    /// What it is, or a share of.
    pub(crate) fn part(&self) -> Part {
        Part { device: self.device, instance: self.instance }
    }
}

/// What a name can mean: a device with all that it is divided into, or one instance of it.
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
    /// Of the kernel driver, as NVIDIA writes it.
    pub(crate) driver_version: Option<String>,
    pub(crate) devices: Vec<Device>,
    /// Whether the source would have told that a device is divided into instances.
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

    /// Into how many shares a device or an instance is given.
    fn slots(&self, part: &Part) -> Option<u32> {
        let device = &self.devices[part.device];
        match part.instance {
            Some(at) => device.instances.as_ref()?.get(at)?.slots,
            None => device.slots,
        }
    }

    /// Into how many shares that which the unit is of is given.
    pub(crate) fn slots_of(&self, unit: &Unit) -> Option<u32> {
        self.slots(&unit.part())
    }

    /// What names the device that has this index now; nothing if there is none.
    pub(crate) fn identity_at(&self, index: u32) -> Identity {
        let device = self.devices.iter().find(|device| device.index == index);
        device.map(|device| device.identity.clone()).unwrap_or_default()
    }

    /// Every UUID, of devices and of instances.
    pub(crate) fn uuids(&self) -> impl Iterator<Item = (Part, &str)> {
        self.devices.iter().enumerate().flat_map(|(device, described)| {
            let own = described.identity.uuid.as_deref().map(|uuid| (Part::whole(device), uuid));
            let instances = described.instances.iter().flatten().enumerate();
            own.into_iter().chain(instances.filter_map(move |(at, instance)| {
                Some((Part { device, instance: Some(at) }, instance.uuid.as_deref()?))
            }))
        })
    }

    /// What names a unit. An instance has a UUID alone: the PCI address is its device's, and all of the
    /// device's instances share it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pci_address_prints_what_it_parsed() {
        for (text, printed) in [
            ("0000:3b:00.0", "0000:3b:00.0"),
            ("00000000:3B:1F.7", "0000:3b:1f.7"),
            ("00010000:00:00.0", "10000:00:00.0"),
        ] {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), printed);
        }
    }

    #[test]
    fn what_is_no_pci_address_is_refused() {
        for text in
            ["", "3b:00.0", "0000:3b:00", "0000:3b:20.0", "0000:3b:00.8", "0000:+b:00.0", "000000000:0:0.0"]
        {
            assert!(text.parse::<PciAddress>().is_err(), "{text}");
        }
    }

    fn identity(uuid: &str, pci: &str, id: &str) -> Identity {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Identity { uuid: some(uuid), pci: pci.parse().ok(), id: some(id) }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn one_equal_name_makes_it_the_same_device() {
        for (case, one, other, relation) in [
            ("equal uuid, moved to another slot", ("GPU-1", "0000:01:00.0", ""), ("GPU-1", "0000:02:00.0", ""), Relation::Same),
            ("another card in the same slot",     ("GPU-1", "0000:01:00.0", ""), ("GPU-2", "0000:01:00.0", ""), Relation::Same),
            ("nothing equal",                     ("GPU-1", "", ""),             ("GPU-2", "0000:01:00.0", ""), Relation::Different),
            ("nothing in common",                 ("GPU-1", "", ""),             ("", "0000:01:00.0", ""),      Relation::Unknown),
            ("nothing known",                     ("", "", ""),                  ("GPU-2", "", "x"),            Relation::Unknown),
        ] {
            let (one, other) = (identity(one.0, one.1, one.2), identity(other.0, other.1, other.2));
            assert_eq!(one.relation(&other), relation, "{case}");
        }
    }

    #[test]
    fn a_placeholder_is_no_identity() {
        for text in ["", "GPU-????????-????-????-????-????????????", "[N/A]", "N/A ", "[Unknown Error]"] {
            assert_eq!(uuid(text), None, "{text}");
        }
        assert_eq!(uuid("MIG-GPU-1/2/3").as_deref(), Some("MIG-GPU-1/2/3"));
    }
}
