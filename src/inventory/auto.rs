//! `auto`: asks the sources of both vendors, and decides between them.
//!
//! * NVIDIA's sources are asked first, and then AMD's. Of these `sysfs` comes first: in a millisecond it reports
//!   everything that AMD's tools report, and HIP's order as well. The tools are for hosts on which it fails.
//! * Where NVIDIA's driver works, sysfs alone decides whether AMD's does too: HIP cannot use what KFD does not list, and
//!   a host with NVIDIA's GPUs should not wait for AMD's tools.
//! * A vendor is absent if none of its sources has anything to ask, and empty if its driver says that it drives nothing.
//!   If both vendors are neither, that is an error that names `--vendor`, even if one of the drivers is broken: using the
//!   other vendor's GPUs would hide that (`two_vendors`).

use crate::device::Inventory;
use crate::error::Error;
use crate::host::Host;
use crate::host::deadline::Deadline;
use crate::inventory::Settings;
use crate::inventory::answer::Silence;
use crate::inventory::probe::{self, Silent};
use crate::inventory::source::{Probe, Vendor};
use crate::notes::Notes;

type Asked = Result<Inventory, Silent>;

pub(super) fn read(
    host: &Host,
    settings: &Settings,
    deadline: Deadline,
    notes: &mut Notes,
) -> Result<Inventory, Error> {
    let mut ask = |probes: &[Probe], is_last| probe::first(probes, is_last, host, settings, deadline, notes);
    if let Some(vendor) = settings.vendor {
        return ask(&vendor.probes(), true).map_err(|silent| probe::refusal(&silent, settings));
    }
    let nvidia = ask(&Vendor::Nvidia.probes(), false);
    let of_amd = if DriverState::of(&nvidia).is_there() { vec![Probe::Sysfs] } else { Vendor::Amd.probes() };
    let amd = ask(&of_amd, true);
    choose(nvidia, amd, settings, notes)
}

/// Asks the one source that was chosen by name.
pub(super) fn one(
    probe: Probe,
    host: &Host,
    settings: &Settings,
    deadline: Deadline,
    notes: &mut Notes,
) -> Result<Inventory, Error> {
    if let Some(vendor) = settings.vendor.filter(|vendor| *vendor != probe.vendor()) {
        let source = probe.name();
        return Err(Error::Usage(format!("--vendor {vendor} and --source {source} contradict each other")));
    }
    let asked = probe::first(&[probe], true, host, settings, deadline, notes);
    asked.map_err(|silent| probe::refusal(&silent, settings))
}

/// The state of a vendor's driver on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DriverState {
    Works,
    Fails,
    /// It works and has no device.
    Empty,
    Absent,
}

impl DriverState {
    fn of(asked: &Asked) -> DriverState {
        let Err(silent) = asked else { return DriverState::Works };
        let any = |is_it: fn(&Silence) -> bool| silent.iter().any(|(_, why)| is_it(why));
        if any(|why| matches!(why, Silence::Late { .. } | Silence::Broken { .. })) {
            DriverState::Fails
        } else if any(|why| matches!(why, Silence::Nothing { .. })) {
            DriverState::Empty
        } else {
            DriverState::Absent
        }
    }

    /// Whether it has devices, or could have.
    fn is_there(self) -> bool {
        match self {
            DriverState::Works | DriverState::Fails => true,
            DriverState::Empty | DriverState::Absent => false,
        }
    }
}

fn choose(nvidia: Asked, amd: Asked, settings: &Settings, notes: &mut Notes) -> Result<Inventory, Error> {
    match (DriverState::of(&nvidia), DriverState::of(&amd), nvidia, amd) {
        (_, of_amd, Ok(inventory), _) if !of_amd.is_there() => Ok(inventory),
        (of_nvidia, _, nvidia, Ok(inventory)) if !of_nvidia.is_there() => {
            if let (DriverState::Empty, Err(silent)) = (of_nvidia, nvidia) {
                let reasons = probe::reasons(silent.iter());
                notes.warn(format!("AMD's GPUs are taken, since NVIDIA's driver has none: {reasons}"));
            }
            Ok(inventory)
        }
        (_, _, Err(nvidia), Err(amd)) => Err(neither(nvidia, amd, settings)),
        (_, _, nvidia, amd) => Err(both(&nvidia, &amd)),
    }
}

/// Leaves out the reasons of an absent vendor if the other one is not absent: they would help nobody.
fn neither(nvidia: Silent, amd: Silent, settings: &Settings) -> Error {
    let is_absent = |silent: &Silent| silent.iter().all(|(_, why)| matches!(why, Silence::Absent(_)));
    match (is_absent(&nvidia), is_absent(&amd)) {
        (false, true) => probe::refusal(&nvidia, settings),
        (true, false) => probe::refusal(&amd, settings),
        (true, true) | (false, false) => {
            probe::refusal(&nvidia.into_iter().chain(amd).collect::<Silent>(), settings)
        }
    }
}

