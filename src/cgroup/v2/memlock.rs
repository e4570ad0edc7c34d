//! The limit of locked memory, which Linux before 5.11 counts programs and maps of BPF by.

#![expect(unsafe_code, reason = "prlimit(2) has no safe wrapper in the features of nix that we use")]

use std::io;
use std::ptr;

/// As high as may be for as long as this lives. It is put back, since what we run inherits it.
pub(super) struct Raised {
    before: libc::rlimit,
}

impl Raised {
    /// Fails where it is no limit that is in the way, and where it cannot be raised.
    pub(super) fn new() -> io::Result<Raised> {
        let before = exchange(None)?;
        if before.rlim_cur == libc::RLIM_INFINITY {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let none = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // More than the hard limit takes CAP_SYS_RESOURCE.
        let highest = libc::rlimit { rlim_cur: before.rlim_max, ..before };
        exchange(Some(&none)).or_else(|_| exchange(Some(&highest))).map(|before| Raised { before })
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        // A limit can always be lowered.
        let _ = exchange(Some(&self.before));
    }
}

/// The limit before.
fn exchange(limit: Option<&libc::rlimit>) -> io::Result<libc::rlimit> {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let limit = limit.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: both are null or a limit that outlives the call; 0 is our own process.
    let result = unsafe { libc::prlimit(0, libc::RLIMIT_MEMLOCK, limit, &raw mut before) };
    if result == 0 { Ok(before) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raised_limit_is_put_back() {
        let before = exchange(None).unwrap();
        exchange(Some(&libc::rlimit { rlim_cur: 1 << 12, ..before })).unwrap();
        let raised = Raised::new().unwrap();
        let during = exchange(None).unwrap().rlim_cur;
        assert!(during == before.rlim_max || during == libc::RLIM_INFINITY, "{during}");
        drop(raised);
        assert_eq!(exchange(Some(&before)).unwrap().rlim_cur, 1 << 12);
    }
}
