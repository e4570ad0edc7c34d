//! What Rust's runtime does before `main`, as far as it is needed here.
//!
//! It also tells an overflow of the stack from other faults, and reads `/proc/self/maps` for that: a twentieth of a
//! run. An overflow ends the program without it too, by the same signal and with fewer words.

#![expect(unsafe_code, reason = "to set a signal handler and to open a chosen descriptor have no safe form")]

use std::process::abort;

use nix::errno::Errno;
use nix::sys::signal::{SigHandler, Signal, signal};

/// To be called first. Tells which of the standard streams were closed: what is written there would be lost unseen.
pub(crate) fn prepare() -> [bool; 3] {
    // SAFETY: it is no function. That nobody reads our answer is an error of write(2), and not our end.
    let ignored = unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) };
    let were_closed = which_are_closed();
    let mut closed = (0..3).zip(were_closed).filter(|(_, was_closed)| *was_closed);
    if ignored.is_err() || !closed.all(|(stream, _)| opens(stream)) {
        abort();
    }
    were_closed
}

/// All three are asked about in one call.
fn which_are_closed() -> [bool; 3] {
    let mut streams = [0, 1, 2].map(|fd| libc::pollfd { fd, events: 0, revents: 0 });
    // SAFETY: the call reads and writes three such structures, which are ours.
    while unsafe { libc::poll(streams.as_mut_ptr(), 3, 0) } == -1 {
        // Without memory, or with a limit of less than three descriptors.
        if Errno::last() != Errno::EINTR {
            return [0, 1, 2].map(is_closed);
        }
    }
    // One of O_PATH is open as well, though it cannot be asked.
    streams.map(|stream| stream.revents & libc::POLLNVAL != 0 && is_closed(stream.fd))
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
