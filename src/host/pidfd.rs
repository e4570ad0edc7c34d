//! pidfd_open(2), for which nix has no wrapper.

#![expect(unsafe_code, reason = "pidfd_open(2) has no safe wrapper")]

use std::os::fd::{FromRawFd, OwnedFd};

/// A descriptor that polls as readable once the process has ended; `None` if there is no such process, if `pid` is a
/// thread's, and before Linux 5.3.
pub(crate) fn open(pid: i32) -> Option<OwnedFd> {
    // SAFETY: the call takes two numbers.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let descriptor = i32::try_from(opened).ok().filter(|descriptor| *descriptor >= 0)?;
    // SAFETY: it has just been opened, and nobody else has it.
    Some(unsafe { OwnedFd::from_raw_fd(descriptor) })
}
