//! A host whose NVML is a library of our own (`fake_nvml.c`), which does what its environment says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

use crate::sandbox::PROGRAM;

/// The root of a driver whose NVML is the fake one: of a driver of today, or of 2017.
fn driver(is_old: bool) -> &'static Path {
    static ROOTS: [OnceLock<PathBuf>; 2] = [OnceLock::new(), OnceLock::new()];
    ROOTS[usize::from(is_old)].get_or_init(|| compile(is_old))
}

fn compile(is_old: bool) -> PathBuf {
    let root =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(if is_old { "fake-nvml-old" } else { "fake-nvml" });
    fs::create_dir_all(root.join("usr/lib64")).unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/integration/fake_nvml/fake_nvml.c");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", source]);
    cc.args(is_old.then_some("-DOLD")).arg("-o").arg(root.join("usr/lib64/libnvidia-ml.so.1"));
    assert!(cc.status().unwrap().success());
    root
}

/// A host with that NVML and nothing else, to which a test adds what it needs.
#[must_use = "nothing is checked until the program is run"]
pub(crate) struct Host {
    directory: TempDir,
    pub(crate) driver: PathBuf,
    settings: Vec<(&'static str, String)>,
}

impl Host {
    pub(crate) fn new() -> Host {
        Host {
            directory: tempfile::tempdir().unwrap(),
            driver: driver(false).to_owned(),
            settings: Vec::new(),
        }
    }

    pub(crate) fn old() -> Host {
        Host { driver: driver(true).to_owned(), ..Host::new() }
    }

    /// One of the fake's settings, by the rest of its name.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Host {
        self.settings.push((name, value.into()));
        self
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.directory.path().join(relative)
    }

    /// `program`, told of the fakes.
    pub(crate) fn environment(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(self.directory.path());
        command.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.path("bin").display()));
        command.envs(self.settings.iter().map(|(name, value)| (format!("FAKE_NVML_{name}"), value)));
        command
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = self.environment(PROGRAM);
        command.args(line.split_ascii_whitespace()).arg("--driver-root").arg(&self.driver);
        command
    }

    #[track_caller]
    pub(crate) fn run(&self, line: &str) -> Answer {
        Answer::of(&self.command(line).output().unwrap())
    }

    /// What `devices --json` prints.
    #[track_caller]
    pub(crate) fn devices(&self) -> Value {
        self.run("devices --json --source nvml").json()
    }

    /// A refusal prints nothing on stdout and one line on stderr.
    #[track_caller]
    pub(crate) fn refuses(&self, line: &str, status: i32, says: &str) {
        self.run(line).refuses(status, says);
    }

    /// Puts a tool in the place of the vendor's. Written by another process: a descriptor of ours that is open
    /// for writing would be inherited for a moment by what other tests start, and the tool could not be run.
    pub(crate) fn smi(self, script: &str) -> Host {
        fs::create_dir_all(self.path("bin")).unwrap();
        let write = r#"printf '#!/bin/sh\n%s\n' "$1" > bin/nvidia-smi; chmod 755 bin/nvidia-smi"#;
        let written = self.environment("sh").args(["-c", write, "sh", script]).status().unwrap();
        assert!(written.success());
        self
    }

    /// The program, where the kernel has the driver with these cards: below its own mounts, as root alone can.
    pub(crate) fn with_kernel_driver(&self, cards: &[&str], line: &str) -> Command {
        const MOUNT: &str = r#"mount -t tmpfs tmpfs /proc/driver && mkdir -p /proc/driver/nvidia/gpus || exit 99
            minor=0
            for card in $CARDS; do
                mkdir "/proc/driver/nvidia/gpus/$card"
                printf 'Model: Fake\nDevice Minor: %s\n' $minor > "/proc/driver/nvidia/gpus/$card/information"
                minor=$((minor + 1))
            done
            exec "$@""#;
        let mut command = self.environment("unshare");
        command.env("CARDS", cards.join(" ")).env("LD_LIBRARY_PATH", self.driver.join("usr/lib64"));
        command.args(["--mount", "sh", "-c", MOUNT, "sh", PROGRAM]).args(line.split_ascii_whitespace());
        command
    }
}

/// How the program ended.
pub(crate) struct Answer {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Answer {
    pub(crate) fn of(output: &Output) -> Answer {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Answer { status: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, Some(0), "{}", self.stderr);
        serde_json::from_str(&self.stdout).unwrap()
    }

    #[track_caller]
    pub(crate) fn refuses(&self, status: i32, says: &str) {
        let Answer { stdout, stderr, .. } = self;
        assert!(stderr.starts_with("gpu-coord: ") && stderr.contains(says), "{says}: {stderr}");
        assert_eq!((self.status, stdout.as_str(), stderr.lines().count()), (Some(status), "", 1), "{stderr}");
        assert!(!stderr.trim_end().contains(char::is_control), "{stderr:?}");
    }
}
