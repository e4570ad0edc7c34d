//! The control daemon of NVIDIA's Multi-Process Service, as it is seen in its pipe directory.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

/// Whether a daemon listens on `control` of the directory: a FIFO that somebody reads, or a socket that somebody
/// accepts on, as versions have it.
pub(crate) fn answers(directory: &Path) -> bool {
    let control = directory.join("control");
    let Ok(metadata) = std::fs::metadata(&control) else { return false };
    if metadata.file_type().is_socket() {
        return [SockType::Stream, SockType::SeqPacket]
            .into_iter()
            .any(|kind| accepts(&control, kind).is_ok());
    }
    // Without waiting, a FIFO opens for writing only if it is open for reading (fifo(7)).
    let mut options = OpenOptions::new();
    let opened = options.write(true).custom_flags(libc::O_NONBLOCK).open(&control);
    metadata.file_type().is_fifo() && opened.is_ok()
}

/// Without waiting, which a daemon that accepts nobody any more could make last for ever.
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
