//! The job of `Report.java`: what every TaskManager knows of its external resources.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::process::Command;

use crate::engines::JDK;
use crate::engines::{cache, process};
use crate::flink::Flink;
use crate::jvm::jdk;

const SOURCE: &str = include_str!("Report.java");
pub(crate) const CLASS: &str = "Report";

/// The job's jar, compiled once for each version of Flink and each state of its source.
pub(crate) fn jar(flink: &Flink) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    SOURCE.hash(&mut hasher);
    let name = format!("report-{}-{:016x}", flink.version, hasher.finish());
    let entry = cache::entry(&name, |staging| {
        let source = staging.join(format!("{CLASS}.java"));
        fs::write(&source, SOURCE).unwrap();
        let classes = staging.join("classes");
        let mut javac = Command::new(jdk("javac"));
        javac.args(["-nowarn", "-cp", &flink.class_path(), "-d"]).arg(&classes).arg(&source);
        process::run(&mut javac, JDK);
        let mut jar = Command::new(jdk("jar"));
        jar.arg("--create").arg("--file").arg(staging.join("report.jar"));
        process::run(jar.arg("-C").arg(&classes).arg("."), JDK);
    });
    entry.join("report.jar")
}
