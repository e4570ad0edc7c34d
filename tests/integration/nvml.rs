//! NVML, working and broken, as `devices` and `allocate` use it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fake_nvml::{Answer, Host};
use crate::running::{Running, wait_until};
use crate::sandbox::{PROGRAM, Process, is_root, may_mount, skip};
use crate::strace;

/// The name of the child process.
const CHILD: &str = "gpu-coord-nvml";

/// The pids of the children of `parent` that ask NVML. A zombie has ended.
fn children(parent: u32) -> Vec<u32> {
    let running = |entry: fs::DirEntry| -> Option<u32> {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let (state, of) = (fields.next()?, fields.next()?);
        let pid = entry.file_name().to_str()?.parse().ok()?;
        (name == CHILD && state != "Z" && of == parent.to_string()).then_some(pid)
    };
    fs::read_dir("/proc").unwrap().flatten().filter_map(running).collect()
}

fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn everything_is_told() {
    let host = Host::new().with("MIG", "1:2").with("PID", "0:7,0:8,0:9").with("MODE", "0:3");
    let answer = host.devices();
    assert_eq!(answer["source"], "nvml");
    assert_eq!(answer["host"]["driver_version"], "550.54.15");
    assert_eq!(answer["warnings"], json!([]));
    let whole = json!({ "slot": null, "instance": null });
    assert_eq!(
        answer["devices"][0],
        json!({
            "index": 0, "uuid": "GPU-fa4e0000-0000-4000-8000-000000000000", "pci": "0000:1a:00.0", "id": null,
            "name": "NVIDIA Fake, 40GB", "memory_mib": 40960, "memory_used_mib": 256,
            "minor": 1, "nodes": ["/dev/nvidia1"], "health": "sound", "reason": null,
            "processes": [{ "pid": 7, "memory_mib": 8 }, { "pid": 8, "memory_mib": 9 }, { "pid": 9, "memory_mib": 10 }],
            "compute_mode": "Exclusive_Process", "persistence_mode": true, "uncorrected_errors": 0, "unique_id": null, "units": [whole],
        })
    );
    let instance = |place: u32| {
        json!({ "slot": null, "instance": {
            "uuid": format!("MIG-fa4e0000-0000-4000-8000-000001{place:06x}"), "profile": "1g.5gb",
            "gpu_instance": 7 + place, "compute_instance": 0, "memory_mib": 4864,
        } })
    };
    assert_eq!(answer["devices"][1]["units"], json!([instance(0), instance(2)]));
}

/// Columns of what only some sources tell.
#[test]
fn the_table_has_what_there_is_to_tell() {
    let host = Host::new().with("MIG", "1:2").with("PID", "0:7,0:8").with("MODE", "0:3");
    let output = host.run("devices");
    let table: Vec<Vec<&str>> = output
        .stdout
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    let heads =
        ["INDEX", "MODEL", "MEMORY", "MINOR", "UUID", "PCI", "ID", "HEALTH", "MODE", "ERRORS", "PROCESSES"];
    assert_eq!(table[0], heads);
    let uuid = "GPU-fa4e0000-0000-4000-8000-000000000000";
    let first = [
        "0",
        "NVIDIA Fake, 40GB",
        "256/40960 MiB",
        "1",
        uuid,
        "0000:1a:00.0",
        "-",
        "sound",
        "Exclusive_Process",
        "0",
        "7 8",
    ];
    assert_eq!(table[1], first);
    assert_eq!(table[3][8..], ["-", "-", "-"], "an instance has none of these");
}

#[test]
fn an_old_driver_is_asked_in_old_forms() {
    let device = Host::old().with("PID", "0:7,0:8").devices()["devices"][0].clone();
    assert_eq!(
        (&device["pci"], &device["memory_mib"], &device["memory_used_mib"]),
        (&json!("0000:1a:00.0"), &json!(40960), &json!(512))
    );
    assert_eq!(device["processes"], json!([{ "pid": 7, "memory_mib": 8 }, { "pid": 8, "memory_mib": 9 }]));
    assert_eq!((&device["health"], &device["units"].as_array().unwrap().len()), (&json!("sound"), &1));
}

