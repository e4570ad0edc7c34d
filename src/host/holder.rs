//! Who holds the lock on a file, for the message to whoever waited for it in vain.
//!
//! The holder is found by its open descriptor. `/proc/locks` names the process that took the lock, which may have ended
//! while another one inherited the descriptor; so it only tells where to look first.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Host;
use super::deadline::Deadline;
use super::file;

/// A process that has the locked file open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) pid: u32,
    pub(crate) command: String,
}

/// Whether the `fdinfo` of a descriptor (proc_pid_fdinfo(5)) shows an flock on a file with this inode number.
pub(crate) fn has_lock(fdinfo: &str, inode: u64) -> bool {
    fdinfo.lines().any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        matches!(fields[..], ["lock:", _, "FLOCK", _, _, _, file, ..] if is_of(file, inode))
    })
}

/// The pids that `/proc/locks` (proc_locks(5)) names for a file with this inode number.
fn takers(locks: &str, inode: u64) -> Vec<u32> {
    let taker = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, "FLOCK", _, _, pid, file, ..] = fields[..] else { return None };
        if is_of(file, inode) { pid.parse().ok() } else { None }
    };
    locks.lines().filter_map(taker).collect()
}

/// `file`: MAJOR:MINOR:INODE. The device is the file system's, which can differ from the one that stat(2) reports.
fn is_of(file: &str, inode: u64) -> bool {
    file.rsplit(':').next().and_then(|digits| digits.parse().ok()) == Some(inode)
}

impl Host {
    /// A process other than ours that holds the lock on `file`; `None` if none can be seen from here.
    pub(crate) fn lock_holder(&self, file: &Metadata, deadline: Deadline) -> Option<Holder> {
        let own = self.own_pid();
        let takers = file::read_text(self.proc("locks")).map(|locks| takers(&locks, file.ino()));
        let everyone = takers.unwrap_or_default().into_iter().chain(self.pids().ok()?);
        let mut others = everyone.filter(|pid| Some(*pid) != own);
        let pid = others.find(|pid| self.holds(*pid, file, deadline))?;
        let command = self.command_line(pid).unwrap_or_else(|| "?".to_owned());
        Some(Holder { pid, command })
    }

    /// Our pid in this `/proc`.
    fn own_pid(&self) -> Option<u32> {
        fs::read_link(self.proc("self")).ok()?.to_str()?.parse().ok()
    }

    fn holds(&self, pid: u32, file: &Metadata, deadline: Deadline) -> bool {
        let process = self.proc(pid.to_string());
        let Ok(entries) = fs::read_dir(process.join("fdinfo")) else { return false };
        entries.flatten().take_while(|_| !deadline.has_passed()).any(|entry| {
            let is_locked = file::read_text(entry.path()).is_ok_and(|info| has_lock(&info, file.ino()));
            // Two file systems may each have a file with that inode number.
            is_locked && is_open_on(&process.join("fd").join(entry.file_name()), file)
        })
    }
}

/// Only called for a descriptor with a lock on a file of the right inode number: stat(2) hangs on a file whose server is
/// gone.
fn is_open_on(descriptor: &Path, file: &Metadata) -> bool {
    fs::metadata(descriptor).is_ok_and(|open| (open.dev(), open.ino()) == (file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::fixture::{Running, Tree};
    use super::*;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(10))
    }

    #[test]
    #[rustfmt::skip] // a table
    fn an_flock_is_told_from_other_locks() {
        for (case, fdinfo, is_locked) in [
            ("exclusive",          "pos:\t0\nmnt_id:\t24\nlock:\t1: FLOCK  ADVISORY  WRITE 4711 fe:00:123 0 EOF\n", true),
            ("shared",             "lock:\t1: FLOCK  ADVISORY  READ 4711 00:2a:123 0 EOF\n", true),
            ("another file",       "lock:\t1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF\n", false),
            ("a record lock",      "lock:\t1: POSIX  ADVISORY  WRITE 4711 fe:00:123 0 EOF\n", false),
            ("both",               "lock:\t1: POSIX  ADVISORY  READ 1 0:0:123 0 0\nlock:\t2: FLOCK  ADVISORY  WRITE 1 0:0:123 0 EOF\n", true),
            ("open and unlocked",  "pos:\t0\nflags:\t0100000\nmnt_id:\t24\nino:\t123\n", false),
            ("nothing",            "", false),
        ] {
            assert_eq!(has_lock(fdinfo, 123), is_locked, "{case}");
        }
    }

    #[test]
    fn who_took_a_lock_is_looked_at_first() {
        let locks = "1: FLOCK  ADVISORY  WRITE 4711 fe:00:123 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 5 fe:00:123 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 6 fe:00:123 0 EOF\n3: FLOCK  ADVISORY  READ 7 fe:00:1234 0 EOF\n";
        assert_eq!(takers(locks, 123), [4711]);
    }

    #[test]
    fn the_holder_is_found_by_its_descriptor() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("f"), directory.path().join("other"));
        fs::write(&other, "").unwrap();
        let mut flock =
            Running::start("flock", &["-o", path.to_str().unwrap(), "sh", "-c", "echo locked; read x"]);
        assert_eq!(flock.line(), "locked");
        let here = Host::new(Path::new("/"));
        let holder = |path: &Path, deadline| here.lock_holder(&fs::metadata(path).unwrap(), deadline);
        let found = holder(&path, soon()).unwrap();
        assert_eq!(found.pid, flock.pid());
        assert!(found.command.starts_with("flock -o "), "{}", found.command);
        assert_eq!(holder(&other, soon()), None);
        assert_eq!(holder(&path, Deadline::after(Duration::ZERO)), None, "the deadline has passed");
    }

    #[test]
    fn two_files_of_one_inode_number_are_told_apart() {
        let info = |inode: u64| format!("lock:\t1: FLOCK  ADVISORY  WRITE 7 00:2a:{inode} 0 EOF\n");
        let tree = Tree::new().alive(7, 1).file("f", "").file("g", "").file("proc/7/cmdline", "java\0");
        let found = fs::metadata(tree.path("f")).unwrap();
        let tree = tree.file("proc/7/fdinfo/3", info(found.ino())).link("proc/7/fd/3", "../../../g");
        assert_eq!(tree.host().lock_holder(&found, soon()), None);
        let tree = tree.link("proc/7/fd/3", "../../../f");
        let holder = Holder { pid: 7, command: "java".to_owned() };
        assert_eq!(tree.host().lock_holder(&found, soon()), Some(holder));
        let ours = tree.without("proc/self").link("proc/self", "7");
        assert_eq!(ours.host().lock_holder(&found, soon()), None, "our own");
    }
}
