//! What Rust's runtime does before `main`, as far as it is needed here.
//!
//! It also tells an overflow of the stack from other faults, and reads `/proc/self/maps` for that: a twentieth of a
//! run. An overflow ends the program without it too, by the same signal and with fewer words.

#![expect(unsafe_code, reason = "to set a signal handler and to open a chosen descriptor have no safe form")]

use std::process::abort;

use nix::errno::Errno;
use nix::sys::signal::{SigHandler, Signal, signal};

/// What standard output was when the program was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// What is written there would be lost unseen: `/dev/null` is open in its place by now.
    Closed,
    /// It takes an answer without waiting, if it is open for writing.
    Ready,
    /// Whether it takes one, and when, is to be asked.
    Open,
}

/// To be called first.
pub(crate) fn prepare() -> Output {
    // SAFETY: it is no function. That nobody reads our answer is an error of write(2), and not our end.
    let ignored = unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) };
    let streams = polled();
    // One of O_PATH is open as well, though it cannot be asked.
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

/// All three are asked about in one call.
fn polled() -> [libc::pollfd; 3] {
    let mut streams =
        [(0, 0), (1, libc::POLLOUT), (2, 0)].map(|(fd, events)| libc::pollfd { fd, events, revents: 0 });
    // SAFETY: the call reads and writes three such structures, which are ours.
    while unsafe { libc::poll(streams.as_mut_ptr(), 3, 0) } == -1 {
        // Without memory, or with a limit of less than three descriptors: each is asked for itself.
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

/// Opens `/dev/null` in the place of a closed standard stream: the next file would be opened there, and what is
/// meant for the stream written into it.
fn opens(stream: i32) -> bool {
    // SAFETY: the path is a string. The lowest descriptor that is free is this one: those below are open.
    unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) == stream }
}
