//! Reading files that the kernel generates while they are read.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Most such files fit into one page.
const USUAL: usize = 4096;
/// At most so much of a file is read.
const LARGEST: u64 = 64 << 20;

/// The contents of a file of `/proc` or `/sys`. Such a file reports no size, so `std::fs::read` would begin with 32 bytes
/// and read in many small steps, which would dominate the cost of a short run.
pub(crate) fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let (file, mut contents) = begin(path)?;
    file.take(LARGEST).read_to_end(&mut contents)?;
    Ok(contents)
}

/// The same for a file that the kernel delivers in one piece, such as `stat` and `status` of a process: a short read is
/// the whole file, and its end need not be read.
pub(crate) fn read_piece(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let (file, mut contents) = begin(path)?;
    if contents.len() == USUAL {
        file.take(LARGEST).read_to_end(&mut contents)?;
    }
    Ok(contents)
}

/// The present contents of an open file of one line, which is never longer than a page.
pub(crate) fn read_line(file: &File) -> io::Result<Vec<u8>> {
    let mut page = [0; USUAL];
    let length = uninterrupted(|| file.read_at(&mut page, 0))?;
    Ok(page[..length].to_vec())
}

/// The file and its first piece, read into a buffer on the stack so that no more is allocated than needed.
fn begin(path: impl AsRef<Path>) -> io::Result<(File, Vec<u8>)> {
    let mut file = File::open(path)?;
    let mut page = [0; USUAL];
    let length = uninterrupted(|| file.read(&mut page))?;
    Ok((file, page[..length].to_vec()))
}

/// Repeats a read that a signal interrupted.
pub(crate) fn uninterrupted(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Like [`read`], as text; an error of kind `InvalidData` if it is not UTF-8.
pub(crate) fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
