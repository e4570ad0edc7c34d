//! The sources, working and broken, as `gpu-coord devices` reads them: a fake `nvidia-smi` on PATH, and a
//! driver's directory below `--root`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::sandbox::{PROGRAM, Sandbox, skip};
use crate::strace;
use crate::strict::is_refused_if_strict;
use crate::tree::{FOR_EVER, Tree, write_script};

const ROW: &str = "0, GPU-1-a, 00000000:01:00.0, NVIDIA L4, 23034, 1, P8, Default, 0, 550.54.15, Disabled";
/// A card's values of the fields that not every version has.
const MORE: &str = "1, P8, Default, 0, 550.54.15, Disabled";

fn with_smi(script: &str) -> Tree {
    Tree::new().tool("nvidia-smi", script)
}

/// A zombie has ended: only its parent, whichever that is by now, can reap it.
fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[track_caller]
fn until(what: &str, condition: impl Fn() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < FOR_EVER, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The pids in a file that a fake writes, once there are as many.
#[track_caller]
fn pids(path: &Path, count: usize) -> Vec<String> {
    let read = || fs::read_to_string(path).unwrap_or_default();
    until("the fake has not started", || read().lines().count() >= count && read().ends_with('\n'));
    read().lines().map(str::to_owned).collect()
}

#[test]
#[rustfmt::skip] // a table
fn a_tool_that_misbehaves_is_no_source() {
    for (case, script, says) in [
        ("prints 1 GB",      "head -c 1000000000 /dev/zero",                "the devices cannot be read: nvml: not asked below --root; nvidia-smi: it printed more than 1048576 bytes on standard output; procfs: no root/proc/driver/nvidia/gpus"),
        ("errors without end", "while :; do echo error >&2; done",          "it printed more than 65536 bytes on standard error"),
        ("prints nothing",   "",                                            "the devices cannot be read: nvml: not asked below --root; nvidia-smi: it printed no device; procfs: no root/proc/driver/nvidia/gpus: the driver is not loaded; run it by hand, and see that it is the vendor's own"),
        ("exits 255",        "exit 255",                                    "nvidia-smi: exit status 255: an unknown error"),
        ("a sentence",       "echo 'Failed to initialize NVML: Unknown Error'", "nvidia-smi: it printed something that is not a card: `Failed to initialize NVML: Unknown Error`"),
        ("control bytes",    "printf '\\033[2J\\tX\\n'",                    "it printed something that is not a card: `\\u{1b}[2J\\tX`"),
        ("no driver",        "echo 'NVIDIA-SMI has failed'; exit 9",        "exit status 9: the driver is not loaded (`NVIDIA-SMI has failed`); procfs: "),
        ("no device",        "echo 'No devices were found'; exit 6",        "no GPU on this host: nvml: not asked below --root; nvidia-smi: it finds no device; if it has one, `dmesg`"),
        ("crashes",          "kill -SEGV $$",                               "nvidia-smi: signal 11 ended it"),
        ("one identity",     "echo '0, GPU-1, 0000:01:00.0, A, 1, MORE'; echo '1, GPU-1, 0000:02:00.0, A, 1, MORE'", "device 0 (GPU-1) and device 1 (GPU-1) have one UUID: GPU-1"),
        ("one index",        "echo '0, GPU-1, 0000:01:00.0, A, 1, MORE'; echo '0, GPU-2, 0000:02:00.0, A, 1, MORE'", "device 0 (GPU-1) and device 0 (GPU-2) have one index: 0"),
    ] {
        println!("{case}");
        with_smi(&script.replace("MORE", MORE)).refuses(&[], 4, says);
    }
}

#[test]
fn a_tool_that_sleeps_is_ended_with_all_that_it_started() {
    let host = with_smi("echo $$ >> pids; sleep 1000 & echo $! >> pids; wait");
    host.refuses(
        &["--deadline", "1"],
        3,
        "source nvidia-smi gave no answer in the 0.5 s that it had of the deadline: it did not end within ",
    );
    host.refuses(
        &["--deadline", "1", "--source", "nvidia-smi"],
        3,
        "source nvidia-smi gave no answer in the 1 s that it had of the deadline: it did not end within 1 s; ",
    );
    host.refuses(&["--deadline", "1"], 3, "nvidia-smi -pm 1");
    for pid in pids(&host.path("pids"), 6) {
        until("a child of ours is left", || !is_running(&pid));
    }
}

#[test]
fn a_tool_dies_with_its_caller() {
    let host = with_smi("echo $$ > pids; exec sleep 1000");
    let mut caller = host.program(&["devices", "--deadline", "600"]).spawn().unwrap();
    let pids = pids(&host.path("pids"), 1);
    caller.kill().unwrap();
    caller.wait().unwrap();
    until("the tool outlives its caller", || !is_running(&pids[0]));
}

#[test]
fn a_caller_that_ignores_its_children_is_no_obstacle() {
    let host = with_smi(&format!("echo '{ROW}'; exit 14"));
    let mut env = Command::new("env");
    env.args(["--ignore-signal=CHLD", PROGRAM, "devices", "--root", "root"]);
    env.current_dir(host.path("")).env("PATH", host.search_path());
    assert_cmd::Command::from_std(env).timeout(FOR_EVER).assert().success();
}

/// A process in state D, as the driver leaves it when it hangs in the kernel: the freezer of cgroup v1
/// keeps a process so, and no signal ends it.
#[test]
fn a_tool_that_cannot_be_killed_is_abandoned() {
    const TEST: &str = "a_tool_that_cannot_be_killed_is_abandoned";
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let is_freezer =
        |line: &&str| line.split(' ').nth(3).is_some_and(|it| it.split(',').any(|it| it == "freezer"));
    let Some(freezer) = mounts.lines().find(is_freezer).and_then(|line| line.split(' ').nth(1)) else {
        return skip(TEST, "no freezer of cgroup v1 is mounted");
    };
    let group = Frozen(Path::new(freezer).join(format!("gpu-coord-test-{}", std::process::id())));
    if let Err(err) = fs::create_dir(&group.0) {
        return skip(TEST, &format!("no control group can be made: {err}"));
    }
    let directory = group.0.display();
    let freeze = format!("echo $$ > {directory}/tasks; echo FROZEN > {directory}/freezer.state; sleep 1000");
    let assert = with_smi(&freeze).run(&["--deadline", "1"]).code(3);
    let stderr = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert!(
        stderr.contains("cannot be killed: it hangs in the kernel; nvml: not asked below --root; procfs: "),
        "{stderr}"
    );
    assert!(stderr.ends_with("; restart the host\n"), "{stderr}");
}

/// A control group whose processes cannot be ended before they are thawed, which dropping it does.
struct Frozen(PathBuf);

impl Drop for Frozen {
    fn drop(&mut self) {
        let since = Instant::now();
        while self.0.exists() && since.elapsed() < FOR_EVER {
            let _ = fs::write(self.0.join("freezer.state"), "THAWED");
            let _ = fs::remove_dir(&self.0);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn rows_are_read_with_their_oddities() {
    let host = with_smi(&format!(
        "echo '0, GPU-1-a, 00000000:01:00.0, Odd, [B/C] (rev a1), [N/A], {MORE}'
         echo '2, GPU-3-a, 00000000:03:00.0, NVIDIA L4, 23034, {MORE}'
         echo 'Unable to determine the device handle for GPU0000:02:00.0: Unknown Error'
         exit 255"
    ))
    .card("0000:01:00.0", "Device Minor: \t 1\n")
    .card("0000:03:00.0", "Device Minor: \t 0\n");
    let answer = host.devices(&[]);
    let devices = answer["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 3);
    assert_eq!(devices[0]["name"], "Odd, [B/C] (rev a1)");
    assert_eq!((&devices[0]["memory_mib"], &devices[0]["minor"]), (&Value::Null, &1.into()));
    assert_eq!((&devices[1]["health"], &devices[1]["pci"]), (&"sick".into(), &"0000:02:00.0".into()));
    assert_eq!(devices[1]["reason"], "Unknown Error");
    assert_eq!((&devices[2]["index"], &devices[2]["minor"]), (&2.into(), &0.into()));
    assert_eq!(devices[2]["nodes"], json!(["root/dev/nvidia0"]));
    assert_eq!(answer["warnings"][0], "nvidia-smi: GPU 0000:02:00.0: Unknown Error");
}

#[test]
fn the_kernel_answers_where_the_tool_fails() {
    let host = with_smi("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
        .card("0000:3b:00.0", "Model: NVIDIA L4\nGPU UUID: GPU-1-a\nDevice Minor: 2\n");
    let answer = host.devices(&[]);
    assert_eq!((&answer["source"], &answer["devices"][0]["uuid"]), (&"procfs".into(), &"GPU-1-a".into()));
    let warning = answer["warnings"][0].as_str().unwrap();
    assert!(
        warning.starts_with("devices are read from procfs, since nvidia-smi failed: exit status 18"),
        "{warning}"
    );
    host.refuses(&["--source", "nvidia-smi"], 4, "reload the driver's modules or restart the host");
}

#[test]
fn the_kernels_list_is_not_believed_against_the_driver() {
    with_smi("echo 'No devices were found'; exit 6").card("0000:3b:00.0", "Model: NVIDIA L4\n").refuses(
        &[],
        4,
        "no GPU on this host: nvml: not asked below --root; nvidia-smi: it finds no device",
    );
}

#[test]
fn verbose_says_what_each_source_said() {
    let host = Tree::new().card("0000:3b:00.0", "Model: NVIDIA L4\n");
    let stderr = host.notes(&["-v"]);
    assert!(stderr.contains("source nvidia-smi: no nvidia-smi in PATH ("), "{stderr}");
    assert!(stderr.contains("source procfs: 1 device in "), "{stderr}");
}

#[test]
fn without_tool_and_driver_it_says_what_was_looked_for() {
    let host = Tree::new();
    host.refuses(
        &[],
        4,
        "no GPU on this host: nvml: not asked below --root; nvidia-smi: no nvidia-smi in PATH; procfs: no root/proc/driver/nvidia/gpus",
    );
    host.refuses(&["--source", "simulated:0"], 4, "source simulated:0 has no device");
}

#[test]
fn a_driver_root_has_its_own_tool() {
    let host = with_smi("exit 9");
    fs::create_dir_all(host.path("driver/usr/bin")).unwrap();
    write_script(&host.path("driver/usr/bin/nvidia-smi"), &format!("echo '{ROW}'"));
    assert_eq!(host.devices(&["--driver-root", "driver"])["devices"][0]["uuid"], "GPU-1-a");
}

#[test]
#[rustfmt::skip] // a table
fn a_bad_file_is_refused() {
    let host = Tree::new();
    for (case, text, says) in [
        ("no JSON",      "index,id\n",                                     "list.json:1: not JSON: expected value"),
        ("one identity", r#"{"devices": [{"id": "a"}, {"id": "a"}]}"#,     "list.json: device 0 (a) and device 1 (a) have one id: a"),
        ("no device",    r#"{"devices": []}"#,                             "source file:list.json has no device"),
        ("a typo",       r#"{"devices": [{"id": "a", "indx": 1}]}"#,       "list.json:1: unknown field `indx`"),
    ] {
        println!("{case}");
        fs::write(host.path("list.json"), text).unwrap();
        host.refuses(&["--source", "file:list.json"], 4, says);
    }
    host.refuses(&["--source", "file:missing.json"], 4, "cannot open missing.json: No such file");
    host.refuses(&["--source", "file:bin"], 4, "bin: not a regular file");
}

#[test]
fn a_file_is_read_from_where_it_is_and_its_nodes_below_the_root() {
    let host = Tree::new();
    let text = r#"{"devices": [{"id": "board 1", "pci": "0000:3b:00.0", "nodes": ["/dev/xdma0"]}]}"#;
    fs::write(host.path("list.json"), text).unwrap();
    let answer = host.devices(&["--source", "file:list.json"]);
    assert_eq!(answer["source"], "file:list.json");
    assert_eq!(answer["devices"][0]["id"], "board 1");
    assert_eq!(answer["devices"][0]["nodes"], json!(["root/dev/xdma0"]));
}

#[test]
fn an_unknown_source_is_a_wrong_command_line() {
    let host = Tree::new();
    for known in
        ["`nvml2` is not a source", "known are auto, ", "nvidia-smi, ", "procfs, ", "file:PATH, simulated:N"]
    {
        host.refuses(&["--source", "nvml2"], 2, known);
    }
    host.refuses(&["--source", "simulated:many"], 2, "needs a number of devices from 0 to 1000000");
}

/// An `nvidia-smi` with two cards of which the second is divided: it answers `-L` and `-q -x` with these files.
/// Each call is written down.
pub(crate) fn with_mig(listing: &str, details: &str) -> Tree {
    let rows = [
        "0, GPU-1-a, 00000000:01:00.0, NVIDIA L4, 23034, 1, P8, Default, 0, 550.54.15, [N/A]",
        "1, GPU-2-a, 00000000:02:00.0, NVIDIA A100, 40960, 1, P0, Default, 0, 550.54.15, Enabled",
    ];
    let script = format!(
        "echo \"$*\" >> calls\ncase \"$*\" in -L) . ./listing ;; '-q -x') . ./details ;; *) echo '{}' ;; esac",
        rows.join("\n")
    );
    with_smi(&script).file("listing", listing).file("details", details)
}

pub(crate) fn listing(instances: &[&str]) -> String {
    let lines = ["GPU 0: NVIDIA L4 (UUID: GPU-1-a)", "GPU 1: NVIDIA A100 (UUID: GPU-2-a)"];
    format!("cat <<'E'\n{}\n{}\nE\n", lines.join("\n"), instances.join("\n"))
}

/// Instances by number, GPU instance and compute instance.
pub(crate) fn details(instances: &[(u32, u32, u32)]) -> String {
    let instance = |(number, gpu, compute): &(u32, u32, u32)| {
        format!(
            "<mig_device><index>{number}</index><gpu_instance_id>{gpu}</gpu_instance_id>\
             <compute_instance_id>{compute}</compute_instance_id>\
             <fb_memory_usage><total>4864 MiB</total></fb_memory_usage></mig_device>\n"
        )
    };
    let instances: String = instances.iter().map(instance).collect();
    format!(
        "cat <<'E'\n<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n<nvidia_smi_log>\n\
         <gpu id=\"00000000:01:00.0\"><uuid>GPU-1-a</uuid><minor_number>1</minor_number></gpu>\n\
         <gpu id=\"00000000:02:00.0\"><uuid>GPU-2-a</uuid><minor_number>0</minor_number>\n\
         <mig_devices>{instances}</mig_devices></gpu>\n</nvidia_smi_log>\nE\n"
    )
}

const INSTANCES: [&str; 2] =
    ["  MIG 1g.5gb      Device  0: (UUID: MIG-b-0)", "  MIG 2g.10gb     Device  1: (UUID: MIG-b-1)"];

#[test]
fn a_divided_card_is_offered_as_its_instances() {
    let host = with_mig(&listing(&INSTANCES), &details(&[(0, 7, 0), (1, 3, 0)]));
    let answer = host.devices(&[]);
    assert_eq!((&answer["source"], &answer["warnings"]), (&json!("nvidia-smi"), &json!([])));
    let unit = |uuid: &str, profile: &str, gpu_instance: u32| {
        json!({ "slot": null, "instance": {
            "uuid": uuid, "profile": profile, "gpu_instance": gpu_instance, "compute_instance": 0, "memory_mib": 4864,
        } })
    };
    assert_eq!(answer["devices"][0]["units"], json!([{ "slot": null, "instance": null }]));
    assert_eq!(
        answer["devices"][1]["units"],
        json!([unit("MIG-b-0", "1g.5gb", 7), unit("MIG-b-1", "2g.10gb", 3)])
    );
    let minors: Vec<&Value> =
        answer["devices"].as_array().unwrap().iter().map(|device| &device["minor"]).collect();
    assert_eq!(minors, [1, 0], "the tool's, where the kernel tells none");
    host.command(&["3", "--print", "uuid"]).assert().success().stdout("GPU-1-a,MIG-b-0,MIG-b-1\n");
    host.command(&["4"]).assert().code(1);
    let table =
        String::from_utf8(host.run(&["--exclude", "MIG-b-0"]).success().get_output().stdout.clone()).unwrap();
    let lines: Vec<String> =
        table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        lines[1..],
        [
            "0 NVIDIA L4 1/23034 MiB 1 GPU-1-a 0000:01:00.0 - sound Default 0",
            "1 NVIDIA A100 1/40960 MiB 0 GPU-2-a 0000:02:00.0 - sound Default 0",
            "1 MIG 2g.10gb 4864 MiB - MIG-b-1 - - sound - -",
        ]
    );
    let host = host.card("0000:02:00.0", "Device Minor: 5\n");
    assert_eq!(host.devices(&["--source", "nvidia-smi"])["devices"][1]["minor"], 5);
}

#[test]
fn the_names_of_old_instances_say_where_they_are() {
    let old = [
        "  MIG 3g.20gb Device 0: (UUID: MIG-GPU-2-a/1/0)",
        "  MIG 3g.20gb Device 1: (UUID: MIG-GPU-2-a/2/0)",
    ];
    let host = with_mig(&listing(&old), &details(&[(0, 1, 0), (1, 2, 0)]));
    host.command(&["3", "--print", "uuid"])
        .assert()
        .success()
        .stdout("GPU-1-a,MIG-GPU-2-a/1/0,MIG-GPU-2-a/2/0\n");
    let units = host.devices(&[])["devices"][1]["units"].clone();
    assert_eq!(
        (&units[1]["instance"]["gpu_instance"], &units[1]["instance"]["profile"]),
        (&json!(2), &json!("3g.20gb"))
    );
}

#[test]
fn only_a_divided_card_costs_more_calls() {
    let calls = |host: &Tree| {
        host.run(&[]).success();
        fs::read_to_string(host.path("calls")).unwrap().lines().count()
    };
    assert_eq!(calls(&with_mig(&listing(&INSTANCES), &details(&[(0, 7, 0), (1, 3, 0)]))), 3);
    assert_eq!(calls(&with_smi(&format!("echo \"$*\" >> calls; echo '{ROW}'"))), 1);
}

#[test]
#[rustfmt::skip] // a table
fn a_divided_card_whose_instances_are_not_told_is_not_offered() {
    let (listed, placed) = (listing(&INSTANCES), details(&[(0, 7, 0), (1, 3, 0)]));
    for (case, listing, details, why) in [
        ("made anew meanwhile", listed.clone(),                details(&[(0, 7, 0)]),             "`-L` and `-q -x` name different ones"),
        ("no list",             "exit 4".to_owned(),           placed.clone(),                    "`nvidia-smi -L`: exit status 4: no permission"),
        ("another list",        "echo 'GPU 0: L4 (UUID: GPU-1-a)'".to_owned(), placed.clone(),    "`nvidia-smi -L` does not list it"),
        ("no details",          listed.clone(),                "echo 'NVIDIA-SMI has failed'; exit 9".to_owned(), "`nvidia-smi -q -x`: exit status 9: the driver is not loaded (`NVIDIA-SMI has failed`)"),
        ("no GPU in it",        "echo 'No devices were found'".to_owned(), placed.clone(),        "`nvidia-smi -L`: it lists no GPU"),
        ("no XML",              listed.clone(),                "echo hello".to_owned(),           "`nvidia-smi -q -x`: it printed no XML"),
        ("half of them",        listed.clone(),                placed.replace("</nvidia_smi_log>", ""), "`nvidia-smi -q -x`: its XML is cut short"),
        ("a crash",             listed.clone(),                format!("{placed}\nkill -SEGV $$"), "`nvidia-smi -q -x`: signal 11 ended it"),
        ("one name for two",    listing(&[INSTANCES[0], "  MIG 1g.5gb Device 1: (UUID: [N/A])"]), placed.clone(), "`-L` and `-q -x` name different ones"),
    ] {
        let host = with_mig(&listing, &details);
        let answer = host.devices(&[]);
        let warning = format!("nvidia-smi: device 1 (0000:02:00.0) is divided (MIG), and its instances are not granted: {why}");
        assert!(answer["warnings"][0].as_str().unwrap().starts_with(&warning), "{case}: {}", answer["warnings"]);
        assert_eq!((&answer["devices"][1]["units"], answer["devices"][0]["units"].as_array().unwrap().len()), (&json!([]), 1), "{case}");
        host.command(&["1", "--print", "uuid"]).assert().success().stdout("GPU-1-a\n");
        host.command(&["2"]).assert().code(1).stdout("");
    }
}

#[test]
fn a_call_for_details_that_hangs_costs_the_divided_card_alone() {
    let host = with_mig(&listing(&INSTANCES), "exec sleep 1000");
    let answer = host.devices(&["--source", "nvidia-smi", "--deadline", "2"]);
    assert_eq!(answer["devices"][1]["units"], json!([]));
    let warning = answer["warnings"][0].as_str().unwrap();
    assert!(warning.contains("not granted: `nvidia-smi -q -x`: it did not end within "), "{warning}");
}

/// A version before MIG does not know the field, and no card of it is divided.
#[test]
fn an_old_version_is_asked_again_without_what_it_does_not_know() {
    let row = ROW.rsplit_once(", ").unwrap().0;
    let host = with_smi(&format!(
        "echo \"$*\" >> calls
         case $1 in *,mig.mode.current) echo 'Field \"mig.mode.current\" is not a valid field to query.'; exit 2 ;; esac
         echo '{row}'"
    ));
    let answer = host.devices(&[]);
    assert_eq!((&answer["devices"][0]["uuid"], &answer["warnings"]), (&json!("GPU-1-a"), &json!([])));
    assert_eq!(fs::read_to_string(host.path("calls")).unwrap().lines().count(), 2);
    let stubborn = with_smi("echo \"$*\" >> calls; echo 'Option is not recognized'; exit 2");
    stubborn.refuses(
        &[],
        4,
        "nvidia-smi: exit status 2: it does not know what it was asked for (`Option is not recognized`)",
    );
    assert_eq!(fs::read_to_string(stubborn.path("calls")).unwrap().lines().count(), 2);
}

#[test]
fn the_version_of_the_driver_is_told_and_by_whom() {
    let version = |host: &Tree| {
        let answer = host.devices(&[]);
        (answer["source"].clone(), answer["host"]["driver_version"].clone())
    };
    let by_tool = with_smi(&format!("echo '{ROW}'"));
    assert_eq!(version(&by_tool), (json!("nvidia-smi"), json!("550.54.15")));
    let by_kernel = Tree::new().card("0000:3b:00.0", "Model: NVIDIA L4\n");
    assert_eq!(version(&by_kernel), (json!("procfs"), Value::Null));
    let line = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sat Feb 17 22:55:48 UTC 2024\n";
    let by_kernel = by_kernel.file("root/proc/driver/nvidia/version", line);
    assert_eq!(version(&by_kernel), (json!("procfs"), json!("535.161.08")));
    let status = by_kernel.command(&["status", "--json", "--coordination-file", "file"]).assert().success();
    let status: Value = serde_json::from_slice(&status.get_output().stdout).unwrap();
    assert_eq!(status["host"]["driver_version"], "535.161.08");
}

#[test]
fn a_card_that_cannot_be_read_is_warned_of_as_any_other() {
    let host =
        Tree::new().card("0000:3b:00.0", "nothing of a card's\n").card("0000:5e:00.0", "Model: NVIDIA L4\n");
    let information = "root/proc/driver/nvidia/gpus/0000:3b:00.0/information";
    let warning = format!("procfs: device 0 (0000:3b:00.0) is sick: {information} does not describe a card");
    assert_eq!(host.devices(&[])["warnings"], json!([warning]));
}

#[test]
fn a_tool_that_is_not_there_costs_no_process() {
    if !strace::is_there("a_tool_that_is_not_there_costs_no_process") {
        return;
    }
    // Of all that this machine has, strace alone is on the way.
    let strace = Command::new("sh").args(["-c", "command -v strace"]).output().unwrap().stdout;
    let strace = String::from_utf8(strace).unwrap();
    let processes = |host: &Tree, source: &str| {
        symlink(strace.trim(), host.path("bin/strace")).unwrap();
        let mut program = host.program(&["devices", "--source", source]);
        program.env("PATH", host.path("bin"));
        let calls = strace::every_call(&program);
        let is_start = |name: &str| ["clone", "clone3", "fork", "vfork"].contains(&name);
        calls.iter().filter(|call| is_start(&call.name)).count()
    };
    for source in ["nvidia-smi", "rocm-smi", "amd-smi"] {
        assert_eq!(processes(&Tree::new(), source), 0, "{source}");
        assert_eq!(processes(&Tree::new().tool(source, "exit 9"), source), 1, "{source} is there");
    }
}

/// Simulated devices behave like NVIDIA's.
#[test]
fn a_vendor_beside_devices_of_any_kind_is_warned_of() {
    let host = Sandbox::with_gpus(1);
    let warning = "gpu-coord: warning: --vendor amd has no meaning for source simulated:1; leave it out\n";
    host.command("allocate 1 --vendor amd --no-coordination").assert().code(0).stdout("0\n").stderr(warning);
    is_refused_if_strict(host.program("allocate 1 --vendor amd"), &host.file(), warning);
    host.answers("1 --vendor nvidia", "0\n");
}
