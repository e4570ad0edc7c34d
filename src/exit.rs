//! The exit statuses: a status says who can act on it.

/// What the program ends with. Keep this list and `Exit statuses` in README.md the same; a test compares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Success = 0,
    /// The host is sound and its units are taken: retry later, or ask for fewer. For `check` and `doctor`: something
    /// was found, and is on stdout.
    NotEnough = 1,
    /// The command line is wrong: retrying cannot help.
    Usage = 2,
    /// The deadline passed while waiting: retry.
    Deadline = 3,
    /// The host is not as this program needs it: an operator must look.
    Host = 4,
    /// Isolation was requested and could not be enforced and proven: an operator must look.
    Isolation = 5,
    /// Refused by policy: the caller asks for what it may not have.
    Refused = 6,
    /// `exec`: the command exists but cannot be run.
    CannotRun = 126,
    /// `exec`: the command does not exist.
    NoCommand = 127,
}
