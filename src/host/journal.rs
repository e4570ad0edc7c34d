//! Where the history is written: systemd's journal, syslog, or a file.
//!
//! Best effort: failing to write the history changes nothing else. Sockets are never waited for, and a file only for a
//! while ([`scribe`]). Sources: systemd's "Native Journal Protocol", RFC 3164 for `/dev/log`.

mod scribe;

use std::fs;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::sys::socket::{self, AddressFamily, SockFlag, SockType};

use super::Host;
use crate::plain;

/// The name under which the entries appear, in the journal and in syslog.
const IDENTIFIER: &str = "gpu-coord";
/// Facility user, severity informational.
const PRIORITY: u8 = 8 + 6;

/// Where the history goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Log {
    /// The journal, else syslog, else nowhere.
    Auto,
    Nowhere,
    File(PathBuf),
}

/// One entry: a line for people, and the values that it consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) message: String,
    /// Names are upper case, without the common prefix: `ACTION`.
    pub(crate) fields: Vec<(&'static str, String)>,
}

/// An open destination of entries.
#[derive(Debug)]
pub(crate) enum Sink {
    Journal(UnixDatagram),
    Syslog(UnixDatagram),
    File(PathBuf),
}

impl Host {
    /// `None` if there is nowhere to write to.
    pub(crate) fn history(&self, log: &Log) -> Option<Sink> {
        match log {
            Log::Nowhere => None,
            Log::File(path) => Some(Sink::File(path.clone())),
            Log::Auto => {
                let journal = self.path("run/systemd/journal/socket");
                let journal = connected(&journal).map(Sink::Journal);
                journal.or_else(|| connected(&self.dev("log")).map(Sink::Syslog))
            }
        }
    }
}

impl Sink {
    /// Fails if a file cannot be written to within `patience`. Whether a socket accepts an entry is not known.
    pub(crate) fn write(&self, entries: &[Entry], patience: Duration) -> io::Result<()> {
        let sent = |socket: &UnixDatagram, text: String| drop(socket.send(text.as_bytes()));
        match self {
            Sink::Journal(socket) => entries.iter().for_each(|entry| sent(socket, native(entry))),
            Sink::Syslog(socket) => entries.iter().for_each(|entry| sent(socket, rfc3164(entry))),
            Sink::File(path) => return scribe::append(path, &lines(entries), patience),
        }
        Ok(())
    }
}

/// A non-blocking socket that is connected to whoever listens at `path`.
fn connected(path: &Path) -> Option<UnixDatagram> {
    // In a container usually nobody listens, and looking costs a tenth of creating a socket.
    fs::symlink_metadata(path).ok()?;
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket::socket(AddressFamily::Unix, SockType::Datagram, flags, None).ok()?;
    let socket = UnixDatagram::from(socket);
    socket.connect(path).ok().map(|()| socket)
}

/// `KEY=value` lines: none of our values contains a newline.
fn native(entry: &Entry) -> String {
    let mut text = format!(
        "MESSAGE={}\nPRIORITY={}\nSYSLOG_IDENTIFIER={IDENTIFIER}\n",
        one_line(&entry.message),
        PRIORITY & 7
    );
    for (name, value) in &entry.fields {
        text += &format!("GPU_COORD_{name}={}\n", one_line(value));
    }
    text
}

/// The daemon adds the time.
fn rfc3164(entry: &Entry) -> String {
    format!("<{PRIORITY}>{IDENTIFIER}[{}]: {}", std::process::id(), one_line(&entry.message))
}

fn lines(entries: &[Entry]) -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now());
    entries.iter().map(|entry| format!("{now} {}\n", one_line(&entry.message))).collect()
}

/// Names that others chose reach a log without control characters.
fn one_line(text: &str) -> String {
    plain::masked(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fixture::Tree;

    fn entry() -> Entry {
        Entry { message: "granted 0 to\npid 1".to_owned(), fields: vec![("ACTION", "grant".to_owned())] }
    }

    fn note(host: &Host, log: &Log, count: usize) {
        if let Some(sink) = host.history(log) {
            sink.write(&vec![entry(); count], Duration::from_secs(60)).unwrap();
        }
    }

    #[test]
    fn the_journal_comes_before_syslog() {
        let tree = Tree::empty().file("run/systemd/journal/x", "");
        let host = tree.host();
        note(&host, &Log::Auto, 1); // nobody listens
        let syslog = UnixDatagram::bind(tree.path("dev/log")).unwrap();
        syslog.set_nonblocking(true).unwrap();
        note(&host, &Log::Auto, 1);
        let received = |socket: &UnixDatagram| {
            let mut buffer = [0; 1024];
            socket.recv(&mut buffer).ok().map(|count| String::from_utf8_lossy(&buffer[..count]).into_owned())
        };
        let own = std::process::id();
        assert_eq!(received(&syslog), Some(format!("<14>gpu-coord[{own}]: granted 0 to?pid 1")));
        let journal = UnixDatagram::bind(tree.path("run/systemd/journal/socket")).unwrap();
        note(&host, &Log::Auto, 1);
        let says =
            "MESSAGE=granted 0 to?pid 1\nPRIORITY=6\nSYSLOG_IDENTIFIER=gpu-coord\nGPU_COORD_ACTION=grant\n";
        assert_eq!(received(&journal).as_deref(), Some(says));
        assert_eq!(received(&syslog), None);
        note(&host, &Log::Nowhere, 1);
        journal.set_nonblocking(true).unwrap();
        assert_eq!(received(&journal), None);
    }

    #[test]
    fn a_full_journal_is_not_waited_for() {
        let tree = Tree::empty().file("run/systemd/journal/x", "");
        let _journal = UnixDatagram::bind(tree.path("run/systemd/journal/socket")).unwrap();
        note(&tree.host(), &Log::Auto, 10_000);
    }

    #[test]
    fn a_file_is_added_to_and_no_link_is_followed() {
        let tree = Tree::empty().file("log", "before\n").file("other", "").link("link", "other");
        let host = tree.host();
        note(&host, &Log::File(tree.path("log")), 2);
        let text = fs::read_to_string(tree.path("log")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (3, "before"));
        assert!(lines[1].ends_with("Z granted 0 to?pid 1"), "{text}");
        let refused = |path: &str| {
            let sink = host.history(&Log::File(tree.path(path))).unwrap();
            sink.write(&[entry()], Duration::from_secs(60)).unwrap_err().raw_os_error()
        };
        assert_eq!(refused("link"), Some(libc::ELOOP));
        assert_eq!(refused("nowhere/log"), Some(libc::ENOENT));
        assert_eq!(fs::read_to_string(tree.path("other")).unwrap(), "");
    }
}