/// Whatever NVML answers to one query, the others are not affected.
#[test]
#[rustfmt::skip] // a table
fn a_call_that_fails_loses_one_field() {
    let with = |refused: &str| {
        let host = Host::new().with("GPUS", "1").with("MIG", "0:1").with("PID", "0:7").with("REFUSE", refused);
        host.devices()["devices"][0].clone()
    };
    let all = with("");
    for (function, pointer, instead) in [
        ("nvmlDeviceGetUUID",                        "/uuid",               Value::Null),
        ("nvmlDeviceGetPciInfo_v3",                  "/pci",                Value::Null),
        ("nvmlDeviceGetName",                        "/name",               Value::Null),
        ("nvmlDeviceGetMinorNumber",                 "/minor",              Value::Null),
        ("nvmlDeviceGetMemoryInfo_v2",               "/memory_used_mib",    json!(512)), // the first form counts what is reserved
        ("nvmlDeviceGetComputeRunningProcesses_v2",  "/processes",          all["processes"].clone()), // a later form
        ("nvmlDeviceGetComputeMode",                 "/compute_mode",       Value::Null),
        ("nvmlDeviceGetPersistenceMode",             "/persistence_mode",   Value::Null),
        ("nvmlDeviceGetTotalEccErrors",              "/uncorrected_errors", Value::Null),
        ("nvmlDeviceGetFieldValues",                 "/health",             json!("sound")),
        ("nvmlSystemGetDriverVersion",               "/health",             json!("sound")),
        ("nvmlDeviceGetMigMode",                     "/units/0/instance",   Value::Null),
        ("nvmlDeviceGetGpuInstanceId",               "/units/0/instance/gpu_instance",     Value::Null),
        ("nvmlDeviceGetComputeInstanceId",           "/units/0/instance/compute_instance", Value::Null),
        ("nvmlDeviceGetAttributes_v2",               "/units/0/instance/memory_mib",       Value::Null),
    ] {
        for code in [1, 3, 4, 6, 13, 999] {
            let mut expected = all.clone();
            *expected.pointer_mut(pointer).unwrap() = instead.clone();
            match function {
                // An instance that nothing names is not offered, and has its name from that of its card.
                "nvmlDeviceGetUUID" => expected["units"] = json!([]),
                "nvmlDeviceGetName" => expected["units"][0]["instance"]["profile"] = Value::Null,
                "nvmlDeviceGetMinorNumber" => expected["nodes"] = json!([]),
                _ => {}
            }
            assert_eq!(with(&format!("{function}:{code}")), expected, "{function}: {code}");
        }
    }
}

#[test]
fn a_divided_device_is_never_offered_whole() {
    for refused in ["nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex"] {
        let host = Host::new().with("GPUS", "1").with("MIG", "0:2").with("REFUSE", format!("{refused}:999"));
        let answer = host.devices();
        assert_eq!(
            (&answer["devices"][0]["units"], &answer["devices"][0]["health"]),
            (&json!([]), &json!("sound"))
        );
        let warning =
            "nvml: device 0 (0000:1a:00.0) has MIG instances that NVML does not name; they are not granted";
        assert_eq!(answer["warnings"], json!([warning]));
        host.refuses("1 --source nvml", 1, "");
    }
    Host::new().with("GPUS", "1").with("MIG", "0:0").refuses("1 --source nvml", 1, "");
}

#[test]
fn an_instance_is_granted_by_its_uuid() {
    let (host, owner) = (Host::new().with("MIG", "0:2"), Process::start());
    let allocate = |amount: u32| {
        let line =
            format!("allocate {amount} --coordination-file record --owner {} --source nvml", owner.pid());
        host.run(&line).stdout
    };
    assert_eq!(allocate(1), "MIG-fa4e0000-0000-4000-8000-000000000000\n");
    assert_eq!(allocate(2), "MIG-fa4e0000-0000-4000-8000-000000000002,1\n");
}

/// The holder of an instance holds its card while it is unknown whether the card is in MIG mode.
#[test]
fn an_instance_that_is_not_told_is_not_forgotten() {
    let (owner, other) = (Process::start(), Process::start());
    let host = Host::new().with("MIG", "0:1");
    let allocate = |host: &Host, owner: &Process| {
        let line = format!("allocate 1 --coordination-file record --owner {} --source nvml", owner.pid());
        host.run(&line).stdout
    };
    assert_eq!(allocate(&host, &owner), "MIG-fa4e0000-0000-4000-8000-000000000000\n");
    let host = host.with("REFUSE", "nvmlDeviceGetMigMode:999");
    assert_eq!(allocate(&host, &other), "1\n");
    host.refuses(
        &format!("allocate 1 --coordination-file record --owner {} --source nvml", other.pid()),
        1,
        "",
    );
}

