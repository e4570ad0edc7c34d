//! Appending to a file that is written to at chosen places otherwise.
//!
//! A flag of the descriptor would do for both only in turn: with O_APPEND, pwrite(2) appends on Linux, wherever it
//! is told to write. So the flag is the call's, or, before Linux 4.16 and on file systems that do not know it, the
//! descriptor's for one write.

#![expect(unsafe_code, reason = "no library has pwritev2(2)")]

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// Writes all of `bytes` behind what is there at that moment.
pub(crate) fn append(file: &File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match append_some(file, bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::EINTR) => {}
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => return append_by_descriptor(file, bytes),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn append_some(file: &File, bytes: &[u8]) -> Result<usize, Errno> {
    let piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: the call reads one such structure and the bytes that it leads to, and the offset is not used.
    let written = unsafe { libc::pwritev2(file.as_raw_fd(), &raw const piece, 1, 0, libc::RWF_APPEND) };
    Errno::result(written).map(isize::unsigned_abs)
}

fn append_by_descriptor(file: &File, bytes: &[u8]) -> io::Result<()> {
    let written = set(file, OFlag::O_APPEND).and_then(|()| (&*file).write_all(bytes));
    // Also after a failure.
    let ended = end(file);
    written.and(ended)
}

/// Makes sure that the next write goes where it is told to.
pub(crate) fn end(file: &File) -> io::Result<()> {
    set(file, OFlag::empty())
}

fn set(file: &File, flags: OFlag) -> io::Result<()> {
    fcntl(file, FcntlArg::F_SETFL(flags))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn what_is_appended_lies_behind_what_another_has_written() {
        for append in [append as fn(&File, &[u8]) -> io::Result<()>, append_by_descriptor] {
            let named = tempfile::NamedTempFile::new().unwrap();
            let file = File::options().read(true).write(true).open(named.path()).unwrap();
            named.as_file().write_all(b"other\n").unwrap();
            append(&file, b"ours\n").unwrap();
            file.write_all_at(b"#", 0).unwrap();
            let mut text = String::new();
            named.reopen().unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "#ther\nours\n");
        }
    }

    #[test]
    fn a_file_that_takes_nothing_says_so() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        for append in [append as fn(&File, &[u8]) -> io::Result<()>, append_by_descriptor] {
            assert_eq!(append(&full, b"x").unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        }
    }
}
