//! What an allocation costs, set against a program that only takes the lock, and against Flink's own script.
//!
//! `cargo bench --bench allocate` prints it all; the figures of one line were taken in turn, in one run.
//! Times on a shared machine are noise: read the ratios.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on ends")]
#![expect(clippy::print_stdout, reason = "the figures are its output")]

mod host;
mod measure;

use std::path::Path;
use std::process::Command;

use host::{Files, Owners};
use measure::{Cost, alternate, peak_kib, run};

const PROGRAM: &str = env!("CARGO_BIN_EXE_gpu-coord");
const ROUNDS: usize = 200;

fn main() {
    let files = Files::new();
    files.installed(Path::new(PROGRAM));
    files.write_record("");
    run(&mut allocate(&files, "simulated:8"));
    println!("peak memory of an allocation from simulated:8: at most {} KiB\n", peak_kib());
    let owners = Owners::start(8);
    against_the_floor(&files);
    by_records(&files, &owners);
    many_at_once(&files);
    match host::stock_script() {
        Some(script) => against_the_script(&files, &owners, &script),
        None => {
            println!("Flink's script: not here; `cargo test --features real-flink --test flink` fetches it")
        }
    }
}

fn allocate(files: &Files, source: &str) -> Command {
    let mut command = Command::new(files.path("installed/gpu-coord"));
    command.env_clear().args(["1", "--enable-coordination-mode", "--source", source, "--coordination-file"]);
    command.arg(files.record());
    command
}

fn against_the_floor(files: &Files) {
    let floor = files.floor();
    let mut floor_command = Command::new(&floor);
    floor_command.env_clear().arg(files.record());
    let empty = || files.write_record("");
    let [ours, least] =
        alternate(ROUNDS, [(&empty, &mut allocate(files, "simulated:8")), (&empty, &mut floor_command)]);
    println!("allocate from simulated:8, empty file: {ours}");
    println!("start, open, lock, write:              {least}");
    println!("  ratio: wall {:.2}, CPU {:.2}\n", ours.wall / least.wall, ours.cpu / least.cpu);
}

fn by_records(files: &Files, owners: &Owners) {
    let empty = || files.write_record("");
    for count in [1_000, 10_000, 100_000] {
        let full = files.path("full");
        fill(files, count, owners);
        std::fs::copy(files.record(), &full).unwrap();
        let source = format!("simulated:{}", count + 1);
        let copy = || {
            std::fs::copy(&full, files.record()).unwrap();
        };
        let rounds = ROUNDS / 10;
        let [many, none] = alternate(
            rounds,
            [(&copy, &mut allocate(files, &source)), (&empty, &mut allocate(files, &source))],
        );
        let each = (many.wall - none.wall) / f64::from(count) * 1e6;
        println!("{count} assignments of one living owner: {many}");
        println!("none, on a host of as many units: {none}");
        println!("  ratio: wall {:.2}; {each:.2} us an assignment\n", many.wall / none.wall);
    }
}

/// `count` assignments of one owner.
fn fill(files: &Files, count: u32, owners: &Owners) {
    files.write_record("");
    let mut command = Command::new(PROGRAM);
    command.env_clear().args(["allocate", &count.to_string(), "--source", &format!("simulated:{count}")]);
    command.args(["--owner", &owners.pids()[0].to_string(), "--coordination-file"]).arg(files.record());
    command.stdout(files.sink());
    assert!(command.status().unwrap().success());
}

fn many_at_once(files: &Files) {
    files.write_record("");
    let started = std::time::Instant::now();
    let start = |_| allocate(files, "simulated:256").stdout(std::process::Stdio::piped()).spawn().unwrap();
    let callers: Vec<_> = (0..256).map(start).collect();
    let answers = callers.into_iter().map(|caller| {
        let output = caller.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    });
    let distinct: std::collections::HashSet<String> = answers.collect();
    println!("256 callers at once for 256 units: {} distinct, {:?}\n", distinct.len(), started.elapsed());
    assert_eq!(distinct.len(), 256);
}

/// The states that users of Flink meet: nobody yet, some live, all dead after a restart, and both.
fn against_the_script(files: &Files, owners: &Owners, script: &Path) {
    let bin = files.fake_nvidia_smi();
    let mut smi = Command::new(bin.join("nvidia-smi"));
    smi.args(["--query-gpu=index", "--format=csv,noheader"]);
    let path = format!("{}:/usr/bin:/bin", bin.display());
    for (name, live, dead) in [("empty", 0, 0), ("6 live", 6, 0), ("8 dead", 0, 8), ("6 live, 2 dead", 6, 2)]
    {
        let text = owners.script_lines(live, dead);
        let record = || files.write_old_record(&text);
        let mut ours = allocate(files, "nvidia-smi");
        ours.args(["--owner", &owners.pids()[7].to_string()]).env("PATH", &path);
        let mut theirs = Command::new("bash");
        theirs.env_clear().env("PATH", &path).arg(script).args([
            "1",
            "--enable-coordination-mode",
            "--coordination-file",
        ]);
        theirs.arg(files.record());
        let [ours, theirs, smi] =
            alternate(ROUNDS / 4, [(&record, &mut ours), (&record, &mut theirs), (&|| (), &mut smi)]);
        report(name, &ours, &theirs, &smi);
    }
}

fn report(name: &str, ours: &Cost, theirs: &Cost, smi: &Cost) {
    let outside = |of: fn(&Cost) -> f64| (of(theirs) - of(smi)) / (of(ours) - of(smi));
    println!("{name}: gpu-coord {ours}; Flink's script {theirs}; the fake nvidia-smi alone {smi}");
    println!(
        "  ratio outside nvidia-smi: wall {:.0}, CPU {:.0}\n",
        outside(|cost| cost.wall),
        outside(|cost| cost.cpu)
    );
}
