//! Reading the coordination file: under the lock for a change (`ledger`), or just to look at it.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use crate::assignment::Record;
use crate::coordination::file::{self, Access};
use crate::coordination::lock;
use crate::coordination::text::Text;
use crate::error::Error;
use crate::host::Host;
use crate::host::deadline::Deadline;
use crate::host::file::uninterrupted;
use crate::host::liveness::FileFacts;

/// Bytes, enough for about half a million lines. A larger file is not ours.
pub(super) const LARGEST: u64 = 64 << 20;

/// What the coordination file says, read without the right to change it.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) record: Record,
    pub(crate) facts: FileFacts,
    /// False if a writer held the lock, so that the record may mix two states.
    pub(crate) is_consistent: bool,
    /// Why the file would be refused for writing, if it would.
    pub(crate) doubts: Option<String>,
}

impl Snapshot {
    /// Reads the record as it is; `None` if there is no file.
    pub(crate) fn read(host: &Host, path: &Path, deadline: Deadline) -> Result<Option<Snapshot>, Error> {
        let Some((file, is_consistent)) = lock::shared(path, deadline)? else { return Ok(None) };
        Snapshot::of(host, path, &file, is_consistent).map(Some)
    }

    /// Like [`Snapshot::read`], but at once and without the lock: for processes that look after every change, and so again
    /// after its last write. If a hundred of them took the lock, the writers would have to wait.
    pub(crate) fn glance(host: &Host, path: &Path) -> Result<Option<Snapshot>, Error> {
        let opened = file::open(path, Access::Read)?;
        opened.map(|opened| Snapshot::of(host, path, &opened.file, false)).transpose()
    }

    fn of(host: &Host, path: &Path, file: &File, is_consistent: bool) -> Result<Snapshot, Error> {
        let found = file::metadata(file, path)?;
        let (text, facts) = read(host, file, &found, path)?;
        let is_outdated = is_outdated(host, &facts, &text);
        let text = heed(text, path, is_outdated)?;
        let doubts = lock::forsaken(host, path, &found).or_else(|| file::doubts(path, &found));
        Ok(Snapshot { record: text.record, facts, is_consistent, doubts })
    }
}

/// The record in a file with the metadata `found`.
pub(super) fn read(
    host: &Host,
    file: &File,
    found: &Metadata,
    path: &Path,
) -> Result<(Text, FileFacts), Error> {
    if found.len() > LARGEST {
        let problem = format!("has {} bytes, and a coordination file has at most {LARGEST}", found.len());
        return Err(Error::File { path: path.to_owned(), problem });
    }
    let bytes = read_whole(file, found.len()).map_err(Error::io("read", path))?;
    let changed = found.modified().map_err(Error::io("look at", path))?;
    Ok((Text::read(bytes), FileFacts::of(host, file, path, changed)))
}

/// The contents of a regular file that should have `length` bytes. One byte more is requested, so that the end of the file
/// need not be read separately.
fn read_whole(mut file: &File, length: u64) -> io::Result<Vec<u8>> {
    let length = usize::try_from(length).unwrap_or(0);
    let mut bytes = vec![0; length + 1];
    let read = uninterrupted(|| file.read(&mut bytes))?;
    bytes.truncate(read);
    if read != length {
        file.take(LARGEST).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Whether the file is a record that was last changed before this boot, so that every owner in it is dead. A file of
/// another kind, named by mistake, can be older than this boot as well.
pub(super) fn is_outdated(host: &Host, facts: &FileFacts, text: &Text) -> bool {
    !text.damaged.is_empty() && text.is_a_record() && facts.is_of_an_earlier_boot(host)
}

/// Damage causes the file to be refused or an index to be withheld, unless it is from an earlier boot.
pub(super) fn heed(mut text: Text, path: &Path, is_outdated: bool) -> Result<Text, Error> {
    if is_outdated {
        text.record.withheld.clear();
        return Ok(text);
    }
    match text.malformed.first() {
        None => Ok(text),
        Some(malformed) => Err(Error::Malformed {
            path: path.to_owned(),
            line: malformed.line,
            problem: format!(
                "{}; correct the line, or delete it if no process holds its unit",
                malformed.problem
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the lock it can be written to between the look and the read.
    #[test]
    fn a_file_is_read_whole_whatever_its_length_was() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        for text in ["", "0 1\n", "0 1\n1 2\n2 3\n"] {
            std::fs::write(&path, text).unwrap();
            for length in 0..20 {
                let read = read_whole(&File::open(&path).unwrap(), length).unwrap();
                assert_eq!(read, text.as_bytes(), "{length}");
            }
        }
    }
}
