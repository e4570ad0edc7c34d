//! The directory of one test, which is shown if the test fails.

use std::fs;
use std::io::{Write, stderr};
use std::path::PathBuf;
use std::thread;

use tempfile::TempDir;

pub(crate) struct Directory(TempDir);

impl Directory {
    pub(crate) fn new() -> Directory {
        Directory(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// Logs, coordination files, what callers said: the ends of whatever is text.
impl Drop for Directory {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        for entry in fs::read_dir(self.0.path()).into_iter().flatten().flatten() {
            if let Ok(text) = fs::read_to_string(entry.path()) {
                let lines: Vec<&str> = text.lines().collect();
                let end = lines[lines.len().saturating_sub(40)..].join("\n");
                // A second panic would abort, and leave the processes of other tests behind.
                let _ = writeln!(stderr(), "--- the end of {}:\n{end}", entry.path().display());
            }
        }
    }
}
