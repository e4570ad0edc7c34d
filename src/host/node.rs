//! Device nodes: the numbers by which the kernel and its drivers know them.
//!
//! Major numbers come from the kernel (`/proc/devices`), since most are assigned when drivers are loaded; minor numbers
//! come from the driver. A node counts even if it is not in `/dev`: it can be created at any time, also from inside a
//! control group.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::Host;
use super::file;
use crate::device::{Device, PciAddress};

/// The number of a character device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeNumber {
    /// 0 to 4095.
    pub(crate) major: u32,
    /// 0 to 1048575.
    pub(crate) minor: u32,
}

impl fmt::Display for NodeNumber {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodeNumber { major, minor } = self;
        write!(out, "{major}:{minor}")
    }
}

impl FromStr for NodeNumber {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (major, minor) = text.split_once(':').ok_or(())?;
        let number = |text: &str| text.parse().map_err(|_| ());
        Ok(NodeNumber { major: number(major)?, minor: number(minor)? })
    }
}

/// The majors of NVIDIA's drivers; `None` where the driver is not loaded, or is another (WSL).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Majors {
    /// The major of the cards. Each has a minor; 254 (modeset) and 255 (nvidiactl) are shared by all processes.
    pub(crate) cards: Option<u32>,
    /// The major of the nodes that open MIG instances (NVIDIA MIG User Guide, "Device Nodes and Capabilities").
    pub(crate) capabilities: Option<u32>,
}

/// What one of NVIDIA's capability nodes gives access to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Creating and removing instances.
    Configure,
    Monitor,
    /// An instance of the card with minor `card`. A compute instance requires the node of its GPU instance as well.
    Instance {
        card: u32,
        gpu_instance: u32,
        compute_instance: Option<u32>,
    },
}

/// One line of `/proc/driver/nvidia-caps/mig-minors`. The file lists every instance that could be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capability {
    pub(crate) minor: u32,
    pub(crate) access: Access,
}

/// `/proc/devices`: `195 nvidia-frontend`, and `195 nvidia` with later drivers.
pub(crate) fn parse_majors(devices: &str) -> Majors {
    let characters = devices.lines().take_while(|line| !line.starts_with("Block devices"));
    let entries: Vec<(&str, u32)> = characters
        .filter_map(|line| {
            let (major, name) = line.trim().split_once(' ')?;
            Some((name.trim(), major.parse().ok()?))
        })
        .collect();
    let major = |name: &str| entries.iter().find(|(other, _)| *other == name).map(|(_, major)| *major);
    Majors { cards: major("nvidia-frontend").or(major("nvidia")), capabilities: major("nvidia-caps") }
}

/// Lines such as `gpu0/gi1/ci0/access 14`, where the first number is the minor of the card, not its index. Malformed
/// lines are left out.
pub(crate) fn parse_capabilities(minors: &str) -> Vec<Capability> {
    minors.lines().filter_map(parse_capability).collect()
}

fn parse_capability(line: &str) -> Option<Capability> {
    let (name, minor) = line.rsplit_once(' ')?;
    let parts: Vec<&str> = name.split('/').collect();
    let number = |text: &str, prefix: &str| text.strip_prefix(prefix)?.parse().ok();
    let access = match parts[..] {
        ["config"] => Access::Configure,
        ["monitor"] => Access::Monitor,
        [card, instance, "access"] => Access::Instance {
            card: number(card, "gpu")?,
            gpu_instance: number(instance, "gi")?,
            compute_instance: None,
        },
        [card, instance, compute, "access"] => Access::Instance {
            card: number(card, "gpu")?,
            gpu_instance: number(instance, "gi")?,
            compute_instance: Some(number(compute, "ci")?),
        },
        _ => return None,
    };
    Some(Capability { minor: minor.trim().parse().ok()?, access })
}

impl Host {
    pub(crate) fn majors(&self) -> io::Result<Majors> {
        Ok(parse_majors(&file::read_text(self.proc("devices"))?))
    }

