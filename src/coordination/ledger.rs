//! The locked record: read, decided upon, and changed while the lock is held.
//!
//! There is one way in. [`Ledger::open`] waits for the lock, and only the value that it returns can
//! [`commit`](Ledger::commit), so no change can be written that was decided without the lock.
//!
//! Invariants, each with the test that holds it:
//! * The file's inode is never replaced, and what was locked is what the path names
//!   (`a_lock_on_a_replaced_file_is_not_ours`).
//! * What cannot be understood is never read as free (`what_has_no_index_refuses_the_file`).
//! * A crash at any byte leaves all of a grant or none
//!   (`plan::tests::a_crash_at_any_byte_leaves_all_of_a_grant_or_none`).
//!
//! Not here: whether an owner is alive (`host`), and who is granted what (`policy`).

use std::fs::Metadata;
use std::io::{self, Read, Seek, Write};
use std::mem::{self, ManuallyDrop};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::assignment::{Assignment, Record};
use crate::coordination::file::{Access, Opened};
use crate::coordination::plan::{self, Change};
use crate::coordination::snapshot::{LARGEST, heed, is_outdated, read};
use crate::coordination::text::Text;
use crate::coordination::{file, lock};
use crate::error::Error;
use crate::host::Host;
use crate::host::deadline::Deadline;
use crate::host::liveness::FileFacts;

/// How long Flink's script may still write to the file without a lock after it has replaced it.
const SCRIPT_WRITES_FOR: Duration = Duration::from_secs(1);

/// The coordination file while this process holds its lock, which is released when this is dropped or the process dies.
#[derive(Debug)]
pub(crate) struct Ledger {
    opened: Opened,
    path: PathBuf,
    /// Dropped only by a run that has more than one, as in [`Host`].
    text: ManuallyDrop<Text>,
    is_one_of_many: bool,
    facts: FileFacts,
    /// Whether everything in the file is from an earlier boot, so that damage does not matter.
    is_outdated: bool,
}

/// A change that has been written; the lock is still held.
#[derive(Debug)]
pub(crate) struct Committed {
    ledger: Ledger,
    undo: Vec<plan::Write>,
    /// The pid of the owner that was granted something.
    pid: Option<u32>,
    /// The ids of its grants.
    grants: Vec<u64>,
}

impl Ledger {
    /// Creates the file if there is none, waits for its lock and reads the record. `owner`: the uid of the process that
    /// shall hold units.
    pub(crate) fn open(
        host: &Host,
        path: &Path,
        owner: Option<u32>,
        deadline: Deadline,
    ) -> Result<Ledger, Error> {
        let open = || file::open_or_create(path, Access::Write { owner }).map(Some);
        let missing =
            || Error::File { path: path.to_owned(), problem: "is removed again and again".to_owned() };
        Ledger::open_with(host, path, open, deadline)?.ok_or_else(missing)
    }

    /// The same, but `None` if there is no file.
    pub(crate) fn open_existing(
        host: &Host,
        path: &Path,
        owner: Option<u32>,
        deadline: Deadline,
    ) -> Result<Option<Ledger>, Error> {
        Ledger::open_with(host, path, || file::open(path, Access::Write { owner }), deadline)
    }

    fn open_with(
        host: &Host,
        path: &Path,
        open: impl Fn() -> Result<Option<Opened>, Error>,
        deadline: Deadline,
    ) -> Result<Option<Ledger>, Error> {
        let mut waited_for = None;
        loop {
            let Some((opened, found)) = lock::exclusive(host, path, &open, deadline)? else {
                return Ok(None);
            };
            let (text, facts) = read(host, &opened.file, &found, path)?;
            let has_script_lines =
                text.record.assignments.iter().any(|assignment| assignment.is_the_scripts());
            // Once for each file: its birth time may be in the future if the clock was set back.
            if has_script_lines && waited_for != Some(found.ino()) && wait_out_the_script(&found, deadline)? {
                waited_for = Some(found.ino());
                continue; // the file may have been appended to or replaced since it was read
            }
            let is_outdated = is_outdated(host, &facts, &text);
            let text = ManuallyDrop::new(heed(text, path, is_outdated)?);
            let path = path.to_owned();
            let is_one_of_many = host.is_one_of_many();
            return Ok(Some(Ledger { opened, path, text, is_one_of_many, facts, is_outdated }));
        }
    }

    pub(crate) fn record(&self) -> &Record {
        &self.text.record
    }

    pub(crate) fn facts(&self) -> FileFacts {
        self.facts
    }

    /// Writes a change. On failure nothing of its grant stays recorded. Writes nothing after a read that failed only for
    /// a moment ([`Host::check_read`]), since owners may have been judged by it.
    ///
    /// Consumes the ledger: after a change, what was read before must not be used to plan another one.
    pub(crate) fn commit(self, host: &Host, change: &Change) -> Result<Committed, Error> {
        host.check_read()?;
        let plan = plan::plan(&self.text, change, self.is_outdated);
        let pid = change.granted.first().map(|granted| granted.owner.pid);
        let grants =
            change.granted.iter().filter_map(|granted| granted.grant).map(|grant| grant.id).collect();
        let committed = Committed { ledger: self, undo: plan.undo, pid, grants };
        let ledger = &committed.ledger;
        ledger.put(&plan.clear)?;
        if let Err(error) = ledger.grow(&plan.growth) {
            return ledger.release_only(change, error).map(|()| committed);
        }
        match ledger.put(&plan.fill).and_then(|()| ledger.check_name(host)) {
            Ok(()) => Ok(committed),
            Err(error) => Err(committed.undo(error)),
        }
    }

