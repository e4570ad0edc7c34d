//! The lock of the coordination file: flock(2) on the file itself, which Flink's script takes as well.
//!
//! A lock belongs to an inode and not to a path. So we never replace the inode, and compare the locked inode with the
//! one that the path names, since the script replaces it (`sed -i`).
//!
//! What the lock does not promise: the script keeps writing to the new inode after it has replaced the one that it
//! locked. `ledger` waits that out.

use std::fs::{self, File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use fs2::FileExt;

use crate::coordination::file::{self, Access, Inode, Opened};
use crate::error::Error;
use crate::host::Host;
use crate::host::deadline::Deadline;

/// The first and the longest pause between two attempts: many callers at once cost little, and a released lock is taken
/// soon.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(5));

/// How long a reader waits before it reads without the lock.
const READER_WAITS: Duration = Duration::from_secs(1);

/// Opens the file with `open`, waits for its exclusive lock, and returns its metadata as of then; `None` if `open` finds
/// none. The lock belongs to the descriptor: it is released when the file is dropped or the process dies.
pub(crate) fn exclusive(
    host: &Host,
    path: &Path,
    open: impl Fn() -> Result<Option<Opened>, Error>,
    deadline: Deadline,
) -> Result<Option<(Opened, Metadata)>, Error> {
    loop {
        let Some(opened) = open()? else { return Ok(None) };
        let file = &opened.file;
        let mut pause = PAUSES.0;
        while !take(file, path, Kind::Exclusive)? {
            if deadline.has_passed() {
                return Err(deadline.error(held_by(host, file, path)));
            }
            thread::sleep(pause.min(deadline.left()));
            pause = (pause * 2).min(PAUSES.1);
        }
        if let Some(found) = named(opened.inode, path)? {
            return match forsaken(host, path, &found) {
                Some(problem) => Err(Error::File { path: path.to_owned(), problem }),
                None => Ok(Some((opened, found))),
            };
        }
        // Locked, but the path names another file by now, which others lock.
        if deadline.has_passed() {
            return Err(deadline.error(format!("{} to stay one file", path.display())));
        }
    }
}

/// Opens the file for reading and waits for its shared lock for a second. `false`: without the lock.
pub(crate) fn shared(path: &Path, deadline: Deadline) -> Result<Option<(File, bool)>, Error> {
    let patience = Deadline::after(READER_WAITS.min(deadline.left()));
    loop {
        let Some(Opened { file, inode }) = file::open(path, Access::Read)? else { return Ok(None) };
        while !take(&file, path, Kind::Shared)? {
            if patience.has_passed() {
                return Ok(Some((file, false)));
            }
            thread::sleep(PAUSES.1);
        }
        let is_named = named(inode, path)?.is_some();
        if is_named || patience.has_passed() {
            return Ok(Some((file, is_named)));
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Exclusive,
    Shared,
}

/// One attempt, which does not wait.
#[expect(clippy::disallowed_methods, reason = "the one place that takes the lock")]
fn take(file: &File, path: &Path, kind: Kind) -> Result<bool, Error> {
    loop {
        let tried = match kind {
            Kind::Exclusive => FileExt::try_lock_exclusive(file),
            Kind::Shared => FileExt::try_lock_shared(file),
        };
        match tried {
            Ok(()) => return Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() == Some(nix::libc::ENOLCK) => {
                let problem =
                    "its file system gives no locks (ENOLCK); name a file on a local disk".to_owned();
                return Err(Error::File { path: path.to_owned(), problem });
            }
            // A file system without locks is refused: without the lock the file would be useless.
            Err(error) => return Err(Error::io("lock", path)(error)),
        }
    }
}

/// The metadata of the locked file, if `path` still names it.
pub(crate) fn named(locked: Inode, path: &Path) -> Result<Option<Metadata>, Error> {
    match fs::symlink_metadata(path) {
        Ok(named) => Ok(Some(named).filter(|named| Inode::of(named) == locked)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("look at", path)(error)),
    }
}

/// Why nobody else locks the file that `path` names, although it does. A file that is mounted alone, as into a
/// container, goes on being named there after the host has removed or replaced it, as Flink's script does; without a
/// name of its own it can be mounted nowhere else.
pub(super) fn forsaken(host: &Host, path: &Path, found: &Metadata) -> Option<String> {
    // Some file systems of programs count no names.
    if found.nlink() > 0 || !host.is_mounted_alone(path) {
        return None;
    }
    let problem = "was removed or replaced where it was mounted from, so that it coordinates with nothing outside; \
                   mount its directory and not the file alone, or mount it again";
    Some(problem.to_owned())
}

/// The lock, and who keeps it.
fn held_by(host: &Host, file: &File, path: &Path) -> String {
    const LOOKS_FOR: Duration = Duration::from_millis(400); // past the deadline, to say why
    let holder = file.metadata().ok().and_then(|found| host.lock_holder(&found, Deadline::after(LOOKS_FOR)));
    let holder = match holder {
        Some(holder) => format!("pid {} ({})", holder.pid, holder.command),
        None => "a process that cannot be seen from here".to_owned(),
    };
    format!("the lock on {}, which is held by {holder}", path.display())
}
