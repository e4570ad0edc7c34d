//! The sources, good and bad, as `gpu-coord devices` reads them: a fake `nvidia-smi` on PATH, and a
//! driver's directory below `--root`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::assert::Assert;
use serde_json::Value;
use tempfile::TempDir;

use crate::sandbox::skip;

/// Long past every deadline that is used here.
const FOR_EVER: Duration = Duration::from_secs(60);

const ROW: &str = "0, GPU-1-a, 00000000:01:00.0, NVIDIA L4, 23034";

/// A host without a GPU, to which a test adds what it needs.
#[must_use = "nothing is checked until the program is run"]
struct Sandbox {
    root: TempDir,
}

impl Sandbox {
    fn new() -> Sandbox {
        let sandbox = Sandbox { root: tempfile::tempdir().unwrap() };
        fs::create_dir_all(sandbox.path("root/proc")).unwrap();
        fs::create_dir_all(sandbox.path("bin")).unwrap();
        sandbox
    }

    fn with_smi(script: &str) -> Sandbox {
        let sandbox = Sandbox::new();
        write_script(&sandbox.path("bin/nvidia-smi"), script);
        sandbox
    }

    /// Adds a card to the kernel driver's list.
    fn card(self, address: &str, information: &str) -> Sandbox {
        let directory = self.path("root/proc/driver/nvidia/gpus").join(address);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("information"), information).unwrap();
        self
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }

    /// The fakes first, and what their scripts call after them.
    fn search_path(&self) -> String {
        format!("{}:/usr/bin:/bin", self.path("bin").display())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-coord"));
        command.env_clear().current_dir(self.root.path());
        command.env("PATH", self.search_path());
        command.args(["devices", "--root", "root"]);
        command
    }

    fn run(&self, args: &[&str]) -> Assert {
        assert_cmd::Command::from_std(self.command()).args(args).timeout(FOR_EVER).assert()
    }

    /// A refusal prints nothing on stdout and one line on stderr.
    #[track_caller]
    fn refuses(&self, args: &[&str], status: i32, says: &str) {
        let assert = self.run(args).code(status).stdout("");
        let stderr = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
        assert!(stderr.starts_with("gpu-coord: ") && stderr.contains(says), "{says}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(!stderr.trim_end().contains(char::is_control), "{stderr:?}");
    }

    /// What `devices --json` prints.
    #[track_caller]
    fn devices(&self, args: &[&str]) -> Value {
        let assert = self.run(&[&["--json"], args].concat()).success();
        serde_json::from_slice(&assert.get_output().stdout).unwrap()
    }
}

/// Written by another process: a descriptor of ours that is open for writing would be inherited for a
/// moment by what other tests start, and a file that is open for writing cannot be run.
pub(crate) fn write_script(path: &Path, script: &str) {
    let mut shell = Command::new("sh")
        .args(["-c", "cat > \"$0\"; chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    shell.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
}

/// A zombie has ended: only its parent, whoever that is by now, can do away with it.
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
        ("prints nothing",   "",                                            "no GPU on this host: nvml: not asked below --root; nvidia-smi: it printed no device; procfs: no "),
        ("exits 255",        "exit 255",                                    "nvidia-smi: exit status 255: an unknown error"),
        ("a sentence",       "echo 'Failed to initialize NVML: Unknown Error'", "nvidia-smi: it printed what is no card: `Failed to initialize NVML: Unknown Error`"),
        ("control bytes",    "printf '\\033[2J\\tX\\n'",                    "it printed what is no card: `\\u{1b}[2J\\tX`"),
        ("no driver",        "echo 'NVIDIA-SMI has failed'; exit 9",        "exit status 9: the driver is not loaded (`NVIDIA-SMI has failed`); procfs: "),
        ("no device",        "echo 'No devices were found'; exit 6",        "no GPU on this host: nvml: not asked below --root; nvidia-smi: it finds no device; if it has one, `dmesg`"),
        ("crashes",          "kill -SEGV $$",                               "nvidia-smi: signal 11 ended it"),
        ("one identity",     "echo '0, GPU-1, 0000:01:00.0, A, 1'; echo '1, GPU-1, 0000:02:00.0, A, 1'", "device 0 (GPU-1) and device 1 (GPU-1) have one UUID: GPU-1"),
        ("one index",        "echo '0, GPU-1, 0000:01:00.0, A, 1'; echo '0, GPU-2, 0000:02:00.0, A, 1'", "device 0 (GPU-1) and device 0 (GPU-2) have one index: 0"),
    ] {
        println!("{case}");
        Sandbox::with_smi(script).refuses(&[], 4, says);
    }
}

