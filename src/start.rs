//! What Rust's runtime does before `main`, as far as it is needed here.
//!
//! It also tells an overflow of the stack from other faults, and reads `/proc/self/maps` for that: a twentieth of a
//! run. An overflow ends the program without it too, by the same signal and with fewer words.

#![expect(unsafe_code, reason = "to set a signal handler and to open a chosen descriptor have no safe form")]

use std::process::abort;

use nix::errno::Errno;
use nix::sys::signal::{SigHandler, Signal, signal};

/// To be called first.
pub(crate) fn prepare() {
    // SAFETY: it is no function. That nobody reads our answer is an error of write(2), and not our end.
    let ignored = unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) };
    if ignored.is_err() || !(0..3).all(is_open) {
        abort();
    }
}

/// Opens `/dev/null` in the place of a closed standard stream: the next file would be opened there, and what is
/// meant for the stream written into it.
fn is_open(stream: i32) -> bool {
    // SAFETY: F_GETFD takes no further argument and accepts any number as a descriptor.
    let is_closed = unsafe { libc::fcntl(stream, libc::F_GETFD) } == -1 && Errno::last() == Errno::EBADF;
    // SAFETY: the path is a string. The lowest descriptor that is free is this one: those below are open.
    !is_closed || unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) } == stream
}
