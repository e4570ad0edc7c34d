//! What can be counted and not only timed: instructions, pages of code, system calls and size, against a stored baseline.
//!
//! `cargo bench --bench budget` fails when something is a twentieth more than it was. Counts depend on the compiler and
//! on the architecture, so each of these has a baseline of its own, and on how many mounts the host has: where they are
//! others nothing is compared. `UPDATE_BASELINE=1` writes it. It needs valgrind and strace.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on ends")]
#![expect(clippy::print_stdout, reason = "the counts are its output")]

mod baseline;
#[expect(dead_code, reason = "what belongs to the other benchmark")]
#[path = "../allocate/host.rs"]
mod host;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use baseline::Counts;
use host::{Files, Owners};

const PROGRAM: &str = env!("CARGO_BIN_EXE_gpu-coord");

/// What is run, and how many assignments are in the record then.
const CASES: [(&str, &str, u32); 5] = [
    ("1 --enable-coordination-mode, empty record", "1 --enable-coordination-mode", 0),
    ("allocate 1, empty record", "allocate 1", 0),
    ("allocate 1, 1000 assignments", "allocate 1", 1000),
    ("deallocateAll, 1000 assignments of others", "deallocateAll", 1000),
    ("status --json, 1000 assignments", "status --json", 1000),
];

fn main() -> ExitCode {
    let files = Files::new();
    let program = files.installed(&host::shipped());
    let owners = Owners::start(2);
    let mut counts = Counts::default();
    counts.add("bytes of the executable", std::fs::metadata(&program).unwrap().len());
    for (case, line, held) in CASES {
        fill(&files, held, &owners);
        let full = std::fs::read_to_string(files.record()).unwrap();
        let command = || {
            files.write_record(&full);
            words(&files, &program, line, held.max(7) + 1, &owners)
        };
        let (instructions, pages) = executed(&files, &command());
        counts.add(format!("instructions: {case}"), instructions);
        counts.add(format!("pages of code: {case}"), pages);
        counts.add(format!("system calls: {case}"), system_calls(&files, &command()));
    }
    if counts.are_within(&Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/budget/baseline")) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The program and its words, to be run by another program.
fn words(files: &Files, program: &Path, line: &str, units: u32, owners: &Owners) -> Vec<String> {
    let (words, source) = (line.split(' ').map(str::to_owned), format!("simulated:{units}"));
    let mut all = vec![program.to_str().unwrap().to_owned()];
    all.extend(words);
    let is_status = line.starts_with("status");
    let owner = ["--owner".to_owned(), owners.pids()[1].to_string()];
    all.extend(owner.into_iter().filter(|_| !is_status));
    all.extend(["--source".to_owned(), source].into_iter().filter(|_| line != "deallocateAll"));
    all.extend(["--coordination-file".to_owned(), files.record().to_str().unwrap().to_owned()]);
    all
}

fn fill(files: &Files, count: u32, owners: &Owners) {
    files.write_record("");
    if count > 0 {
        let line = format!("allocate {count} --source simulated:{count} --owner {}", owners.pids()[0]);
        let mut command = Command::new(PROGRAM);
        command.env_clear().args(line.split(' ')).arg("--coordination-file").arg(files.record());
        assert!(command.stdout(Stdio::null()).status().unwrap().success());
    }
}

/// Instructions, and the pages that they lie on, by callgrind: the same in every run, but for a few that depend on where
/// things lie. Pages are more than they were where `link/order` no longer names what is run.
fn executed(files: &Files, words: &[String]) -> (u64, u64) {
    let calls = files.path("executed");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--dump-instr=yes", "--compress-pos=no"]);
    valgrind.arg(format!("--callgrind-out-file={}", calls.display())).args(words);
    let text = run(&mut valgrind);
    let collected = text.lines().find_map(|line| line.split_once("Collected : "));
    let instructions = collected.unwrap_or_else(|| panic!("{text}")).1.trim().parse().unwrap();
    let text = std::fs::read_to_string(calls).unwrap();
    let addresses = text.lines().filter_map(|line| line.strip_prefix("0x")?.split(' ').next());
    let pages: BTreeSet<u64> =
        addresses.map(|address| u64::from_str_radix(address, 16).unwrap() / 4096).collect();
    (instructions, pages.len() as u64)
}

/// By `strace`, of which every line is one.
fn system_calls(files: &Files, words: &[String]) -> u64 {
    let log = files.path("calls");
    run(Command::new("strace").args(["-qq", "-o"]).arg(&log).args(["-e", "signal=none"]).args(words));
    std::fs::read_to_string(log).unwrap().lines().filter(|line| line.contains('(')).count() as u64
}

/// What it says on stderr.
fn run(command: &mut Command) -> String {
    let path = ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let output = command.env_clear().envs([path]).stdin(Stdio::null()).stdout(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}
