//! An owner in a pid namespace of its own, and the program run beside it there.
//!
//! `/proc` has few processes there, so that every run makes the same calls.

use std::fs;
use std::process::{Command, Stdio};

use super::cell::{Version, members};
use super::owner::Owner;
use super::stage::{Stage, start_of};
use crate::sandbox::PROGRAM;

/// What the owner is called inside; the first is the one that waits for it.
const OWNER: u32 = 2;
const INSIDE: &[&str] =
    &["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", "setsid -w bash; exit"];

pub(crate) struct Container {
    pub(crate) owner: Owner,
    pub(crate) stage: Stage,
    /// The owner as it is called outside.
    pub(crate) pid: u32,
}

impl Container {
    pub(crate) fn new(version: Version) -> Container {
        let stage = Stage::with_gpus(version, 3);
        let mut owner = stage.owner_by(INSIDE);
        assert_eq!(owner.tell("echo $$"), format!("{OWNER}\n"));
        let child = |pid: u32| -> u32 {
            let path = format!("/proc/{pid}/task/{pid}/children");
            fs::read_to_string(path).unwrap().trim().parse().unwrap()
        };
        let pid = child(child(owner.pid()));
        stage.cell.take(pid);
        Container { stage, owner, pid }
    }

    pub(crate) fn allocate(&self) -> String {
        let word = self.stage.cell.version.word();
        format!("allocate 1 --cgroup={word} --print host-index --owner {OWNER}")
    }

    pub(crate) fn deallocate(&self) -> String {
        format!("deallocateAll --owner {OWNER}")
    }

    /// The program in the namespace of the owner, under strace with these options.
    pub(crate) fn traced(&self, options: &[&str], line: &str) -> Command {
        let mut command = Command::new("nsenter");
        self.stage.environment(&mut command);
        command.args(["-p", "-m", "-t", &self.pid.to_string(), "strace", "-qq"]).args(options);
        command.args(["--", PROGRAM]).args(line.split(' ')).stdin(Stdio::null());
        // It would be looked for where the namespace begins.
        command.env("GPU_COORD_COORDINATION_FILE", self.stage.sandbox.file());
        command.env("GPU_COORD_SOURCE", format!("file:{}/devices.json", self.stage.sandbox.path().display()));
        command
    }

    #[track_caller]
    pub(crate) fn answers(&self, line: &str, stdout: &str) {
        let output = self.traced(&["-o", "/dev/null", "-e", "trace=none"], line).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        assert_eq!((text(output.stdout), text(output.stderr)), (stdout.to_owned(), String::new()), "{line}");
        assert!(output.status.success(), "{line}");
    }

    pub(crate) fn is_confined(&self) -> bool {
        self.stage.cell.version.path_of(self.pid) != self.stage.cell.path
    }

    pub(crate) fn is_recorded(&self) -> bool {
        !self.stage.sandbox.holders().is_empty()
    }

    /// As before the first call.
    #[track_caller]
    pub(crate) fn assert_free(&mut self, case: &str) {
        let name = format!("gpu-coord-{OWNER}-{}", start_of(self.pid));
        let left = members(&self.stage.cell.directory.join(name));
        assert!(!self.is_confined() && left.is_empty(), "{case}: {left:?}");
        assert_eq!(self.stage.cell.children(), [""; 0], "{case}");
        assert_eq!(self.owner.reach(), "+++", "{case}");
    }

    pub(crate) fn forget(&self) {
        let _ = fs::remove_file(self.stage.sandbox.file());
    }
}