/// The card of index 1 of three; the others are granted.
#[test]
#[rustfmt::skip] // a table
fn a_sick_card_loses_itself_alone() {
    for (setting, value, reason, is_warned_of) in [
        ("NO_HANDLE",    "1:15",  "it is lost: it has fallen off the bus, or cannot be reached", true),
        ("NO_HANDLE",    "1:4",   "no permission to use it",                                     true),
        ("NO_HANDLE",    "1:999", "an internal driver error occurred",                           true),
        ("SICK",         "1:15",  "it is lost: it has fallen off the bus, or cannot be reached", true),
        ("SICK",         "1:16",  "it needs a reset before it can be used",                      true),
        ("SICK",         "1:999", "neither its UUID nor its PCI address is known",               true),
        ("ECC",          "1:2",   "uncorrected errors of its memory since the driver was loaded: 2", true),
        ("REMAP_FAILED", "1:1",   "a bad row of its memory could not be replaced",               true),
        ("RECOVERY",     "1:1",   "the driver wants you to reset it",                            true),
        ("MODE",         "1:2",   "its compute mode is Prohibited",                              false),
    ] {
        let host = Host::new().with("GPUS", "3").with(setting, value);
        let answer = host.devices();
        let device = &answer["devices"][1];
        assert_eq!((&device["index"], &device["health"]), (&json!(1), &json!("sick")), "{value}");
        assert_eq!(device["reason"], reason);
        let at = device["pci"].as_str().map(|pci| format!(" ({pci})")).unwrap_or_default();
        let warning = format!("nvml: device 1{at} is sick: {reason}");
        assert_eq!(answer["warnings"], if is_warned_of { json!([warning]) } else { json!([]) });
        assert_eq!(host.run("2 --source nvml").stdout, "0,2\n", "{reason}");
        host.refuses("3 --source nvml", 1, "");
    }
}

#[test]
fn a_row_that_waits_for_a_reset_is_warned_of() {
    let host = Host::new().with("REMAP_PENDING", "0:1");
    let answer = host.run("1 --source nvml");
    assert_eq!((answer.status, answer.stdout.as_str()), (Some(0), "0\n"));
    let warning = "nvml: device 0 (0000:1a:00.0) replaces a bad row of its memory at its next reset";
    assert_eq!(answer.stderr, format!("gpu-coord: warning: {warning}\n"));
}

/// Each fails with its own reason, long before the deadline; then the next source is tried, and there is none.
#[test]
#[rustfmt::skip] // a table
fn a_library_that_fails_is_no_source() {
    const NEXT: &str = "; nvidia-smi: no nvidia-smi below the driver root ";
    for (setting, value, says) in [
        ("REFUSE", "nvmlInit_v2:9",           "the devices cannot be read: nvml: the driver is not loaded"),
        ("REFUSE", "nvmlInit_v2:18",          "nvml: the driver that is loaded and its library differ in version"),
        ("REFUSE", "nvmlInit_v2:4",           "nvml: no permission"),
        ("REFUSE", "nvmlInit_v2:999",         "nvml: an internal driver error occurred"),
        ("REFUSE", "nvmlInit_v2:1234",        "nvml: unexpected enum variant value: 1234"),
        ("REFUSE", "nvmlDeviceGetCount_v2:15", "nvml: a card has fallen off the bus"),
        ("DO",     "segv",                    "nvml: signal 11 ended it"),
        ("DO",     "abort",                   "nvml: signal 6 ended it"),
        ("DO",     "exit",                    "nvml: it ended without an answer"),
        ("DO",     "flood",                   "nvml: it printed more than 1048576 bytes on standard output"),
        ("GPUS",   "0",                       "no GPU on this host: nvml: it finds no device"),
    ] {
        let host = Host::new().with(setting, value);
        host.refuses("devices --source nvml", 4, says);
        let auto = host.run("devices");
        auto.refuses(4, says);
        // Where the driver itself says that it has none, its other tool is not asked.
        assert_eq!(auto.stderr.contains(NEXT), setting != "GPUS", "{}", auto.stderr);
    }
}

#[test]
fn what_to_do_is_said() {
    let refused = |code: &str| Host::new().with("REFUSE", format!("nvmlInit_v2:{code}"));
    refused("9").refuses("1 --source nvml", 4, "load it (`modprobe nvidia`)");
    refused("18").refuses("1 --source nvml", 4, "reload the driver's modules or restart the host");
    refused("4").refuses("1 --source nvml", 4, "run it as a user who may open the GPUs' device nodes");
    Host::new().with("DO", "segv").refuses(
        "1 --source nvml",
        4,
        "run nvidia-smi by hand, and look at `dmesg`",
    );
}

