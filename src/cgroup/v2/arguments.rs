//! A call of bpf(2).
//!
//! * The kernel opens descriptors close-on-exec. They are never 0, which some commands take for "none".
//! * Every command gets zeros after its arguments: a kernel may write to fields that were added later (Linux 6.17 writes
//!   `revision` at byte 56 of a query, whatever size was passed).

#![expect(unsafe_code, reason = "bpf(2) has no safe wrapper")]

use std::ffi::{c_int, c_long};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// What a command reads and writes, followed by zeros.
#[repr(C)]
pub(super) struct Arguments<T> {
    of: T,
    zeros: [u64; 8],
}

impl<T> Arguments<T> {
    pub(super) fn new(of: T) -> Arguments<T> {
        // Padding would not be zeros.
        const { assert!(size_of::<T>().is_multiple_of(size_of::<u64>())) };
        Arguments { of, zeros: [0; 8] }
    }

    /// # Safety
    /// Every address in the arguments must point to memory of the size that they state.
    pub(super) unsafe fn call(&mut self, command: c_long) -> io::Result<c_int> {
        // SAFETY: the kernel reads and writes within the size, and any bits are valid arguments.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *self, size_of::<Self>()) };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            c_int::try_from(result).map_err(io::Error::other)
        }
    }

    /// # Safety
    /// As for `call`; the command must be one that opens a descriptor.
    pub(super) unsafe fn open(&mut self, command: c_long) -> io::Result<OwnedFd> {
        // SAFETY: as our caller promised; the descriptor is new, and nobody else has it.
        let made = unsafe { OwnedFd::from_raw_fd(self.call(command)?) };
        // A duplicate is never one of the three standard streams.
        if made.as_raw_fd() <= libc::STDERR_FILENO { made.try_clone() } else { Ok(made) }
    }
}
