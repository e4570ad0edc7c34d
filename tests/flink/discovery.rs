//! gpu-coord as the discovery script of real TaskManagers.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::GPU_COORD;
use crate::cluster::Cluster;
use crate::configuration::Resource;
use crate::engines::directory::Directory;
use crate::engines::record::{Holdings, holdings};
use crate::flink::{FLINK_1_20, FLINK_2_3};
use crate::smi;

#[test]
fn a_new_taskmanager_gets_the_gpus_of_a_killed_one_and_no_other() {
    let host = Directory::new();
    let file = host.path("coordination");
    let mut cluster =
        Cluster::new(&FLINK_2_3, &[resource("gpu", 2, &coordinated(&file, "simulated:6"))], &[]);
    let pids = cluster.add(3);
    let [mut held] = cluster.report(["gpu"]);
    assert_shared_out(&held, &pids, 2);
    assert_eq!(holdings(&file), held);

    let left = held.remove(&pids[1]).unwrap();
    cluster.kill(pids[1]);
    held.insert(cluster.add(1)[0], left);
    assert_eq!(cluster.report(["gpu"]), [held.clone()]);
    assert_eq!(holdings(&file), held);
}

#[test]
fn a_taskmanager_that_exec_has_become_is_told_what_exec_was_given() {
    let host = Directory::new();
    let file = host.path("coordination");
    let words = format!("{GPU_COORD} exec 2 --source simulated:5 --coordination-file {} --", file.display());
    let under: Vec<String> = words.split(' ').map(str::to_owned).collect();
    let mut cluster = Cluster::new(&FLINK_2_3, &[resource("gpu", 2, "--enable-coordination-mode")], &[]);
    let pids = cluster.add_under(&under, 2);
    // They count what CUDA_VISIBLE_DEVICES leaves them.
    let own = BTreeSet::from([0, 1]);
    let told: Holdings = pids.iter().map(|pid| (*pid, own.clone())).collect();
    assert_eq!(cluster.report(["gpu"]), [told]);
    assert_shared_out(&holdings(&file), &pids, 2);
}

#[test]
fn flink_1_20_is_served_too() {
    let host = Directory::new();
    let file = host.path("coordination");
    let mut cluster =
        Cluster::new(&FLINK_1_20, &[resource("gpu", 2, &coordinated(&file, "simulated:4"))], &[]);
    let pids = cluster.add(2);
    let [held] = cluster.report(["gpu"]);
    assert_shared_out(&held, &pids, 2);
    assert_eq!(holdings(&file), held);
}

#[test]
fn the_log_of_a_taskmanager_without_gpus_says_why() {
    let host = Directory::new();
    let args = coordinated(&host.path("coordination"), "simulated:3");
    let mut cluster = Cluster::new(&FLINK_2_3, &[resource("gpu", 2, &args)], &[]);
    let [first, second] = [cluster.add(1)[0], cluster.add(1)[0]];
    let granted = (first, BTreeSet::from([0, 1]));
    assert_eq!(cluster.report(["gpu"]), [Holdings::from([granted.clone(), (second, BTreeSet::new())])]);
    assert_eq!(holdings(&host.path("coordination")), Holdings::from([granted]));

    // Nothing has changed since, so that the same question has the same answer.
    let owner = second.to_string();
    let mut again = Command::new(GPU_COORD);
    let again = again.arg("2").args(args.split(' ')).args(["--owner", &owner]).output().unwrap();
    let reason = String::from_utf8(again.stderr).unwrap();
    assert_eq!((again.status.code(), again.stdout.as_slice()), (Some(1), &b""[..]), "{reason}");
    assert!(reason.starts_with("gpu-coord: ") && reason.lines().count() == 1, "{reason}");
    let log = cluster.log_of(second);
    assert!(log.contains("Discovery script exit with 1.\n"), "{log}");
    assert!(log.contains(&format!("STDERR: {reason}")), "no `STDERR: {reason}` in the log:\n{log}");
}

#[test]
fn without_args_the_first_gpus_are_told_and_nothing_is_recorded() {
    let host = Directory::new();
    let path = smi::install(&host.path("bin"), 4);
    // What `auto` answers depends on the GPUs of the machine that tests.
    let file = host.path("coordination");
    let environment = [
        ("PATH", path.as_str()),
        ("GPU_COORD_SOURCE", "nvidia-smi"),
        ("GPU_COORD_COORDINATION_FILE", file.to_str().unwrap()),
    ];
    let gpu = Resource { args: None, ..resource("gpu", 2, "") };
    let mut cluster = Cluster::new(&FLINK_2_3, &[gpu], &environment);
    let pid = cluster.add(1)[0];
    assert_eq!(cluster.report(["gpu"]), [Holdings::from([(pid, BTreeSet::from([0, 1]))])]);
    assert!(!file.exists());
}

#[test]
fn two_resources_are_kept_apart() {
    let host = Directory::new();
    let (gpus, fpgas) = (host.path("gpus"), host.path("fpgas"));
    let resources = [
        resource("gpu", 2, &coordinated(&gpus, "simulated:4")),
        resource("fpga", 1, &coordinated(&fpgas, &fpga_source(&host))),
    ];
    let mut cluster = Cluster::new(&FLINK_2_3, &resources, &[]);
    let pids = cluster.add(2);
    let [of_gpu, of_fpga] = cluster.report(["gpu", "fpga"]);
    assert_shared_out(&of_gpu, &pids, 2);
    assert_shared_out(&of_fpga, &pids, 1);
    assert_eq!([holdings(&gpus), holdings(&fpgas)], [of_gpu, of_fpga]);
}

fn resource<'a>(name: &'a str, amount: usize, args: &str) -> Resource<'a> {
    Resource { name, amount, script: Path::new(GPU_COORD), args: Some(args.to_owned()) }
}

fn coordinated(file: &Path, source: &str) -> String {
    format!("--enable-coordination-mode --coordination-file {} --source {source}", file.display())
}

fn fpga_source(host: &Directory) -> String {
    let file = host.path("fpgas.json");
    fs::write(&file, r#"{"devices": [{"id": "xdma-left"}, {"id": "xdma-right"}]}"#).unwrap();
    format!("file:{}", file.display())
}

/// Each of `pids` holds `each` indexes, and together they hold each index from 0 on exactly once.
#[track_caller]
fn assert_shared_out(held: &Holdings, pids: &[u32], each: usize) {
    assert_eq!(held.keys().collect::<BTreeSet<_>>(), pids.iter().collect());
    assert!(held.values().all(|indexes| indexes.len() == each), "{held:?}");
    let all: BTreeSet<u32> = held.values().flatten().copied().collect();
    assert!(all.into_iter().eq(0..(pids.len() * each) as u32), "{held:?}");
}
