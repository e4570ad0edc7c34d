//! Which units an administrator selects by name, `--devices` and `--exclude`: pure.
//!
//! An entry of digits is an index; two numbers with a dash between them are a range, unless that is the `id` of a
//! device. Every other entry is a name: a UUID or a unique prefix of one, a PCI address, or the `id` of an inventory
//! file (a device whose id contains a comma can be named only by its index or address). A divided device stands for
//! all of its instances.
//!
//! A name that matches nothing is an error and never an empty selection: a card that shall be kept from Flink must not
//! be granted because its name was misspelt.

use std::str::FromStr;

use crate::device::{Device, Inventory, Part, PciAddress, Unit};
use crate::plain;

/// How many names a message lists.
const MOST_NAMES: usize = 8;

/// A list of names, as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List {
    entries: Vec<String>,
}

impl FromStr for List {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let entries: Vec<String> = text.split(',').map(|entry| entry.trim().to_owned()).collect();
        if entries.iter().any(String::is_empty) {
            return Err("it takes indexes, ranges and names with a comma between, and one of them is empty"
                .to_owned());
        }
        Ok(List { entries })
    }
}

/// The devices and instances that a list names.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// In order.
    sorted: Vec<Part>,
}

impl Parts {
    pub(crate) fn new(mut parts: Vec<Part>) -> Parts {
        parts.sort_unstable();
        Parts { sorted: parts }
    }

    pub(crate) fn cover(&self, unit: &Unit) -> bool {
        let has = |part: Part| self.sorted.binary_search(&part).is_ok();
        has(Part::whole(unit.device)) || has(Part { device: unit.device, instance: unit.instance })
    }
}

/// The lists of both options; `None` if the option is not given.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    devices: Option<Parts>,
    exclude: Option<Parts>,
}

impl Selection {
    /// Fails with a message that names the option, the entry and the devices that exist.
    pub(crate) fn of(
        inventory: &Inventory,
        devices: Option<&List>,
        exclude: Option<&List>,
    ) -> Result<Selection, String> {
        let parts = |list: Option<&List>, option: &str| {
            let parts = list.map(|list| list.parts(inventory)).transpose();
            parts.map_err(|problem| format!("{option}: {problem}"))
        };
        Ok(Selection { devices: parts(devices, "--devices")?, exclude: parts(exclude, "--exclude")? })
    }

    pub(crate) fn takes(&self, unit: &Unit) -> bool {
        self.devices.as_ref().is_none_or(|parts| parts.cover(unit))
            && !self.exclude.as_ref().is_some_and(|parts| parts.cover(unit))
    }

    pub(crate) fn takes_all(&self) -> bool {
        self.devices.is_none() && self.exclude.is_none()
    }
}

impl List {
    fn parts(&self, inventory: &Inventory) -> Result<Parts, String> {
        let named = self.entries.iter().map(|entry| named(inventory, entry));
        Ok(Parts::new(named.collect::<Result<Vec<_>, String>>()?.concat()))
    }
}

fn named(inventory: &Inventory, entry: &str) -> Result<Vec<Part>, String> {
    let shown = plain::escaped(entry);
    if let Some(index) = number(entry) {
        return or_nothing(with_index(inventory, index, index), inventory, entry);
    }
    let exact = by_name(inventory, entry);
    if !exact.is_empty() {
        return Ok(exact);
    }
    if let Some((from, to)) = entry.split_once('-').and_then(|(from, to)| number(from).zip(number(to))) {
        if from > to {
            return Err(format!("`{shown}` runs backwards; write {to}-{from}"));
        }
        return or_nothing(with_index(inventory, from, to), inventory, entry);
    }
    let begins: Vec<(Part, &str)> = inventory.uuids().filter(|(_, uuid)| begins(uuid, entry)).collect();
    if begins.len() > 1 {
        let uuids = abridged(&begins, |(_, uuid)| (*uuid).to_owned());
        return Err(format!("`{shown}` is the beginning of several UUIDs: {uuids}"));
    }
    or_nothing(begins.into_iter().map(|(part, _)| part).collect(), inventory, entry)
}

/// A number of digits only; one that is too large becomes the largest, which is no device's index.
fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u32::MAX))
}

