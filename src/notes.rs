//! What is printed on stderr next to an answer.

/// Collected while a command runs and printed by `cli`, so that nothing below it writes to a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    /// One line each: the answer is valid, but somebody should look at something. Not printed with an error.
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
