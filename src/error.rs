//! Every way to fail, each with the exit status that says who can act on it.

use std::io;
use std::iter;
use std::path::PathBuf;
use std::time::Duration;

use crate::exit::Exit;

/// One failure, worded as a line that says what is wrong, where, and what to do.
///
/// A cause is the `source` and is never repeated in the text: `main` prints the chain once.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The command line, the environment or a process named there is wrong.
    #[error("{0}")]
    Usage(String),
    /// The units exist and are taken, or there are fewer than requested.
    #[error("{0}")]
    NotEnough(String),
    /// A signal that ends this process is pending. Never printed: the signal takes effect first.
    #[error("a signal has ended the wait")]
    Interrupted,
    /// The whole run is bounded; `what` names what was waited for.
    #[error("the deadline of {} s passed while waiting for {what}", seconds(*limit))]
    Deadline { limit: Duration, what: String },
    /// A source of devices gave no answer in its part of the time.
    #[error("source {name} gave no answer in the {} s that it had of the deadline: {problem}", seconds(*limit))]
    Late { name: &'static str, limit: Duration, problem: String },
    /// A line of a file cannot be understood, and so never counts as "free".
    #[error("{}:{line}: {problem}", path.display())]
    Malformed { path: PathBuf, line: usize, problem: String },
    /// The configuration file is wrong in one place.
    #[error("{}:{line}:{column}: {problem}", path.display())]
    Configuration { path: PathBuf, line: usize, column: usize, problem: String },
    /// A file that is refused as it is, with what to do about it.
    #[error("{}: {problem}", path.display())]
    File { path: PathBuf, problem: String },
    /// The kernel refused an operation on a file.
    #[error("cannot {action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// No inventory could be read, and why.
    #[error("{0}")]
    Inventory(String),
    /// A warning, where `--strict` makes each one an error.
    #[error("{0} (an error by --strict)")]
    Strict(String),
    /// The owner cannot be determined, or has changed.
    #[error("{0}")]
    Owner(String),
    /// Isolation was requested and is not in force; nothing is recorded, and everything is as it was.
    #[error("{0}")]
    Isolation(String),
    /// Isolation failed half-way and could not be undone.
    #[error("{0}")]
    HalfIsolated(String),
    /// The request is not allowed, whatever is free.
    #[error("{0}")]
    Refused(String),
    /// The command of `exec` cannot be run.
    #[error("cannot run {}", path.display())]
    Run {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The command of `exec` cannot be run as the user that `--user` names.
    #[error("cannot become user {user}")]
    Become {
        user: String,
        #[source]
        source: io::Error,
    },
    /// The answer could not be printed, so nothing stays recorded.
    #[error("cannot write the answer to standard output")]
    Output(#[source] io::Error),
    /// The answer could not be printed, and its record could not be undone.
    #[error(
        "recorded for pid {pid} and not given: {problem}; the units are free again when pid {pid} has ended"
    )]
    NotUndone { pid: u32, problem: String },
}

/// Seconds for messages, rounded to tenths unless below one tenth. How long a source had depends on what went before,
/// so more digits would mean nothing.
pub(crate) fn seconds(limit: Duration) -> f64 {
    let seconds = limit.as_secs_f64();
    if seconds < 0.1 { seconds } else { (seconds * 10.0).round() / 10.0 }
}

impl Error {
    /// No `_` arm: a new variant does not compile until someone decides who can act on it.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Error::Usage(_) => Exit::Usage,
            Error::NotEnough(_) | Error::Interrupted => Exit::NotEnough,
            Error::Deadline { .. } | Error::Late { .. } => Exit::Deadline,
            Error::Isolation(_) | Error::HalfIsolated(_) => Exit::Isolation,
            Error::Refused(_) => Exit::Refused,
            Error::Run { source, .. } if source.kind() == io::ErrorKind::NotFound => Exit::NoCommand,
            Error::Run { .. } | Error::Become { .. } => Exit::CannotRun,
            Error::Malformed { .. }
            | Error::Configuration { .. }
            | Error::File { .. }
            | Error::Io { .. }
            | Error::Inventory(_)
            | Error::Owner(_)
            | Error::Strict(_)
            | Error::Output(_)
            | Error::NotUndone { .. } => Exit::Host,
        }
    }

    /// For `map_err`: `File::open(path).map_err(Error::io("open", path))?`.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Error::Io { action, path, source }
    }

    /// The message and its causes, each said once, and what to do where the kernel's words do not say it.
    pub(crate) fn chain(&self) -> String {
        let causes = iter::successors(std::error::Error::source(self), |cause| cause.source());
        let text = causes.fold(self.to_string(), |text, cause| format!("{text}: {cause}"));
        self.cure().map_or_else(|| text.clone(), |cure| format!("{text}; {cure}"))
    }

    fn cure(&self) -> Option<&'static str> {
        use io::ErrorKind::{NotFound, PermissionDenied};
        match self {
            Error::Io { source, .. } => cure_of_host(source),
            Error::Run { source, .. } if source.kind() == PermissionDenied => {
                Some("name a file that may be executed")
            }
            Error::Run { source, .. } if source.kind() == NotFound => Some(
                "name what is there, by a path or in PATH; of a script its interpreter has to be there, too",
            ),
            Error::Become { .. } => Some(
                "in a container, root becomes only users that its user namespace has, and needs CAP_SETUID and CAP_SETGID",
            ),
            _ => None,
        }
    }
}

/// What to do about what the kernel refuses on any file.
fn cure_of_host(source: &io::Error) -> Option<&'static str> {
    use io::ErrorKind::{FileTooLarge, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    match source.kind() {
        PermissionDenied => Some("run gpu-coord as a user who may do that"),
        StorageFull => Some("make room on its file system"),
        QuotaExceeded => Some("have the quota of its file system raised"),
        ReadOnlyFilesystem => Some("mount its file system for writing, or name a file on another"),
        FileTooLarge => Some("raise the limit of the size of files (ulimit -f)"),
        _ => match source.raw_os_error() {
            Some(libc::EMFILE) => Some("raise the limit of open files (ulimit -n)"),
            Some(libc::ENFILE) => Some("the whole host has as many files open as it can (fs.file-max)"),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_told_in_tenths() {
        for (microseconds, told) in [(999_700, "1"), (450_000, "0.5"), (8_000_000, "8"), (50_000, "0.05")] {
            assert_eq!(seconds(Duration::from_micros(microseconds)).to_string(), told);
        }
    }
}