/// The devices with an index in the range. Some may be missing: a card that fell off the bus leaves a gap.
fn with_index(inventory: &Inventory, from: u32, to: u32) -> Vec<Part> {
    let devices = inventory.devices.iter().enumerate();
    let within = devices.filter(|(_, device)| (from..=to).contains(&device.index));
    within.map(|(at, _)| Part::whole(at)).collect()
}

fn by_name(inventory: &Inventory, entry: &str) -> Vec<Part> {
    let address: Option<PciAddress> = entry.parse().ok();
    let is_it = |device: &Device| {
        let identity = &device.identity;
        identity.id.as_deref() == Some(entry) || (address.is_some() && identity.pci == address)
    };
    let devices = inventory.devices.iter().enumerate().filter(|(_, device)| is_it(device));
    let by_uuid = inventory.uuids().filter(|(_, uuid)| uuid.eq_ignore_ascii_case(entry));
    devices.map(|(at, _)| Part::whole(at)).chain(by_uuid.map(|(part, _)| part)).collect()
}

/// `GPU-` alone names nothing.
fn begins(uuid: &str, entry: &str) -> bool {
    let start = uuid.get(..entry.len());
    entry.len() > "GPU-".len() && start.is_some_and(|start| start.eq_ignore_ascii_case(entry))
}

fn or_nothing(parts: Vec<Part>, inventory: &Inventory, entry: &str) -> Result<Vec<Part>, String> {
    if !parts.is_empty() {
        return Ok(parts);
    }
    let devices =
        abridged(&inventory.devices, |device| plain::escaped(&device.identity.label(device.index, None)));
    Err(format!("`{}` names no device; there are {devices}", plain::escaped(entry)))
}

