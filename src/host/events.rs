//! Waiting without polling until a file changes, a process ends, or a signal arrives.

#![expect(unsafe_code, reason = "reading the action of a signal has no safe wrapper")]

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process;
use std::ptr;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::pause;

use super::pidfd;

/// Descriptors are scarce (usually 1024), and others are needed as well.
const MOST_PROCESSES: usize = 256;

/// The blocked signals that would end this process: their arrival is noticed, and they stay pending.
#[derive(Debug)]
pub(crate) struct Signals {
    /// `None`: there was no descriptor left, and signals go unnoticed.
    pending: Option<SignalFd>,
    set: SigSet,
}

impl Signals {
    /// Leaves out signals that the process was started to ignore, as by `nohup`: if blocked, they would become pending.
    pub(crate) fn new() -> Signals {
        let ending = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
        let set: SigSet = ending.into_iter().filter(|signal| !is_ignored(*signal)).collect();
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Signals { pending: SignalFd::with_flags(&set, flags).ok(), set }
    }

    pub(crate) fn is_one_pending(&self) -> bool {
        let Some(pending) = &self.pending else { return false };
        let mut polled = [PollFd::new(pending.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// Ends this process by the pending signal, as if it had never been blocked.
    pub(crate) fn obey(&self) -> ! {
        let signal = self.set.iter().find(|signal| is_pending(*signal));
        let _ = self.set.thread_unblock();
        // The first process of a container is ended by no signal of its own namespace, nor by one from above that it
        // does not block and has no handler for (pid_namespaces(7)). It would wait for its end for ever.
        if process::id() == 1 {
            // SAFETY: the call takes a number, and nothing is left to be written.
            unsafe { libc::_exit(128 + signal.map_or(0, |signal| signal as i32)) };
        }
        loop {
            pause(); // the signal may be delivered to another thread
        }
    }
}

fn is_pending(signal: Signal) -> bool {
    let mut pending = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the first call writes one such set, for which there is room; one of zeros, which it leaves if it fails, is
    // a set too.
    unsafe {
        libc::sigpending(pending.as_mut_ptr()) == 0 && libc::sigismember(pending.as_ptr(), signal as i32) == 1
    }
}

fn is_ignored(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only writes the present one into `action`. If it fails, `action` stays zero,
    // which is a valid action too.
    let action = unsafe {
        libc::sigaction(signal as i32, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// What to wait for.
#[derive(Debug)]
pub(crate) struct Watch {
    /// `None`: the user has no inotify instance left.
    inotify: Option<Inotify>,
    processes: BTreeMap<u32, OwnedFd>,
    /// A stream whose reader may go away.
    written_to: Option<OwnedFd>,
}

/// Why the wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The file has changed, a process has ended, or the reader is gone.
    Change,
    Signal,
    Timeout,
}

impl Watch {
    pub(crate) fn new() -> Watch {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok();
        Watch { inotify, processes: BTreeMap::new(), written_to: None }
    }

    /// Makes a change of the file at `path` an event. Can be called repeatedly: if `path` names another file by then,
    /// that one is watched too. `false`: it cannot be watched.
    pub(crate) fn file(&self, path: &Path) -> bool {
        let changes = AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_DELETE_SELF;
        self.inotify.as_ref().is_some_and(|inotify| inotify.add_watch(path, changes).is_ok())
    }

    /// Makes the end of each of these processes an event, and of no others. `false`: not of all of them, since the
    /// kernel is older than Linux 5.3 or they are too many.
    pub(crate) fn processes(&mut self, pids: &BTreeSet<u32>) -> bool {
        self.processes.retain(|pid, _| pids.contains(pid));
        for pid in pids {
            if !self.processes.contains_key(pid) && self.processes.len() < MOST_PROCESSES {
                let opened = i32::try_from(*pid).ok().and_then(pidfd::open);
                self.processes.extend(opened.map(|descriptor| (*pid, descriptor)));
            }
        }
        self.processes.len() == pids.len()
    }

    /// Makes it an event that the reader of `stream` goes away.
    pub(crate) fn reader(&mut self, stream: BorrowedFd<'_>) {
        self.written_to = stream.try_clone_to_owned().ok();
    }

    /// Waits for an event.
    pub(crate) fn wait(&mut self, signals: &Signals, at_most: Duration) -> Event {
        let pending = signals.pending.iter().map(|pending| pending.as_fd());
        let inotify = self.inotify.iter().map(|inotify| inotify.as_fd());
        let ends = self.processes.values().map(|descriptor| descriptor.as_fd());
        let descriptors = pending.chain(inotify).chain(ends);
        let mut polled: Vec<PollFd> = descriptors.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // POLLERR, which tells that the reader is gone, need not be requested.
        polled.extend(self.written_to.iter().map(|fd| PollFd::new(fd.as_fd(), PollFlags::empty())));
        let is_event = match poll(&mut polled, timeout(at_most)) {
            Ok(ready) => ready > 0,
            Err(Errno::EINTR) => true, // this process was stopped and continued
            Err(_) => {
                thread::sleep(at_most);
                false
            }
        };
        self.drain();
        match () {
            () if signals.is_one_pending() => Event::Signal,
            () if is_event => Event::Change,
            () => Event::Timeout,
        }
    }

    fn drain(&self) {
        while self.inotify.as_ref().is_some_and(|inotify| inotify.read_events().is_ok()) {}
    }
}

/// In milliseconds, rounded up.
fn timeout(at_most: Duration) -> PollTimeout {
    let milliseconds = i32::try_from(at_most.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
    PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::super::fixture::Running;
    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn a_change_of_the_file_is_an_event_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "").unwrap();
        let (mut watch, signals) = (Watch::new(), Signals::new());
        assert!(watch.file(&path) && watch.file(&path));
        assert_eq!(watch.wait(&signals, SHORT), Event::Timeout);
        fs::File::options().append(true).open(&path).unwrap().write_all(b"x").unwrap();
        assert_eq!(watch.wait(&signals, LONG), Event::Change);
        assert_eq!(watch.wait(&signals, SHORT), Event::Timeout);
        fs::remove_file(&path).unwrap();
        assert_eq!(watch.wait(&signals, LONG), Event::Change);
        assert!(!watch.file(&path));
    }

    #[test]
    fn the_end_of_a_process_is_an_event() {
        let (one, other) = (Running::start("sleep", &["60"]), Running::start("sleep", &["60"]));
        let (mut watch, signals) = (Watch::new(), Signals::new());
        assert!(watch.processes(&BTreeSet::from([one.pid(), other.pid()])));
        assert_eq!(watch.wait(&signals, SHORT), Event::Timeout);
        let pid = one.end();
        assert_eq!(watch.wait(&signals, LONG), Event::Change);
        assert!(!watch.processes(&BTreeSet::from([pid + (1 << 22), other.pid()])));
        assert_eq!(watch.wait(&signals, SHORT), Event::Timeout, "the dead one is let go");
    }

    #[test]
    fn that_nobody_reads_any_more_is_an_event() {
        let (reader, writer) = std::io::pipe().unwrap();
        let (mut watch, signals) = (Watch::new(), Signals::new());
        watch.reader(writer.as_fd());
        assert_eq!(watch.wait(&signals, SHORT), Event::Timeout);
        drop(reader);
        assert_eq!(watch.wait(&signals, LONG), Event::Change);
    }

    #[test]
    fn a_signal_is_seen_while_it_is_blocked() {
        let signals = Signals::new();
        let block: SigSet = [Signal::SIGHUP].into_iter().collect();
        std::thread::spawn(move || {
            block.thread_block().unwrap();
            assert!(!signals.is_one_pending());
            // SAFETY: signals this very thread, which has blocked it.
            unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGHUP) };
            if !is_ignored(Signal::SIGHUP) {
                assert!(signals.is_one_pending());
                assert_eq!(Watch::new().wait(&signals, LONG), Event::Signal);
            }
        })
        .join()
        .unwrap();
    }
}
