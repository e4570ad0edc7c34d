//! What `gpu-coord doctor` says about a host's mounts, clocks, variables and locks; each fault was seen in practice.

use std::fs;
use std::process::Command;

use crate::running::locked;
use crate::sandbox::{PROGRAM, Process, Sandbox};
use crate::tree::Tree;

/// The lines of `doctor`.
#[track_caller]
fn lines(mut command: Command) -> Vec<String> {
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Whether exactly this line is there.
#[track_caller]
fn has(lines: &[String], verdict: &str, check: &str, text: &str) {
    let line = format!("{verdict:<4}  {check:<11}  {text}");
    assert!(lines.contains(&line), "no `{line}` in {lines:#?}");
}

/// Below a root whose `/proc` is the kernel's own, but for these mounts.
fn mounted(mountinfo: &str) -> Tree {
    let tree = Tree::new().file("root/proc/self/mountinfo", mountinfo);
    fs::create_dir_all(tree.path("root/proc/1/ns")).unwrap();
    std::os::unix::fs::symlink("pid:[4026531836]", tree.path("root/proc/1/ns/pid")).unwrap();
    for name in ["stat", "sys"] {
        std::os::unix::fs::symlink(format!("/proc/{name}"), tree.path("root/proc").join(name)).unwrap();
    }
    for name in ["stat", "status", "ns", "timens_offsets"] {
        std::os::unix::fs::symlink(format!("/proc/self/{name}"), tree.path("root/proc/self").join(name))
            .unwrap();
    }
    tree
}

fn doctor(tree: &Tree, record: &str) -> Vec<String> {
    lines(tree.program(&["doctor", "--source", "simulated:1", "--coordination-file", record]))
}

#[test]
fn a_record_on_a_network_is_warned_of() {
    let far = tempfile::tempdir().unwrap();
    let point = far.path().canonicalize().unwrap().display().to_string();
    let tree = mounted(&format!("1 0 0:9 / / rw - ext4 x rw\n2 1 0:10 / {point} rw - nfs4 server:/ rw\n"));
    let network = format!(
        "{point}/record is on a network file system, whose locks may hang or not hold; use a local one"
    );
    has(&doctor(&tree, &format!("{point}/record")), "warn", "file", &network);
    let local = doctor(&tree, "record");
    assert!(!local.iter().any(|line| line.contains("network")), "{local:#?}");
}

#[test]
fn hidden_processes_are_warned_of() {
    let tree = mounted("1 0 0:9 / / rw - ext4 x rw\n2 1 0:5 / /proc rw - proc proc rw,hidepid=2\n");
    let hidden = "/proc hides the processes of others (hidepid=2): run gpu-coord as root, or as a member of the group that gid= \
                  names";
    has(&doctor(&tree, "record"), "warn", "proc", hidden);
}

#[test]
fn a_private_var_tmp_fails() {
    let private = "1 0 8:2 /tmp/systemd-private-0f-flink.service-Xy/tmp /var/tmp rw master:2 - ext4 x rw\n";
    let tree = mounted(private);
    let problem = "/var/tmp/flink-gpu-coordination: is private to this systemd unit (PrivateTmp=, DynamicUser=), so it \
                   coordinates with nothing outside; set PrivateTmp=no, or name a file in /run or /var/lib with \
                   --coordination-file";
    has(&lines(tree.program(&["doctor", "--source", "simulated:1"])), "fail", "file", problem);
}

/// systemd-tmpfiles removes what is old.
#[test]
fn a_record_that_ages_is_warned_of() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let record = directory.path().join("record").display().to_string();
    let tree = Tree::new().file("root/usr/lib/tmpfiles.d/tmp.conf", "q /var/tmp 1777 root root 30d\n");
    let aged = format!(
        "systemd-tmpfiles removes {record} when nobody has touched it for some weeks, even if GPUs are held; put a \
         line `x {record}` into a file in /etc/tmpfiles.d"
    );
    has(&doctor(&tree, &record), "warn", "file", &aged);
    let tree = tree.file("root/etc/tmpfiles.d/gpus.conf", &format!("x {record}\n"));
    has(&doctor(&tree, &record), "ok", "file", "systemd-tmpfiles leaves it alone");
    let none = doctor(&Tree::new(), &record);
    assert!(!none.iter().any(|line| line.contains("systemd-tmpfiles")), "{none:#?}");
}

/// Restored from a snapshot: `/dev` was made long before the time that the kernel counts from.
#[test]
fn clocks_that_differ_are_warned_of() {
    let tree = mounted("1 0 0:9 / / rw - ext4 x rw\n2 1 0:6 / /dev rw - devtmpfs x rw\n");
    fs::remove_file(tree.path("root/proc/stat")).unwrap();
    let tree = tree.file("root/proc/stat", "btime 4000000000\n");
    fs::create_dir_all(tree.path("root/dev")).unwrap();
    let restored = "the machine was restored from a snapshot, or its clock was set: a line of Flink's script whose pid was \
                    reused withholds its GPU until that process ends";
    has(&doctor(&tree, "record"), "warn", "boot", restored);
}

#[test]
fn variables_that_hide_devices_are_warned_of() {
    for (name, value) in [("CUDA_VISIBLE_DEVICES", "1"), ("ROCR_VISIBLE_DEVICES", "")] {
        let host = Sandbox::with_gpus(2);
        let mut command = host.program("doctor");
        let hides = format!(
            "{name}={value} is set here: processes started from here are granted only these devices; unset it, or use \
             --ignore-visible-devices"
        );
        has(
            &lines({
                command.env(name, value);
                command
            }),
            "warn",
            "proc",
            &hides,
        );
    }
}

#[test]
fn a_lock_that_is_not_to_be_had_fails() {
    let (host, owner) = (Sandbox::with_gpus(1), Process::start());
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
    let _lock = locked(&host.file());
    let lines = lines(host.program("doctor --deadline 1"));
    let fails: Vec<_> = lines.iter().filter(|line| line.starts_with("fail  file ")).collect();
    assert!(fails.len() == 1 && fails[0].contains("while waiting for"), "{lines:#?}");
}

/// Even if there are too few devices for one index to be mistaken for another.
#[test]
fn the_stock_script_is_warned_of_on_few_devices() {
    let host = Sandbox::with_gpus(2);
    let path = host.path().join("flink.yaml");
    fs::write(
        &path,
        "external-resource.gpu.param.discovery-script.path: plugins/x/nvidia-gpu-discovery.sh\n",
    )
    .unwrap();
    let mut command = Command::new(PROGRAM);
    command.env_clear().current_dir(host.path());
    command.args([
        "doctor",
        "--source",
        "simulated:2",
        "--coordination-file",
        "record",
        "--flink-conf",
        "flink.yaml",
    ]);
    let stock = "flink.yaml names Flink's own script, which can give a GPU away twice; set discovery-script.path to gpu-coord";
    has(&lines(command), "warn", "flink", stock);
}
