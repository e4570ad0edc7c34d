//! The output streams of a child: read without waiting, and never without end.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::host::child::{Failure, TICK};

/// One of the child's streams, and what came out of it.
pub(super) struct Stream {
    name: &'static str,
    limit: u64,
    /// `None` once its end was read.
    pipe: Option<File>,
    pub(super) text: Vec<u8>,
}

impl Stream {
    pub(super) fn new(
        name: &'static str,
        limit: u64,
        pipe: Option<impl Into<OwnedFd>>,
    ) -> Result<Stream, Failure> {
        let pipe = pipe.map(|pipe| File::from(pipe.into()));
        if let Some(pipe) = &pipe {
            fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(|err| Failure::Listen(err.into()))?;
        }
        Ok(Stream { name, limit, pipe, text: Vec::new() })
    }

    /// Takes what is there, up to one byte past the limit.
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

/// Returns when one of the streams may have more, or after `most`. With both at their end only the exit
/// is missing, which follows at once, or else is looked for ever more seldom.
pub(super) fn wait(streams: [&Stream; 2], most: Duration, pause: &mut Duration) -> io::Result<()> {
    let pipes = streams.into_iter().filter_map(|stream| stream.pipe.as_ref());
    let mut fds: Vec<PollFd<'_>> = pipes.map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)).collect();
    if fds.is_empty() {
        std::thread::sleep(most.min(*pause));
        *pause = TICK.min(*pause * 2);
        return Ok(());
    }
    let most = PollTimeout::try_from(most).unwrap_or(PollTimeout::ZERO);
    match poll(&mut fds, most) {
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
        let (reader, mut writer) = io::pipe().unwrap();
        let mut stream = Stream::new("standard output", 10, Some(reader)).unwrap();
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
        let (reader, mut writer) = io::pipe().unwrap();
        let mut stream = Stream::new("standard output", 4, Some(reader)).unwrap();
        writer.write_all(b"text").unwrap();
        stream.drain().unwrap();
        writer.write_all(b"s").unwrap();
        assert!(matches!(stream.drain(), Err(Failure::Flood { limit: 4, .. })));
    }
}
