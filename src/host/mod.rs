//! The host: the only code that names `/proc`, `/sys` and `/dev`.
//!
//! Everything is read below a host root, which is `/` unless `--root` says otherwise, so that a host made
//! of files, or another host's mounted root, is read by the same code.

pub(crate) mod account;
pub(crate) mod boot;
mod bounded;
pub(crate) mod capability;
pub(crate) mod child;
pub(crate) mod deadline;
pub(crate) mod disk;
pub(crate) mod embedded;
pub(crate) mod events;
pub(crate) mod execute;
pub(crate) mod file;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod holder;
pub(crate) mod journal;
pub(crate) mod liveness;
pub(crate) mod mounts;
pub(crate) mod mps;
pub(crate) mod namespace;
pub(crate) mod node;
pub(crate) mod owner;
mod pidfd;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod wrapper;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::mem::{self, ManuallyDrop};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::SystemTime;

use bounded::Bounded;
use mounts::Mounts;
use process::Process;

use crate::error::Error;

/// A host, identified by the directory below which its `/proc`, `/sys` and `/dev` are.
#[derive(Debug)]
pub(crate) struct Host {
    root: PathBuf,
    /// Not dropped by a run with a single `Host`: when a program ends, the kernel frees all of its memory at once, which
    /// is faster than freeing one string after the other.
    found: ManuallyDrop<Findings>,
    is_one_of_many: bool,
}

/// What does not change during a run. Each is read when it is first needed.
#[derive(Debug, Default)]
struct Findings {
    /// What is wrong with `/proc`, if anything.
    proc_problem: OnceLock<Option<String>>,
    pid_namespace: OnceLock<Option<u64>>,
    time_offset: OnceLock<Option<i64>>,
    boot_id: OnceLock<Option<String>>,
    btime: OnceLock<Option<SystemTime>>,
    began: OnceLock<Option<SystemTime>>,
    mounts: OnceLock<Option<Mounts>>,
    /// What could not be read for a moment, with its errno; another run could read it.
    unread: OnceLock<(PathBuf, i32)>,
    processes: RefCell<HashMap<u32, Process>>,
    command_lines: RefCell<HashMap<u32, Option<String>>>,
    /// Of all that come one after the other: what hangs is left behind once.
    bounded: Rc<Bounded>,
    /// The one process that is looked at again, and its open `stat`.
    watched: RefCell<Option<(u32, Rc<File>)>>,
}

impl Host {
    pub(crate) fn new(root: &Path) -> Host {
        Host { root: root.to_owned(), found: ManuallyDrop::default(), is_one_of_many: false }
    }

    /// For a run that looks repeatedly, each time with a new `Host`, whose memory is then freed.
    pub(crate) fn one_of_many(root: &Path) -> Host {
        let mut host = Host::new(root);
        host.is_one_of_many = true;
        host
    }

    /// The host for the next look, which knows nothing of what this one found out.
    pub(crate) fn again(&self) -> Host {
        let mut host = Host::one_of_many(&self.root);
        host.found.bounded = Rc::clone(&self.found.bounded);
        host
    }

    /// Whether the run will create further ones.
    pub(crate) fn is_one_of_many(&self) -> bool {
        self.is_one_of_many
    }

    /// Whether this is the host that the program runs on, so that system calls refer to it too.
    pub(crate) fn is_here(&self) -> bool {
        self.root == Path::new("/")
    }

    /// What was read at `path`, if it could be read. A file that does not exist, or that we may not read, will be so the
    /// next time as well; a failure that may pass is kept for [`Host::check_read`].
    pub(crate) fn noted<T>(&self, path: &Path, result: io::Result<T>) -> Option<T> {
        const PASSING: [i32; 6] =
            [libc::EAGAIN, libc::EINTR, libc::EIO, libc::EMFILE, libc::ENFILE, libc::ENOMEM];
        let passing = |error: &io::Error| error.raw_os_error().filter(|errno| PASSING.contains(errno));
        if let Some(errno) = result.as_ref().err().and_then(passing) {
            let _ = self.found.unread.set((path.to_owned(), errno));
        }
        result.ok()
    }

    /// Fails if something is unknown that the next run might know: our boot or namespace, without which a recorded owner
    /// could not be told from others or not be found, or the control groups.
    pub(crate) fn check_read(&self) -> Result<(), Error> {
        match self.found.unread.get() {
            None => Ok(()),
            Some((path, errno)) => Err(Error::io("read", path)(io::Error::from_raw_os_error(*errno))),
        }
    }

    /// A path below the root.
    pub(crate) fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    /// A path below `/proc`.
    pub(crate) fn proc(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join("proc").join(relative)
    }

    /// A path below `/sys`.
    pub(crate) fn sys(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join("sys").join(relative)
    }

    /// A path below `/dev`.
    pub(crate) fn dev(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join("dev").join(relative)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.is_one_of_many {
            drop(ManuallyDrop::into_inner(mem::take(&mut self.found)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The open `stat` tells: a run that waits for a year must not keep one for each look.
    #[test]
    fn what_one_of_many_found_is_given_back() {
        let stat = Path::new("/proc").join(std::process::id().to_string()).join("stat");
        let open = || {
            let links = fs::read_dir("/proc/self/fd").unwrap().flatten();
            links.filter(|link| fs::read_link(link.path()).is_ok_and(|target| target == stat)).count()
        };
        let before = open();
        for host in [Host::one_of_many(Path::new("/")), Host::new(Path::new("/"))] {
            let is_given_back = host.is_one_of_many();
            host.watched_process(std::process::id()).unwrap();
            assert_eq!(open(), before + 1);
            drop(host);
            assert_eq!(open() == before, is_given_back);
        }
    }
}
