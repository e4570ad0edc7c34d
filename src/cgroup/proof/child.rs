//! The child of the proof, from fork(2) to its end. It makes only system calls.

#![expect(unsafe_code, reason = "what a child does after fork has no safe form")]

use std::ffi::{CStr, CString};
use std::os::fd::RawFd;

use nix::unistd::Pid;

/// What the child needs, so that it does not have to allocate.
pub(super) struct Task<'a> {
    pub(super) parent: Pid,
    /// All our descriptors, including that of the lock.
    pub(super) open: &'a [RawFd],
    /// `cgroup.procs` of the group.
    pub(super) processes: RawFd,
    /// `cgroup.procs` of the group above, where the node can be created.
    pub(super) above: RawFd,
    pub(super) answers: RawFd,
    pub(super) temporary: Option<(&'a CStr, &'a CStr, u64)>,
    pub(super) paths: &'a [CString],
}

/// Enters the group, checks access, reports, and exits.
///
/// # Safety
/// Must be called in a child after fork(2). It makes only system calls, since the program may have more threads.
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
            // Needed only if the owner that started us is already confined, since then we are in the group ourselves.
            // Otherwise it may fail.
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

/// Creates the node where only this process sees it.
///
/// # Safety
/// As for [`answer`].
unsafe fn make(directory: &CStr, node: &CStr, number: u64) -> i32 {
    // SAFETY: the strings are NUL-terminated, and only pointers that may be null are null.
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
    // SAFETY: the pointer to this thread's errno is always valid.
    unsafe { *libc::__errno_location() }
}
