//! The output streams of a child, read without waiting and up to a limit.

use std::io::{self, PipeReader, PipeWriter, Read, pipe};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::host::child::{Failure, TICK};

/// The initial capacity, enough for the output of most tools: otherwise it would be read in many small pieces.
const USUAL: usize = 4096;

/// One of the child's streams and what was read from it.
pub(super) struct Stream {
    name: &'static str,
    limit: u64,
    /// `None` once its end was read.
    pipe: Option<PipeReader>,
    pub(super) text: Vec<u8>,
}

impl Stream {
    /// A stream, and the end of it that the child writes to.
    pub(super) fn new(name: &'static str, limit: u64) -> io::Result<(Stream, PipeWriter)> {
        let (reader, writer) = pipe()?;
        fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok((Stream { name, limit, pipe: Some(reader), text: Vec::with_capacity(USUAL) }, writer))
    }

    /// `None` if its end was read.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(PipeReader::as_fd)
    }

    /// Reads what is there, up to one byte past the limit.
    pub(super) fn drain(&mut self) -> Result<(), Failure> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        let left = (self.limit + 1).saturating_sub(self.text.len() as u64);
        match pipe.take(left).read_to_end(&mut self.text) {
            Ok(_) if self.text.len() as u64 > self.limit => {
                Err(Failure::Flood { stream: self.name, limit: self.limit })
            }
            Ok(_) => {
                self.pipe = None;
                Ok(())
            }
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(err) => Err(Failure::Listen(err)),
        }
    }
}

/// Returns when one of `events` has happened, or after `most`. Without events only the exit is missing: it usually
/// follows at once, and otherwise is polled at growing intervals.
pub(super) fn wait(events: &[BorrowedFd], most: Duration, pause: &mut Duration) -> io::Result<()> {
    if events.is_empty() {
        std::thread::sleep(most.min(*pause));
        *pause = TICK.min(*pause * 2);
        return Ok(());
    }
    let mut events: Vec<_> = events.iter().map(|event| PollFd::new(*event, PollFlags::POLLIN)).collect();
    let most = PollTimeout::try_from(most).unwrap_or(PollTimeout::ZERO);
    match poll(&mut events, most) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(err) => Err(err.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Else the wait for the exit of a child that has closed its streams would be a loop without rest.
    #[test]
    fn a_stream_at_its_end_is_not_waited_for() {
        let (mut stream, mut writer) = Stream::new("standard output", 10).unwrap();
        stream.drain().unwrap();
        writer.write_all(b"text").unwrap();
        stream.drain().unwrap();
        assert!(stream.pipe.is_some());
        drop(writer);
        stream.drain().unwrap();
        assert!(stream.pipe.is_none());
        assert_eq!(stream.text, b"text");
    }

    #[test]
    fn the_limit_can_be_reached_and_not_passed() {
        let (mut stream, mut writer) = Stream::new("standard output", 4).unwrap();
        writer.write_all(b"text").unwrap();
        stream.drain().unwrap();
        writer.write_all(b"s").unwrap();
        assert!(matches!(stream.drain(), Err(Failure::Flood { limit: 4, .. })));
    }
}
