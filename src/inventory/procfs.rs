//! `procfs`: what the NVIDIA kernel driver says of its cards in `/proc/driver/nvidia/gpus`. It needs no
//! tool and no library, and answers when those two and the driver are of different versions.
//!
//! A card that an administrator has excluded is listed and not enumerated by the driver, so it does not
//! count in the index (`an_excluded_card_does_not_count`).

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::device::{self, Device, Health, Identity, PciAddress};
use crate::host::Host;
use crate::inventory::answer::{Answer, Found, Silence};

/// Below the `/proc` of the host.
const GPUS: &str = "driver/nvidia/gpus";
/// Ten times what any driver has written.
const MOST_INFORMATION: u64 = 16_384;

pub(super) fn read(host: &Host) -> Answer {
    let directory = host.proc(GPUS);
    let mut cards = match list(&directory) {
        Ok(cards) => cards,
        Err(err) if err.kind() == io::ErrorKind::NotFound => {
            return Err(Silence::Absent(format!("no {}: the driver is not loaded", directory.display())));
        }
        Err(err) => return Err(unreadable(&directory, err)),
    };
    if cards.is_empty() {
        let why = format!("{} lists no card", directory.display());
        return Err(Silence::Nothing { why, sure: false });
    }
    cards.sort_by_key(Card::place);
    let warnings = cards.iter().filter_map(Card::warning).collect();
    let devices = (0..).zip(cards).map(|(index, card)| card.device(index, host)).collect();
    Ok(Found { devices, warnings, tells_instances: false })
}

fn unreadable(directory: &Path, err: io::Error) -> Silence {
    let why = anyhow::Error::new(err).context(format!("cannot list {}", directory.display()));
    Silence::Broken { why, cure: "run it as root, or look at `dmesg`" }
}

/// The minors of the cards that the kernel driver can tell, for sources that do not know them.
pub(super) fn minors(host: &Host) -> HashMap<PciAddress, u32> {
    let cards = list(&host.proc(GPUS)).unwrap_or_default();
    cards.into_iter().filter_map(|card| Some((card.pci?, card.information.ok()?.minor?))).collect()
}

/// The addresses of the cards that the kernel driver enumerates, in its order.
pub(super) fn addresses(host: &Host) -> Vec<PciAddress> {
    let mut cards = list(&host.proc(GPUS)).unwrap_or_default();
    cards.retain(|card| !card.place().0);
    cards.sort_by_key(Card::place);
    cards.into_iter().filter_map(|card| card.pci).collect()
}

/// The device node of a card.
pub(super) fn node(minor: u32, host: &Host) -> PathBuf {
    host.dev(format!("nvidia{minor}"))
}

fn list(directory: &Path) -> io::Result<Vec<Card>> {
    let mut cards = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let information = information(&entry.path().join("information"));
        cards.push(Card::new(&entry.file_name().to_string_lossy(), information));
    }
    Ok(cards)
}

/// A card whose file cannot be read keeps its address, and so is known and not granted.
fn information(path: &Path) -> Result<Information, String> {
    let mut text = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MOST_INFORMATION).read_to_end(&mut text))
        .map_err(|err| format!("cannot read {}: {err}", path.display()))?;
    parse(&String::from_utf8_lossy(&text))
        .ok_or_else(|| format!("{} does not describe a card", path.display()))
}

/// One directory of the driver.
#[derive(Debug)]
struct Card {
    pci: Option<PciAddress>,
    information: Result<Information, String>,
}

impl Card {
    fn new(name: &str, information: Result<Information, String>) -> Card {
        let bus = information.as_ref().ok().and_then(|information| information.bus);
        Card { pci: name.parse().ok().or(bus), information }
    }

    /// The driver's order: by address, and excluded cards after all that it enumerates.
    fn place(&self) -> (bool, Option<PciAddress>) {
        (self.information.as_ref().is_ok_and(|information| information.excluded), self.pci)
    }

