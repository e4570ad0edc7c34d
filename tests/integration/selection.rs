//! Which devices may be granted: depending on the options, the variables that hide devices, their health and
//! who computes on them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use assert_cmd::Command;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::sandbox::{PROGRAM, Process, Sandbox};
use crate::strict::is_refused_if_strict;
use crate::tree::write_script;

/// Long past every deadline that is used here.
const FOR_EVER: Duration = Duration::from_secs(60);

const THREE: &str = "there are 0 (GPU-00000000-0000-4000-8000-000000000000), 1 (GPU-00000000-0000-4000-8000-000000000001), 2 (GPU-00000000-0000-4000-8000-000000000002)";

#[test]
#[rustfmt::skip] // a table
fn devices_and_exclude_select_and_do_not_renumber() {
    let host = Sandbox::with_gpus(6);
    for (options, answer) in [
        ("--devices 3,1",                                            "1,3"),
        ("--devices 2-4",                                            "2,3"),
        ("--exclude 0",                                              "1,2"),
        ("--exclude 0-2,4",                                          "3,5"),
        ("--devices 1-4 --exclude 2",                                "1,3"),
        ("--devices GPU-00000000-0000-4000-8000-000000000005,0",     "0,5"),
        ("--devices fffffff0:00:00.2,FFFFFFF0:00:00.3",              "2,3"),
    ] {
        let owner = Process::start();
        host.answers(&format!("2 {options}"), &format!("{answer}\n"));
        host.answers(&format!("allocate 2 {options} --owner {}", owner.pid()), &format!("{answer}\n"));
        host.answers(&format!("deallocateAll --owner {}", owner.pid()), "");
    }
}

#[test]
fn what_is_excluded_is_not_given_however_much_is_wanted() {
    let (host, owner) = (Sandbox::with_gpus(4), Process::start());
    let rest = "of this host's 4 the options and the owner's environment leave 3: waiting cannot help; ask for fewer";
    for form in ["4", "4 --enable-coordination-mode", "allocate 4"] {
        let line = format!("{form} --exclude 1 --owner {}", owner.pid());
        host.refuses(&line, 1, &format!("4 units asked for, and {rest}"));
    }
    host.answers(&format!("allocate 3 --exclude 1 --owner {}", owner.pid()), "0,2,3\n");
    let other = Process::start();
    host.refuses(
        &format!("allocate 1 --exclude 1 --owner {}", other.pid()),
        1,
        "1 unit asked for, 0 of 3 can be given: 3 held by living owners (`gpu-coord status` names them)",
    );
    host.answers(&format!("allocate 1 --owner {}", other.pid()), "1\n");
}

#[test]
#[rustfmt::skip] // a table
fn an_entry_that_names_nothing_is_refused_by_every_command() {
    let host = Sandbox::with_gpus(3);
    for (list, problem) in [
        ("0,3",      format!("`3` names no device; {THREE}")),
        ("7-9",      format!("`7-9` names no device; {THREE}")),
        ("2-0",      "`2-0` runs backwards; write 0-2".to_owned()),
        ("GPU-f",    format!("`GPU-f` names no device; {THREE}")),
        ("GPU-0",    "`GPU-0` is the beginning of several UUIDs: GPU-00000000-0000-4000-8000-000000000000, GPU-00000000-0000-4000-8000-000000000001, GPU-00000000-0000-4000-8000-000000000002".to_owned()),
        ("MIG-1",    format!("`MIG-1` names no device; {THREE}")),
        ("0000:01:00.0", format!("`0000:01:00.0` names no device; {THREE}")),
    ] {
        for option in ["--devices", "--exclude"] {
            for command in ["1", "1 --enable-coordination", "allocate 1", "status"] {
                host.refuses(&format!("{command} {option} {list}"), 2, &format!("{option}: {problem}"));
            }
            let mut devices = Command::new(PROGRAM);
            let devices = devices.env_clear().args(["devices", "--source", "simulated:3", option, list]);
            devices.assert().code(2).stdout("").stderr(format!("gpu-coord: {option}: {problem}\n"));
        }
    }
    for list in ["0,,1", "0,", ",0"] {
        host.refuses(&format!("1 --devices {list}"), 2, &format!(
            "--devices cannot be `{list}`: it takes indexes, ranges and names with a comma between, and one of them is empty"
        ));
    }
    assert!(!host.file().exists());
}

