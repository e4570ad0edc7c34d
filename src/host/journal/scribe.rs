//! Appending to a file that may hang, by a separate process.
//!
//! A process that opens or writes a file on a file system that is frozen, or whose server is gone, waits in the kernel,
//! and a program with a thread that waits there cannot end. So the writer is a process of its own with nothing else open,
//! least of all the lock, and is left behind if it takes too long. It is the child of a child, which waits for it and is
//! killed if that takes too long: a command that we become would not expect a child of its own, nor would a reaper of
//! orphans (the first process of a container) expect one that it never started.

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

/// Does not wait for the reader of a FIFO, and follows no link.
const FLAGS: i32 =
    libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_CLOEXEC;
const MODE: libc::mode_t = 0o640;
/// How many descriptors are closed one by one where the kernel cannot close a range (before Linux 5.9).
const MOST_DESCRIPTORS: RawFd = 1024;

/// What the writer needs, so that it does not have to allocate.
struct Task<'a> {
    path: &'a CStr,
    text: &'a [u8],
    /// Receives the error number, or 0.
    report: RawFd,
}

/// Appends `text` to the file in one write, so that lines of several processes do not mix. Gives up waiting after
/// `patience` (`TimedOut`); the text may then still be appended later.
pub(super) fn append(path: &Path, text: &str, patience: Duration) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let (answer, report) = pipe2(OFlag::O_CLOEXEC)?;
    let task = Task { path: &path, text: text.as_bytes(), report: report.as_raw_fd() };
    // SAFETY: the child makes only system calls.
    match unsafe { fork() }? {
        ForkResult::Child => {
            // SAFETY: this is that child, and it never returns from here, so the task's references stay valid.
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

/// Waits for the writer's answer.
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

/// Starts the writer as a child, which is an orphan once this process has been killed.
///
/// # Safety
/// Must be called in a child after fork(2). It makes only system calls, since the program may have more threads.
unsafe fn leave(task: &Task<'_>) -> ! {
    // SAFETY: the same holds for the child of the child; the calls take only numbers.
    unsafe {
        close_others(task.report);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        match libc::fork() {
            0 => write(task),
            -1 => report(task, *libc::__errno_location()),
            child => {
                libc::close(task.report); // so that the pipe ends with the writer
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
            Ok(_) => libc::ENOSPC, // there was room for a part only
            Err(_) => *libc::__errno_location(),
        };
        // A server may be contacted only now, and hang or refuse. So this comes before the report.
        let is_closed = libc::close(file) == 0;
        report(task, if error == 0 && !is_closed { *libc::__errno_location() } else { error })
    }
}

/// # Safety
/// As for [`leave`].
unsafe fn report(task: &Task<'_>, error: i32) -> ! {
    // SAFETY: the pointer is to a value that lives until the call returns.
    unsafe {
        libc::write(task.report, error.to_ne_bytes().as_ptr().cast(), 4);
        libc::_exit(0)
    }
}

/// Closes all descriptors but one: the lock is released, and a pipe ends, only when nobody has them open.
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
