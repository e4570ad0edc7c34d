//! A host of GPUs with nodes below `/dev`, and owners in a control group of the test's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use serde_json::json;
use tempfile::TempDir;

use super::cell::{Cell, Version};
use super::owner::Owner;
use crate::sandbox::{PROGRAM, Sandbox};

/// "LOCAL/EXPERIMENTAL USE" in the kernel's list of majors.
pub(crate) const MAJOR: u64 = 240;

pub(crate) struct Stage {
    pub(crate) cell: Cell,
    pub(crate) sandbox: Sandbox,
    nodes: TempDir,
    count: u64,
    pub(crate) first_minor: u64,
}

impl Stage {
    pub(crate) fn with_gpus(version: Version, count: u64) -> Stage {
        static MINOR: AtomicU64 = AtomicU64::new(0);
        let first_minor = MINOR.fetch_add(count, Ordering::Relaxed);
        let nodes = TempDir::with_prefix_in("gpu-coord-test-", "/dev").unwrap();
        let sandbox = Sandbox::with_source("file:devices.json");
        let stage = Stage { cell: Cell::make(version), sandbox, nodes, count, first_minor };
        (0..count).for_each(|at| make_node(&stage.node(at), first_minor + at));
        let device = |at| json!({ "index": at, "id": format!("id-{at}"), "nodes": [stage.node(at)] });
        let devices: Vec<_> = (0..count).map(device).collect();
        fs::write(stage.sandbox.path().join("devices.json"), json!({ "devices": devices }).to_string())
            .unwrap();
        stage
    }

    pub(crate) fn node(&self, at: u64) -> PathBuf {
        self.nodes.path().join(format!("gpu{at}"))
    }

    /// What is set in the environment of a shell, and finds the program, the record and the nodes.
    pub(crate) fn environment(&self, command: &mut Command) {
        let path =
            format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", Path::new(PROGRAM).parent().unwrap().display());
        command.env_clear().env("PATH", path).current_dir(self.sandbox.path());
        let nodes: Vec<String> = (0..self.count).map(|at| self.node(at).display().to_string()).collect();
        command.env("NODES", nodes.join(" ")).env("GPU_COORD_SOURCE", "file:devices.json");
        command.env("GPU_COORD_COORDINATION_FILE", "coordination");
    }

    /// An owner, by `words` that start a shell; it is in the test's group.
    pub(crate) fn owner_by(&self, words: &str) -> Owner {
        let mut words = words.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        self.environment(&mut command);
        let owner = Owner::start(command, self.sandbox.path());
        self.cell.take(owner.pid());
        owner
    }

    pub(crate) fn owner(&self) -> Owner {
        self.owner_by("bash")
    }

    /// `allocate AMOUNT` for this owner, with the hierarchy of the test.
    pub(crate) fn line(&self, amount: u32, owner: &Owner) -> String {
        format!("allocate {amount} --cgroup={} --owner {}", self.cell.version.word(), owner.pid())
    }

    /// Gives this owner so many devices, and confines it to them.
    #[track_caller]
    pub(crate) fn confine(&self, amount: u32, owner: &Owner, stdout: &str) {
        self.sandbox.answers(&self.line(amount, owner), stdout);
    }

    #[track_caller]
    pub(crate) fn release(&self, owner: &Owner) {
        self.sandbox.answers(&format!("deallocateAll --owner {}", owner.pid()), "");
    }

    /// The name of the group that an owner is confined in.
    pub(crate) fn name(&self, owner: &Owner) -> String {
        format!("gpu-coord-{}-{}", owner.pid(), start_of(owner.pid()))
    }

    pub(crate) fn group(&self, owner: &Owner) -> PathBuf {
        self.cell.directory.join(self.name(owner))
    }

    /// The group of an owner, as the record names it.
    pub(crate) fn recorded(&self, owner: &Owner) -> String {
        format!("cgroup={}:{}/{}", self.cell.version.word(), self.cell.path, self.name(owner))
    }

    /// As if the owner had never been confined: in its old group, with nothing left of ours.
    #[track_caller]
    pub(crate) fn assert_free(&self, owner: &mut Owner) {
        assert_eq!(self.cell.version.path_of(owner.pid()), self.cell.path);
        assert_eq!(self.cell.children(), [""; 0]);
        assert_eq!(owner.reach(), "+".repeat(usize::try_from(self.count).unwrap()));
    }
}

pub(crate) fn make_node(path: &Path, minor: u64) {
    mknod(path, SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), makedev(MAJOR, minor)).unwrap();
}

/// When a process was started, in clock ticks from the boot.
pub(crate) fn start_of(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    rest.split_ascii_whitespace().nth(19).unwrap().parse().unwrap()
}