#[test]
fn a_tool_that_sleeps_is_ended_with_all_that_it_started() {
    let sandbox = Sandbox::with_smi("echo $$ >> pids; sleep 1000 & echo $! >> pids; wait");
    sandbox.refuses(&["--deadline", "1"], 3, "passed while waiting for nvidia-smi: it did not end within ");
    sandbox.refuses(
        &["--deadline", "1", "--source", "nvidia-smi"],
        3,
        "the deadline of 1 s passed while waiting",
    );
    sandbox.refuses(&["--deadline", "1"], 3, "nvidia-smi -pm 1");
    for pid in pids(&sandbox.path("pids"), 6) {
        until("a child of ours is left", || !is_running(&pid));
    }
}

#[test]
fn a_tool_dies_with_its_caller() {
    let sandbox = Sandbox::with_smi("echo $$ > pids; exec sleep 1000");
    let mut caller = sandbox.command().args(["--deadline", "600"]).spawn().unwrap();
    let pids = pids(&sandbox.path("pids"), 1);
    caller.kill().unwrap();
    caller.wait().unwrap();
    until("the tool outlives its caller", || !is_running(&pids[0]));
}

#[test]
fn a_caller_that_ignores_its_children_is_no_obstacle() {
    let sandbox = Sandbox::with_smi(&format!("echo '{ROW}'; exit 14"));
    let mut env = Command::new("env");
    env.args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_gpu-coord"), "devices", "--root", "root"]);
    env.current_dir(sandbox.root.path()).env("PATH", sandbox.search_path());
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
    let assert = Sandbox::with_smi(&freeze).run(&["--deadline", "1"]).code(3);
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
    let sandbox = Sandbox::with_smi(
        "echo '0, GPU-1-a, 00000000:01:00.0, Odd, [B/C] (rev a1), [N/A]'
         echo '2, GPU-3-a, 00000000:03:00.0, NVIDIA L4, 23034'
         echo 'Unable to determine the device handle for GPU0000:02:00.0: Unknown Error'
         exit 255",
    )
    .card("0000:01:00.0", "Device Minor: \t 1\n")
    .card("0000:03:00.0", "Device Minor: \t 0\n");
    let answer = sandbox.devices(&[]);
    let devices = answer["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 3);
    assert_eq!(devices[0]["name"], "Odd, [B/C] (rev a1)");
    assert_eq!((&devices[0]["memory_mib"], &devices[0]["minor"]), (&Value::Null, &1.into()));
    assert_eq!((&devices[1]["health"], &devices[1]["pci"]), (&"sick".into(), &"0000:02:00.0".into()));
    assert_eq!(devices[1]["reason"], "Unknown Error");
    assert_eq!((&devices[2]["index"], &devices[2]["minor"]), (&2.into(), &0.into()));
    assert_eq!(devices[2]["nodes"], serde_json::json!(["root/dev/nvidia0"]));
    assert_eq!(answer["warnings"][0], "nvidia-smi: GPU 0000:02:00.0: Unknown Error");
}

#[test]
fn the_kernel_answers_where_the_tool_fails() {
    let sandbox =
        Sandbox::with_smi("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
            .card("0000:3b:00.0", "Model: NVIDIA L4\nGPU UUID: GPU-1-a\nDevice Minor: 2\n");
    let answer = sandbox.devices(&[]);
    assert_eq!((&answer["source"], &answer["devices"][0]["uuid"]), (&"procfs".into(), &"GPU-1-a".into()));
    let warning = answer["warnings"][0].as_str().unwrap();
    assert!(
        warning.starts_with("devices are read from procfs, since nvidia-smi failed: exit status 18"),
        "{warning}"
    );
    sandbox.refuses(&["--source", "nvidia-smi"], 4, "reload the driver's modules or restart the host");
}

#[test]
fn the_kernels_list_is_not_believed_against_the_driver() {
    Sandbox::with_smi("echo 'No devices were found'; exit 6")
        .card("0000:3b:00.0", "Model: NVIDIA L4\n")
        .refuses(&[], 4, "no GPU on this host: nvml: not asked below --root; nvidia-smi: it finds no device");
}

#[test]
fn verbose_says_what_each_source_said() {
    let sandbox = Sandbox::new().card("0000:3b:00.0", "Model: NVIDIA L4\n");
    let assert = sandbox.run(&["-v"]).success();
    let stderr = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert!(stderr.contains("source nvidia-smi: no nvidia-smi in PATH ("), "{stderr}");
    assert!(stderr.contains("source procfs: 1 device in "), "{stderr}");
}

#[test]
fn without_tool_and_driver_it_says_what_was_looked_for() {
    let sandbox = Sandbox::new();
    sandbox.refuses(
        &[],
        4,
        "no GPU on this host: nvml: not asked below --root; nvidia-smi: no nvidia-smi in PATH; procfs: no root/proc/driver/nvidia/gpus",
    );
    sandbox.refuses(&["--source", "simulated:0"], 4, "source simulated:0 has no device");
}

#[test]
fn a_driver_root_has_its_own_tool() {
    let sandbox = Sandbox::with_smi("exit 9");
    fs::create_dir_all(sandbox.path("driver/usr/bin")).unwrap();
    write_script(&sandbox.path("driver/usr/bin/nvidia-smi"), &format!("echo '{ROW}'"));
    assert_eq!(sandbox.devices(&["--driver-root", "driver"])["devices"][0]["uuid"], "GPU-1-a");
}

#[test]
#[rustfmt::skip] // a table
fn a_bad_file_is_refused() {
    let sandbox = Sandbox::new();
    for (case, text, says) in [
        ("no JSON",      "index,id\n",                                     "list.json:1: not JSON: expected value"),
        ("one identity", r#"{"devices": [{"id": "a"}, {"id": "a"}]}"#,     "list.json: device 0 (a) and device 1 (a) have one id: a"),
        ("no device",    r#"{"devices": []}"#,                             "source file:list.json has no device"),
        ("a typo",       r#"{"devices": [{"id": "a", "indx": 1}]}"#,       "list.json:1: unknown field `indx`"),
    ] {
        println!("{case}");
        fs::write(sandbox.path("list.json"), text).unwrap();
        sandbox.refuses(&["--source", "file:list.json"], 4, says);
    }
    sandbox.refuses(&["--source", "file:missing.json"], 4, "cannot open missing.json: No such file");
    sandbox.refuses(&["--source", "file:bin"], 4, "bin: not a regular file");
}

#[test]
fn a_file_is_read_from_where_it_is_and_its_nodes_below_the_root() {
    let sandbox = Sandbox::new();
    let text = r#"{"devices": [{"id": "board 1", "pci": "0000:3b:00.0", "nodes": ["/dev/xdma0"]}]}"#;
    fs::write(sandbox.path("list.json"), text).unwrap();
    let answer = sandbox.devices(&["--source", "file:list.json"]);
    assert_eq!(answer["source"], "file:list.json");
    assert_eq!(answer["devices"][0]["id"], "board 1");
    assert_eq!(answer["devices"][0]["nodes"], serde_json::json!(["root/dev/xdma0"]));
}

#[test]
fn an_unknown_source_is_a_wrong_command_line() {
    let sandbox = Sandbox::new();
    for known in
        ["`nvml2` is not a source", "known are auto, ", "nvidia-smi, ", "procfs, ", "file:PATH, simulated:N"]
    {
        sandbox.refuses(&["--source", "nvml2"], 2, known);
    }
    sandbox.refuses(&["--source", "simulated:many"], 2, "needs a number of devices from 0 to 1000000");
}