    /// On a full disk units can still be given back, since that takes no space. The script's lines whose owners are
    /// alive are then left as they are; a later call will rewrite them.
    fn release_only(&self, change: &Change, error: Error) -> Result<(), Error> {
        let Change { granted, regranted, queued, drained, released, undrained, .. } = change;
        if !(granted.is_empty() && regranted.is_empty() && queued.is_none() && drained.is_empty()) {
            return Err(error);
        }
        // Otherwise the following writes would be appended.
        self.set_append(false).map_err(Error::io("write to", &self.path))?;
        let (released, undrained) = (released.clone(), undrained.clone());
        let released = Change { released, undrained, ..Change::default() };
        self.put(&plan::plan(&self.text, &released, false).fill)
    }

    /// Who replaces or removes the file while it is locked makes the others lock another one.
    fn check_name(&self, host: &Host) -> Result<(), Error> {
        let found = lock::named(self.opened.inode, &self.path)?;
        if found.is_some_and(|found| lock::forsaken(host, &self.path, &found).is_none()) {
            return Ok(());
        }
        let problem =
            "was replaced or removed while it was locked; find out by what, and try again".to_owned();
        Err(Error::File { path: self.path.clone(), problem })
    }

    fn put(&self, writes: &[plan::Write]) -> Result<(), Error> {
        for write in writes {
            let at = write.at as u64;
            self.opened.file.write_all_at(&write.bytes, at).map_err(Error::io("write to", &self.path))?;
        }
        Ok(())
    }

    /// Appends newlines, with O_APPEND so that a line that was written without the lock is never overwritten.
    fn grow(&self, growth: &[u8]) -> Result<(), Error> {
        if growth.is_empty() {
            return Ok(());
        }
        let grown = (self.text.bytes.len() + growth.len()) as u64;
        if grown > LARGEST {
            let problem = format!("would have {grown} bytes, and has at most {LARGEST}; ask for fewer units");
            return Err(Error::File { path: self.path.clone(), problem });
        }
        let written = self.set_append(true).and_then(|()| (&self.opened.file).write_all(growth));
        // Also after a failure: with O_APPEND, pwrite(2) on Linux appends and ignores the offset.
        let ended = self.set_append(false);
        written.map_err(Error::io("grow", &self.path))?;
        ended.map_err(Error::io("write to", &self.path))?;
        if file::metadata(&self.opened.file, &self.path)?.len() == grown {
            return Ok(());
        }
        let problem = "was written to without its lock; find out by what, and try again".to_owned();
        Err(Error::File { path: self.path.clone(), problem })
    }

    /// Sets O_APPEND on the descriptor. RWF_APPEND of pwritev2(2) is not used: before Linux 6.8 overlayfs drops it, which
    /// would overwrite the beginning of the record.
    fn set_append(&self, append: bool) -> io::Result<()> {
        let flags = if append { OFlag::O_APPEND } else { OFlag::empty() };
        fcntl(&self.opened.file, FcntlArg::F_SETFL(flags))?;
        Ok(())
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        if self.is_one_of_many {
            drop(ManuallyDrop::into_inner(mem::take(&mut self.text)));
        }
    }
}

impl Committed {
    /// Undoes the grant, which could not be handed over because of `error`. Returns the error to report.
    pub(crate) fn undo(self, error: Error) -> Error {
        match (self.ledger.put(&self.undo), self.pid) {
            (Err(problem), Some(pid)) if self.may_be_recorded() => {
                Error::NotUndone { pid, problem: format!("{}, and {}", error.chain(), problem.chain()) }
            }
            _ => error,
        }
    }

    /// Whether any of the grant may hold. Only the last write makes it hold, so it does not if an earlier one failed.
    fn may_be_recorded(&self) -> bool {
        let mut bytes = Vec::new();
        let file = &self.ledger.opened.file;
        let read = (&*file).rewind().and_then(|()| file.take(LARGEST).read_to_end(&mut bytes));
        let is_ours = |line: &Assignment| line.grant.is_some_and(|grant| self.grants.contains(&grant.id));
        read.is_err() || Text::read(bytes).record.assignments.iter().any(is_ours)
    }
}

/// Flink's script locks the file, replaces it (`sed -i`), and then appends to the new one, whose lock it does not have. So
/// a young file with lines of the script is left alone for a moment. Returns whether that took a wait.
fn wait_out_the_script(found: &Metadata, deadline: Deadline) -> Result<bool, Error> {
    let Ok(made) = found.created().or_else(|_| found.modified()) else { return Ok(false) };
    // A file from the future counts as one that was created just now.
    let age = SystemTime::now().duration_since(made).unwrap_or_default();
    let Some(wait) = SCRIPT_WRITES_FOR.checked_sub(age).filter(|wait| !wait.is_zero()) else {
        return Ok(false);
    };
    if wait > deadline.left() {
        return Err(deadline.error("Flink's script to finish writing the coordination file"));
    }
    thread::sleep(wait);
    Ok(true)
}
