//! What `--cgroup` costs, set against the same allocation without it: 8 devices, of which the owner is given 2.
//!
//! `cargo bench --bench isolate`, as root: it makes device nodes below `/dev` that no driver answers for, and control
//! groups below that of a process of its own.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on ends")]
#![expect(clippy::print_stdout, reason = "the figures are its output")]

#[path = "../allocate/measure.rs"]
#[expect(dead_code, reason = "the other benchmark uses more of it")]
mod measure;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use measure::{alternate, run};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

const PROGRAM: &str = env!("CARGO_BIN_EXE_gpu-coord");
const ROUNDS: usize = 100;
/// A major that no driver of this machine has.
const MAJOR: u64 = 195;

/// Device nodes, and what lists them.
struct Host {
    nodes: PathBuf,
    directory: tempfile::TempDir,
    owner: Child,
}

impl Host {
    fn new() -> Host {
        let nodes = PathBuf::from(format!("/dev/gpu-coord-bench-{}", std::process::id()));
        fs::create_dir(&nodes).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let device = |number: u64| {
            let node = nodes.join(format!("gpu{number}"));
            mknod(&node, SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), makedev(MAJOR, number)).unwrap();
            format!("{{\"id\": \"{number}\", \"nodes\": [\"{}\"]}}", node.display())
        };
        let devices: Vec<String> = (0..8).map(device).collect();
        let inventory = format!("{{\"devices\": [{}]}}", devices.join(","));
        fs::write(directory.path().join("devices.json"), inventory).unwrap();
        let owner = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        Host { nodes, directory, owner }
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.env_clear().current_dir(self.directory.path()).args(words.split(' '));
        command.args([
            "--coordination-file",
            "record",
            "--log",
            "none",
            "--owner",
            &self.owner.id().to_string(),
        ]);
        command
    }

    fn allocate(&self, options: &[&str]) -> Command {
        let mut command = self.command("allocate 2 --source file:devices.json");
        command.args(options);
        command
    }

    fn give_back(&self) {
        run(&mut self.command("deallocateAll"));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.give_back();
        let _ = self.owner.kill();
        let _ = self.owner.wait();
        let _ = fs::remove_dir_all(&self.nodes);
    }
}

fn main() {
    if !nix::unistd::geteuid().is_root() {
        return println!("it needs root, as isolation does");
    }
    let host = Host::new();
    let prepare = || host.give_back();
    for version in ["v1", "v2"] {
        let option = format!("--cgroup={version}");
        if !is_there(version) {
            println!("cgroup {version} is not mounted here");
            continue;
        }
        let (mut without, mut with) = (host.allocate(&[]), host.allocate(&[&option]));
        let [without, with] = alternate(ROUNDS, [(&prepare, &mut without), (&prepare, &mut with)]);
        println!("allocate 2 of 8: {without}; with {option}: {with}");
        println!(
            "  it costs {:.2} ms more, {:.1} times\n",
            (with.wall - without.wall) * 1e3,
            with.wall / without.wall
        );
    }
}

fn is_there(version: &str) -> bool {
    let kind = if version == "v1" { " - cgroup cgroup rw,devices" } else { " - cgroup2 " };
    fs::read_to_string(Path::new("/proc/self/mountinfo")).unwrap().contains(kind)
}
