//! A host made of files: `/proc`, `/sys` and `/dev` below `root`, the vendors' tools as scripts in `bin`, and
//! the program that reads them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use assert_cmd::assert::Assert;
use serde_json::Value;
use tempfile::TempDir;

use crate::sandbox::PROGRAM;

/// Longer than every deadline that is used with it.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(60);

/// A host without a GPU, to which a test adds what it needs.
#[must_use = "nothing is checked until the program is run"]
pub(crate) struct Tree {
    directory: TempDir,
}

impl Tree {
    pub(crate) fn new() -> Tree {
        let tree = Tree { directory: tempfile::tempdir().unwrap() };
        fs::create_dir_all(tree.path("root/proc")).unwrap();
        fs::create_dir_all(tree.path("bin")).unwrap();
        tree
    }

    pub(crate) fn file(self, path: &str, text: &str) -> Tree {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub(crate) fn tool(self, name: &str, script: &str) -> Tree {
        write_script(&self.path("bin").join(name), script);
        self
    }

    /// Adds a card to the list of NVIDIA's kernel driver.
    pub(crate) fn card(self, address: &str, information: &str) -> Tree {
        self.file(&format!("root/proc/driver/nvidia/gpus/{address}/information"), information)
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.directory.path().join(relative)
    }

    /// PATH: the fakes first, then what their scripts call.
    pub(crate) fn search_path(&self) -> String {
        format!("{}:/usr/bin:/bin", self.path("bin").display())
    }

    /// The program, for this host.
    pub(crate) fn program(&self, words: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.env_clear().env("PATH", self.search_path()).current_dir(self.directory.path());
        command.args(words).args(["--root", "root"]);
        command
    }

    pub(crate) fn command(&self, words: &[&str]) -> assert_cmd::Command {
        let mut command = assert_cmd::Command::from_std(self.program(words));
        command.timeout(FOR_EVER);
        command
    }

    /// `devices`.
    pub(crate) fn run(&self, args: &[&str]) -> Assert {
        self.command(&[&["devices"], args].concat()).assert()
    }

    /// What `devices` writes to stderr beside its answer.
    #[track_caller]
    pub(crate) fn notes(&self, args: &[&str]) -> String {
        String::from_utf8(self.run(args).success().get_output().stderr.clone()).unwrap()
    }

    /// A refusal prints nothing on stdout and one line on stderr.
    #[track_caller]
    pub(crate) fn refuses(&self, args: &[&str], status: i32, says: &str) {
        let assert = self.run(args).code(status).stdout("");
        let stderr = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
        assert!(stderr.starts_with("gpu-coord: ") && stderr.contains(says), "{says}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(!stderr.trim_end().contains(char::is_control), "{stderr:?}");
    }

    /// What `devices --json` prints.
    #[track_caller]
    pub(crate) fn devices(&self, args: &[&str]) -> Value {
        let assert = self.run(&[&["--json"], args].concat()).success();
        serde_json::from_slice(&assert.get_output().stdout).unwrap()
    }
}

/// Written by another process: a descriptor of ours that is open for writing would be inherited for a
/// moment by what other tests start, and a file that is open for writing cannot be run.
pub(crate) fn write_script(path: &Path, script: &str) {
    let mut shell = Command::new("sh")
        .args(["-c", "cat > \"$0\"; chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    shell.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
}
