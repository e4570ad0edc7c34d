//! What a process runs: the arguments and the environment that it was started with.

use std::ffi::{CStr, OsStr, OsString};
use std::fs;
use std::io;
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::process;

use super::Host;
use super::file;
use crate::plain;

/// The longest command line in a message, in bytes.
const COMMAND_LENGTH: usize = 60;
/// How many pids a message names.
const MOST_NAMED: usize = 3;

impl Host {
    /// The command line for a message: printable ASCII, shortened. Read once per run, since many of a thousand
    /// assignments can have the same owner.
    pub(crate) fn command_line(&self, pid: u32) -> Option<String> {
        let mut known = self.found.command_lines.borrow_mut();
        known.entry(pid).or_insert_with(|| self.read_command_line(pid)).clone()
    }

    fn read_command_line(&self, pid: u32) -> Option<String> {
        let path = self.proc(format!("{pid}/cmdline"));
        // Whoever started us waits for us as well.
        let is_asking = self.is_here() && (pid == process::id() || pid == parent_id());
        let words = if is_asking { file::read(path).ok() } else { self.found.bounded.read(path) };
        let words = words.unwrap_or_default();
        let words = words.strip_suffix(b"\0").unwrap_or(&words);
        let line: Vec<u8> = words.iter().map(|byte| if *byte == 0 { b' ' } else { *byte }).collect();
        if !line.trim_ascii().is_empty() {
            return Some(printable(line.trim_ascii()));
        }
        // A zombie and a kernel thread have no command line, and the name is read without waiting.
        let name = file::read(self.proc(format!("{pid}/comm"))).ok()?;
        Some(printable(name.trim_ascii_end()))
    }

    /// Several processes for a message: the first few pids with their command lines.
    pub(crate) fn named(&self, pids: &[u32]) -> String {
        plain::few(pids, MOST_NAMED, |pid| match self.command_line(*pid) {
            Some(command) => format!("{pid} ({command})"),
            None => pid.to_string(),
        })
    }

    /// The arguments of its command line.
    pub(crate) fn arguments(&self, pid: u32) -> Option<Vec<OsString>> {
        let words = file::read(self.proc(format!("{pid}/cmdline"))).ok()?;
        let words = words.strip_suffix(b"\0").unwrap_or(&words).split(|byte| *byte == 0);
        Some(words.map(|word| OsStr::from_bytes(word).to_owned()).collect())
    }

    /// The file that it runs, if we may read that.
    pub(crate) fn executable(&self, pid: u32) -> Option<PathBuf> {
        fs::read_link(self.proc(format!("{pid}/exe"))).ok()
    }

    /// The environment that the process was started with.
    pub(crate) fn environment(&self, pid: u32) -> io::Result<Environment> {
        file::read_piece(self.proc(format!("{pid}/environ"))).map(Environment)
    }
}

/// The environment of another process: entries `NAME=VALUE`, each followed by a NUL.
#[derive(Debug)]
pub(crate) struct Environment(Vec<u8>);

impl Environment {
    /// The value of the first variable with that name. Bytes that are not UTF-8 are replaced.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        let mut entries = self.entries();
        let value = entries.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        Some(String::from_utf8_lossy(value).into_owned())
    }

    /// Split by `CStr`, which examines a machine word at a time: there may be hundreds of entries.
    fn entries(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.0[..];
        iter::from_fn(move || {
            let entry = CStr::from_bytes_until_nul(rest).map_or(rest, CStr::to_bytes);
            let is_left = !rest.is_empty();
            rest = rest.get(entry.len() + 1..).unwrap_or_default();
            is_left.then_some(entry)
        })
    }
}

/// A process chooses its own name: none of its control characters may reach a terminal or a log.
fn printable(text: &[u8]) -> String {
    let escaped = text.escape_ascii().to_string();
    if escaped.len() <= COMMAND_LENGTH {
        return escaped;
    }
    format!("{}...", &escaped[..COMMAND_LENGTH - 3])
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::super::fixture::{Running, Tree};
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn a_command_line_is_fit_for_a_message() {
        for (case, words, printed) in [
            ("words",             &b"java\0-Xmx1g\0Main\0"[..],  "java -Xmx1g Main"),
            ("control characters", b"a\x1b[2J\nb\0c\xff\0",     r"a\x1b[2J\nb c\xff"),
            ("none: a zombie",     b"",                         "Uxm queue"),
            ("blanks only",        b"\0\0\0",                   "Uxm queue"),
            ("rewritten in place", b"sshd: root@pts/0",         "sshd: root@pts/0"),
        ] {
            let tree = Tree::new().alive(7, 1).file("proc/7/cmdline", words).file("proc/7/comm", "Uxm queue\n");
            assert_eq!(tree.host().command_line(7).as_deref(), Some(printed), "{case}");
        }
        let long = Tree::new().file("proc/7/cmdline", [0x1b; 4096]).host().command_line(7).unwrap();
        assert_eq!((long.len(), long.ends_with("...")), (60, true));
        assert_eq!(Tree::new().host().command_line(7), None);
    }

    /// As of a process that changes its memory, and hangs in that.
    #[test]
    fn whoever_cannot_be_asked_is_called_by_its_name() {
        let mut tree = Tree::new().file("proc/8/cmdline", b"java\0Main\0").file("proc/8/comm", "java\n");
        for pid in [7, 9, 10] {
            tree = tree.file(&format!("proc/{pid}/comm"), "stuck\n");
            mkfifo(&tree.path(&format!("proc/{pid}/cmdline")), Mode::S_IRWXU).unwrap();
        }
        let host = tree.host();
        for (pid, name) in [(7, "stuck"), (8, "java Main"), (9, "stuck"), (10, "stuck")] {
            assert_eq!(host.command_line(pid).as_deref(), Some(name), "{pid}");
        }
        // Nobody is asked any more: each look of `status --watch` would leave some behind.
        assert_eq!(host.again().command_line(8).as_deref(), Some("java"));
        assert_eq!(tree.host().command_line(8).as_deref(), Some("java Main"));
    }

    #[test]
    fn an_environment_is_asked_by_name() {
        let tree = Tree::new().file("proc/7/environ", b"AB=2\0A=1\0\0EMPTY=\0junk\0B=x=\xff\0A=3\0C=cut");
        let found = tree.host().environment(7).unwrap();
        let asked = ["A", "EMPTY", "B", "C", "junk", "D", ""].map(|name| found.value(name));
        let value = |text: &str| Some(text.to_owned());
        assert_eq!(asked, [value("1"), value(""), value("x=\u{fffd}"), value("cut"), None, None, None]);
        assert!(tree.host().environment(8).is_err());
    }

    #[test]
    fn a_real_zombie_has_a_name_left() {
        let zombie = Running::start("true", &[]).becomes_a_zombie();
        assert_eq!(Host::new(Path::new("/")).command_line(zombie.pid()).as_deref(), Some("true"));
    }
}
