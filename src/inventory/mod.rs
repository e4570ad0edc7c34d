//! The inventory: the devices of the host, read from one of several sources.
//!
//! Two sources are taken at their word, `file:PATH` and `simulated:N`. The others look at the host, and
//! can be absent, broken or slow: [`probe`] asks one vendor's in turn and words why none answered, and
//! [`auto`] decides between two vendors. A new one is a file with a pure parser and a thin reader, a variant
//! of [`source::Probe`] and an arm of [`probe::ask`].
//!
//! Invariants, each with the test that holds it:
//! * A source gives at least one device or an error, never an empty inventory, which would read as "every
//!   recorded device is gone" (`an_inventory_is_never_empty`).
//! * No two devices share an index or an identity (`distinct::check`).
//! * What cannot be relied on is kept and [`Sick`](crate::device::Health::Sick), so that it is shown and
//!   denied, and not granted.
//!
//! Not here: who holds a device (`coordination`), and who is given one (`policy`).

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

/// What the command line says about the source.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) source: Source,
    /// Whose GPUs `auto` looks for; `None` is those of whoever has any.
    pub(crate) vendor: Option<Vendor>,
    /// The root of a driver that is installed apart from the host, as a driver container is.
    pub(crate) driver_root: Option<PathBuf>,
    /// Where vendors' tools are looked up, and all that they get as environment; `None` is our own
    /// environment. Set when we run with raised privilege, since the caller chose ours.
    pub(crate) search_path: Option<OsString>,
    /// The PATH of our own environment.
    pub(crate) inherited_path: Option<OsString>,
}

#[cfg(test)]
impl Settings {
    /// Of a call that names no more than its source.
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
    // What is simulated is as NVIDIA's.
    let is_simulated = matches!(settings.source, Source::Simulated(_));
    if let Some(vendor) = settings.vendor.filter(|vendor| !(is_simulated && *vendor == Vendor::Nvidia)) {
        notes.warn(format!("--vendor {vendor} says nothing of source {source}; leave it out"));
    }
    notes.detail(answered(&source, devices.len(), since));
    Ok(Inventory { source, driver_version: None, devices, tells_instances: true })
}

/// Of each of NVIDIA's devices, whether the driver keeps it started while nobody uses it; or why that cannot be
/// told. The tool is asked where the source has not told.
pub(crate) fn persistence(
    inventory: &Inventory,
    settings: &Settings,
    limit: Duration,
) -> Result<Vec<(u32, bool)>, String> {
    let told = inventory.devices.iter().map(|device| Some((device.index, device.persistence_mode?)));
    told.collect::<Option<_>>().map_or_else(|| nvidia_smi::persistence(settings, limit), Ok)
}

/// Whether a driver's files are there, which would be read in our own process.
pub(crate) fn has_driver_files(host: &Host) -> bool {
    let is_there = |path: PathBuf| fs::symlink_metadata(path).is_ok();
    is_there(host.proc("driver/nvidia")) || is_there(host.sys("class/kfd"))
}

fn answered(source: &str, count: usize, since: Instant) -> String {
    let devices = if count == 1 { "device" } else { "devices" };
    format!("source {source}: {count} {devices} in {:?}", since.elapsed())
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
