//! What identifies a device permanently, and how two identities relate.

use std::fmt;
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

/// A number of one to `longest` (at most 8) hexadecimal digits, and what follows it.
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

/// What identifies one device permanently; never its index, which changes when another card falls off the bus.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    /// An NVIDIA or MIG UUID, as the driver writes it.
    pub(crate) uuid: Option<String>,
    pub(crate) pci: Option<PciAddress>,
    /// The `id` that an inventory file gives.
    pub(crate) id: Option<String>,
}

/// How two identities relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// At least one name is equal.
    Same,
    /// Both have names of the same kind, and none is equal.
    Different,
    /// They have no kind of name in common.
    Unknown,
}

impl Identity {
    /// Whether nothing names the device.
    pub(crate) fn is_empty(&self) -> bool {
        self.uuid.is_none() && self.pci.is_none() && self.id.is_none()
    }

    /// One name for messages: the inventory file's, else the UUID, else the PCI address.
    pub(crate) fn name(&self) -> Option<String> {
        let pci = || self.pci.map(|pci| pci.to_string());
        self.id.clone().or_else(|| self.uuid.clone()).or_else(pci)
    }

    /// A unit in messages, by index and name: `0 (GPU-5...)`, or the share `0#1 (GPU-5...)`.
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

/// A UUID as a driver prints it. `None` for a placeholder (`GPU-????????-...`, printed when the board memory cannot be
/// read) and a non-value (`[N/A]`), which identify nothing.
pub(crate) fn uuid(text: &str) -> Option<String> {
    let names_something = !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'/' | b'_'));
    names_something.then(|| text.to_owned())
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
