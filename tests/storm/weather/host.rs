//! A host: its devices, how they are shared, who is limited, and the record of who holds them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::random::Random;
use super::{GPU_COORD, Script};

/// A device by its index, and one of its shares.
pub(crate) type Unit = (u32, u32);

/// Of the owners that are limited.
pub(crate) const NAMESPACE: &str = "limited";

pub(crate) struct Host {
    directory: TempDir,
    pub(crate) devices: u32,
    pub(crate) shares: u32,
    /// How many units those in the namespace may hold at a time.
    pub(crate) limit: usize,
    /// Whether a line of another boot is known to be of this host.
    pub(crate) is_on_local_disk: bool,
}

impl Host {
    pub(crate) fn new(random: &mut Random, script: Option<&Script>) -> Host {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("coordination"), "").unwrap();
        let is_on_local_disk = is_on_local_disk(directory.path());
        let (devices, shares) = match script {
            Some(script) => (script.units, 1),
            None => random.of_these(&[(4, 1), (16, 1), (64, 1), (200, 1), (4, 3), (20, 2)]),
        };
        let limit = devices as usize / 4 + 1;
        let host = Host { directory, devices, shares, limit, is_on_local_disk };
        let sharing = match shares {
            1 => String::new(),
            _ => format!(
                "sharing:\n  timeSlicing:\n    resources:\n      - {{name: nvidia.com/gpu, replicas: {shares}}}\n"
            ),
        };
        let quotas = format!("gpu-coord:\n  quotas:\n    {NAMESPACE}: {{nvidia.com/gpu: {limit}}}\n");
        std::fs::write(host.config(), format!("version: v1\n{sharing}{quotas}")).unwrap();
        host
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("coordination")
    }

    fn config(&self) -> PathBuf {
        self.directory.path().join("config.yaml")
    }

    pub(crate) fn units(&self) -> BTreeSet<Unit> {
        let shares = self.shares;
        (0..self.devices).flat_map(|device| (0..shares).map(move |share| (device, share))).collect()
    }

    /// gpu-coord with these words. Nothing is to depend on how busy the machine is.
    pub(crate) fn program(&self, words: &str) -> Command {
        let mut command = Command::new(GPU_COORD);
        command.env_clear().args(words.split(' ')).arg("--coordination-file").arg(self.file());
        command.args(["--deadline", "100", "--log", "none"]);
        if words != "deallocateAll" {
            command.args(["--source", &format!("simulated:{}", self.devices)]);
            command.arg("--config").arg(self.config());
        }
        command
    }
}

/// As far as the program believes it.
fn is_on_local_disk(path: &Path) -> bool {
    let output = Command::new("stat").args(["--file-system", "--format=%T"]).arg(path).output().unwrap();
    let kind = String::from_utf8(output.stdout).unwrap();
    ["ext2/ext3", "xfs", "btrfs", "f2fs", "zfs", "jfs", "reiserfs"].contains(&kind.trim())
}
