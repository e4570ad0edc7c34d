//! What it takes to start: `gpu-coord --help` and `--version`, set against a static program that does nothing.
//!
//! `cargo bench --bench help` prints it; all were taken in turn, in one run. Times on a shared machine are noise: read
//! the ratios.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on ends")]
#![expect(clippy::print_stdout, reason = "the figures are its output")]

#[path = "../allocate/measure.rs"]
#[expect(dead_code, reason = "it measures more for the other benchmark")]
mod measure;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use measure::alternate;

const PROGRAM: &str = env!("CARGO_BIN_EXE_gpu-coord");
const ROUNDS: usize = 500;

fn main() {
    let directory = tempfile::tempdir().unwrap();
    // A copy, as an installed program is.
    let ours = directory.path().join("gpu-coord");
    fs::copy(PROGRAM, &ours).unwrap();
    let started = |program: &Path, words: &[&str]| {
        let mut command = Command::new(program);
        command.env_clear().args(words);
        command
    };
    let nothing = || ();
    let idle = idle(directory.path());
    let [long, short, version, least] = alternate(
        ROUNDS,
        [
            (&nothing, &mut started(&ours, &["--help"])),
            (&nothing, &mut started(&ours, &["-h"])),
            (&nothing, &mut started(&ours, &["--version"])),
            (&nothing, &mut started(&idle, &[])),
        ],
    );
    for (name, cost) in [("--help", &long), ("-h", &short), ("--version", &version)] {
        let ratio = cost.wall / least.wall;
        println!("gpu-coord {name:<9} {cost}; {ratio:.2} times the program that does nothing (wall)");
    }
    println!("nothing             {least}");
}

/// A static program that starts and ends, built as `floor.rs` is.
fn idle(directory: &Path) -> PathBuf {
    let (source, built, program) =
        (directory.join("idle.rs"), directory.join("built"), directory.join("idle"));
    fs::write(&source, "fn main() {}\n").unwrap();
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition", "2024", "-O", "-C", "target-feature=+crt-static", "-C", "panic=abort"]);
    rustc.args(["-C", "strip=symbols", "-o"]).arg(&built).arg(&source);
    assert!(rustc.status().unwrap().success());
    fs::copy(&built, &program).unwrap();
    program
}
