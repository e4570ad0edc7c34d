//! Starting a program without copying this one. fork(2) copies the page tables, and afterwards each page that
//! either of the two writes to: a tenth of a run, thrown away by exec(3).
//!
//! So the child has our memory until it is another program, on a stack of its own, and we stand still as long
//! (`CLONE_VM | CLONE_VFORK`). The C library starts programs in the same way in its posix_spawn(3), which
//! cannot bind a child's life to its parent's; thus what is done here, and what the child must keep to: it
//! makes system calls and nothing else, and of what is ours it changes the one field that is meant for it.
//! No signal reaches code of ours in it, since no handler is installed.

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

/// In units of 16 bytes, to which a stack is aligned. The child calls no deeper than a few functions.
const STACK: usize = (64 << 10) / 16;

/// All that the child reads, and its one answer.
struct Orders {
    paths: Vec<*const c_char>,
    words: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    streams: [RawFd; 3],
    parent: Pid,
    /// Why there is no program; `None` if there is one.
    failure: Cell<Option<Errno>>,
}

/// Starts `image` in a process group of its own, with an empty standard input and with `outputs` for its
/// standard output and standard error.
pub(super) fn start(image: &Image, outputs: [BorrowedFd; 2]) -> io::Result<Pid> {
    // SAFETY: no handler is installed. A caller that ignores SIGCHLD hands that on to us, and the kernel
    // would then reap the child before its exit status is read.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    let null = File::open("/dev/null")?;
    let orders = Orders {
        paths: pointers(&image.paths),
        words: pointers(&image.words),
        environment: pointers(&image.environment),
        // None of them is 0, 1 or 2: those are open in every program of Rust's from its beginning.
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

/// With a null pointer at the end.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

/// Returns once the child is a program, or has ended.
fn child(orders: &Orders) -> io::Result<Pid> {
    let mut stack = vec![MaybeUninit::<u128>::uninit(); STACK];
    let top = stack.as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let orders = ptr::from_ref(orders).cast_mut();
    // SAFETY: until the call returns, the child alone uses `stack` and `orders`, and this thread stands still.
    let pid = unsafe { libc::clone(become_program, top.cast(), flags, orders.cast()) };
    Ok(Pid::from_raw(Errno::result(pid)?))
}

/// Runs in the child. Its result is the exit status, which nobody reads.
extern "C" fn become_program(orders: *mut c_void) -> c_int {
    // SAFETY: it is what `child` hands over.
    let orders = unsafe { &*orders.cast::<Orders>() };
    let failure = orders.prepare().err().unwrap_or_else(|| orders.exec());
    orders.failure.set(Some(failure));
    127
}

impl Orders {
    fn prepare(&self) -> nix::Result<()> {
        for (stream, number) in self.streams.iter().zip(0..) {
            // SAFETY: both are numbers, and the child's descriptors are no longer ours.
            Errno::result(unsafe { libc::dup2(*stream, number) })?;
        }
        setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
        // SAFETY: no handler is installed. That we ignore it is no business of the program's.
        unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) }?;
        self.bind()
    }

    /// Binds the child's life to ours, and keeps every descriptor but the standard ones from the program,
    /// those too that we inherited from a careless caller.
    fn bind(&self) -> nix::Result<()> {
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        if getppid() != self.parent {
            // It died before the request was made, and no signal will come.
            return Err(Errno::ESRCH);
        }
        let (first, last) = (3_u32, u32::MAX);
        // SAFETY: the call takes three numbers. Before Linux 5.11 it fails, and what we opened ourselves is
        // closed on exec all the same.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
        Ok(())
    }

    /// Returns only if no path can be run, and why, as execvp(3) does: what may not be run counts more than
    /// what is not there.
    fn exec(&self) -> Errno {
        let mut failure = Errno::ENOENT;
        for path in self.paths.iter().filter(|path| !path.is_null()) {
            // SAFETY: every pointer leads to a string, and the lists end with a null pointer.
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
