//! `procfs`: what the NVIDIA kernel driver says about its cards in `/proc/driver/nvidia/gpus`. It needs neither a tool nor
//! a library, and works even if these do not match the version of the driver.
//!
//! A card that an administrator has excluded is listed but not enumerated by the driver, so it does not count in the
//! index (`an_excluded_card_does_not_count`). The kernel does not know the UUIDs of a divided card's instances, so
//! nothing of such a card is offered (`a_divided_card_is_not_offered_whole`).

mod information;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::device::{Device, Health, Identity, PciAddress};
use crate::host::Host;
use crate::inventory::answer::{Answer, Found, Silence};
use crate::inventory::health;
use information::Information;

/// Below the `/proc` of the host.
const GPUS: &str = "driver/nvidia/gpus";
/// The capabilities of each card, by its minor: a directory for each existing GPU instance.
const CAPABILITIES: &str = "driver/nvidia/capabilities";
const VERSION: &str = "driver/nvidia/version";
/// Why the instances of a card are not granted.
const NAMELESS: &str = "the kernel does not tell their UUIDs";
/// In bytes: ten times what any driver has written.
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
    Ok(found(cards, host))
}

/// The cards in the driver's order.
fn found(cards: Vec<Card>, host: &Host) -> Found {
    let mut found = Found {
        devices: Vec::new(),
        driver_version: version(host),
        warnings: Vec::new(),
        tells_instances: false,
    };
    for (index, card) in (0..).zip(cards) {
        let is_wanted = card.is_excluded();
        let device = card.device(index, host);
        let warning = health::warning(&device).filter(|_| !is_wanted);
        let of_instances = device.instances.as_ref().map(|_| health::withheld_instances(&device, NAMELESS));
        let warnings = warning.into_iter().chain(of_instances);
        found.warnings.extend(warnings.map(|warning| format!("procfs: {warning}")));
        found.devices.push(device);
    }
    found
}

fn unreadable(directory: &Path, err: io::Error) -> Silence {
    let why = anyhow::Error::new(err).context(format!("cannot list {}", directory.display()));
    Silence::Broken { why, cure: "run it as root, or look at `dmesg`" }
}

/// The minors of the cards that the kernel driver knows, for sources that do not know them.
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

/// Whether the card has instances. A card in MIG mode without instances cannot be told from a whole one.
fn is_divided(minor: u32, host: &Host) -> bool {
    let directory = host.proc(CAPABILITIES).join(format!("gpu{minor}/mig"));
    let mut instances = fs::read_dir(directory).into_iter().flatten().flatten();
    instances.any(|entry| entry.file_name().to_string_lossy().starts_with("gi"))
}

fn list(directory: &Path) -> io::Result<Vec<Card>> {
    let mut cards = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let information = read_information(&entry.path().join("information"));
        cards.push(Card::new(&entry.file_name().to_string_lossy(), information));
    }
    Ok(cards)
}

/// The version of the driver that is loaded.
fn version(host: &Host) -> Option<String> {
    information::version(&read_text(&host.proc(VERSION)).ok()?)
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    File::open(path)?.take(MOST_INFORMATION).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A card whose file cannot be read keeps its address: it is shown, and not granted.
fn read_information(path: &Path) -> Result<Information, String> {
    let text = read_text(path).map_err(|err| format!("cannot read {}: {err}", path.display()))?;
    information::parse(&text).ok_or_else(|| format!("{} does not describe a card", path.display()))
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

    /// The driver's order: by address, with excluded cards last.
    fn place(&self) -> (bool, Option<PciAddress>) {
        (self.is_excluded(), self.pci)
    }

    /// Whether the administrator has excluded it.
    fn is_excluded(&self) -> bool {
        self.information.as_ref().is_ok_and(|information| information.excluded)
    }

    fn device(self, index: u32, host: &Host) -> Device {
        let health = match &self.information {
            Err(problem) => Health::Sick(problem.clone()),
            Ok(Information { excluded: true, .. }) => {
                Health::Lost("excluded by the driver's settings".to_owned())
            }
            Ok(Information { uuid: None, .. }) if self.pci.is_none() => {
                Health::Sick(health::NAMELESS.to_owned())
            }
            Ok(_) => Health::Sound,
        };
        let Information { model, uuid, minor, .. } = self.information.unwrap_or_default();
        Device {
            name: model,
            minor,
            nodes: minor.map(|minor| node(minor, host)).into_iter().collect(),
            instances: minor.filter(|minor| is_divided(*minor, host)).map(|_| Vec::new()),
            health,
            ..Device::new(index, Identity { uuid, pci: self.pci, id: None })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let warned: Vec<_> = found.devices.iter().zip(&found.warnings).collect();
        assert_eq!(warned.len(), found.devices.len());
        for (device, warning) in warned {
            let at = device.identity.pci.map(|pci| format!(" ({pci})")).unwrap_or_default();
            let why = device.health.reason().unwrap();
            assert_eq!(*warning, format!("procfs: device {}{at} is sick: {why}", device.index));
        }
    }

    #[test]
    fn the_driver_tells_its_version() {
        let (_root, host) = host_with(&[("0000:01:00.0", Some("Device Minor: 0\n"))]);
        assert_eq!(read(&host).unwrap().driver_version, None);
        fs::write(host.proc(VERSION), "NVRM version: NVIDIA UNIX x86_64 Kernel Module  384.81  Sat\n")
            .unwrap();
        assert_eq!(read(&host).unwrap().driver_version.as_deref(), Some("384.81"));
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

    #[test]
    fn a_divided_card_is_not_offered_whole() {
        let (_root, host) = host_with(&[
            ("0000:01:00.0", Some("Device Minor: 1\n")),
            ("0000:02:00.0", Some("Device Minor: 0\n")),
            ("0000:03:00.0", Some("Model: A\n")),
        ]);
        fs::create_dir_all(host.proc(CAPABILITIES).join("gpu0/mig/gi7/ci0")).unwrap();
        fs::create_dir_all(host.proc(CAPABILITIES).join("gpu1/mig")).unwrap();
        let found = read(&host).unwrap();
        let instances: Vec<_> = found.devices.iter().map(|device| device.instances.clone()).collect();
        assert_eq!((instances, found.tells_instances), (vec![None, Some(Vec::new()), None], false));
        let warning = "procfs: device 1 (0000:02:00.0) is divided (MIG), and its instances are not granted: \
                       the kernel does not tell their UUIDs";
        assert_eq!(found.warnings, [warning]);
    }
}
