//! How the answer and the messages leave the program.
//!
//! Nothing here waits past the deadline: a stream is polled before each write, and a write has at most `PIPE_BUF` bytes,
//! for which a pipe that polls as writable has room (unless another process fills it in between). `O_NONBLOCK` would be
//! simpler, but it belongs to the open file description, which we share with the parent.
//!
//! stdout carries the answer, and every failure to write it is an error. stderr is best effort: a message
//! that cannot be written must not change what the program does.

#![expect(unsafe_code, reason = "the size of a terminal is read with ioctl(2)")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::error::Error;
use crate::host::deadline::Deadline;
use crate::start::Output;

/// Standard output, handed to a command as a value.
#[derive(Debug)]
pub(crate) struct Stdout {
    stream: io::Stdout,
    at_start: Output,
}

impl Stdout {
    pub(crate) fn new(at_start: Output) -> Stdout {
        Stdout { stream: io::stdout(), at_start }
    }

    /// Waits until an answer could be written. Must be called before anything is locked or recorded.
    pub(crate) fn ready(&self, deadline: Deadline) -> Result<(), Error> {
        let stream = self.descriptor()?;
        can_write(stream).map_err(output)?;
        if self.at_start == Output::Ready { Ok(()) } else { wait(stream, deadline) }
    }

    /// Writes all of `text`, or fails.
    pub(crate) fn write(&self, text: &str, deadline: Deadline) -> Result<(), Error> {
        write_all(self.descriptor()?, text.as_bytes(), deadline)
    }

    /// The terminal, if it is one.
    pub(crate) fn terminal(&self, no_color: bool) -> Option<Terminal> {
        let stream = self.descriptor().ok().filter(|stream| nix::unistd::isatty(*stream).unwrap_or(false))?;
        Some(Terminal { width: width(stream), has_colours: !no_color })
    }

    /// For watching whether its reader goes away.
    pub(crate) fn stream(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor().ok()
    }

    fn descriptor(&self) -> Result<BorrowedFd<'_>, Error> {
        if self.at_start == Output::Closed { Err(output(Errno::EBADF)) } else { Ok(self.stream.as_fd()) }
    }
}

/// A terminal that the answer is shown on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terminal {
    /// In columns; `None` if not known.
    pub(crate) width: Option<usize>,
    pub(crate) has_colours: bool,
}

/// The width by TIOCGWINSZ of ioctl_tty(2). A terminal that does not know its size reports 0.
fn width(stream: BorrowedFd) -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call writes one such structure, which is ours.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (result == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}

fn output(errno: Errno) -> Error {
    Error::Output(errno.into())
}

/// Fails for a descriptor that is open only for reading, which polls as writable all the same.
fn can_write(stream: BorrowedFd) -> Result<(), Errno> {
    let flags = OFlag::from_bits_retain(fcntl(stream, FcntlArg::F_GETFL)?);
    let is_for_reading = flags & OFlag::O_ACCMODE == OFlag::O_RDONLY;
    if is_for_reading { Err(Errno::EBADF) } else { Ok(()) }
}

pub(super) fn write_all(stream: BorrowedFd, mut rest: &[u8], deadline: Deadline) -> Result<(), Error> {
    while !rest.is_empty() {
        wait(stream, deadline)?;
        let chunk = &rest[..rest.len().min(libc::PIPE_BUF)];
        match nix::unistd::write(stream, chunk) {
            Ok(written) => rest = &rest[written..],
            // EAGAIN: the parent made the stream non-blocking, and another writer was faster, perhaps always.
            Err(Errno::EINTR | Errno::EAGAIN) if deadline.has_passed() => return Err(late(deadline)),
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(errno) => return Err(output(errno)),
        }
    }
    Ok(())
}

/// Waits until `stream` accepts a chunk without blocking.
fn wait(stream: BorrowedFd, deadline: Deadline) -> Result<(), Error> {
    loop {
        let mut polled = [PollFd::new(stream, PollFlags::POLLOUT)];
        match poll(&mut polled, timeout(deadline)) {
            Ok(0) if deadline.has_passed() => return Err(late(deadline)),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return verdict(polled[0].revents().unwrap_or(PollFlags::empty())).map_err(output),
            Err(errno) => return Err(output(errno)),
        }
    }
}

fn late(deadline: Deadline) -> Error {
    deadline.error("the reader of standard output")
}

/// A pipe that nobody reads, and a socket whose peer is gone, poll as writable too.
fn verdict(events: PollFlags) -> Result<(), Errno> {
    if events.contains(PollFlags::POLLNVAL) {
        Err(Errno::EBADF)
    } else if events.intersects(PollFlags::POLLERR | PollFlags::POLLHUP) {
        Err(Errno::EPIPE)
    } else {
        Ok(())
    }
}

/// Rounded up, since otherwise the last wait would end early and be repeated without a pause.
fn timeout(deadline: Deadline) -> PollTimeout {
    let milliseconds = deadline.left().as_micros().div_ceil(1000);
    i32::try_from(milliseconds)
        .ok()
        .and_then(|left| PollTimeout::try_from(left).ok())
        .unwrap_or(PollTimeout::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write, pipe};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use super::*;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_millis(50))
    }

    fn errno(outcome: Result<(), Error>) -> Option<i32> {
        match outcome {
            Err(Error::Output(error)) => error.raw_os_error(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_cannot_take_an_answer_is_told() {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        assert_eq!(errno(wait(writer.as_fd(), soon())), Some(libc::EPIPE));
        assert_eq!(errno(write_all(writer.as_fd(), b"0\n", soon())), Some(libc::EPIPE));

        let (socket, peer) = UnixStream::pair().unwrap();
        drop(peer);
        assert_eq!(errno(wait(socket.as_fd(), soon())), Some(libc::EPIPE));

        let full = File::options().write(true).open("/dev/full").unwrap();
        assert_eq!(errno(write_all(full.as_fd(), b"0\n", soon())), Some(libc::ENOSPC));

        let readable = File::open("/dev/null").unwrap();
        assert_eq!(can_write(readable.as_fd()), Err(Errno::EBADF));
        for options in [File::options().write(true), File::options().read(true).write(true)] {
            assert_eq!(can_write(options.open("/dev/null").unwrap().as_fd()), Ok(()));
        }
    }

    #[test]
    fn a_reader_that_does_not_read_costs_no_more_than_the_deadline() {
        let (_reader, writer) = pipe().unwrap();
        let started = Instant::now();
        let text = vec![b'x'; 1 << 20];
        let Err(error) = write_all(writer.as_fd(), &text, soon()) else { panic!("a pipe took 1 MiB") };
        assert_eq!(
            error.to_string(),
            "the deadline of 0.05 s passed while waiting for the reader of standard output"
        );
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
        assert!(wait(writer.as_fd(), soon()).is_err(), "the pipe is full now");
    }

    #[test]
    fn a_slow_reader_gets_everything() {
        let (mut reader, writer) = pipe().unwrap();
        let text: Vec<u8> = (0..1_000_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let read = std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut read = Vec::new();
                reader.read_to_end(&mut read).unwrap();
                read
            });
            write_all(writer.as_fd(), &text, Deadline::after(Duration::from_secs(60))).unwrap();
            drop(writer);
            reader.join().unwrap()
        });
        assert!(read == text);
    }

    #[test]
    fn a_file_takes_an_answer() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"before\n").unwrap();
        assert_eq!(can_write(file.as_fd()), Ok(()));
        wait(file.as_fd(), soon()).unwrap();
        write_all(file.as_fd(), b"0,1\n", soon()).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 11);
    }
}
