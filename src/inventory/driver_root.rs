//! Where NVIDIA's library is, below the root of this machine or of a driver that is installed apart from it.

use std::path::{Path, PathBuf};

pub(super) const NAME: &str = "libnvidia-ml.so.1";
/// Below either root; directories for 64 bits come first. `usr/lib/wsl/lib` is WSL's, where the kernel has no driver of
/// NVIDIA's.
pub(super) const DIRECTORIES: [&str; 9] = [
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib/wsl/lib",
    "usr/lib",
    "lib",
];

/// NVML's library below the root of a driver.
pub(super) fn below(root: &Path) -> Option<PathBuf> {
    DIRECTORIES.iter().map(|directory| root.join(directory).join(NAME)).find(|path| path.exists())
}
