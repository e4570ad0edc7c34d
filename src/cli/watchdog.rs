//! Ends the run at its deadline where a system call does not come back: on a file system whose server is
//! gone, even looking at a file can wait for ever.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use super::report::report;
use crate::host::deadline::Deadline;
use crate::notes::Notes;

/// What the main thread has to end by itself once the deadline has passed.
const GRACE: Duration = Duration::from_millis(500);

/// Calls the watchdog off when it is dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    _sender: Sender<()>,
}

/// Watches over what follows; `what` is waited for, if it hangs. It costs a thread, so that it is for file
/// systems alone that can hang.
pub(crate) fn guard(deadline: Deadline, what: String) -> Guard {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let patience = deadline.left() + GRACE;
        if receiver.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            give_up(deadline, what);
        }
    });
    Guard { _sender: sender }
}

/// The main thread hangs in the kernel and will not see to it. (One that no signal reaches cannot be ended
/// by anything; the line is said all the same.)
#[expect(clippy::exit, clippy::disallowed_methods, reason = "the main thread cannot end the program")]
fn give_up(deadline: Deadline, what: String) {
    let outcome = Err(deadline.error(what));
    let exit = report(&outcome, &Notes::default(), false, Deadline::after(GRACE));
    std::process::exit(exit as i32);
}
