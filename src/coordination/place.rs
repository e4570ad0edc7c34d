//! Whether what is written at a path is seen by the processes that it is written for.

use std::path::Path;

use crate::coordination::file::directory;
use crate::error::Error;
use crate::host::Host;
use crate::notes::Notes;

/// Whether the file may be served by another host or by a program, so that to look at it may hang. Told
/// without looking.
pub(crate) fn may_hang(host: &Host, path: &Path) -> bool {
    let Ok(absolute) = std::path::absolute(path) else { return false };
    let mount = host.mounts().and_then(|mounts| mounts.covering(&absolute));
    mount.is_some_and(|mount| mount.is_network())
}

/// Refuses a path that only this systemd unit sees, and warns of one that only this container sees.
pub(crate) fn check(host: &Host, path: &Path, notes: &mut Notes) -> Result<(), Error> {
    let Ok(directory) = directory(path).canonicalize() else { return Ok(()) };
    if host.is_private(&directory) {
        let problem = "is private to this systemd unit (PrivateTmp=, DynamicUser=), so that it coordinates with nothing \
                       outside; set PrivateTmp=no, or name a file in /run or /var/lib with --coordination-file"
            .to_owned();
        return Err(Error::File { path: path.to_owned(), problem });
    }
    let mount = host.mounts().and_then(|mounts| mounts.covering(&directory));
    if mount.is_some_and(|mount| mount.is_container_root()) {
        notes.warn(format!(
            "{} is on this container's own file system, so that it coordinates with nothing outside; mount the \
             host's file there",
            path.display()
        ));
    }
    Ok(())
}
