//! Waiting until a file is written to, or one of several processes ends, without asking again and again.

#![expect(unsafe_code, reason = "pidfd_open(2) has no safe wrapper")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

/// So many processes are watched; of more, whoever waits looks again after a while.
const MOST: usize = 256;
const WHILE: Duration = Duration::from_secs(2);
/// What happens at once is one change.
const SETTLES: Duration = Duration::from_millis(50);

/// A file, and processes.
#[derive(Debug)]
pub(crate) struct Watch {
    inotify: Inotify,
    processes: Vec<OwnedFd>,
    is_complete: bool,
}

impl Watch {
    /// What happens to the file at `path` from now on; it need not be there.
    pub(crate) fn of(path: &Path) -> io::Result<Watch> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let directory =
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // The file itself, also where it is replaced, and its name, where it comes and goes.
        let names = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_DELETE;
        inotify.add_watch(directory, names)?;
        match inotify.add_watch(path, AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_ATTRIB) {
            Ok(_) | Err(Errno::ENOENT) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Watch { inotify, processes: Vec::new(), is_complete: true })
    }

    /// And what becomes of these processes. One that has ended by now is looked for again after a while.
    pub(crate) fn add(&mut self, pids: &[u32]) {
        self.processes = pids.iter().take(MOST).filter_map(|pid| descriptor(*pid)).collect();
        self.is_complete = self.processes.len() == pids.len();
    }

    /// Returns when something has happened, or after `limit`.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> io::Result<()> {
        let limit = if self.is_complete { limit } else { Some(limit.unwrap_or(WHILE).min(WHILE)) };
        let timeout =
            limit.map_or(PollTimeout::NONE, |limit| PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX));
        let descriptors = self.processes.iter().map(OwnedFd::as_fd).chain([self.inotify.as_fd()]);
        let mut polled: Vec<PollFd> =
            descriptors.map(|fd: BorrowedFd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut polled, timeout) {
            Ok(0) | Err(Errno::EINTR) => Ok(()),
            Ok(_) => {
                std::thread::sleep(SETTLES);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Readable once the process has ended (pidfd_open(2)); `None` if it has by now, or before Linux 5.3.
fn descriptor(pid: u32) -> Option<OwnedFd> {
    let pid = i32::try_from(pid).ok()?;
    // SAFETY: the call takes two numbers.
    let descriptor = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) }).ok()?;
    // SAFETY: it is a descriptor that was opened just now, and is nobody else's.
    Some(unsafe { OwnedFd::from_raw_fd(i32::try_from(descriptor).ok()?) })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Whether `change` ends the wait that has begun before it.
    fn notices(path: &Path, pids: &[u32], change: impl FnOnce()) -> bool {
        let mut watch = Watch::of(path).unwrap();
        watch.add(pids);
        change();
        let since = Instant::now();
        watch.wait(Some(LONG)).unwrap();
        since.elapsed() < LONG
    }

    #[test]
    fn a_file_that_is_written_comes_goes_or_is_replaced_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        assert!(notices(&path, &[], || fs::write(&path, "a").unwrap()));
        let mut file = fs::File::options().append(true).open(&path).unwrap();
        assert!(notices(&path, &[], || file.write_all(b"b").unwrap()));
        let other = directory.path().join("other");
        fs::write(&other, "").unwrap();
        let replace = || assert!(Command::new("mv").args([&other, &path]).status().unwrap().success());
        assert!(notices(&path, &[], replace));
        assert!(notices(&path, &[], || fs::remove_file(&path).unwrap()));
    }

    #[test]
    fn a_process_that_ends_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(notices(&directory.path().join("file"), &[child.id()], || child.kill().unwrap()));
        child.wait().unwrap();
    }

    #[test]
    fn nothing_is_waited_for_no_longer_than_said() {
        let directory = tempfile::tempdir().unwrap();
        let watch = Watch::of(&directory.path().join("file")).unwrap();
        watch.wait(Some(Duration::from_millis(1))).unwrap();
        assert!(Watch::of(&directory.path().join("missing/file")).is_err());
    }
}