#[test]
fn status_and_devices_show_what_is_selected() {
    let (host, owner) = (Sandbox::with_gpus(4), Process::start());
    host.answers(&format!("allocate 4 --owner {}", owner.pid()), "0,1,2,3\n");
    let output = host.command("status --json --devices 1-3 --exclude 2").assert().code(0).stderr("");
    let status: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    assert_eq!(indexes(&status), [1, 3]);
    assert_eq!(status["devices"][0]["units"][0]["state"], "held");
    assert_eq!(status["elsewhere"], json!([]), "what is not selected is here still");
    let table = host.command("status --exclude 0-2").output().unwrap().stdout;
    assert_eq!(String::from_utf8(table).unwrap().lines().count(), 2);
    let mut devices = Command::new(PROGRAM);
    devices.env_clear().args(["devices", "--json", "--source", "simulated:4", "--exclude", "0"]);
    let devices: Value = serde_json::from_slice(&devices.output().unwrap().stdout).unwrap();
    assert_eq!(indexes(&devices), [1, 2, 3]);
}

fn indexes(document: &Value) -> Vec<u64> {
    document["devices"].as_array().unwrap().iter().map(|device| device["index"].as_u64().unwrap()).collect()
}

#[test]
fn the_options_can_be_set_by_variables() {
    let host = Sandbox::with_gpus(4);
    let set = [("GPU_COORD_DEVICES", "0-2"), ("GPU_COORD_EXCLUDE", "0, 1")];
    host.command("1").envs(set).assert().code(0).stderr("").stdout("2\n");
    host.command("1 --exclude 2").envs(set).assert().code(0).stdout("0\n");
}

#[test]
#[rustfmt::skip] // a table
fn the_variables_that_hide_devices() {
    let host = Sandbox::with_gpus(4);
    let uuid = "GPU-00000000-0000-4000-8000-000000000002";
    for (variables, line, answer) in [
        (&[("CUDA_VISIBLE_DEVICES", "3,1")][..],                                 "2",                          "0,1\n"),
        (&[("CUDA_VISIBLE_DEVICES", "3,1")],                                     "2 --print host-index",       "3,1\n"),
        (&[("CUDA_VISIBLE_DEVICES", "3,1")],                                     "2 --ignore-visible-devices", "0,1\n"),
        (&[("CUDA_VISIBLE_DEVICES", "3,1")],                                     "1 --devices 1",              "1\n"),
        (&[("CUDA_VISIBLE_DEVICES", "")],                                        "1 --ignore-visible-devices", "0\n"),
        (&[("NVIDIA_VISIBLE_DEVICES", "all")],                                   "2",                          "0,1\n"),
        (&[("NVIDIA_VISIBLE_DEVICES", "void")],                                  "2",                          "0,1\n"),
        (&[("NVIDIA_VISIBLE_DEVICES", "")],                                      "2",                          "0,1\n"),
        (&[("NVIDIA_VISIBLE_DEVICES", uuid)],                                    "1",                          "2\n"),
        (&[("NVIDIA_VISIBLE_DEVICES", "none")],                                  "1 --ignore-visible-devices", "0\n"),
        // The container's variable limits, and CUDA's alone decides how is counted.
        (&[("NVIDIA_VISIBLE_DEVICES", uuid), ("CUDA_VISIBLE_DEVICES", "3,2,1")], "1",                          "1\n"),
        // AMD's say nothing of NVIDIA's.
        (&[("ROCR_VISIBLE_DEVICES", "3"), ("HIP_VISIBLE_DEVICES", "3")],         "1 --print host-index",       "0\n"),
    ] {
        host.command(line).envs(variables.iter().copied()).assert().code(0).stderr("").stdout(answer);
    }
    for (name, value) in [("NVIDIA_VISIBLE_DEVICES", "none"), ("CUDA_VISIBLE_DEVICES", "0,0"), ("CUDA_VISIBLE_DEVICES", "")] {
        host.command("1").env(name, value).assert().code(1).stdout("").stderr(
            "gpu-coord: 1 unit asked for, and of this host's 4 the options and the owner's environment leave 0: \
             waiting cannot help; ask for fewer\n",
        );
    }
}

