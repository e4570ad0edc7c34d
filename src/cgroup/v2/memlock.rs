//! The limit on locked memory, against which Linux before 5.11 counts BPF programs.

#![expect(unsafe_code, reason = "prlimit(2) has no safe wrapper in the features of nix that we use")]

use std::io;
use std::ptr;

/// The limit, raised as far as possible while this value lives. It is restored, since programs that we run inherit it.
pub(super) struct Raised {
    process: libc::pid_t,
    before: libc::rlimit,
}

impl Raised {
    /// Raises our own limit. Fails if there is no limit, or if it cannot be raised.
    pub(super) fn own() -> io::Result<Raised> {
        Raised::of(0)
    }

    fn of(process: libc::pid_t) -> io::Result<Raised> {
        let before = exchange(process, None)?;
        if before.rlim_cur == libc::RLIM_INFINITY {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let none = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // Raising the hard limit requires CAP_SYS_RESOURCE.
        let highest = libc::rlimit { rlim_cur: before.rlim_max, ..before };
        exchange(process, Some(&none)).or_else(|_| exchange(process, Some(&highest)))?;
        Ok(Raised { process, before })
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        // A limit can always be lowered.
        let _ = exchange(self.process, Some(&self.before));
    }
}

/// Sets the limit if one is given; returns the previous one. Process 0 is our own.
fn exchange(process: libc::pid_t, limit: Option<&libc::rlimit>) -> io::Result<libc::rlimit> {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let limit = limit.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: one pointer is null or points to a limit, the other to one that is written, and both outlive the call.
    let result = unsafe { libc::prlimit(process, libc::RLIMIT_MEMLOCK, limit, &raw mut before) };
    if result == 0 { Ok(before) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fixture::Running;

    /// Of another process: this one's is that of all tests.
    #[test]
    fn a_raised_limit_is_put_back() {
        let other = Running::start("cat", &[]);
        let process = other.pid().cast_signed();
        let before = exchange(process, None).unwrap();
        exchange(process, Some(&libc::rlimit { rlim_cur: 1 << 12, ..before })).unwrap();
        let raised = Raised::of(process).unwrap();
        let during = exchange(process, None).unwrap().rlim_cur;
        assert!(during == before.rlim_max || during == libc::RLIM_INFINITY, "{during}");
        drop(raised);
        assert_eq!(exchange(process, None).unwrap().rlim_cur, 1 << 12);
    }
}