    /// An exclusion is what the administrator wanted.
    fn warning(&self) -> Option<String> {
        let problem = self.information.as_ref().err()?;
        Some(format!("a card is not granted: {problem}"))
    }

    fn device(self, index: u32, host: &Host) -> Device {
        let health = match &self.information {
            Err(problem) => Health::Sick(problem.clone()),
            Ok(Information { excluded: true, .. }) => {
                Health::Lost("excluded by the driver's settings".to_owned())
            }
            Ok(Information { uuid: None, .. }) if self.pci.is_none() => {
                Health::Sick("neither its UUID nor its PCI address is known".to_owned())
            }
            Ok(_) => Health::Sound,
        };
        let Information { model, uuid, minor, .. } = self.information.unwrap_or_default();
        Device {
            name: model,
            minor,
            nodes: minor.map(|minor| node(minor, host)).into_iter().collect(),
            health,
            ..Device::new(index, Identity { uuid, pci: self.pci, id: None })
        }
    }
}

/// What one `information` file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Information {
    model: Option<String>,
    uuid: Option<String>,
    bus: Option<PciAddress>,
    minor: Option<u32>,
    excluded: bool,
}

/// `LABEL: VALUE` lines, padded with blanks and tabs; labels come and go with the driver's version.
/// `None` if not one label is known: then it is no such file.
fn parse(text: &str) -> Option<Information> {
    let mut information = Information::default();
    let mut known = false;
    for (label, value) in text.lines().filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        known |= match label.trim() {
            "Model" => assign(&mut information.model, Some(value.replace(char::is_control, "?"))),
            "GPU UUID" => assign(&mut information.uuid, device::uuid(value)),
            "Bus Location" => assign(&mut information.bus, value.parse().ok()),
            "Device Minor" => assign(&mut information.minor, value.parse().ok()),
            "GPU Excluded" | "Blacklisted" => {
                information.excluded = value == "Yes";
                true
            }
            _ => false,
        };
    }
    known.then_some(information)
}

