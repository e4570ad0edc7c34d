//! `nvml`: the NVIDIA driver's own library, asked by a child. It reports more than any other source, and the present
//! state: health, MIG instances, processes.
//!
//! The child (`nvml-child/`, embedded by `build.rs`) may hang or crash, and can be abandoned. [`library`] decides whether
//! it is worth starting, [`report`] parses its line, and [`card`] interprets each card.

mod card;
mod library;
mod report;
mod trouble;

use std::collections::HashMap;
use std::time::Duration;

use crate::device::{Device, PciAddress};
use crate::host::Host;
use crate::host::child::{Command, Failure};
use crate::host::embedded::Embedded;
use crate::inventory::answer::{Answer, Found, PERSISTENCE, Silence};
use crate::inventory::text::version;
use crate::inventory::{Settings, procfs};
use crate::notes::Notes;

use card::Card;

const CHILD: Embedded = Embedded { name: "gpu-coord-nvml", bytes: include_bytes!(env!("NVML_CHILD")) };

pub(super) fn read(host: &Host, settings: &Settings, limit: Duration, notes: &mut Notes) -> Answer {
    let library = library::find(host, settings)?;
    let prepare = |command: &mut Command| {
        if let Some(path) = &settings.search_path {
            command.env_clear().env("PATH", path);
        }
        command.args(&library);
    };
    let output = CHILD.run(prepare, limit).map_err(|failure| silence(failure, limit))?;
    let report = report::read(&output, || library::is_expected(host, settings))?;
    notes.detail(format!("source nvml: driver {}", report.driver.as_deref().unwrap_or("of unknown version")));
    let driver_version = report.driver.as_deref().and_then(version);
    Ok(Found { driver_version, ..found(&report.cards, host) })
}

fn silence(failure: Failure, limit: Duration) -> Silence {
    let missing = "the child that asks it needs the loader of the GNU C library, which is not there";
    match failure {
        Failure::Start(_) if !failure.is_missing() => {
            Silence::Broken { why: failure.into(), cure: "let programs be run from memory, or from /tmp" }
        }
        failure => Silence::of_child(failure, limit, missing.to_owned(), PERSISTENCE),
    }
}

/// The kernel driver may know what NVML does not report about a card that it cannot reach.
fn found(cards: &[Card], host: &Host) -> Found {
    let addresses = card::addresses(cards, || procfs::addresses(host));
    let all_have_minors = cards.iter().all(|card| card.minor.is_some());
    let minors = if all_have_minors { HashMap::new() } else { procfs::minors(host) };
    let tells_instances = cards.iter().all(Card::tells_instances);
    let mut found =
        Found { devices: Vec::new(), driver_version: None, warnings: Vec::new(), tells_instances };
    for (card, pci) in cards.iter().zip(addresses) {
        let device = with_node(card.device(pci), &minors, host);
        found.warnings.extend(card.warnings(&device));
        found.devices.push(device);
    }
    found
}

fn with_node(device: Device, minors: &HashMap<PciAddress, u32>, host: &Host) -> Device {
    let of_kernel = || device.identity.pci.and_then(|pci| minors.get(&pci).copied());
    let minor = device.minor.or_else(of_kernel);
    Device { minor, nodes: minor.map(|minor| procfs::node(minor, host)).into_iter().collect(), ..device }
}
