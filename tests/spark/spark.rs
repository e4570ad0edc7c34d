//! Spark, out of the Python package that carries it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::engines::archive::Archive;

const ARCHIVE: Archive = Archive {
    package: "pyspark",
    version: "4.3.0",
    sha256: "e8c517948eff7088a7aa07449aa8eafa4a15a8d50319de2525a6fd26622476c6",
    format: "gztar",
    inside: "pyspark-4.3.0/deps",
};

/// What Spark calls `SPARK_HOME`, as far as a standalone cluster needs it.
pub(crate) static HOME: LazyLock<PathBuf> =
    LazyLock::new(|| ARCHIVE.fetched(&format!("spark-{}", ARCHIVE.version), lay_out));

/// The jars and the scripts that start them.
#[expect(clippy::disallowed_methods, reason = "the rename rule guards the coordination file; this is none")]
fn lay_out(unpacked: &Path, home: &Path) {
    for directory in ["bin", "jars"] {
        fs::rename(unpacked.join(directory), home.join(directory)).unwrap();
    }
}
