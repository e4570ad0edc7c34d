//! The DRM side of the driver, which knows what KFD does not: the device nodes, the board's name, and the memory in use.
//!
//! KFD names a device's render node. The other node is found through the common parent of both: a PCI function, or, for
//! the second and later partitions of a card, a device that the driver creates.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use crate::device::PciAddress;
use crate::host::Host;
use crate::inventory::sysfs::text;

/// The nodes below `/sys/class/drm`, read once for all devices.
pub(super) struct Drm<'a> {
    host: &'a Host,
    /// The parent device of each node.
    parents: BTreeMap<String, OsString>,
}

impl<'a> Drm<'a> {
    pub(super) fn read(host: &'a Host) -> Drm<'a> {
        let entries = fs::read_dir(host.sys("class/drm")).into_iter().flatten().flatten();
        let parent = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok().filter(|name| is_node(name))?;
            let target = fs::read_link(entry.path().join("device")).ok()?;
            Some((name, target.file_name()?.to_owned()))
        };
        Drm { host, parents: entries.filter_map(parent).collect() }
    }

    /// A render node and the other nodes of the same device; the render node comes first.
    pub(super) fn nodes(&self, minor: u32) -> Vec<PathBuf> {
        let render = render(minor);
        let parent = self.parents.get(&render);
        let is_other = |node: &&String| **node != render && parent == self.parents.get(*node);
        let others = self.parents.keys().filter(|_| parent.is_some()).filter(is_other).cloned();
        std::iter::once(render.clone()).chain(others).map(|node| self.node(&node)).collect()
    }

    /// `None` for a partition that is not the card's first.
    pub(super) fn address(&self, minor: u32) -> Option<PciAddress> {
        self.parents.get(&render(minor))?.to_str()?.parse().ok()
    }

    /// The manufacturer's name of the board, if the board has it.
    pub(super) fn product(&self, minor: u32) -> Option<String> {
        self.attribute(minor, "product_name")
    }

    pub(super) fn bytes(&self, minor: u32, attribute: &str) -> Option<u64> {
        self.attribute(minor, attribute)?.parse().ok()
    }

    /// Uncorrected errors of the card's memory since the driver was loaded. Newer kernels have the second file.
    pub(super) fn uncorrected_errors(&self, minor: u32) -> Option<u64> {
        let text =
            ["ras/umc_err_count", "ras/aca_umc"].iter().find_map(|file| self.attribute(minor, file))?;
        text.lines().find_map(|line| line.strip_prefix("ue:"))?.trim().parse().ok()
    }

    fn attribute(&self, minor: u32, name: &str) -> Option<String> {
        let path = self.host.sys("class/drm").join(render(minor)).join("device").join(name);
        text(&path).ok().filter(|text| !text.is_empty())
    }

    /// Whether the device's node is missing in this `/dev`, as in a container that was not given the device.
    pub(super) fn is_withheld(&self, minor: u32) -> bool {
        self.host.dev("dri").is_dir() && !self.node(&render(minor)).exists()
    }

    fn node(&self, name: &str) -> PathBuf {
        self.host.dev("dri").join(name)
    }
}

fn render(minor: u32) -> String {
    format!("renderD{minor}")
}

/// Whether it is a node such as `card0` or `renderD128`, and not a connector such as `card0-DP-1`.
fn is_node(name: &str) -> bool {
    let number = name.strip_prefix("card").or(name.strip_prefix("renderD"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn host(nodes: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
        let root = tempfile::tempdir().unwrap();
        for (node, parent) in nodes {
            let device = root.path().join("sys/devices").join(parent);
            fs::create_dir_all(&device).unwrap();
            let directory = root.path().join("sys/class/drm").join(node);
            fs::create_dir_all(&directory).unwrap();
            symlink(format!("../../../devices/{parent}"), directory.join("device")).unwrap();
        }
        let host = Host::new(root.path());
        (root, host)
    }

    #[test]
    fn a_card_number_is_found_and_never_derived() {
        let (_root, host) = host(&[
            ("card0", "0000:01:00.0"), // a display chip of another maker
            ("card1", "0000:43:00.0"),
            ("card1-DP-1", "0000:43:00.0"),
            ("card2", "amdgpu_xcp.0"),
            ("renderD128", "0000:43:00.0"),
            ("renderD129", "amdgpu_xcp.0"),
        ]);
        let drm = Drm::read(&host);
        let nodes = |minor| {
            let names = drm.nodes(minor).into_iter().map(|path| path.file_name().unwrap().to_owned());
            names.map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(nodes(128), ["renderD128", "card1"]);
        assert_eq!(nodes(129), ["renderD129", "card2"]);
        assert_eq!(nodes(130), ["renderD130"], "KFD's word is enough");
        assert_eq!(drm.address(128), "0000:43:00.0".parse().ok());
        assert_eq!((drm.address(129), drm.address(130)), (None, None));
    }

    #[test]
    fn a_node_is_withheld_only_where_there_are_nodes() {
        let (root, host) = host(&[]);
        assert!(!Drm::read(&host).is_withheld(128));
        fs::create_dir_all(root.path().join("dev/dri")).unwrap();
        fs::write(root.path().join("dev/dri/renderD129"), "").unwrap();
        assert!(Drm::read(&host).is_withheld(128));
        assert!(!Drm::read(&host).is_withheld(129));
    }
}
