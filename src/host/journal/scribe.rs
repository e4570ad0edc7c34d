//! Adding to a file that may hang: by a process of its own.
//!
//! Whoever opens or writes to a file on a file system that is frozen, or whose server is gone, waits in the kernel,
//! and a program with a thread that does so cannot end. So it is done by a process that has nothing else open, the
//! lock least of all, and is left behind if it takes too long. It is the child of a child, which waits for it, and is
//! ended if that takes too long: a command that we become would wonder about a child of its own, and whoever takes
//! orphans in (the first process of a container) about what it never started.

#![expect(unsafe_code, reason = "what a child does after fork has no safe form")]

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork, pipe2};

use crate::host::deadline::Deadline;

/// A FIFO that nobody reads is not waited for, and no link is followed.
const FLAGS: i32 =
    libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_CLOEXEC;
const MODE: libc::mode_t = 0o640;
/// Where the kernel cannot close all of a range (before Linux 5.9).
const MOST_DESCRIPTORS: RawFd = 1024;

/// What the writer is handed: nothing that it would have to allocate for.
struct Task<'a> {
    path: &'a CStr,
    text: &'a [u8],
    /// Takes the error number, or 0.
    report: RawFd,
}

/// Adds `text` to the file in one write, so that lines of several processes do not mix. After `patience` it is not
/// waited for any more (`TimedOut`), and may be added later.
pub(super) fn append(path: &Path, text: &str, patience: Duration) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let (answer, report) = pipe2(OFlag::O_CLOEXEC)?;
    let task = Task { path: &path, text: text.as_bytes(), report: report.as_raw_fd() };
    // SAFETY: the child makes system calls alone.
    match unsafe { fork() }? {
        ForkResult::Child => {
            // SAFETY: this is that child, and what the task names outlives it.
            unsafe { leave(&task) }
        }
        ForkResult::Parent { child } => {
            drop(report);
            let written = read(File::from(answer), Deadline::after(patience));
            if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
                // It fails only if the child has ended.
                let _ = kill(child, Signal::SIGKILL);
            }
            // Where SIGCHLD is ignored it has been reaped already.
            let _ = waitpid(child, None);
            written
        }
    }
}

/// What the writer says of its end.
fn read(mut answer: File, deadline: Deadline) -> io::Result<()> {
    let mut said = [0; 4];
    loop {
        let wait = PollTimeout::try_from(deadline.left()).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(answer.as_fd(), PollFlags::POLLIN)], wait) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => break,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    answer.read_exact(&mut said).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::other("the process that writes to it was ended"),
        _ => error,
    })?;
    match i32::from_ne_bytes(said) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Leaves the writing to a child, which belongs to nobody once this process is ended.
///
/// # Safety
/// To be called in a child after fork(2), of a program that may have more threads: it makes system calls alone.
unsafe fn leave(task: &Task<'_>) -> ! {
    // SAFETY: the same holds for the child of the child; the calls take numbers alone.
    unsafe {
        close_others(task.report);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        match libc::fork() {
            0 => write(task),
            -1 => report(task, *libc::__errno_location()),
            child => {
                libc::close(task.report); // the end of the writer is the end of the answer
                libc::waitpid(child, std::ptr::null_mut(), 0);
                libc::_exit(0)
            }
        }
    }
}

/// # Safety
/// As for [`leave`].
unsafe fn write(task: &Task<'_>) -> ! {
    // SAFETY: all of them take numbers, or pointers to what the caller allocated.
    unsafe {
        let file = libc::open(task.path.as_ptr(), FLAGS, MODE);
        if file < 0 {
            report(task, *libc::__errno_location());
        }
        let error = match usize::try_from(libc::write(file, task.text.as_ptr().cast(), task.text.len())) {
            Ok(length) if length == task.text.len() => 0,
            Ok(_) => libc::ENOSPC, // for a part there was room
            Err(_) => *libc::__errno_location(),
        };
        // A server may be asked only now, and hang or refuse: not once we are believed to be done.
        let is_closed = libc::close(file) == 0;
        report(task, if error == 0 && !is_closed { *libc::__errno_location() } else { error })
    }
}

/// # Safety
/// As for [`leave`].
unsafe fn report(task: &Task<'_>, error: i32) -> ! {
    // SAFETY: the pointer is to what lives here.
    unsafe {
        libc::write(task.report, error.to_ne_bytes().as_ptr().cast(), 4);
        libc::_exit(0)
    }
}

/// The lock is let go of once nobody has it open, and a pipe ends so too.
///
/// # Safety
/// As for [`leave`].
unsafe fn close_others(kept: RawFd) {
    let range = |first: u32, last: u32| {
        // SAFETY: the call takes three numbers, and nothing is open that is used after it.
        first > last || unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0
    };
    let kept = kept.unsigned_abs();
    if (kept == 0 || range(0, kept - 1)) && range(kept + 1, u32::MAX) {
        return;
    }
    for number in (0..MOST_DESCRIPTORS).filter(|number| number.unsigned_abs() != kept) {
        // SAFETY: nothing is open that is used after it.
        unsafe { libc::close(number) };
    }
}
