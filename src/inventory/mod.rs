//! The inventory: the devices of the host, read from one of several sources.
//!
//! Two sources are taken at their word: `file:PATH` and `simulated:N`. The others look at the host, and can be absent,
//! broken or slow: [`probe`] asks those of one vendor in turn and explains why none answered, and [`auto`] decides
//! between two vendors. To add a source, add a file with a pure parser and a thin reader, a variant of
//! [`source::Probe`] and an arm in `probe::ask`.
//!
//! Invariants, each with the test that holds it:
//! * A source gives at least one device or an error, never an empty inventory, which would mean "every recorded device is
//!   gone" (`an_inventory_is_never_empty`).
//! * No two devices share an index or an identity (`distinct::check`).
//! * An unreliable device is kept as [`Sick`](crate::device::Health::Sick), so that it is shown and denied, but not
//!   granted.
//!
//! Not here: who holds a device (`coordination`), and who is granted one (`policy`).

mod amd;
mod amd_smi;
mod answer;
mod auto;
mod distinct;
mod driver_root;
mod file;
mod health;
mod nvidia_smi;
mod nvml;
mod probe;
mod procfs;
mod rocm_smi;
mod simulated;
mod source;
mod sysfs;
mod text;
mod tool;

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::device::Inventory;
use crate::error::Error;
use crate::host::Host;
use crate::host::deadline::Deadline;
use crate::notes::Notes;

pub(crate) use source::{Source, Vendor};

/// What the command line says about sources.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) source: Source,
    /// Whose GPUs `auto` looks for; `None`: both vendors'.
    pub(crate) vendor: Option<Vendor>,
    /// The root of a driver that is installed apart from the host, such as a driver container.
    pub(crate) driver_root: Option<PathBuf>,
    /// The PATH to search for vendors' tools, and their whole environment; `None`: our own environment. Set when we run
    /// with raised privileges, since the caller chose our environment.
    pub(crate) search_path: Option<OsString>,
    /// The PATH of our own environment.
    pub(crate) inherited_path: Option<OsString>,
}

#[cfg(test)]
impl Settings {
    /// The settings of a call that sets only its source.
    fn of(source: Source) -> Settings {
        Settings { source, vendor: None, driver_root: None, search_path: None, inherited_path: None }
    }
}

/// The devices of `host`; at least one.
pub(crate) fn read(
    host: &Host,
    settings: &Settings,
    deadline: Deadline,
    notes: &mut Notes,
) -> Result<Inventory, Error> {
    let since = Instant::now();
    let devices = match &settings.source {
        Source::Auto => return auto::read(host, settings, deadline, notes),
        Source::Probe(one) => return auto::one(*one, host, settings, deadline, notes),
        Source::File(path) => file::read(path, host)?,
        Source::Simulated(count) => simulated::devices(*count),
    };
    let source = settings.source.to_string();
    if devices.is_empty() {
        return Err(Error::Inventory(format!("source {source} has no device; name one that has")));
    }
    // Simulated devices count as NVIDIA's.
    let is_simulated = matches!(settings.source, Source::Simulated(_));
    if let Some(vendor) = settings.vendor.filter(|vendor| !(is_simulated && *vendor == Vendor::Nvidia)) {
        notes.warn(format!("--vendor {vendor} has no meaning for source {source}; leave it out"));
    }
    notes.detail(answered(&source, devices.len(), since));
    Ok(Inventory { source, driver_version: None, devices, tells_instances: true })
}

/// The persistence mode of each of NVIDIA's devices, by index; or why it is not known. Asks the tool if the source has
/// not reported it.
pub(crate) fn persistence(
    inventory: &Inventory,
    settings: &Settings,
    limit: Duration,
) -> Result<Vec<(u32, bool)>, String> {
    let told = inventory.devices.iter().map(|device| Some((device.index, device.persistence_mode?)));
    told.collect::<Option<_>>().map_or_else(|| nvidia_smi::persistence(settings, limit), Ok)
}

/// Whether a driver's files exist, which this process itself would read.
pub(crate) fn has_driver_files(host: &Host) -> bool {
    let is_there = |path: PathBuf| fs::symlink_metadata(path).is_ok();
    is_there(host.proc("driver/nvidia")) || is_there(host.sys("class/kfd"))
}

fn answered(source: &str, count: usize, since: Instant) -> String {
    let devices = if count == 1 { "device" } else { "devices" };
    format!("source {source}: {count} {devices} in {:.1?}", since.elapsed())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    fn inventory(source: &str) -> Result<Inventory, Error> {
        let settings = Settings::of(source.parse().unwrap());
        let deadline = Deadline::after(Duration::from_secs(60));
        read(&Host::new(Path::new("/nonexistent")), &settings, deadline, &mut Notes::default())
    }

    #[test]
    fn simulated_devices_are_in_index_order() {
        let inventory = inventory("simulated:3").unwrap();
        assert_eq!(inventory.source, "simulated:3");
        assert_eq!(inventory.devices.iter().map(|device| device.index).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn an_inventory_is_never_empty() {
        let error = inventory("simulated:0").expect_err("no device");
        assert_eq!(error.to_string(), "source simulated:0 has no device; name one that has");
        let error = inventory("procfs").expect_err("no driver");
        assert!(error.to_string().starts_with("no GPU on this host: procfs: "), "{error}");
    }
}
