//! How the cost of an allocation grows: with the record, with the host, and with how many ask at once.

use std::collections::HashSet;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::chart;
use crate::host::{Files, Owners};
use crate::measure::{alternate, cpu};
use crate::{PROGRAM, ROUNDS, allocate};

/// Each on a host of as many units, with and without the record.
pub(crate) fn by_records(files: &Files, owners: &Owners) {
    let empty = || files.write_record("");
    let (mut full_curve, mut empty_curve) = (Vec::new(), Vec::new());
    for count in [1, 10, 100, 1_000, 10_000, 100_000] {
        let full = files.path("full");
        fill(files, count, owners);
        std::fs::copy(files.record(), &full).unwrap();
        let source = format!("simulated:{}", count + 1);
        let copy = || {
            std::fs::copy(&full, files.record()).unwrap();
        };
        let rounds = if count < 1_000 { ROUNDS / 4 } else { ROUNDS / 10 };
        let [many, none] = alternate(
            rounds,
            [(&copy, &mut allocate(files, &source)), (&empty, &mut allocate(files, &source))],
        );
        let each = (many.cpu - none.cpu) / f64::from(count) * 1e6;
        println!(
            "{count} assignments of one living owner against none: ratio wall {:.2}; {each:.2} us of CPU time each",
            many.wall / none.wall
        );
        println!("  with them {many}; on a host of as many units without {none}\n");
        full_curve.push((f64::from(count), many.wall * 1e3));
        empty_curve.push((f64::from(count), none.wall * 1e3));
    }
    let curves = [("with the record", full_curve), ("empty record", empty_curve)];
    chart::lines(
        "records.svg",
        "An allocation, by the assignments in the record",
        ("assignments", "ms"),
        &curves,
    );
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

pub(crate) fn by_units(files: &Files) {
    let empty = || files.write_record("");
    let mut curve = Vec::new();
    for count in [1, 8, 64, 512, 4_096] {
        let source = format!("simulated:{count}");
        let [many, one] = alternate(
            ROUNDS / 4,
            [(&empty, &mut allocate(files, &source)), (&empty, &mut allocate(files, "simulated:1"))],
        );
        println!("{count} units against one: ratio wall {:.2} ({many} and {one})", many.wall / one.wall);
        curve.push((f64::from(count), many.wall * 1e3));
    }
    println!();
    let curves = [("one allocation", curve)];
    chart::lines("units.svg", "An allocation, by the units of the host", ("units", "ms"), &curves);
}

/// As many callers as units, all started at once.
pub(crate) fn by_callers(files: &Files) {
    let cores = std::thread::available_parallelism().unwrap().get();
    let (mut wall_curve, mut cpu_curve) = (Vec::new(), Vec::new());
    for count in [1_u32, 4, 16, 64, 256, 1_024] {
        files.write_record("");
        let (began, started) = (cpu(), Instant::now());
        let source = format!("simulated:{count}");
        let start = |_| allocate(files, &source).stdout(Stdio::piped()).spawn().unwrap();
        let callers: Vec<_> = (0..count).map(start).collect();
        let answers = callers.into_iter().map(|caller| {
            let output = caller.wait_with_output().unwrap();
            assert!(output.status.success());
            String::from_utf8(output.stdout).unwrap()
        });
        let distinct: HashSet<String> = answers.collect();
        let (wall, own) = (started.elapsed().as_secs_f64(), (cpu() - began) / cores as f64);
        assert_eq!(distinct.len(), count as usize);
        println!(
            "{count} callers at once for as many units, all different: {:.2} times their own CPU time over {cores} cores ({:.1} ms)",
            wall / own,
            wall * 1e3
        );
        wall_curve.push((f64::from(count), wall * 1e3));
        cpu_curve.push((f64::from(count), own * 1e3));
    }
    println!();
    let curves = [("until the last has ended", wall_curve), ("own CPU time / cores", cpu_curve)];
    chart::lines("callers.svg", "Callers at once, each for one unit", ("callers", "ms"), &curves);
}
