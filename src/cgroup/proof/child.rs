//! The child of the proof, from fork(2) to its end: system calls and nothing else.

#![expect(unsafe_code, reason = "what a child does after fork has no safe form")]

use std::ffi::{CStr, CString};
use std::os::fd::RawFd;

use nix::unistd::Pid;

/// What the child is handed: nothing that it would have to allocate for.
pub(super) struct Task<'a> {
    pub(super) parent: Pid,
    /// Every descriptor of ours, the lock's among them.
    pub(super) open: &'a [RawFd],
    pub(super) processes: RawFd,
    /// Those of the group above, where the node can be made.
    pub(super) above: RawFd,
    pub(super) answers: RawFd,
    pub(super) temporary: Option<(&'a CStr, &'a CStr, u64)>,
    pub(super) paths: &'a [CString],
}

/// The child: enters the group, asks, and ends.
///
/// # Safety
/// To be called in a child after fork(2), of a program that may have more threads: it makes system calls alone.
pub(super) unsafe fn answer(task: &Task<'_>) -> ! {
    // SAFETY: all of them take numbers, or pointers to what the caller allocated.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != task.parent.as_raw() {
            libc::_exit(1);
        }
        let kept = [task.processes, task.above, task.answers];
        task.open.iter().filter(|fd| !kept.contains(fd)).for_each(|fd| {
            libc::close(*fd);
        });
        let say = |word: i32| libc::write(task.answers, word.to_ne_bytes().as_ptr().cast(), 4) == 4;
        let made = task.temporary.map_or(0, |(directory, node, number)| {
            // We are in the group ourselves if the owner that started us is confined already. Elsewhere it may
            // fail, and need not be done.
            libc::write(task.above, c"0".as_ptr().cast(), 1);
            make(directory, node, number)
        });
        if !say(made) || made != 0 {
            libc::_exit(1);
        }
        let entered = error_of(libc::write(task.processes, c"0".as_ptr().cast(), 1));
        if !say(entered) || entered != 0 {
            libc::_exit(1);
        }
        for path in task.paths {
            let both = libc::R_OK | libc::W_OK;
            say(error_of(libc::faccessat(libc::AT_FDCWD, path.as_ptr(), both, 0) as isize));
        }
        libc::_exit(0)
    }
}

/// Makes the node where only this process sees it.
///
/// # Safety
/// As for [`answer`].
unsafe fn make(directory: &CStr, node: &CStr, number: u64) -> i32 {
    // SAFETY: the strings end in NUL, and the pointers that may be null are.
    unsafe {
        let (none, nothing) = (std::ptr::null(), std::ptr::null());
        let is_done = libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, nothing) == 0
            && libc::mount(c"tmpfs".as_ptr(), directory.as_ptr(), c"tmpfs".as_ptr(), 0, nothing) == 0
            && libc::mknod(node.as_ptr(), libc::S_IFCHR | 0o600, number) == 0;
        if is_done { 0 } else { *libc::__errno_location() }
    }
}

/// The error number of a system call, or 0.
fn error_of(result: isize) -> i32 {
    if result >= 0 {
        return 0;
    }
    // SAFETY: the error number of this thread, which is always there.
    unsafe { *libc::__errno_location() }
}