#[test]
fn a_library_that_is_not_there_or_is_none() {
    let mut host = Host::new();
    host.driver = host.path("empty");
    host.refuses("1", 4, "no GPU on this host: nvml: no libnvidia-ml.so.1 below the driver root ");
    fs::create_dir_all(host.path("empty/lib64")).unwrap();
    fs::write(host.path("empty/lib64/libnvidia-ml.so.1"), "no library").unwrap();
    host.refuses("1", 4, "empty/lib64/libnvidia-ml.so.1: file too short");
    fs::write(host.path("empty/lib64/libnvidia-ml.so.1"), "no library".repeat(1000)).unwrap();
    host.refuses("1", 4, "empty/lib64/libnvidia-ml.so.1: invalid ELF header");
    let other = fs::read(PROGRAM).unwrap();
    fs::write(host.path("empty/lib64/libnvidia-ml.so.1"), other).unwrap();
    host.refuses(
        "1",
        4,
        "empty/lib64/libnvidia-ml.so.1: cannot dynamically load position-independent executable",
    );
}

#[test]
fn what_the_library_prints_is_no_answer() {
    let (quiet, noisy) = (Host::new(), Host::new().with("DO", "noise"));
    assert_eq!(quiet.devices()["devices"], noisy.devices()["devices"]);
    assert_eq!(noisy.run("2 --source nvml").stderr, "");
}

#[test]
fn the_loader_finds_it_by_name() {
    let host = Host::new();
    let mut command = host.environment(PROGRAM);
    command.args(["2", "--source", "nvml"]).env("LD_LIBRARY_PATH", host.driver.join("usr/lib64"));
    assert_eq!(Answer::of(&command.output().unwrap()).stdout, "0,1\n");
}

#[test]
fn verbose_says_what_was_told() {
    let stderr = Host::new().run("devices -v").stderr;
    assert!(stderr.contains("gpu-coord: source nvml: driver 550.54.15\n"), "{stderr}");
    assert!(stderr.contains("gpu-coord: source nvml: 2 devices in "), "{stderr}");
    let stderr = Host::new().with("REFUSE", "nvmlInit_v2:18").run("devices -v").stderr;
    let reason = "gpu-coord: source nvml: the driver that is loaded and its library differ in version (";
    assert!(stderr.contains(reason), "{stderr}");
}

#[test]
fn a_host_below_a_root_is_not_asked_of() {
    let host = Host::new();
    fs::create_dir_all(host.path("root/proc/driver/nvidia")).unwrap();
    let says = "nvml: not asked below --root";
    host.refuses("devices --source nvml --root root", 4, says);
}

#[test]
fn one_that_hangs_is_ended() {
    let host = Host::new().with("DO", "hang");
    host.refuses(
        "devices --deadline 1",
        3,
        "source nvml gave no answer in the 0.5 s that it had of the deadline: it did not end within ",
    );
    host.refuses("devices --deadline 1 --source nvml", 3, "turn it on (`nvidia-smi -pm 1`");
    let running = Running::start(host.command("devices --deadline 4"));
    wait_until("the child runs", || !children(running.pid()).is_empty());
    let pids = children(running.pid());
    assert_eq!(pids.len(), 1);
    running.end();
    assert!(!is_running(pids[0]), "the child is left");
}

#[test]
fn it_dies_with_its_caller() {
    let running = Running::start(Host::new().with("DO", "hang").command("devices --deadline 600"));
    wait_until("the child runs", || !children(running.pid()).is_empty());
    let pids = children(running.pid());
    running.kill();
    wait_until("the child is gone", || !is_running(pids[0]));
}

/// A group of cgroup v1's freezer: a process in it is in state D, as the driver leaves one that it hangs on, and
/// not even SIGKILL ends it before it is thawed, which dropping this does.
struct Freezer(PathBuf);

impl Freezer {
    fn new(test: &str) -> Option<Freezer> {
        if !is_root(test) {
            return None;
        }
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let is_freezer =
            |line: &&str| line.split(' ').nth(3).is_some_and(|it| it.split(',').any(|it| it == "freezer"));
        let mount = mounts.lines().find(is_freezer).and_then(|line| line.split(' ').nth(1));
        let group =
            mount.map(|mount| Path::new(mount).join(format!("gpu-coord-{test}-{}", std::process::id())));
        let group = group.filter(|group| fs::create_dir(group).is_ok());
        if group.is_none() {
            skip(test, "it needs a group of the freezer of cgroup v1");
        }
        group.map(Freezer)
    }

