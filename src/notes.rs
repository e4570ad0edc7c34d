//! What is said on stderr beside an answer.

/// Collected while a command runs and printed by `main`, so that nothing below it writes to a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    /// One line each: the answer holds, and something should be looked at. Not printed with an error.
    pub(crate) warnings: Vec<String>,
    /// One line each, printed with `-v`.
    pub(crate) details: Vec<String>,
}

impl Notes {
    pub(crate) fn warn(&mut self, line: impl Into<String>) {
        self.warnings.push(line.into());
    }

    pub(crate) fn detail(&mut self, line: impl Into<String>) {
        self.details.push(line.into());
    }
}
