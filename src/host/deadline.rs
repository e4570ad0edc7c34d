//! The one deadline of a run: the probe of the devices, the wait for the lock and the print share it.

use std::time::{Duration, Instant};

use crate::error::Error;

/// The time by which the run ends, whatever it is waiting for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    /// `limit` from now.
    pub(crate) fn after(limit: Duration) -> Deadline {
        Deadline { at: Instant::now() + limit, limit }
    }

    /// `limit` from `start`.
    pub(crate) fn since(start: Instant, limit: Duration) -> Deadline {
        Deadline { at: start + limit, limit }
    }

    /// Zero once it has passed.
    pub(crate) fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    pub(crate) fn has_passed(&self) -> bool {
        self.left().is_zero()
    }

    /// The error to report when it has passed; `what` completes "while waiting for".
    pub(crate) fn error(&self, what: impl Into<String>) -> Error {
        Error::Deadline { limit: self.limit, what: what.into() }
    }
}