    fn frozen(&self) -> Vec<u32> {
        let tasks = fs::read_to_string(self.0.join("tasks")).unwrap();
        tasks.lines().map(|pid| pid.parse().unwrap()).collect()
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let since = Instant::now();
        while self.0.exists() && since.elapsed() < Duration::from_secs(60) {
            let _ = fs::write(self.0.join("freezer.state"), "THAWED");
            let _ = fs::remove_dir(&self.0);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn one_that_no_signal_ends_is_abandoned() {
    let Some(freezer) = Freezer::new("one_that_no_signal_ends_is_abandoned") else { return };
    let host = Host::new().with("DO", "freeze").with("FREEZER", freezer.0.display().to_string());
    let answer = host.run("devices --deadline 2");
    answer.refuses(3, "s, and pid ");
    answer.refuses(3, " cannot be killed: it hangs in the kernel; nvidia-smi: ");
    assert!(answer.stderr.ends_with("; restart the host\n"), "{}", answer.stderr);
    let pids = freezer.frozen();
    assert_eq!(pids.len(), 1);
    drop(freezer);
    wait_until("the child is gone", || !is_running(pids[0]));
}

/// The worst host: NVML in state D, the tool hangs, and the kernel still has its list.
#[test]
fn the_kernel_answers_when_all_else_hangs() {
    let Some(freezer) = Freezer::new("the_kernel_answers_when_all_else_hangs") else { return };
    let host = Host::new().with("DO", "freeze").with("FREEZER", freezer.0.display().to_string());
    let host = host.smi("echo $$ >> pids; sleep 1000 & echo $! >> pids; wait");
    let owner = Process::start();
    let line = format!("allocate 1 --coordination-file record --deadline 6 --owner {}", owner.pid());
    let mut command = host.with_kernel_driver(&["0000:1a:00.0", "0000:1b:00.0"], &line);
    let answer = Answer::of(&command.output().unwrap());
    assert_eq!((answer.status, answer.stdout.as_str()), (Some(0), "0\n"), "{}", answer.stderr);
    assert!(answer.stderr.contains("devices are read from procfs, since nvml failed: "), "{}", answer.stderr);
    let record = fs::read_to_string(host.path("record")).unwrap();
    assert!(record.starts_with(&format!("0 {}\t", owner.pid())), "{record}");
    let of_tool = fs::read_to_string(host.path("pids")).unwrap();
    for pid in of_tool.lines() {
        wait_until("the tool is gone", || !is_running(pid.parse().unwrap()));
    }
    assert_eq!((of_tool.lines().count(), freezer.frozen().len()), (2, 1));
}

#[test]
fn the_kernel_says_where_a_lost_card_is() {
    if !is_root("the_kernel_says_where_a_lost_card_is") {
        return;
    }
    let host = Host::new().with("GPUS", "3").with("NO_HANDLE", "1:15");
    let mut command =
        host.with_kernel_driver(&["0000:1a:00.0", "0000:1b:00.0", "0000:1c:00.0"], "devices --json");
    let answer = Answer::of(&command.output().unwrap()).json();
    assert_eq!(answer["source"], "nvml");
    let lost = &answer["devices"][1];
    assert_eq!((&lost["pci"], &lost["nodes"]), (&json!("0000:1b:00.0"), &json!(["/dev/nvidia1"])));
}

#[test]
fn a_driver_without_its_library_is_broken() {
    if !is_root("a_driver_without_its_library_is_broken") {
        return;
    }
    let host = Host::new();
    let mut command = host.with_kernel_driver(&["0000:1a:00.0"], "devices");
    let answer = Answer::of(&command.env_remove("LD_LIBRARY_PATH").output().unwrap());
    assert_eq!(answer.status, Some(0), "{}", answer.stderr);
    let warning =
        "devices are read from procfs, since nvml failed: libnvidia-ml.so.1: cannot open shared object file";
    assert!(answer.stderr.contains(warning), "{}", answer.stderr);
}

/// A host may forbid to run what is in memory (`vm.memfd_noexec`).
#[test]
fn it_runs_where_memory_may_not() {
    if !is_root("it_runs_where_memory_may_not") {
        return;
    }
    let host = Host::new();
    for noexec in ["1", "2"] {
        let script = r#"echo $NOEXEC > /proc/sys/vm/memfd_noexec; [ $(cat /proc/sys/vm/memfd_noexec) = $NOEXEC ] || exit 99
            exec "$@""#;
        let mut command = host.environment("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "sh", "-c", script, "sh", PROGRAM]);
        command.args(["2", "--source", "nvml", "--driver-root"]).arg(&host.driver).env("NOEXEC", noexec);
        let answer = Answer::of(&command.output().unwrap());
        assert_eq!((answer.stdout.as_str(), answer.stderr.as_str()), ("0,1\n", ""), "{noexec}");
    }
}

/// And where nothing may be run that was just written, neither in memory nor in a directory, NVML fails, and the
/// vendor's tool is asked instead.
#[test]
fn where_nothing_new_may_run_the_tool_is_asked() {
    const TEST: &str = "where_nothing_new_may_run_the_tool_is_asked";
    /// What this test needs below the directories is seen there still.
    const MOUNT: &str = r#"set -e
        mount -t tmpfs none /proc/driver; mkdir -p /proc/driver/nvidia/gpus
        mount --bind /tmp /mnt
        for directory in /run /var/tmp /dev/shm /tmp; do mount -t tmpfs -o noexec,mode=1777 none $directory; done
        for directory in $KEPT; do
            mkdir -p $directory
            case $directory in /tmp/*) mount --bind /mnt/${directory#/tmp/} $directory ;; esac
        done
        echo 2 > /proc/sys/vm/memfd_noexec; [ $(cat /proc/sys/vm/memfd_noexec) = 2 ]
        cd $HERE; exec "$@""#;
    if !may_mount(TEST) {
        return;
    }
    let host = Host::new().smi("echo '0, GPU-1, 0000:01:00.0, A, 1, 1, P0, Default, 0, 550.54.15, Disabled'");
    let built = Path::new(PROGRAM).parent().unwrap();
    let kept = [built, &host.driver, &host.path("")].map(|path| path.display().to_string());
    let run = |source: &str| {
        let mut command = host.environment("unshare");
        command.args(["--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", MOUNT, "sh", PROGRAM]);
        command.args(["1", "--source", source]).env("LD_LIBRARY_PATH", host.driver.join("usr/lib64"));
        command.env("KEPT", kept.join(" ")).env("HERE", host.path(""));
        Answer::of(&command.output().unwrap())
    };
    run("nvml").refuses(4, "nvml: it cannot be started: Permission denied (os error 13)");
    let answer = run("auto");
    assert_eq!((answer.status, answer.stdout.as_str()), (Some(0), "0\n"), "{}", answer.stderr);
    let warning = "gpu-coord: warning: devices are read from nvidia-smi, since nvml failed: ";
    assert!(
        answer.stderr.starts_with(warning) && answer.stderr.contains("(os error 13)"),
        "{}",
        answer.stderr
    );
}

#[test]
fn a_host_without_nvidia_starts_no_child() {
    const TEST: &str = "a_host_without_nvidia_starts_no_child";
    if !strace::is_there(TEST) {
        return;
    }
    let libraries =
        ["usr/lib64", "usr/lib", "usr/lib/wsl/lib", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu"];
    let libraries = libraries.map(|directory| format!("/{directory}/libnvidia-ml.so.1"));
    if libraries.iter().any(|path| Path::new(path).exists()) || Path::new("/proc/driver/nvidia").exists() {
        return skip(TEST, "this host has NVIDIA's driver, or its library");
    }
    let host = Host::new().smi("echo '0, GPU-1, 0000:01:00.0, A, 1, 1, P0, Default, 0, 550.54.15, Disabled'");
    let mut command = host.environment(PROGRAM);
    let calls = strace::calls(command.arg("1"));
    assert!(calls.iter().any(|call| call.text.contains("/proc/driver/nvidia\"")), "NVML was not looked for");
    assert!(calls.iter().all(|call| call.name != "memfd_create"), "the child was started");
}

#[test]
fn the_package_has_all_of_the_child() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["package", "--list", "--allow-dirty", "--offline"]).current_dir(root).stderr(Stdio::null());
    let listed = Answer::of(&cargo.output().unwrap()).stdout;
    let sources = fs::read_dir(root.join("nvml-child")).unwrap().flatten();
    let sources = sources.map(|entry| format!("nvml-child/{}", entry.file_name().to_str().unwrap()));
    for source in sources.chain(["build.rs", "Cargo.toml", "Cargo.lock"].map(str::to_owned)) {
        assert!(listed.lines().any(|line| line == source), "{source} is not in the package");
    }
}