fn both(nvidia: &Asked, amd: &Asked) -> Error {
    let clause = |vendor: Vendor, asked: &Asked| match asked {
        Ok(inventory) => format!("{} ({}: {})", vendor.name(), inventory.source, inventory.devices.len()),
        Err(silent) => format!("{}, whose driver fails ({})", vendor.name(), probe::reasons(silent.iter())),
    };
    Error::Inventory(format!(
        "this host has GPUs of {} and of {}: choose with `--vendor {}` or `--vendor {}`",
        clause(Vendor::Nvidia, nvidia),
        clause(Vendor::Amd, amd),
        Vendor::Nvidia,
        Vendor::Amd
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::device::{Device, Identity};
    use crate::inventory::Source;

    fn asked(probe: Probe, says: &str) -> Asked {
        let (why, cure) = (says.to_owned(), "mend it");
        Err(vec![(
            probe,
            match says {
                "absent" => Silence::Absent(why),
                "none" => Silence::Nothing { why, sure: true },
                "printed none" => Silence::Nothing { why, sure: false },
                "late" => Silence::Late { limit: Duration::from_secs(1), why, cure },
                "broken" => Silence::Broken { why: anyhow::Error::msg(why), cure },
                _ => {
                    let devices = vec![Device::new(0, Identity::default())];
                    return Ok(Inventory {
                        source: probe.name().to_owned(),
                        driver_version: None,
                        devices,
                        tells_instances: true,
                    });
                }
            },
        )])
    }

    #[test]
    #[rustfmt::skip] // a table
    fn two_vendors() {
        const WHICH: &str = "choose with `--vendor nvidia` or `--vendor amd`";
        for (nvidia, amd, says) in [
            ("works",        "absent",       "from procfs"),
            ("works",        "none",         "from procfs"),
            ("absent",       "works",        "from sysfs"),
            ("none",         "works",        "from sysfs, AMD's GPUs are taken, since NVIDIA's driver has none: procfs: none"),
            ("printed none", "works",        "from sysfs, AMD's GPUs are taken, since NVIDIA's driver has none: procfs: printed none"),
            ("works",        "works",        "this host has GPUs of NVIDIA (procfs: 1) and of AMD (sysfs: 1): WHICH"),
            ("broken",       "works",        "this host has GPUs of NVIDIA, whose driver fails (procfs: broken) and of AMD (sysfs: 1): WHICH"),
            ("late",         "works",        "this host has GPUs of NVIDIA, whose driver fails (procfs: late) and of AMD (sysfs: 1): WHICH"),
            ("works",        "broken",       "this host has GPUs of NVIDIA (procfs: 1) and of AMD, whose driver fails (sysfs: broken): WHICH"),
            ("absent",       "absent",       "no GPU on this host: procfs: absent; sysfs: absent; load the driver (in a container: pass the GPUs in)"),
            ("none",         "absent",       "no GPU on this host: procfs: none; if it has one, `dmesg`"),
            ("absent",       "none",         "no GPU on this host: sysfs: none; if it has one, `dmesg`"),
            ("none",         "none",         "no GPU on this host: procfs: none; sysfs: none; if it has one, `dmesg`"),
            ("broken",       "absent",       "the devices cannot be read: procfs: broken; mend it"),
            ("absent",       "broken",       "the devices cannot be read: sysfs: broken; mend it"),
            ("broken",       "none",         "the devices cannot be read: procfs: broken; sysfs: none; mend it"),
            ("broken",       "broken",       "the devices cannot be read: procfs: broken; sysfs: broken; mend it"),
            ("none",         "late",         "source sysfs gave no answer in the 1 s that it had of the deadline: late; procfs: none; mend it"),
        ] {
            let mut notes = Notes::default();
            let settings = Settings::of(Source::Auto);
            let chosen =
                choose(asked(Probe::Procfs, nvidia), asked(Probe::Sysfs, amd), &settings, &mut notes);
            let said = match chosen {
                Ok(inventory) => std::iter::once(format!("from {}", inventory.source)).chain(notes.warnings).collect::<Vec<_>>().join(", "),
                Err(error) => error.to_string(),
            };
            assert!(said.starts_with(&says.replace("WHICH", WHICH)), "{nvidia}, {amd}: {said}");
            assert!(said.len() < 200 && said.contains("from") == says.contains("from"), "{said}");
        }
    }
}