#[test]
fn an_inventory_file_is_hidden_by_no_variable() {
    let host = Sandbox::with_gpus(1);
    fs::write(host.path().join("devices.json"), r#"{"devices": [{"id": "a"}, {"id": "b"}]}"#).unwrap();
    let mut command = host.command("2 --source file:devices.json");
    for name in ["CUDA", "NVIDIA", "ROCR", "HIP"] {
        command.env(format!("{name}_VISIBLE_DEVICES"), "none");
    }
    command.assert().code(0).stderr("").stdout("0,1\n");
}

#[test]
fn a_sick_device_is_given_last_and_only_if_it_is_wanted() {
    let (host, owner) = (Sandbox::with_gpus(1), Process::start());
    let devices = r#"{"devices": [{"id": "a", "unhealthy": "its fan stands"}, {"id": "b"}, {"id": "7-5"}]}"#;
    fs::write(host.path().join("devices.json"), devices).unwrap();
    let source = "--source file:devices.json";
    let sick = "3 units asked for, 2 of 3 can be given: 1 sick (`gpu-coord devices` says why)";
    let warning = "gpu-coord: warning: device 0 is given although it is sick: its fan stands\n";
    for form in ["3".to_owned(), format!("allocate 3 --owner {}", owner.pid())] {
        host.refuses(&format!("{form} {source}"), 1, sick);
        let asked = host.command(&format!("{form} {source} --include-unhealthy")).assert();
        asked.code(0).stdout("1,2,0\n").stderr(warning);
    }
    host.answers(&format!("1 {source} --devices 7-5"), "2\n");
    host.answers(&format!("2 {source} --include-unhealthy"), "1,2\n");
}

#[test]
fn a_lost_device_is_never_given() {
    let directory = tempfile::tempdir().unwrap();
    let rows = "echo '0, GPU-1, 00000000:01:00.0, NVIDIA L4, 23034, 1, P0, Default, 0, 550.54.15, Disabled'
        echo '1, GPU-2, 00000000:02:00.0, NVIDIA L4, 23034, 1, [GPU requires reset], Default, 0, 550.54.15, Disabled'
        echo '2, [GPU is lost], 00000000:03:00.0, [GPU is lost], [GPU is lost], 1, P0, Default, 0, 550.54.15, Disabled'";
    write_script(&directory.path().join("nvidia-smi"), rows);
    let run = |amount: &str| {
        let mut command = Command::new(PROGRAM);
        command.env_clear().env("PATH", format!("{}:/usr/bin:/bin", directory.path().display()));
        command.args([amount, "--source", "nvidia-smi", "--include-unhealthy"]).timeout(FOR_EVER).assert()
    };
    let warnings = "gpu-coord: warning: nvidia-smi: device 1 (0000:02:00.0) is sick: nvidia-smi says [GPU requires reset]
gpu-coord: warning: nvidia-smi: device 2 (0000:03:00.0) is sick: nvidia-smi says [GPU is lost]
gpu-coord: warning: device 1 is given although it is sick: nvidia-smi says [GPU requires reset]\n";
    run("2").code(0).stdout("0,1\n").stderr(warnings);
    run("3")
        .code(1)
        .stdout("")
        .stderr("gpu-coord: 3 units asked for, 2 of 3 can be given: 1 sick (`gpu-coord devices` says why)\n");
}

const INITIAL: u64 = 4_026_531_836;
const GPUS: &str = "root/sys/class/kfd/kfd";

/// A host of three AMD GPUs below `--root`, in the initial pid namespace unless told otherwise.
#[must_use = "nothing is checked until the program is run"]
struct Tree {
    directory: TempDir,
}

impl Tree {
    fn new() -> Tree {
        let mut tree = Tree { directory: tempfile::tempdir().unwrap() };
        for index in 0..3 {
            let properties = format!(
                "simd_count 416\nvendor_id 4098\nlocation_id {}\ndomain 0\nunique_id {}\n",
                (index + 1) << 8,
                0xaa00_0000_0000_0000_u64 + index,
            );
            let node = format!("{GPUS}/topology/nodes/{}", index + 1);
            tree = tree.file(&format!("{node}/gpu_id"), &format!("{}\n", 1000 + index));
            tree = tree.file(&format!("{node}/properties"), &properties);
        }
        fs::create_dir_all(tree.path(&format!("{GPUS}/proc"))).unwrap();
        tree.process(1, 0).in_namespace(INITIAL)
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.directory.path().join(relative)
    }

    fn file(self, path: &str, text: &str) -> Tree {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn in_namespace(self, namespace: u64) -> Tree {
        let link = self.path("root/proc/1/ns/pid");
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&link);
        symlink(format!("pid:[{namespace}]"), link).unwrap();
        self
    }

    /// Starts when its pid says.
    fn process(self, pid: u32, parent: u32) -> Tree {
        let stat = format!(
            "{pid} (a) b) S {parent} {pid} {pid} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {pid} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17\n"
        );
        let status = format!("Name:\tx\nTgid:\t{pid}\nUid:\t0\t0\t0\t0\nNSpid:\t{pid}\n");
        self.file(&format!("root/proc/{pid}/stat"), &stat)
            .file(&format!("root/proc/{pid}/status"), &status)
            .file(&format!("root/proc/{pid}/cmdline"), "train\0--fast\0")
            .file(&format!("root/proc/{pid}/environ"), "")
    }

    fn computes(self, pid: u32, index: u32) -> Tree {
        self.file(&format!("{GPUS}/proc/{pid}/queues/{index}/gpuid"), &format!("{}\n", 1000 + index))
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::from_std(self.program(line));
        command.timeout(FOR_EVER);
        command
    }

    fn program(&self, line: &str) -> std::process::Command {
        let mut command = std::process::Command::new(PROGRAM);
        command.env_clear().current_dir(self.directory.path());
        command.args(line.split_ascii_whitespace()).args(["--root", "root"]);
        command.args(["--coordination-file", "coordination"]);
        if !line.starts_with("deallocate") {
            command.args(["--source", "sysfs"]);
        }
        command
    }

    #[track_caller]
    fn answers(&self, line: &str, stdout: &str, stderr: &str) {
        if !stderr.is_empty() {
            is_refused_if_strict(self.program(line), &self.path("coordination"), stderr);
        }
        self.command(line).assert().code(0).stdout(stdout.to_owned()).stderr(stderr.to_owned());
    }

    #[track_caller]
    fn refuses(&self, line: &str, code: i32, stderr: &str) {
        self.command(line).assert().code(code).stdout("").stderr(format!("gpu-coord: {stderr}\n"));
    }

    /// The state of each unit, and who uses it.
    #[track_caller]
    fn units(&self) -> Vec<Value> {
        let output = self.command("status --json").assert().code(0);
        let status: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
        let unit = |device: &Value| {
            let unit = &device["units"][0];
            json!([unit["state"], unit["in_use_by_others"]])
        };
        status["devices"].as_array().unwrap().iter().map(unit).collect()
    }
}

#[test]
fn what_others_compute_on_is_given_last_or_never() {
    let host = Tree::new().process(10, 1).process(20, 1).computes(20, 0);
    host.answers("allocate 2 --owner 10", "1,2\n", "");
    host.refuses(
        "allocate 1 --skip-busy --owner 10",
        1,
        "1 unit asked for, 0 of 3 can be given: 2 held by living owners (`gpu-coord status` names them); \
         1 in use by others (`gpu-coord status` names them)",
    );
    assert_eq!(host.units(), [json!(["free", [20]]), json!(["held", []]), json!(["held", []])]);
    let table = host.command("status").output().unwrap().stdout;
    assert!(String::from_utf8_lossy(&table).contains("free (in use by pid 20)"), "{table:?}");
    let warning = "gpu-coord: warning: device 0 is given although it is in use by pid 20 (train --fast), which does not hold it\n";
    host.answers("allocate 1 --owner 10", "0\n", warning);
}

/// A process about which the kernel reveals less, as with another user's.
#[test]
fn an_owner_whose_environment_cannot_be_read_is_warned_of() {
    let host = Tree::new().process(10, 1);
    fs::remove_file(host.path("root/proc/10/environ")).unwrap();
    let warning = "gpu-coord: warning: cannot read the environment of pid 10 (No such file or directory (os error 2)); if \
                   CUDA_VISIBLE_DEVICES or a similar variable is set there, use identities (--print uuid) instead of indexes\n";
    host.answers("allocate 1 --owner 10", "0\n", warning);
}

#[test]
fn the_owner_and_its_descendants_are_no_others() {
    let host = Tree::new().process(10, 1).process(20, 10).process(30, 20);
    let host = host.computes(10, 0).computes(30, 1);
    host.answers("allocate 2 --skip-busy --owner 10", "0,1\n", "");
    assert_eq!(host.units(), [json!(["held", []]), json!(["held", []]), json!(["free", []])]);
    let host = host.process(40, 1).computes(40, 0);
    assert_eq!(host.units()[0], json!(["held", [40]]), "an intruder");
}

#[test]
fn a_dead_owner_s_pid_is_another_process_and_what_has_ended_uses_nothing() {
    let host = Tree::new().process(10, 1).process(20, 1).computes(77, 1);
    host.answers("allocate 1 --owner 20", "0\n", "");
    // A later process has the pid, and computes.
    let stat = "20 (x) S 1 20 20 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 999 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17\n";
    let host = host.file("root/proc/20/stat", stat).computes(20, 0);
    assert_eq!(host.units(), [json!(["stale", [20]]), json!(["free", []]), json!(["free", []])]);
    host.answers("2 --enable-coordination --skip-busy --owner 10", "1,2\n", "");
}

/// A younger process may be a descendant of the dead owner; an older one cannot be.
#[test]
fn what_others_compute_on_is_not_reclaimed_from_the_dead_without_force() {
    let host = Tree::new().process(5, 1).process(10, 1).process(20, 1).process(30, 1);
    for owner in [10, 20] {
        host.answers(&format!("allocate 1 --owner {owner}"), if owner == 10 { "0\n" } else { "1\n" }, "");
    }
    let host = host.computes(30, 0).computes(5, 1);
    for pid in [10, 20] {
        fs::remove_dir_all(host.path(&format!("root/proc/{pid}"))).unwrap();
    }
    let kept = "index 0 of pid 10: others compute on its device, and may be descendants of it; --force releases it anyway";
    let warning = "gpu-coord: warning: pid 30 (train --fast) computes on device 0, which pid 10 held until it ended; \
                   end what is left of it\n";
    let dry = format!("would release index 1 of pid 20\nwould keep {kept}\n");
    host.answers("reclaim --dry-run", &dry, warning);
    host.answers("reclaim", &format!("released index 1 of pid 20\nkept {kept}\n"), warning);
    assert_eq!(host.units()[..2], [json!(["stale", [30]]), json!(["free", [5]])]);
    host.answers("reclaim --force", "released index 0 of pid 10\n", warning);
    assert_eq!(host.units()[0], json!(["free", [30]]));
}

/// All lines of a grant hold or none.
#[test]
fn what_is_not_reclaimed_keeps_the_rest_of_its_grant() {
    let host = Tree::new().process(10, 1).process(30, 1).computes(30, 1);
    host.answers("allocate 2 --owner 10 --devices 0,2", "0,2\n", "");
    let host = host.computes(30, 2);
    fs::remove_dir_all(host.path("root/proc/10")).unwrap();
    let reason = "others compute on its device, and may be descendants of it; --force releases it anyway";
    let warning = "gpu-coord: warning: pid 30 (train --fast) computes on device 2, which pid 10 held until it ended; \
                   end what is left of it\n";
    let kept = format!("kept index 0 of pid 10: {reason}\nkept index 2 of pid 10: {reason}\n");
    host.answers("reclaim", &kept, warning);
    host.answers("reclaim --force", "released index 0 of pid 10\nreleased index 2 of pid 10\n", warning);
}

#[test]
fn without_coordination_the_order_is_the_script_s() {
    let host = Tree::new().process(10, 1).process(20, 1).computes(20, 0).computes(10, 1);
    host.answers("1", "0\n", "");
    host.answers("2 --skip-busy --owner 10", "1,2\n", "");
    host.refuses(
        "3 --skip-busy --owner 10",
        1,
        "3 units asked for, 2 of 3 can be given: 1 in use by others (`gpu-coord status` names them)",
    );
}

#[test]
fn pids_of_another_namespace_are_not_considered() {
    let host = Tree::new().process(10, 1).process(20, 1).computes(20, 0).in_namespace(5);
    host.answers("allocate 1 --skip-busy --owner 10", "0\n", "");
    let units = [json!(["held", null]), json!(["free", null]), json!(["free", null])];
    assert_eq!(host.units(), units);
    let verbose = host.command("allocate 1 --owner 10 -v").assert().code(0).stdout("1\n");
    let stderr = String::from_utf8(verbose.get_output().stderr.clone()).unwrap();
    assert!(stderr.contains("processes that compute on the devices are not considered"), "{stderr}");
}

#[test]
#[rustfmt::skip] // a table
fn amd_s_variables_are_read_as_hip_reads_them() {
    for (environ, line, answer) in [
        ("ROCR_VISIBLE_DEVICES=2,1\0",                            "2 --print host-index", "2,1\n"),
        ("ROCR_VISIBLE_DEVICES=2,1\0HIP_VISIBLE_DEVICES=1\0",     "1 --print host-index", "1\n"),
        ("ROCR_VISIBLE_DEVICES=2,1\0HIP_VISIBLE_DEVICES=1\0",     "1",                    "0\n"),
        ("HIP_VISIBLE_DEVICES=2\0",                               "1",                    "0\n"),
        ("HIP_VISIBLE_DEVICES=2\0",                               "1 --ignore-visible-devices", "0\n"),
        ("HIP_VISIBLE_DEVICES=2\0",                               "3 --ignore-visible-devices", "0,1,2\n"),
        ("CUDA_VISIBLE_DEVICES=2\0",                              "1 --print host-index", "2\n"),
        ("ROCR_VISIBLE_DEVICES=GPU-aa00000000000001\0",           "1 --print host-index", "1\n"),
        ("NVIDIA_VISIBLE_DEVICES=none\0",                         "1",                    "0\n"),
    ] {
        let host = Tree::new().process(10, 1).file("root/proc/10/environ", environ);
        host.answers(&format!("{line} --owner 10"), answer, "");
        // Without --owner they are our own.
        let pairs = environ.split_terminator('\0').map(|pair| pair.split_once('=').unwrap());
        host.command(line).envs(pairs).assert().code(0).stdout(answer).stderr("");
    }
}

/// A host of two NVIDIA cards, as its root file system has it.
fn nvidia(root_file_system: &str) -> Tree {
    let mut tree = Tree { directory: tempfile::tempdir().unwrap() }.process(1, 0).in_namespace(INITIAL);
    for (index, address) in ["0000:01:00.0", "0000:02:00.0"].into_iter().enumerate() {
        let information = format!("Model: NVIDIA L4\nGPU UUID: GPU-{index}-a\nDevice Minor: {index}\n");
        tree = tree.file(&format!("root/proc/driver/nvidia/gpus/{address}/information"), &information);
    }
    tree.file("root/proc/self/mountinfo", &format!("27 1 8:1 / / rw - {root_file_system} x rw\n"))
}

#[test]
fn the_container_s_indexes_are_those_of_the_host() {
    let run = |tree: &Tree, value: &str, more: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.env_clear().env("NVIDIA_VISIBLE_DEVICES", value).current_dir(tree.directory.path());
        command.args(["1", "--source", "procfs", "--root", "root"]).args(more).timeout(FOR_EVER).assert()
    };
    let why = "NVIDIA_VISIBLE_DEVICES is ignored: `1` is an index of the host, and in a container the devices are \
               counted anew";
    let (host, container) = (nvidia("ext4"), nvidia("overlay"));
    run(&host, "1", &[]).code(0).stdout("1\n").stderr("");
    run(&container, "1", &[]).code(0).stdout("0\n").stderr("");
    let verbose = run(&container, "1", &["-v"]).code(0).stdout("0\n");
    let stderr = String::from_utf8(verbose.get_output().stderr.clone()).unwrap();
    assert!(stderr.contains(why), "{stderr}");
    run(&container, "GPU-1-a", &[]).code(0).stdout("1\n").stderr("");
    run(&nvidia("ext4").in_namespace(5), "1", &[]).code(0).stdout("0\n").stderr("");
    run(&host, "none", &["-v"]).code(1).stdout("");
}

/// Not every device of a file has every name, and what cannot be told is not given.
#[test]
fn a_name_that_a_device_has_not_is_not_printed() {
    let host = Sandbox::with_source("file:devices.json");
    fs::write(host.path().join("devices.json"), r#"{"devices": [{"id": "board-0"}]}"#).unwrap();
    let owner = Process::start();
    for (word, name) in [("uuid", "UUID"), ("pci", "PCI address")] {
        let problem = format!(
            "device 0 has no {name} in source file:devices.json; `--print host-index` has what every device has"
        );
        host.refuses(&format!("allocate 1 --print {word} --owner {}", owner.pid()), 4, &problem);
        assert_eq!(host.holders(), []);
    }
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
}
