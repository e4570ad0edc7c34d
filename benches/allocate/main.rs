//! What an allocation costs, set against a program that only takes the lock, and against Flink's own script.
//!
//! `cargo bench --bench allocate` prints it all, and draws `docs/plots`; the figures of one line were taken in turn, in
//! one run. `cargo bench --bench allocate -- floor script` takes these parts alone; the others are `records`, `units` and
//! `callers`.
//! Times on a shared machine are noise: read the ratios.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on ends")]
#![expect(clippy::print_stdout, reason = "the figures are its output")]

mod chart;
mod host;
mod measure;
mod scaling;

use std::path::Path;
use std::process::Command;

use host::{Files, Owners};
use measure::{Cost, alternate, peak_kib, run};

const PROGRAM: &str = env!("CARGO_BIN_EXE_gpu-coord");
const ROUNDS: usize = 200;

/// The word that has it print the peak of one allocation, and nothing else.
const PEAK_OF: &str = "peak-of";

fn main() {
    let files = Files::new();
    let named: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    if let [PEAK_OF, program] = named.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        files.installed(Path::new(program));
        files.write_record("");
        run(&mut allocate(&files, "simulated:8"));
        println!("peak memory of an allocation from simulated:8: at most {} KiB\n", peak_kib());
        return;
    }
    let program = files.installed(&host::shipped());
    // By a process of its own, whose children cargo and the linker are not.
    let this = std::env::current_exe().unwrap();
    assert!(Command::new(this).arg(PEAK_OF).arg(program).status().unwrap().success());
    let owners = Owners::start(8);
    let is_wanted = |part: &str| named.is_empty() || named.iter().any(|name| name == part);
    if is_wanted("floor") {
        against_the_floor(&files);
    }
    if is_wanted("records") {
        scaling::by_records(&files, &owners);
    }
    if is_wanted("units") {
        scaling::by_units(&files);
    }
    if is_wanted("callers") {
        scaling::by_callers(&files);
    }
    if !is_wanted("script") {
        return;
    }
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
    let (wall, cpu) = (ours.wall / least.wall, ours.cpu / least.cpu);
    println!("an allocation against start, open, lock, write: ratio wall {wall:.2}, CPU {cpu:.2}");
    println!("  simulated:8, empty file: {ours}; the floor: {least}\n");
}

/// The states that users of Flink meet: nobody yet, some live, all dead after a restart, and both.
fn against_the_script(files: &Files, owners: &Owners, script: &Path) {
    let bin = files.fake_nvidia_smi();
    let mut smi = Command::new(bin.join("nvidia-smi"));
    smi.args(["--query-gpu=index", "--format=csv,noheader"]);
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let mut ratios = Vec::new();
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
        let outside = |of: fn(&Cost) -> f64| (of(&theirs) - of(&smi)) / (of(&ours) - of(&smi));
        let (wall, cpu) = (outside(|cost| cost.wall), outside(|cost| cost.cpu));
        println!("{name}: ratio outside nvidia-smi: wall {wall:.0}, CPU {cpu:.0}");
        println!("  gpu-coord {ours}; Flink's script {theirs}; the fake nvidia-smi alone {smi}\n");
        ratios.extend([(format!("{name}: wall"), wall), (format!("{name}: CPU"), cpu)]);
    }
    let title = "How many times more than gpu-coord Flink's script costs, outside of nvidia-smi";
    chart::bars("script.svg", title, &ratios);
}
