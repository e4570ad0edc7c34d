//! Ends the run at its deadline if a system call does not return: on a file system whose server is gone, even looking at
//! a file can wait forever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

use super::report::report;
use crate::error::Error;
use crate::host::deadline::Deadline;
use crate::notes::Notes;

/// How long the main thread has to end by itself after the deadline.
const GRACE: Duration = Duration::from_millis(500);

/// Calls the watchdog off when it is dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    _sender: Sender<()>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Set by the thread that ends the watch: only one of the two may continue.
    is_over: AtomicBool,
    /// The pid of the owner for which the record is being written; 0 before.
    committing_for: AtomicU32,
}

/// Watches over what follows; `what`: what is waited for if it hangs. Costs a thread, so it is only for what can hang. If
/// no thread can be started, the run continues unwatched.
pub(crate) fn guard(deadline: Deadline, what: String) -> Guard {
    let (sender, receiver) = channel();
    let state = Arc::new(State::default());
    let watched = Arc::clone(&state);
    let watch = move || {
        let patience = deadline.left() + GRACE;
        let is_late = receiver.recv_timeout(patience) == Err(RecvTimeoutError::Timeout);
        if is_late && !watched.is_over.swap(true, Ordering::SeqCst) {
            give_up(deadline, what, watched.committing_for.load(Ordering::SeqCst));
        }
    };
    // The thread inherits its mask here: it never takes the signals that the main thread blocks later.
    let before = blocked_signals().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    drop(thread::Builder::new().spawn(watch));
    let _ = before.and_then(|mask| mask.thread_set_mask());
    Guard { _sender: sender, state }
}

/// The signals that must not separate the record from the answer: those that end the program, and that of a write past
/// `RLIMIT_FSIZE`, which shall fail as on a full disk.
pub(crate) fn blocked_signals() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGXFSZ].into_iter().collect()
}

impl Guard {
    /// From now on the record may contain what has not been handed over.
    pub(crate) fn commits_for(&self, pid: u32) {
        self.state.committing_for.store(pid, Ordering::SeqCst);
    }

    /// Ends the watch before the answer is written. Does not return if the watchdog was faster: the program is then about
    /// to end with its message.
    pub(crate) fn call_off(self) {
        while self.state.is_over.swap(true, Ordering::SeqCst) {
            thread::park();
        }
    }
}

/// Ends the program, since the main thread hangs in the kernel. (If no signal reaches that thread, nothing can end the
/// program; the message is printed all the same.)
#[expect(clippy::exit, clippy::disallowed_methods, reason = "the main thread cannot end the program")]
fn give_up(deadline: Deadline, what: String, pid: u32) {
    let late = deadline.error(what);
    let error = if pid == 0 { late } else { Error::NotUndone { pid, problem: late.to_string() } };
    let exit = report(&Err(error), &Notes::default(), false, Deadline::after(GRACE));
    std::process::exit(exit as i32);
}
