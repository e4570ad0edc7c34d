//! What a configuration file says: devices that several owners share, what units are called, and quotas.

mod configuration;
mod crowd;
mod mig;
mod model;
mod mps;
mod quotas;
mod shares;
mod shown;

use std::fs;
use std::process::Command;

use assert_cmd::assert::Assert;

use crate::record::{Held, held_in};
use crate::sandbox::{PROGRAM, Process, Sandbox};

/// A host of simulated GPUs with a configuration file.
pub(super) struct Host {
    pub(super) sandbox: Sandbox,
}

impl Host {
    pub(super) fn new(gpus: u32, config: &str) -> Host {
        let host = Host { sandbox: Sandbox::with_gpus(gpus) };
        host.configure(config);
        host
    }

    pub(super) fn configure(&self, config: &str) {
        fs::write(self.sandbox.path().join("config.yaml"), config).unwrap();
    }

    /// To be started and not waited for.
    pub(super) fn program(&self, line: &str) -> Command {
        let mut command = self.sandbox.program(line);
        command.env("GPU_COORD_CONFIG", "config.yaml");
        command
    }

    pub(super) fn command(&self, line: &str) -> assert_cmd::Command {
        let mut command = self.sandbox.command(line);
        command.env("GPU_COORD_CONFIG", "config.yaml");
        command
    }

    #[track_caller]
    pub(super) fn answers(&self, line: &str, stdout: &str) {
        self.command(line).assert().code(0).stderr("").stdout(stdout.to_owned());
    }

    #[track_caller]
    pub(super) fn refuses(&self, line: &str, status: i32, problem: &str) -> Assert {
        self.command(line).assert().code(status).stdout("").stderr(format!("gpu-coord: {problem}\n"))
    }

    /// Gives what the words ask for to a new owner.
    #[track_caller]
    pub(super) fn owner_of(&self, words: &str, stdout: &str) -> Process {
        let owner = Process::start();
        self.answers(&format!("allocate {words} --owner {}", owner.pid()), stdout);
        owner
    }

    #[track_caller]
    pub(super) fn release(&self, owner: &Process) {
        self.answers(&format!("deallocateAll --owner {}", owner.pid()), "");
    }

    /// `gpu-coord exec`, of which the words are said before `--`.
    pub(super) fn exec(&self, words: &str, command: &[&str]) -> Command {
        let mut exec = Command::new(PROGRAM);
        exec.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").current_dir(self.sandbox.path());
        exec.arg("exec").args(words.split_ascii_whitespace());
        exec.args(["--config", "config.yaml", "--coordination-file", "coordination", "--"]).args(command);
        exec
    }

    pub(super) fn held(&self) -> Vec<Held> {
        held_in(&self.sandbox.file())
    }

    /// Index and slot of what is held, in order.
    pub(super) fn shares(&self) -> Vec<(u32, Option<u32>)> {
        let mut shares: Vec<_> = self.held().iter().map(|held| (held.index, held.slot)).collect();
        shares.sort_unstable();
        shares
    }
}

/// Time slicing of all GPUs.
pub(super) fn sliced(replicas: u32) -> String {
    format!(
        "version: v1\nsharing: {{timeSlicing: {{resources: [{{name: nvidia.com/gpu, replicas: {replicas}}}]}}}}\n"
    )
}

/// What all that is asked for is held by.
pub(super) fn none_free(all: usize) -> String {
    format!(
        "1 unit asked for, 0 of {all} can be given: {all} held by living owners (`gpu-coord status` names them)"
    )
}
