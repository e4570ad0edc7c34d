//! Reading files of others that can keep their reader for ever.
//!
//! A command line is read by the kernel in the memory of its process, which nobody may look at while it changes: as
//! long as that hangs in doing so, on a file system whose server is gone, or that is its own. So a thread reads, and is
//! left behind if that takes too long; it ends with this program.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow};

use super::file;

/// For one file, which is read within microseconds unless the host is busy.
const PATIENCE: Duration = Duration::from_millis(500);
/// After so many that hang no other is read: all together take a second at most.
const MOST_HANGING: usize = 2;

#[derive(Debug, Default)]
pub(super) struct Bounded {
    reader: RefCell<Option<Reader>>,
    hanging: Cell<usize>,
}

/// A thread, which reads one file after the other.
#[derive(Debug)]
struct Reader {
    paths: Sender<PathBuf>,
    contents: Receiver<Option<Vec<u8>>>,
}

impl Bounded {
    /// `None` if it cannot be read, or not in time.
    pub(super) fn read(&self, path: PathBuf) -> Option<Vec<u8>> {
        if self.hanging.get() >= MOST_HANGING {
            return None;
        }
        let reader = self.reader.take().or_else(Reader::start)?;
        reader.paths.send(path).ok()?;
        match reader.contents.recv_timeout(PATIENCE) {
            Ok(contents) => {
                self.reader.replace(Some(reader));
                contents
            }
            Err(_) => {
                self.hanging.set(self.hanging.get() + 1);
                None
            }
        }
    }
}

impl Reader {
    fn start() -> Option<Reader> {
        let ((paths, asked), (answers, contents)) = (channel::<PathBuf>(), channel());
        let read = move || asked.iter().try_for_each(|path| answers.send(file::read(path).ok()));
        // It has its mask from here: it never takes the signals that are put off.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
        let started = thread::Builder::new().spawn(read);
        let _ = before.and_then(|mask| mask.thread_set_mask());
        started.is_ok().then_some(Reader { paths, contents })
    }
}
