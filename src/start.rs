//! What Rust's runtime does before `main`, as far as it is needed here.
//!
//! The runtime also reads `/proc/self/maps` to tell a stack overflow from other faults, which takes a twentieth of a
//! run. Without that an overflow still ends the program with the same signal, only with a shorter message.

#![expect(unsafe_code, reason = "to set a signal handler and to open a chosen descriptor have no safe form")]

use std::process::abort;

use nix::errno::Errno;
use nix::sys::signal::{SigHandler, Signal, signal};

/// The state of standard output when the program was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// It was closed, and `/dev/null` has been opened in its place: what is written there would be lost unnoticed.
    Closed,
    /// It accepts an answer without waiting, if it is open for writing.
    Ready,
    /// It may have to be waited for.
    Open,
}

/// Ignores SIGPIPE and opens closed standard streams. Must be called before anything else.
pub(crate) fn prepare() -> Output {
    // SAFETY: no handler is installed. A missing reader shall be an error of write(2) and not end the program.
    let ignored = unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) };
    let streams = polled();
    // poll(2) reports POLLNVAL for a descriptor opened with O_PATH too, although it is open.
    let were_closed = streams.map(|stream| stream.revents & libc::POLLNVAL != 0 && is_closed(stream.fd));
    let mut closed = (0..3).zip(were_closed).filter(|(_, was_closed)| *was_closed);
    if ignored.is_err() || !closed.all(|(stream, _)| opens(stream)) {
        abort();
    }
    match (were_closed[1], streams[1].revents) {
        (true, _) => Output::Closed,
        (false, libc::POLLOUT) => Output::Ready,
        (false, _) => Output::Open,
    }
}

/// Polls all three standard streams in one call.
fn polled() -> [libc::pollfd; 3] {
    let mut streams =
        [(0, 0), (1, libc::POLLOUT), (2, 0)].map(|(fd, events)| libc::pollfd { fd, events, revents: 0 });
    // SAFETY: the call reads and writes three such structures, which are ours.
    while unsafe { libc::poll(streams.as_mut_ptr(), 3, 0) } == -1 {
        // Out of memory, or a limit of fewer than three descriptors: `is_closed` then asks for each.
        if Errno::last() != Errno::EINTR {
            return streams.map(|stream| libc::pollfd { revents: libc::POLLNVAL, ..stream });
        }
    }
    streams
}

fn is_closed(stream: i32) -> bool {
    // SAFETY: F_GETFD takes no further argument and accepts any number as a descriptor.
    unsafe { libc::fcntl(stream, libc::F_GETFD) == -1 && Errno::last() == Errno::EBADF }
}

/// Opens `/dev/null` in the place of a closed standard stream. Otherwise the next file would get its number, and
/// output for the stream would be written into that file.
fn opens(stream: i32) -> bool {
    // SAFETY: the path is a NUL-terminated string. The lowest free descriptor is this one: those below are open.
    unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) == stream }
}
