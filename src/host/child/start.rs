//! Starting a program without copying this one. fork(2) copies the page tables, and afterwards each page that either
//! process writes to: a tenth of a run, all thrown away by exec(3).
//!
//! So the child uses our memory until it executes the program, on a stack of its own, while we are suspended
//! (`CLONE_VM | CLONE_VFORK`). The C library's posix_spawn(3) does the same, but it cannot bind a child's life to its
//! parent's. Hence this code, and a rule for the child: it makes only system calls, and of our memory it changes only
//! the one field that is meant for it. No signal runs code of ours in the child, since no handler is installed.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr;

use nix::errno::Errno;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::{Pid, getpid, getppid, setpgid};

use super::command::Image;

/// In units of 16 bytes, the alignment of a stack. The child's calls are only a few levels deep.
const STACK: usize = (64 << 10) / 16;

/// Everything that the child reads, and its one answer.
struct Orders {
    paths: Vec<*const c_char>,
    words: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    streams: [RawFd; 3],
    parent: Pid,
    /// Why the program could not be executed, if it could not.
    failure: Cell<Option<Errno>>,
}

/// Starts `image` in a process group of its own, with an empty standard input and with `outputs` for its
/// standard output and standard error.
pub(super) fn start(image: &Image, outputs: [BorrowedFd; 2]) -> io::Result<Pid> {
    // SAFETY: no handler is installed. If our caller ignores SIGCHLD we inherit that, and the kernel would reap the
    // child before its exit status is read.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    let null = File::open("/dev/null")?;
    let orders = Orders {
        paths: pointers(&image.paths),
        words: pointers(&image.words),
        environment: pointers(&image.environment),
        // None of them is 0, 1 or 2, which `start::prepare` has opened if they were closed.
        streams: [null.as_fd(), outputs[0], outputs[1]].map(|stream| stream.as_raw_fd()),
        parent: getpid(),
        failure: Cell::new(None),
    };
    let pid = child(&orders)?;
    match orders.failure.get() {
        None => Ok(pid),
        Some(errno) => {
            nix::sys::wait::waitpid(pid, None)?;
            Err(errno.into())
        }
    }
}

/// Pointers to the texts, with a null pointer at the end.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

/// Returns once the child has executed its program or has ended.
fn child(orders: &Orders) -> io::Result<Pid> {
    let mut stack = vec![MaybeUninit::<u128>::uninit(); STACK];
    let top = stack.as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let orders = ptr::from_ref(orders).cast_mut();
    // SAFETY: until the call returns, only the child uses `stack` and `orders`, and this thread is suspended.
    let pid = unsafe { libc::clone(become_program, top.cast(), flags, orders.cast()) };
    Ok(Pid::from_raw(Errno::result(pid)?))
}

/// Runs in the child. Its result is the exit status, which nobody reads.
extern "C" fn become_program(orders: *mut c_void) -> c_int {
    // SAFETY: `child` passes a pointer to `Orders`, which outlive the call.
    let orders = unsafe { &*orders.cast::<Orders>() };
    let failure = orders.prepare().err().unwrap_or_else(|| orders.exec());
    orders.failure.set(Some(failure));
    127
}

impl Orders {
    fn prepare(&self) -> nix::Result<()> {
        for (stream, number) in self.streams.iter().zip(0..) {
            // SAFETY: both are numbers, and the child has descriptors of its own.
            Errno::result(unsafe { libc::dup2(*stream, number) })?;
        }
        setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
        // SAFETY: no handler is installed. The program shall not inherit that we ignore the signal.
        unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) }?;
        self.bind()
    }

    /// Binds the child's life to ours, and keeps every descriptor but the standard ones from the program, including
    /// those that we inherited from a careless caller.
    fn bind(&self) -> nix::Result<()> {
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        if getppid() != self.parent {
            // We died before the request was made, so no signal will come.
            return Err(Errno::ESRCH);
        }
        let (first, last) = (3_u32, u32::MAX);
        // SAFETY: the call takes three numbers. Before Linux 5.11 it fails; what we opened ourselves is closed on exec
        // all the same.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
        Ok(())
    }

    /// Returns only if no path can be executed. The errno is chosen as in execvp(3): a file that may not be executed
    /// counts more than one that does not exist.
    fn exec(&self) -> Errno {
        let mut failure = Errno::ENOENT;
        for path in self.paths.iter().filter(|path| !path.is_null()) {
            // SAFETY: every pointer points to a string, and the lists end with a null pointer.
            unsafe { libc::execve(*path, self.words.as_ptr(), self.environment.as_ptr()) };
            match Errno::last() {
                Errno::ENOENT | Errno::ENOTDIR | Errno::ESTALE if failure == Errno::EACCES => {}
                errno @ (Errno::ENOENT | Errno::ENOTDIR | Errno::ESTALE | Errno::EACCES) => failure = errno,
                errno => return errno,
            }
        }
        failure
    }
}
