//! The host: the only code that names `/proc`, `/sys` and `/dev`.
//!
//! Everything is read below a host root, which is `/` unless `--root` says otherwise, so that a host made
//! of files, or another host's mounted root, is read by the same code.

pub(crate) mod deadline;

use std::path::{Path, PathBuf};

/// A host, named by the directory below which its `/proc`, `/sys` and `/dev` are.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    root: PathBuf,
}

impl Host {
    pub(crate) fn new(root: &Path) -> Host {
        Host { root: root.to_owned() }
    }

    /// Whether this is the host that the program runs on, so that system calls speak of it too.
    pub(crate) fn is_here(&self) -> bool {
        self.root == Path::new("/")
    }

    /// A path below `/proc`.
    pub(crate) fn proc(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join("proc").join(relative)
    }

    /// A path below `/dev`.
    pub(crate) fn dev(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join("dev").join(relative)
    }
}
