//! Whether there is an NVML to ask, found out without starting the child: most hosts have none, and should not wait for
//! it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::host::Host;
use crate::inventory::Settings;
use crate::inventory::answer::Silence;
use crate::inventory::driver_root::{NAME, below};
use crate::inventory::source::{Probe, Source};

/// NVIDIA's PCI vendor id.
const NVIDIA: &str = "0x10de";
/// The PCI class of GPUs. NVIDIA has made bridges and network cards too.
const DISPLAY: &str = "0x03";

/// The library that the child should open; `None`: the one that its loader finds by name.
pub(super) fn find(host: &Host, settings: &Settings) -> Result<Option<PathBuf>, Silence> {
    // NVML knows only this machine.
    if !host.is_here() {
        return Err(Silence::Absent("not asked below --root".to_owned()));
    }
    if let Some(root) = &settings.driver_root {
        let missing = || Silence::Absent(format!("no {NAME} below the driver root {}", root.display()));
        return below(root).map(Some).ok_or_else(missing);
    }
    // If named by --source, it is asked in any case: the loader may know more places than these.
    let is_named = settings.source == Source::Probe(Probe::Nvml);
    if is_named || has_driver(host) || below(Path::new("/")).is_some() {
        return Ok(None);
    }
    Err(Silence::Absent(format!("no {} and no {NAME}", driver(host).display())))
}

/// Whether there should be an NVML: NVIDIA's driver is named or loaded, or one of its cards is present.
pub(super) fn is_expected(host: &Host, settings: &Settings) -> bool {
    settings.driver_root.is_some() || has_driver(host) || has_card(host)
}

fn has_driver(host: &Host) -> bool {
    driver(host).exists()
}

fn has_card(host: &Host) -> bool {
    let devices = fs::read_dir(host.sys("bus/pci/devices")).into_iter().flatten().flatten();
    let says = |device: &Path, file: &str, beginning: &str| {
        fs::read_to_string(device.join(file)).is_ok_and(|text| text.starts_with(beginning))
    };
    let mut paths = devices.map(|device| device.path());
    paths.any(|device| says(&device, "vendor", NVIDIA) && says(&device, "class", DISPLAY))
}

fn driver(host: &Host) -> PathBuf {
    host.proc("driver/nvidia")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::driver_root::DIRECTORIES;

    fn settings(source: &str, driver_root: Option<&Path>) -> Settings {
        Settings { driver_root: driver_root.map(Path::to_owned), ..Settings::of(source.parse().unwrap()) }
    }

    #[test]
    fn a_host_below_a_root_is_not_this_machine() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/driver/nvidia")).unwrap();
        let host = Host::new(root.path());
        for source in ["auto", "nvml"] {
            assert!(matches!(find(&host, &settings(source, None)), Err(Silence::Absent(_))));
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn where_a_card_or_a_driver_is_nvml_is_expected() {
        for (case, vendor, class, expected) in [
            ("a data centre card",   "0x10de\n", "0x030200\n", true),
            ("a graphics card",      "0x10de\n", "0x030000\n", true),
            ("a bridge of NVIDIA's", "0x10de\n", "0x068000\n", false),
            ("a card of AMD's",      "0x1002\n", "0x038000\n", false),
        ] {
            let root = tempfile::tempdir().unwrap();
            let host = Host::new(root.path());
            assert!(!is_expected(&host, &settings("auto", None)), "nothing is there");
            let device = host.sys("bus/pci/devices/0000:3b:00.0");
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("vendor"), vendor).unwrap();
            fs::write(device.join("class"), class).unwrap();
            assert_eq!(is_expected(&host, &settings("auto", None)), expected, "{case}");
            fs::create_dir_all(driver(&host)).unwrap();
            assert!(is_expected(&host, &settings("auto", None)), "{case}");
            assert!(is_expected(&Host::new(Path::new("/nonexistent")), &settings("auto", Some(root.path()))));
        }
    }

    #[test]
    fn a_driver_root_has_its_library_in_one_of_many_places() {
        let (host, root) = (Host::new(Path::new("/")), tempfile::tempdir().unwrap());
        let missing = find(&host, &settings("auto", Some(root.path()))).expect_err("no library");
        assert!(missing.to_string().starts_with("no libnvidia-ml.so.1 below the driver root "), "{missing}");
        for directory in DIRECTORIES.iter().rev() {
            let library = root.path().join(directory).join(NAME);
            fs::create_dir_all(library.parent().unwrap()).unwrap();
            fs::write(&library, "").unwrap();
            assert_eq!(find(&host, &settings("auto", Some(root.path()))).unwrap(), Some(library));
        }
    }

    #[test]
    fn one_that_is_named_is_asked() {
        assert_eq!(find(&Host::new(Path::new("/")), &settings("nvml", None)).unwrap(), None);
    }
}