fn abridged<T>(all: &[T], name: impl Fn(&T) -> String) -> String {
    let hint = if all.len() > MOST_NAMES { " (`gpu-coord devices` shows them)" } else { "" };
    plain::few(all, MOST_NAMES, name) + hint
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Identity, Instance};

    /// Devices 0 to 4, of which 3 has fallen off the bus and 4 is divided; and 9, of an inventory file.
    fn host() -> Inventory {
        let device = |index, uuid: &str, pci: &str| {
            let uuid = (!uuid.is_empty()).then(|| uuid.to_owned());
            Device::new(index, Identity { uuid, pci: pci.parse().ok(), id: None })
        };
        let mut devices = vec![
            device(0, "GPU-aa11", "0000:01:00.0"),
            device(1, "GPU-ab22", "10000:02:00.0"),
            device(2, "GPU-ab223", ""),
            device(4, "GPU-dd44", "0000:04:00.0"),
            device(9, "", ""),
        ];
        let instance = |uuid: &str| Instance { uuid: Some(uuid.to_owned()), ..Instance::default() };
        devices[3].instances = Some(vec![instance("MIG-e1"), instance("MIG-f2")]);
        devices[4].identity.id = Some("7-5".to_owned());
        Inventory { source: "test".to_owned(), driver_version: None, devices, tells_instances: true }
    }

    /// The units that are selected: the index, and of an instance its place.
    fn select(devices: &str, exclude: &str) -> Result<String, String> {
        let list = |text: &str| (!text.is_empty()).then(|| text.parse::<List>()).transpose();
        let host = host();
        let selection = Selection::of(&host, list(devices)?.as_ref(), list(exclude)?.as_ref())?;
        let name = |unit: Unit| match unit.instance {
            Some(instance) => format!("{}.{instance}", host.devices[unit.device].index),
            None => host.devices[unit.device].index.to_string(),
        };
        Ok(host.units().filter(|unit| selection.takes(unit)).map(name).collect::<Vec<_>>().join(" "))
    }

    #[test]
    #[rustfmt::skip] // a table
    fn selects() {
        for (case, devices, exclude, selected) in [
            ("nothing is said",         "",                    "",        "0 1 2 4.0 4.1 9"),
            ("an index",                "1",                   "",        "1"),
            ("in the host's order",     "2,0",                 "",        "0 2"),
            ("twice",                   "1,1,GPU-ab22",        "",        "1"),
            ("blanks",                  " 0 , 2 ",             "",        "0 2"),
            ("a range",                 "1-2",                 "",        "1 2"),
            ("with a hole",             "2-4",                 "",        "2 4.0 4.1"),
            ("of one",                  "2-2",                 "",        "2"),
            ("past the host",           "2-99",                "",        "2 4.0 4.1 9"),
            ("past every index",        "0-99999999999999999", "",        "0 1 2 4.0 4.1 9"),
            ("leading zeros",           "01",                  "",        "1"),
            ("a UUID",                  "GPU-aa11",            "",        "0"),
            ("another's beginning",     "GPU-ab22",            "",        "1"),
            ("the beginning of one",    "GPU-a",               "GPU-ab",  "!"),
            ("a unique beginning",      "GPU-aa",              "",        "0"),
            ("in capitals",             "gpu-AA11",            "",        "0"),
            ("an instance",             "MIG-f2",              "",        "4.1"),
            ("all of a device",         "GPU-dd44",            "",        "4.0 4.1"),
            ("an address",              "0000:01:00.0",        "",        "0"),
            ("with eight digits",       "00000000:01:00.0",    "",        "0"),
            ("in another domain",       "00010000:02:00.0",    "",        "1"),
            ("an id like a range",      "7-5",                 "",        "9"),
            ("all but one",             "",                    "1",       "0 2 4.0 4.1 9"),
            ("all but an instance",     "",                    "MIG-e1",  "0 1 2 4.1 9"),
            ("one of the selected",     "0-2",                 "1",       "0 2"),
            ("all of the selected",     "4",                   "GPU-dd",  ""),
            ("an instance of it",       "4",                   "MIG-e1",  "4.1"),
        ] {
            assert_eq!(select(devices, exclude).unwrap_or_else(|_| "!".to_owned()), selected, "{case}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn refuses() {
        let there = "there are 0 (GPU-aa11), 1 (GPU-ab22), 2 (GPU-ab223), 4 (GPU-dd44), 9 (7-5)";
        let nothing = |entry: &str| format!("`{entry}` names no device; {there}");
        for (case, list, problem) in [
            ("an index past the host",  "0,10",           nothing("10")),
            ("in a hole",               "3",              nothing("3")),
            ("more than an index",      "99999999999999", nothing("99999999999999")),
            ("a range of nothing",      "5-8",            nothing("5-8")),
            ("a range that is turned",  "4-2",            "`4-2` runs backwards; write 2-4".to_owned()),
            ("a UUID",                  "GPU-ee55",       nothing("GPU-ee55")),
            ("nothing of one",          "GPU-",           nothing("GPU-")),
            ("longer than one",         "GPU-aa111",      nothing("GPU-aa111")),
            ("an address",              "0000:03:00.0",   nothing("0000:03:00.0")),
            ("no address",              "01:00.0",        nothing("01:00.0")),
            ("a sign",                  "+1",             nothing("+1")),
            ("a negative one",          "-1",             nothing("-1")),
            ("an open range",           "1-",             nothing("1-")),
            ("a word",                  "all",            nothing("all")),
            ("a control character",     "\x1b[2J",        nothing("\\u{1b}[2J")),
            ("several UUIDs",           "GPU-a",          "`GPU-a` is the beginning of several UUIDs: GPU-aa11, GPU-ab22, GPU-ab223".to_owned()),
            ("several instances",       "MIG-",           nothing("MIG-")),
        ] {
            assert_eq!(select(list, ""), Err(format!("--devices: {problem}")), "{case}");
            assert_eq!(select("", list), Err(format!("--exclude: {problem}")), "{case}");
        }
        for list in [",", "1,,2", "1,", ",1", "1, ,2"] {
            assert!(list.parse::<List>().is_err(), "{list}");
        }
    }

    #[test]
    fn a_large_host_is_not_listed_whole() {
        let devices = (0..1000).map(|index| Device::new(index, Identity::default())).collect();
        let host =
            Inventory { source: "test".to_owned(), driver_version: None, devices, tells_instances: true };
        let list: List = "x".parse().unwrap();
        assert_eq!(
            Selection::of(&host, Some(&list), None).unwrap_err(),
            "--devices: `x` names no device; there are 0, 1, 2, 3, 4, 5, 6, 7 and 992 more (`gpu-coord devices` \
             shows them)"
        );
    }
}