    /// Empty where the driver does not support MIG.
    pub(crate) fn mig_capabilities(&self) -> io::Result<Vec<Capability>> {
        match file::read_text(self.proc("driver/nvidia-caps/mig-minors")) {
            Ok(minors) => Ok(parse_capabilities(&minors)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// All known nodes of a device: the driver's own, the DRM nodes, and those existing nodes that the inventory names.
    /// `cards`: the major that `device.minor` belongs to.
    pub(crate) fn node_numbers(
        &self,
        device: &Device,
        cards: Option<u32>,
    ) -> io::Result<BTreeSet<NodeNumber>> {
        let own = cards.zip(device.minor).map(|(major, minor)| NodeNumber { major, minor });
        let of_drm = device.identity.pci.map_or(Ok(Vec::new()), |pci| self.drm_numbers(pci))?;
        let named = device.nodes.iter().filter_map(|path| self.number_of(path));
        Ok(own.into_iter().chain(of_drm).chain(named).collect())
    }

    /// The paths of GPU nodes, whatever name their drivers give them.
    pub(crate) fn gpu_nodes(&self) -> Vec<PathBuf> {
        let list = |directory: PathBuf| {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let is_card = |path: &PathBuf| {
            let number = path.file_name().and_then(|name| name.to_str()?.strip_prefix("nvidia"));
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let mut nodes: Vec<PathBuf> = list(self.dev("")).into_iter().filter(is_card).collect();
        nodes.extend(list(self.dev("nvidia-caps")));
        nodes.extend(list(self.dev("dri")));
        nodes
    }

    /// The number of the node at `path`, even of a DRM node that is not in `/dev`.
    fn number_of(&self, path: &Path) -> Option<NodeNumber> {
        number_at(path).or_else(|| self.drm_number(&self.sys("class/drm").join(path.file_name()?)).ok())
    }

    /// Empty if no DRM driver has the device. A node that exists but cannot be read is an error: it would not be denied.
    fn drm_numbers(&self, pci: PciAddress) -> io::Result<Vec<NodeNumber>> {
        let directory = self.sys("bus/pci/devices").join(pci.to_string()).join("drm");
        match fs::read_dir(directory) {
            Ok(entries) => entries.map(|entry| self.drm_number(&entry?.path())).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// `directory`: one below `drm`. Elsewhere a file named `dev` need not belong to a device node.
    fn drm_number(&self, directory: &Path) -> io::Result<NodeNumber> {
        let number = file::read_text(directory.join("dev"))?;
        number.trim().parse().map_err(|()| io::ErrorKind::InvalidData.into())
    }
}

/// `None` if there is no character device at `path`.
pub(crate) fn number_at(path: &Path) -> Option<NodeNumber> {
    let metadata = fs::metadata(path).ok().filter(|metadata| metadata.file_type().is_char_device())?;
    let number = |part: u64| u32::try_from(part).ok();
    let device = metadata.rdev();
    Some(NodeNumber {
        major: number(nix::sys::stat::major(device))?,
        minor: number(nix::sys::stat::minor(device))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Identity;
    use crate::host::fixture::Tree;

    #[test]
    #[rustfmt::skip] // a table
    fn majors_are_told_by_name() {
        let of = |cards, capabilities| Majors { cards, capabilities };
        for (case, devices, majors) in [
            ("older drivers", "Character devices:\n  1 mem\n195 nvidia-frontend\n508 nvidia-caps\n", of(Some(195), Some(508))),
            ("later ones",    "Character devices:\n195 nvidia\n195 nvidia-modeset\n195 nvidiactl\n", of(Some(195), None)),
            ("another",       "Character devices:\n 99 nvidia-uvm\n",                                of(None, None)),
            ("not a block",   "Character devices:\n\nBlock devices:\n195 nvidia\n",                  of(None, None)),
            ("nothing",       "",                                                                    of(None, None)),
        ] {
            assert_eq!(parse_majors(devices), majors, "{case}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn capabilities_are_of_the_cards_minor() {
        let of = |card, gpu_instance, compute_instance| Some(Access::Instance { card, gpu_instance, compute_instance });
        for (line, access) in [
            ("config 7",                      Some(Access::Configure)),
            ("monitor 7",                     Some(Access::Monitor)),
            ("gpu3/gi0/access 7",             of(3, 0, None)),
            ("gpu31/gi14/ci7/access 7",       of(31, 14, Some(7))),
            ("gpu3/gi0/ci1/access",           None),
            ("gpu3/gi0/ci1/other 7",          None),
            ("gpu/gi0/access 7",              None),
            ("",                              None),
        ] {
            assert_eq!(parse_capability(line), access.map(|access| Capability { minor: 7, access }), "{line}");
        }
    }

    #[test]
    fn a_graphics_node_is_told_though_it_is_not_there() {
        let tree = Tree::empty()
            .file("sys/bus/pci/devices/0000:3b:00.0/drm/card1/dev", "226:1\n")
            .file("sys/bus/pci/devices/0000:3b:00.0/drm/renderD129/dev", "226:129\n")
            .file("sys/class/drm/renderD130/dev", "226:130\n");
        let pci = "0000:3b:00.0".parse().ok();
        let device = Device {
            minor: Some(4),
            nodes: vec![tree.path("dev/dri/renderD130"), tree.path("dev/missing")],
            ..Device::new(0, Identity { pci, ..Identity::default() })
        };
        let numbers = tree.host().node_numbers(&device, Some(195)).unwrap();
        let told: Vec<String> = numbers.iter().map(NodeNumber::to_string).collect();
        assert_eq!(told, ["195:4", "226:1", "226:129", "226:130"]);
    }

    #[test]
    fn what_is_no_character_device_has_no_number() {
        assert_eq!(
            number_at(Path::new("/dev/null")).map(|number| number.to_string()).as_deref(),
            Some("1:3")
        );
        assert_eq!(number_at(Path::new("/")), None);
    }
}
