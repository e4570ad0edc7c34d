//! The control daemon of NVIDIA's Multi-Process Service, as seen in its pipe directory.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::unistd::geteuid;

/// Whether a daemon listens on `control` in the directory: a FIFO that somebody reads or a socket that accepts
/// connections, depending on the version. A file that belongs neither to root nor to us is not opened: it may be a
/// device, and opening a device can have effects.
pub(crate) fn answers(directory: &Path) -> bool {
    let control = directory.join("control");
    let mut options = OpenOptions::new();
    let found = options.read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(&control);
    let Ok((found, metadata)) = found.and_then(|found| found.metadata().map(|metadata| (found, metadata)))
    else {
        return false;
    };
    let is_trusted = metadata.uid() == 0 || metadata.uid() == geteuid().as_raw();
    let kind = metadata.file_type();
    if is_trusted && kind.is_socket() {
        return [SockType::Stream, SockType::SeqPacket]
            .into_iter()
            .any(|kind| accepts(&control, kind).is_ok());
    }
    is_trusted && kind.is_fifo() && is_read(&found)
}

/// A FIFO opens for writing without waiting only if somebody has it open for reading (fifo(7)). Opened by its descriptor,
/// so that it is the file that was checked.
fn is_read(fifo: &File) -> bool {
    let mut options = OpenOptions::new();
    let by_descriptor = format!("/proc/self/fd/{}", fifo.as_raw_fd());
    options.write(true).custom_flags(libc::O_NONBLOCK).open(by_descriptor).is_ok()
}

/// Does not block: a daemon that accepts nobody any more could make a connect wait forever.
fn accepts(control: &Path, kind: SockType) -> nix::Result<()> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, kind, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(control)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use nix::sys::socket::{Backlog, bind, listen};

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn a_daemon_is_there_if_somebody_listens() {
        let directory = tempfile::tempdir().unwrap();
        let control = directory.path().join("control");
        assert!(!answers(directory.path()), "nothing there");
        mkfifo(&control, Mode::S_IRWXU).unwrap();
        assert!(!answers(directory.path()), "nobody reads");
        let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&control).unwrap();
        assert!(answers(directory.path()));
        drop(reader);
        std::fs::remove_file(&control).unwrap();
        let listener = UnixListener::bind(&control).unwrap();
        assert!(answers(directory.path()));
        drop(listener);
        assert!(!answers(directory.path()), "what a dead one left");
        std::fs::remove_file(&control).unwrap();
        std::fs::write(&control, "").unwrap();
        assert!(!answers(directory.path()), "a plain file");
        std::fs::remove_file(&control).unwrap();
        std::os::unix::fs::symlink("/dev/null", &control).unwrap();
        assert!(!answers(directory.path()), "a link");
    }

    /// Of either kind; and one that accepts nobody keeps nobody waiting.
    #[test]
    fn a_socket_is_asked_without_waiting() {
        for kind in [SockType::Stream, SockType::SeqPacket] {
            let directory = tempfile::tempdir().unwrap();
            let listener = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None).unwrap();
            let address = UnixAddr::new(&directory.path().join("control")).unwrap();
            bind(listener.as_raw_fd(), &address).unwrap();
            listen(&listener, Backlog::new(0).unwrap()).unwrap();
            assert!(answers(directory.path()), "{kind:?}");
            let clients: Vec<_> = (0..9).map(|_| accepts(&directory.path().join("control"), kind)).collect();
            assert!(clients.contains(&Err(nix::Error::EAGAIN)), "{kind:?}");
            assert!(!answers(directory.path()), "{kind:?}: nobody is accepted any more");
        }
    }
}
