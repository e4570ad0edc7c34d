//! A host of GPUs with nodes below `/dev`, and owners in a control group of the test's own.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use serde_json::json;
use tempfile::TempDir;

use super::cell::{Cell, Version};
use super::owner::Owner;
use crate::fake_nvml::Answer;
use crate::sandbox::{PROGRAM, Sandbox};

/// "LOCAL/EXPERIMENTAL USE" in the kernel's list of majors.
pub(crate) const MAJOR: u64 = 240;

pub(crate) struct Stage {
    pub(crate) cell: Cell,
    pub(crate) sandbox: Sandbox,
    nodes: TempDir,
    /// Major and minor of each node.
    numbers: Vec<(u64, u64)>,
    pub(crate) first_minor: u64,
}

impl Stage {
    pub(crate) fn with_gpus(version: Version, count: u64) -> Stage {
        static MINOR: AtomicU64 = AtomicU64::new(0);
        let first = MINOR.fetch_add(count, Ordering::Relaxed);
        let numbers = (first..first + count).map(|minor| (MAJOR, minor)).collect();
        let stage = Stage::of(version, numbers);
        (0..count).for_each(|at| stage.make_node(at));
        let device = |at: u64| {
            let pci = format!("ffff:00:{at:02x}.0");
            json!({ "index": at, "id": format!("id-{at}"), "pci": pci, "nodes": [stage.node(at)] })
        };
        let devices: Vec<_> = (0..count).map(device).collect();
        fs::write(stage.sandbox.path().join("devices.json"), json!({ "devices": devices }).to_string())
            .unwrap();
        stage
    }

    /// With these nodes, none of which is there yet.
    pub(crate) fn of(version: Version, numbers: Vec<(u64, u64)>) -> Stage {
        let nodes = TempDir::with_prefix_in("gpu-coord-test-", "/dev").unwrap();
        fs::set_permissions(nodes.path(), Permissions::from_mode(0o755)).unwrap();
        let sandbox = Sandbox::with_source("file:devices.json");
        let first_minor = numbers[0].1;
        Stage { cell: Cell::make(version), sandbox, nodes, numbers, first_minor }
    }

    pub(crate) fn make_node(&self, at: u64) {
        let (major, minor) = self.numbers[usize::try_from(at).unwrap()];
        make_node(&self.node(at), makedev(major, minor));
    }

    pub(crate) fn node(&self, at: u64) -> PathBuf {
        self.nodes.path().join(format!("gpu{at}"))
    }

    /// What is set in the environment of a shell, and finds the program, the record and the nodes.
    pub(crate) fn environment(&self, command: &mut Command) {
        let path =
            format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", Path::new(PROGRAM).parent().unwrap().display());
        command.env_clear().env("PATH", path).current_dir(self.sandbox.path());
        let nodes = (0..).zip(&self.numbers).map(|(at, _)| self.node(at).display().to_string());
        let nodes: Vec<String> = nodes.collect();
        command.env("NODES", nodes.join(" ")).env("GPU_COORD_SOURCE", "file:devices.json");
        command.env("GPU_COORD_COORDINATION_FILE", "coordination");
    }

    /// An owner, by words that come to be a shell; it is in the test's group.
    pub(crate) fn owner_by(&self, words: &[&str]) -> Owner {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        self.environment(&mut command);
        let owner = Owner::start(command, self.sandbox.path());
        self.cell.take(owner.pid());
        owner
    }

    pub(crate) fn owner(&self) -> Owner {
        self.owner_by(&["setsid", "bash"]) // the leader of a session is no wrapper
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

    /// The same with more words, which is refused, and nothing is different afterwards.
    #[track_caller]
    pub(crate) fn refuses(&self, line: &str, status: i32, stderr: &str) {
        let (before, children) = (fs::read(self.sandbox.file()).unwrap_or_default(), self.cell.children());
        self.sandbox.refuses(line, status, stderr);
        let after = fs::read(self.sandbox.file()).unwrap_or_default();
        assert_eq!((String::from_utf8(after), self.cell.children()), (String::from_utf8(before), children));
    }

    #[track_caller]
    pub(crate) fn release(&self, owner: &Owner) {
        self.sandbox.answers(&format!("deallocateAll --owner {}", owner.pid()), "");
    }

    /// `reclaim`, which sees the groups of this test alone, and not those that others have just made.
    pub(crate) fn reclaim(&self, words: &str) -> Answer {
        let mut command = Command::new("unshare");
        self.environment(&mut command);
        let roots = [Version::V1, Version::V2].map(|version| version.root().unwrap_or_default());
        command.env("CELL", &self.cell.directory).env("ONE", &roots[0]).env("OTHER", &roots[1]);
        let script =
            "mkdir -p groups && mount --bind $CELL groups && umount -l $ONE $OTHER && gpu-coord reclaim $*";
        command.args(["-m", "sh", "-c", script, "sh"]).args(words.split_ascii_whitespace());
        Answer::of(&command.output().unwrap())
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
        assert_eq!(owner.reach(), "+".repeat(self.numbers.len()));
    }
}

pub(crate) fn make_node(path: &Path, number: u64) {
    mknod(path, SFlag::S_IFCHR, Mode::empty(), number).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
}

/// When a process was started, in clock ticks from the boot.
pub(crate) fn start_of(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    rest.split_ascii_whitespace().nth(19).unwrap().parse().unwrap()
}
