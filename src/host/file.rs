//! Reading files that the kernel makes up as they are read.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Most such files fit into one page.
const USUAL: usize = 4096;
/// None is larger that is read whole.
const LARGEST: u64 = 64 << 20;

/// The contents of a file of `/proc` or `/sys`. `std::fs::read` asks such a file for 32 bytes first, then
/// for as many again, and so on, since it shows no size; that is most of what a short run costs.
pub(crate) fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let (file, mut contents) = begin(path)?;
    file.take(LARGEST).read_to_end(&mut contents)?;
    Ok(contents)
}

/// The same of a file that the kernel hands out in one piece, as it does `stat` and `status` of a process:
/// what fills less than was asked for is all of it, and its end need not be read.
pub(crate) fn read_piece(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let (file, mut contents) = begin(path)?;
    if contents.len() == USUAL {
        file.take(LARGEST).read_to_end(&mut contents)?;
    }
    Ok(contents)
}

/// What an open file that has one line says now; it is never longer than a page.
pub(crate) fn read_line(file: &File) -> io::Result<Vec<u8>> {
    let mut page = [0; USUAL];
    let length = uninterrupted(|| file.read_at(&mut page, 0))?;
    Ok(page[..length].to_vec())
}

/// The file, and its first piece. What it is read into is on the stack: the allocator is asked for no more
/// than there is.
fn begin(path: impl AsRef<Path>) -> io::Result<(File, Vec<u8>)> {
    let mut file = File::open(path)?;
    let mut page = [0; USUAL];
    let length = uninterrupted(|| file.read(&mut page))?;
    Ok((file, page[..length].to_vec()))
}

/// Again after a signal.
pub(crate) fn uninterrupted(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// The same as text; an error of kind `InvalidData` if it is not UTF-8.
pub(crate) fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
