//! Opening the coordination file, or refusing it: its name can be guessed, and by default it is in a world-writable
//! directory.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::libc::{EPERM, O_CLOEXEC, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK};
use nix::unistd::geteuid;

use crate::error::Error;
use crate::host::mounts::directory;

const WORLD_WRITABLE: u32 = 0o002;

/// What to open the file for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write {
        /// The uid of the process that shall hold units.
        owner: Option<u32>,
    },
}

/// The open file and its identity.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) inode: Inode,
}

/// What tells a file from every other one as long as it is open, whatever its path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    device: u64,
    number: u64,
}

impl Inode {
    pub(crate) fn of(found: &Metadata) -> Inode {
        Inode { device: found.dev(), number: found.ino() }
    }
}

/// Opens the existing file; `None` if there is none.
pub(crate) fn open(path: &Path, access: Access) -> Result<Option<Opened>, Error> {
    // Checked before it is opened, since opening a device or a FIFO has effects, and again afterwards.
    match fs::symlink_metadata(path) {
        Ok(found) => check(path, &found, access)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("look at", path)(error)),
    }
    let opened = OpenOptions::new()
        .read(true)
        .write(access != Access::Read)
        .custom_flags(O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)
        .open(path);
    match opened {
        Ok(file) => {
            let found = metadata(&file, path)?;
            check(path, &found, access)?;
            Ok(Some(Opened { file, inode: Inode::of(&found) }))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(denied(path, error)),
        Err(error) => Err(Error::io("open", path)(error)),
    }
}

/// Opens the file for writing, and creates it if there is none.
///
/// Uses `O_CREAT` only together with `O_EXCL`: in a sticky directory `fs.protected_regular` (proc_sys_fs(5)) makes
/// `O_CREAT` alone fail on another user's file, even for root.
pub(crate) fn open_or_create(path: &Path, access: Access) -> Result<Opened, Error> {
    loop {
        if let Some(opened) = open(path, access)? {
            return Ok(opened);
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o644).custom_flags(O_NOFOLLOW | O_CLOEXEC);
        match options.open(path) {
            Ok(file) => {
                let inode = Inode::of(&metadata(&file, path)?);
                return Ok(Opened { file, inode });
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {} // created by another process in between
            Err(error) => return Err(not_made(path, error)),
        }
    }
}

pub(crate) fn metadata(file: &File, path: &Path) -> Result<Metadata, Error> {
    file.metadata().map_err(Error::io("look at", path))
}

/// What is unsafe about a file that may still be read, for a warning.
pub(crate) fn doubts(path: &Path, found: &Metadata) -> Option<String> {
    unsafe_to_write(path, found, None).err()
}

fn check(path: &Path, found: &Metadata, access: Access) -> Result<(), Error> {
    let checked = is_file(found).and_then(|()| match access {
        Access::Read => Ok(()),
        Access::Write { owner } => unsafe_to_write(path, found, owner),
    });
    checked.map_err(|problem| Error::File { path: path.to_owned(), problem })
}

fn is_file(found: &Metadata) -> Result<(), String> {
    let kind = found.file_type();
    let problem = if kind.is_file() {
        return Ok(());
    } else if kind.is_symlink() {
        // Flink's script replaces the link with a file; path and target are then two different locks.
        "is a symbolic link; name the file that it leads to"
    } else if kind.is_dir() {
        "is a directory; name a file in it"
    } else if kind.is_fifo() {
        "is a FIFO and not a regular file; remove it or name another file"
    } else {
        "is not a regular file; name another file"
    };
    Err(problem.to_owned())
}

/// Fails if the file could be a trap: where everybody may create files, it must not be somebody else's.
fn unsafe_to_write(path: &Path, found: &Metadata, owner: Option<u32>) -> Result<(), String> {
    // In this order, since the directory of a sound file need not be looked at.
    match may_be_a_trap(found, owner) {
        Err(problem) if is_in_world_writable_directory(path) => Err(problem),
        _ => Ok(()),
    }
}

fn may_be_a_trap(found: &Metadata, owner: Option<u32>) -> Result<(), String> {
    let uid = found.uid();
    if found.nlink() > 1 {
        return Err("has another hard link, so its contents may be another file's; remove it".to_owned());
    }
    if uid != 0 && uid != geteuid().as_raw() && Some(uid) != owner {
        return Err(format!(
            "belongs to uid {uid}, which is neither root nor the caller nor the owner of the units; remove it \
             or name a file in a directory of the administrator's"
        ));
    }
    if uid != 0 && found.mode() & WORLD_WRITABLE != 0 {
        return Err(format!(
            "belongs to uid {uid} and everybody may write to it; take that right away (chmod o-w)"
        ));
    }
    Ok(())
}

fn is_in_world_writable_directory(path: &Path) -> bool {
    // A directory that cannot be looked at counts as unsafe.
    fs::metadata(directory(path)).map_or(true, |directory| directory.mode() & WORLD_WRITABLE != 0)
}

fn denied(path: &Path, error: io::Error) -> Error {
    if error.raw_os_error() == Some(EPERM) {
        let problem =
            "may not be written to by anybody, being immutable or append-only; see lsattr and chattr"
                .to_owned();
        return Error::File { path: path.to_owned(), problem };
    }
    let Ok(found) = fs::symlink_metadata(path) else { return Error::io("open", path)(error) };
    let (uid, mode, euid) = (found.uid(), found.mode() & 0o7777, geteuid());
    let problem = format!(
        "uid {euid} may not open it: it belongs to uid {uid} and has mode {mode:04o}; to share it, let the \
         administrator make it with mode 0660 and a common group"
    );
    Error::File { path: path.to_owned(), problem }
}

fn not_made(path: &Path, error: io::Error) -> Error {
    let directory = directory(path).display();
    let problem = match error.kind() {
        ErrorKind::NotFound => format!("there is no directory {directory}; make it, or name another file"),
        ErrorKind::NotADirectory => format!("{directory} is not a directory; name another file"),
        ErrorKind::PermissionDenied => {
            format!("uid {} may not make files in {directory}; name another file", geteuid())
        }
        _ => return Error::io("make", path)(error),
    };
    Error::File { path: path.to_owned(), problem }
}
