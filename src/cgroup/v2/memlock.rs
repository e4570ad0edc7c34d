//! The limit of locked memory, which Linux before 5.11 counts programs and maps of BPF by.

#![expect(unsafe_code, reason = "prlimit(2) has no safe wrapper in the features of nix that we use")]

use std::io;
use std::ptr;

/// No limit for as long as this lives. It is put back, since what we run inherits it.
pub(super) struct Unlimited {
    before: libc::rlimit,
}

impl Unlimited {
    /// Fails where it is no limit that is in the way, and where we may not raise it.
    pub(super) fn new() -> io::Result<Unlimited> {
        let none = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        let before = exchange(None)?;
        if before.rlim_cur == libc::RLIM_INFINITY {
            return Err(io::ErrorKind::Unsupported.into());
        }
        exchange(Some(&none)).map(|before| Unlimited { before })
    }
}

impl Drop for Unlimited {
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
