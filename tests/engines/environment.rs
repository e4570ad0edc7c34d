//! What these tests take from the environment that they are started in, and nothing else does.

#![expect(clippy::disallowed_methods, reason = "the rule is for the program; a test has its own environment")]

use std::env;
use std::path::PathBuf;

/// Where downloads are kept: `FLINK_TEST_CACHE`, else below the user's cache directory.
pub(crate) fn cache() -> PathBuf {
    path("FLINK_TEST_CACHE")
        .or_else(|| Some(path("XDG_CACHE_HOME")?.join("gpu-coord-tests")))
        .or_else(|| Some(path("HOME")?.join(".cache/gpu-coord-tests")))
        .expect("no HOME: set FLINK_TEST_CACHE to a directory outside the repository")
}

/// The JDK that is wanted, if one is; else it is that on `PATH`.
pub(crate) fn java_home() -> Option<PathBuf> {
    path("JAVA_HOME")
}

/// `PATH`, as it is.
pub(crate) fn search_path() -> String {
    env::var("PATH").expect("PATH is set and UTF-8")
}

fn path(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
