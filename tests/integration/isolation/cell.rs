//! The hierarchies of the machine, and a control group of a test's own in one of them.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::sandbox::{is_root, skip};

/// The two hierarchies that can deny devices to processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

/// Both of them, for a test that only root can run, as far as they are mounted.
pub(crate) fn versions(test: &str) -> Vec<Version> {
    if !is_root(test) {
        return Vec::new();
    }
    [Version::V1, Version::V2].into_iter().filter(|version| version.is_there(test)).collect()
}

impl Version {
    /// For a test that only root can run.
    pub(crate) fn may_be_used(self, test: &str) -> bool {
        is_root(test) && self.is_there(test)
    }

    fn is_there(self, test: &str) -> bool {
        let is_there = self.root().is_some();
        if !is_there {
            skip(test, &format!("the hierarchy {} is not mounted", self.word()));
        }
        is_there
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Version::V1 => "v1",
            Version::V2 => "v2",
        }
    }

    /// Where it is mounted.
    pub(crate) fn root(self) -> Option<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mount = fields.find(|fields| match self {
            Version::V1 => fields[2] == "cgroup" && fields[3].split(',').any(|option| option == "devices"),
            Version::V2 => fields[2] == "cgroup2",
        });
        mount.map(|fields| PathBuf::from(fields[1]))
    }

    /// The group of a process, as the kernel names it.
    pub(crate) fn path_of(self, pid: u32) -> String {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let path = text.lines().find_map(|line| match self {
            Version::V1 => line.split_once(":devices:").map(|(_, path)| path),
            Version::V2 => line.strip_prefix("0::"),
        });
        path.unwrap().to_owned()
    }
}

/// A group of a test's own. At the end its processes are killed, and it is removed with all below it.
pub(crate) struct Cell {
    pub(crate) version: Version,
    /// As the kernel names it.
    pub(crate) path: String,
    pub(crate) directory: PathBuf,
}

impl Cell {
    pub(crate) fn make(version: Version) -> Cell {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = version.root().unwrap().join(&name);
        fs::create_dir(&directory).unwrap();
        Cell { version, path: format!("/{name}"), directory }
    }

    /// A group below, to which the owners of a test are to be moved.
    pub(crate) fn below(&self, name: &OsStr) -> PathBuf {
        let directory = self.directory.join(name);
        fs::create_dir(&directory).unwrap();
        directory
    }

    pub(crate) fn take(&self, pid: u32) {
        self.write("cgroup.procs", &pid.to_string()).unwrap();
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> std::io::Result<()> {
        fs::write(self.directory.join(name), text)
    }

    /// Makes of it one that allows nothing but what it names, as that of a container does. v1 alone has such.
    pub(crate) fn allow_only(&self, rules: &[String]) {
        self.write("devices.deny", "a").unwrap();
        let needed = ["c *:* m", "c 1:* rwm", "c 5:* rwm", "c 136:* rwm"];
        for rule in rules.iter().map(String::as_str).chain(needed) {
            self.write("devices.allow", rule).unwrap();
        }
    }

    /// The names of the groups below it.
    pub(crate) fn children(&self) -> Vec<String> {
        let mut names: Vec<String> = children(&self.directory)
            .iter()
            .map(|child| child.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

fn children(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// The processes of a group; none if it is gone.
pub(crate) fn members(group: &Path) -> Vec<u32> {
    let list = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    list.lines().map(|line| line.parse().unwrap()).collect()
}

/// Whether it is gone.
fn destroy(group: &Path) -> bool {
    let left = children(group).iter().filter(|child| !destroy(child)).count();
    for pid in members(group) {
        let _ = kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL);
    }
    left == 0 && (fs::remove_dir(group).is_ok() || !group.exists())
}

impl Drop for Cell {
    fn drop(&mut self) {
        let since = Instant::now();
        while !destroy(&self.directory) && since.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
