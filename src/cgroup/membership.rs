//! Which control group a process is in, and where that group is in the file system.
//!
//! `/proc/PID/cgroup` names the groups of a process relative to our control group namespace (cgroup_namespaces(7)), and
//! mountinfo says which part of a hierarchy is mounted where. A host can have both versions at once ("hybrid"), and a
//! container only a part of one.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use nix::sys::statfs::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, statfs};

use crate::error::Error;
use crate::host::Host;
use crate::host::mounts::{Mount, Mounts};

/// The two ways in which the kernel can deny devices to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Version {
    /// The controller `devices`.
    V1,
    /// A program attached to the group.
    V2,
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Version::V1 => "v1",
            Version::V2 => "v2",
        })
    }
}

impl FromStr for Version {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Version::V1, Version::V2].into_iter().find(|version| version.to_string() == text).ok_or(())
    }
}

/// A control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) version: Version,
    /// Its path from the root of the hierarchy, as in `/proc/PID/cgroup`: `/system.slice/flink.service`.
    pub(crate) path: String,
    /// Its directory in the file system.
    pub(crate) directory: PathBuf,
}

/// The path of a process's group in the hierarchy of that version, from its `/proc/PID/cgroup`.
fn parse(cgroup: &str, version: Version) -> Option<&str> {
    cgroup.lines().find_map(|line| {
        let (hierarchy, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let is_it = match version {
            Version::V1 => hierarchy != "0" && controllers.split(',').any(|name| name == "devices"),
            Version::V2 => hierarchy == "0" && controllers.is_empty(),
        };
        is_it.then_some(path)
    })
}

/// Whether the mount shows a part of the hierarchy of that version.
fn is_of(mount: &Mount, version: Version) -> bool {
    match version {
        Version::V1 => mount.kind == "cgroup" && mount.options.split(',').any(|option| option == "devices"),
        Version::V2 => mount.kind == "cgroup2",
    }
}

/// The directories of the group `path`, one for each mount that shows it.
fn directories(mounts: &Mounts, version: Version, path: &Path) -> Vec<PathBuf> {
    let of_version = mounts.list.iter().filter(|mount| is_of(mount, version));
    let directory = |mount: &Mount| Some(plain(&mount.point.join(path.strip_prefix(&mount.root).ok()?)));
    of_version.filter_map(directory).collect()
}

/// Normalises a path: without a trailing separator.
fn plain(path: &Path) -> PathBuf {
    path.components().collect()
}

/// The suffix of the path of a group that was removed while it still had zombies.
const REMOVED: &str = " (deleted)";

impl Location {
    /// The group of a process, in the `wanted` hierarchy or else in the first one that is usable.
    pub(crate) fn of(host: &Host, pid: u32, wanted: Option<Version>) -> Result<Location, Error> {
        let cgroup = host.cgroup(pid)?;
        let versions = wanted.map_or(vec![Version::V1, Version::V2], |version| vec![version]);
        let mut problems = Vec::new();
        for version in versions {
            match Location::in_hierarchy(host, &cgroup, version) {
                Ok(place) => return Ok(place),
                Err(problem) => problems.push(format!("cgroup {version}: {problem}")),
            }
        }
        Err(Error::Isolation(format!("no control group of pid {pid} can be used: {}", problems.join("; "))))
    }

    /// The group with this path; it need not exist.
    pub(crate) fn at(host: &Host, version: Version, path: &str) -> Result<Location, String> {
        if path.ends_with(REMOVED) {
            return Err(format!("its group {path} was removed"));
        }
        let is_plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
        // Groups are identified by their paths, so each must have only one: no `//`, no `/./`, no `/` at the end.
        let is_the_one = plain(Path::new(path)).as_os_str() == path;
        if !path.starts_with('/') || !Path::new(path).components().all(is_plain) || !is_the_one {
            return Err(format!("its group {path} is outside the control group namespace of gpu-coord"));
        }
        let mounts = host.mounts().ok_or("the mounts of this process cannot be read")?;
        let mut reached = directories(mounts, version, Path::new(path)).into_iter();
        let directory = reached.find(|directory| is_shown_by(host, directory, version));
        let directory = directory.ok_or("it is not mounted here")?;
        Ok(Location { version, path: path.to_owned(), directory })
    }

    fn in_hierarchy(host: &Host, cgroup: &str, version: Version) -> Result<Location, String> {
        let path = parse(cgroup, version).ok_or("the kernel has no such hierarchy of devices")?;
        Location::at(host, version, path)
    }

    pub(super) fn child(&self, name: &str) -> Location {
        let path = format!("{}/{name}", self.path.trim_end_matches('/'));
        Location { version: self.version, path, directory: self.directory.join(name) }
    }

    pub(super) fn parent(&self) -> Option<Location> {
        let path = Path::new(&self.path).parent()?.to_str()?.to_owned();
        let directory = self.directory.parent()?.to_owned();
        Some(Location { version: self.version, path, directory })
    }
}

/// Every group of both hierarchies that is visible here, except for the topmost ones.
pub(super) fn groups(host: &Host) -> Vec<Location> {
    let mut found = Vec::new();
    for version in [Version::V1, Version::V2] {
        let mounts = host.mounts().into_iter().flat_map(|mounts| &mounts.list);
        let tops = mounts.filter(|mount| is_of(mount, version)).filter_map(|mount| {
            let path = mount.root.to_str()?.to_owned();
            Some(Location { version, path, directory: mount.point.clone() })
        });
        let mut open: Vec<Location> = tops.filter(|top| is_shown_by(host, &top.directory, version)).collect();
        while let Some(place) = open.pop() {
            let entries = fs::read_dir(&place.directory).into_iter().flatten().flatten();
            let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            let below: Vec<Location> =
                below.filter_map(|entry| Some(place.child(entry.file_name().to_str()?))).collect();
            open.extend(below.iter().cloned());
            found.extend(below);
        }
    }
    found
}

/// Whether the directory is really on such a mount, which a later mount can hide. The group itself need not exist, but a
/// directory above it must.
fn is_shown_by(host: &Host, directory: &Path, version: Version) -> bool {
    let kind = match version {
        Version::V1 => CGROUP_SUPER_MAGIC,
        Version::V2 => CGROUP2_SUPER_MAGIC,
    };
    let nearest = directory.ancestors().find(|directory| directory.exists());
    let found = |directory| host.noted(directory, statfs(directory).map_err(io::Error::from));
    nearest.and_then(found).is_some_and(|found| found.filesystem_type() == kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::mounts;

    const HYBRID: &str = "9:name=systemd:/\n5:cpu,devices:/docker/a\n0::/user.slice\n";

    #[test]
    #[rustfmt::skip] // a table
    fn the_path_is_told_by_the_hierarchy() {
        for (cgroup, version, path) in [
            (HYBRID,                               Version::V1, Some("/docker/a")),
            (HYBRID,                               Version::V2, Some("/user.slice")),
            ("0::/a:b\n",                          Version::V2, Some("/a:b")),
            ("0::/\n",                             Version::V1, None),
            ("5:devices:/x\n",                     Version::V2, None),
            ("5:name=devices:/x\n",                Version::V1, None),
            ("",                                   Version::V2, None),
        ] {
            assert_eq!(parse(cgroup, version), path, "{cgroup}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_group_is_reached_through_what_is_mounted_of_its_hierarchy() {
        let devices = "36 31 0:33 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n";
        let unified = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let bound = "50 31 0:38 /system.slice /srv/my\\040groups rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let other = "37 31 0:34 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n";
        for (case, mountinfo, version, path, reached) in [
            ("v1",              devices.to_owned(),           Version::V1, "/a",                &["/sys/fs/cgroup/devices/a"][..]),
            ("v2",              unified.to_owned(),           Version::V2, "/",                 &["/sys/fs/cgroup/unified"]),
            ("both",            devices.to_owned() + unified, Version::V2, "/a/b",              &["/sys/fs/cgroup/unified/a/b"]),
            ("a part",          bound.to_owned(),             Version::V2, "/system.slice/x",   &["/srv/my groups/x"]),
            ("its root",        bound.to_owned(),             Version::V2, "/system.slice",     &["/srv/my groups"]),
            ("not that part",   bound.to_owned(),             Version::V2, "/system.slice2/x",  &[]),
            ("another controller", other.to_owned(),          Version::V1, "/a",                &[]),
            ("not mounted",     unified.to_owned(),           Version::V1, "/a",                &[]),
        ] {
            let mounts = mounts::parse(mountinfo.as_bytes());
            let expected: Vec<PathBuf> = reached.iter().map(PathBuf::from).collect();
            assert_eq!(directories(&mounts, version, Path::new(path)), expected, "{case}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn what_cannot_be_reached_is_said() {
        let host = Host::new(Path::new("/"));
        for (path, problem) in [
            ("/../../other",   "its group /../../other is outside the control group namespace of gpu-coord"),
            ("/a//b",          "its group /a//b is outside the control group namespace of gpu-coord"),
            ("/a/./b",         "its group /a/./b is outside the control group namespace of gpu-coord"),
            ("/a/",            "its group /a/ is outside the control group namespace of gpu-coord"),
            ("relative",       "its group relative is outside the control group namespace of gpu-coord"),
            ("/x (deleted)",   "its group /x (deleted) was removed"),
        ] {
            assert_eq!(Location::at(&host, Version::V2, path), Err(problem.to_owned()));
        }
    }

    #[test]
    fn a_group_has_a_parent_and_children() {
        let root = Location { version: Version::V2, path: "/".to_owned(), directory: PathBuf::from("/cg") };
        let child = root.child("gpu-coord-1-2");
        assert_eq!(
            (child.path.as_str(), child.directory.as_path()),
            ("/gpu-coord-1-2", Path::new("/cg/gpu-coord-1-2"))
        );
        assert_eq!(child.parent(), Some(root));
    }
}