fn assign<T>(field: &mut Option<T>, value: Option<T>) -> bool {
    *field = value;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn accepts() {
        let all = Information {
            model: Some("NVIDIA L4".to_owned()), uuid: Some("GPU-1-a".to_owned()),
            bus: "0000:3b:00.0".parse().ok(), minor: Some(3), excluded: false,
        };
        for (case, text, expected) in [
            ("padded",        "Model: \t\t NVIDIA L4\nIRQ:   \t\t 63\nGPU UUID: \t GPU-1-a\nBus Location: \t 0000:3b:00.0\nDevice Minor: \t 3\nBlacklisted:\t No\n", all.clone()),
            ("firmware",      "Model: NVIDIA L4\nGPU UUID: GPU-1-a\nBus Location: 0000:3b:00.0\nDevice Minor: 3\nGPU Firmware: 535.1\nGPU Excluded: No\n", all.clone()),
            ("excluded",      "Model: NVIDIA L4\nGPU UUID: GPU-1-a\nBus Location: 0000:3b:00.0\nDevice Minor: 3\nGPU Excluded:\t Yes\n", Information { excluded: true, ..all.clone() }),
            ("old exclusion", "Model: NVIDIA L4\nGPU UUID: GPU-1-a\nBus Location: 0000:3b:00.0\nDevice Minor: 3\nBlacklisted: Yes\n", Information { excluded: true, ..all.clone() }),
            ("not started",   "Model: NVIDIA L4\nGPU UUID: GPU-????????-????-????-????-????????????\nBus Location: 0000:3b:00.0\nDevice Minor: 3\n", Information { uuid: None, ..all.clone() }),
            ("no minor",      "Model: NVIDIA L4\nGPU UUID: GPU-1-a\nBus Location: 0000:3b:00.0\nDevice Minor: N/A\n", Information { minor: None, ..all.clone() }),
        ] {
            assert_eq!(parse(text), Some(expected), "{case}");
        }
    }

    #[test]
    fn rejects() {
        for text in ["", "\n", "no label\n", "Name: eth0\n", "\0\0"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    /// A driver's directory with these cards: its name, and the lines of its file if it has one.
    fn host_with(cards: &[(&str, Option<&str>)]) -> (tempfile::TempDir, Host) {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        for (name, text) in cards {
            let card = host.proc(GPUS).join(name);
            fs::create_dir_all(&card).unwrap();
            if let Some(text) = text {
                fs::write(card.join("information"), text).unwrap();
            }
        }
        (root, host)
    }

    /// Index, PCI address, minor and what is wrong with it.
    fn summary(found: &Found) -> Vec<(u32, String, Option<u32>, String)> {
        let pci = |device: &Device| device.identity.pci.map(|pci| pci.to_string()).unwrap_or_default();
        let sick = |device: &Device| device.health.reason().unwrap_or_default().to_owned();
        found.devices.iter().map(|device| (device.index, pci(device), device.minor, sick(device))).collect()
    }

    #[test]
    fn the_index_is_the_place_in_the_order_of_addresses_and_not_the_minor() {
        let (_root, host) = host_with(&[
            ("0000:c1:00.0", Some("Model: A\nDevice Minor: 0\n")),
            ("0000:01:00.0", Some("Model: B\nDevice Minor: 1\n")),
            ("0001:00:00.0", Some("Model: C\nDevice Minor: 2\n")),
        ]);
        let found = read(&host).unwrap();
        assert_eq!(
            summary(&found),
            [
                (0, "0000:01:00.0".to_owned(), Some(1), String::new()),
                (1, "0000:c1:00.0".to_owned(), Some(0), String::new()),
                (2, "0001:00:00.0".to_owned(), Some(2), String::new()),
            ]
        );
        assert_eq!(found.devices[1].nodes, [host.dev("nvidia0")]);
    }

    #[test]
    fn an_excluded_card_does_not_count() {
        let (_root, host) = host_with(&[
            ("0000:01:00.0", Some("Device Minor: 0\nGPU Excluded: Yes\n")),
            ("0000:02:00.0", Some("Device Minor: 1\nGPU Excluded: No\n")),
        ]);
        let found = read(&host).unwrap();
        assert_eq!(found.devices[0].identity.pci, "0000:02:00.0".parse().ok());
        assert_eq!(found.devices[1].health, Health::Lost("excluded by the driver's settings".to_owned()));
        assert_eq!(found.warnings, [""; 0]);
    }

    #[test]
    fn a_card_that_cannot_be_read_is_known_and_sick() {
        let (_root, host) =
            host_with(&[("0000:01:00.0", None), ("0000:02:00.0", Some("")), ("x", Some("Model: A\n"))]);
        let found = read(&host).unwrap();
        let sick: Vec<_> =
            summary(&found).into_iter().map(|(_, pci, _, why)| format!("{pci} {why}")).collect();
        assert!(sick[0].contains("neither its UUID nor its PCI address"), "{sick:?}");
        assert!(sick[1].starts_with("0000:01:00.0 cannot read"), "{sick:?}");
        assert!(
            sick[2].starts_with("0000:02:00.0") && sick[2].contains("does not describe a card"),
            "{sick:?}"
        );
        assert_eq!(found.warnings.len(), 2);
    }

    #[test]
    fn no_driver_and_no_card_are_told_apart() {
        let (root, host) = host_with(&[]);
        assert!(matches!(read(&host), Err(Silence::Absent(_))));
        fs::create_dir_all(host.proc(GPUS)).unwrap();
        assert!(matches!(read(&host), Err(Silence::Nothing { sure: false, .. })));
        fs::remove_dir(host.proc(GPUS)).unwrap();
        fs::write(host.proc(GPUS), "").unwrap();
        assert!(matches!(read(&host), Err(Silence::Broken { .. })), "{}", root.path().display());
    }
}
