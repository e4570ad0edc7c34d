//! What the tests with real engines share: Python packages that carry them, the JDK that runs them, processes.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "what a test calls panics as a test does")]

pub(crate) mod archive;
pub(crate) mod cache;
pub(crate) mod directory;
pub(crate) mod environment;
pub(crate) mod http;
pub(crate) mod process;
pub(crate) mod record;

pub(crate) const JDK: &str = "default-jdk-headless";
