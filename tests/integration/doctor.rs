//! What `gpu-coord doctor` finds on hosts with and without faults.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::fake_nvml;
use crate::sandbox::{Process, Sandbox, dead_pid};
use crate::tree::Tree;

/// The status, and the lines of one check.
fn found(host: &Sandbox, line: &str, check: &str) -> (Option<i32>, Vec<String>) {
    let output = host.command(&format!("doctor {line}")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let text = String::from_utf8(output.stdout).unwrap();
    let is_of = |line: &&str| line.split_ascii_whitespace().nth(1) == Some(check);
    (output.status.code(), text.lines().filter(is_of).map(str::to_owned).collect())
}

#[track_caller]
fn says(lines: &[String], verdict: &str, text: &str) {
    let is_it = |line: &&String| line.starts_with(verdict) && line.contains(text);
    assert!(lines.iter().any(|line| is_it(&line)), "`{verdict}` `{text}` is not in {lines:#?}");
}

#[test]
fn every_line_is_a_verdict_a_check_and_a_text() {
    let host = Sandbox::with_gpus(2);
    let output = host.command("doctor").output().unwrap();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let mut words = line.split_ascii_whitespace();
        assert!(["ok", "warn", "fail"].contains(&words.next().unwrap()), "{line}");
        assert!(
            ["proc", "boot", "source", "persistence", "file", "record", "cgroup", "flink"]
                .contains(&words.next().unwrap()),
            "{line}"
        );
        assert!(words.next().is_some(), "{line}");
    }
}

#[test]
fn the_devices_are_counted_and_a_broken_source_fails() {
    let host = Sandbox::with_gpus(2);
    says(&found(&host, "", "source").1, "ok", "2 devices by simulated:2, in ");
    let (status, lines) = found(&host, "--source file:missing.json", "source");
    assert_eq!(status, Some(4));
    says(&lines, "fail", "missing.json");
}

#[test]
fn the_record_is_judged() {
    let owner = Process::start();
    let host = Sandbox::with_gpus(4);
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
    let dead = Process::start();
    host.answers(&format!("allocate 2 --owner {}", dead.pid()), "1,2\n");
    dead.kill();
    let (_, lines) = found(&host, "", "record");
    says(&lines, "ok", "1 unit held by living owners");
    says(&lines, "warn", "2 units held by dead owners; `gpu-coord reclaim` releases them");
    let (_, lines) = found(&host, "", "file");
    says(&lines, "ok", "coordination can be locked and written to (mode 0644, uid 0, gid 0)");
    let before = host.text();
    host.command("doctor").output().unwrap();
    assert_eq!(host.text(), before, "nothing is changed");
}

#[test]
fn what_cannot_be_understood_fails() {
    let host = Sandbox::with_gpus(4).recorded(format!("1 {} x\n", dead_pid()));
    let (status, lines) = found(&host, "", "record");
    assert_eq!(status, Some(4));
    says(&lines, "fail", "so that index 1 is withheld; correct the line");
    let host = Sandbox::with_gpus(4).recorded("no index\n");
    let (status, lines) = found(&host, "", "file");
    assert_eq!(status, Some(4));
    says(&lines, "fail", "coordination:1: ");
}

#[test]
fn a_file_that_is_not_there_is_no_fault() {
    let host = Sandbox::with_gpus(1);
    says(
        &found(&host, "", "file").1,
        "ok",
        "coordination does not exist yet: the first allocation creates it",
    );
    assert!(!host.file().exists());
}

#[test]
fn flinks_configuration_is_read_where_flink_is() {
    let host = Sandbox::with_gpus(12);
    let conf = host.path().join("conf");
    fs::create_dir(&conf).unwrap();
    let script = host.path().join("nvidia-gpu-discovery.sh");
    fs::write(&script, "").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let text = format!(
        "external-resources: gpu\nexternal-resource.gpu.amount: 1\n\
         external-resource.gpu.driver-factory.class: org.apache.flink.externalresource.gpu.GPUDriverFactory\n\
         external-resource.gpu.param.discovery-script.path: {}\n",
        script.display()
    );
    fs::write(conf.join("config.yaml"), text).unwrap();
    let mut command = host.command("doctor");
    let output = command.env("FLINK_HOME", host.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed
            .contains("names Flink's own script, which mistakes one index for another on 11 devices or more"),
        "{printed}"
    );
    let (status, lines) = found(&host, "--flink-conf missing.yaml", "flink");
    assert_eq!(status, Some(4));
    says(&lines, "fail", "missing.yaml");
}

/// Which of two is read depends on Flink's version.
#[test]
fn two_configurations_of_flink_are_one_too_many() {
    let host = Sandbox::with_gpus(1);
    let conf = host.path().join("conf");
    fs::create_dir(&conf).unwrap();
    for name in ["config.yaml", "flink-conf.yaml"] {
        fs::write(conf.join(name), "taskmanager.host: localhost\n").unwrap();
    }
    let output = host.command("doctor").env("FLINK_HOME", host.path()).output().unwrap();
    let conf = conf.display();
    let says = format!(
        "warn  flink        {conf}/config.yaml was checked, but Flink 1.19 and 1.20 read {conf}/flink-conf.yaml instead; \
         remove one of them\n"
    );
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains(&says), "{printed}");
}

/// Every allocation would be refused.
#[test]
fn a_quota_of_nobody_is_found() {
    let host = Sandbox::with_gpus(1);
    let config = |quotas: &str| {
        fs::write(host.path().join("c.yaml"), format!("version: v1\ngpu-coord: {{quotas: {{{quotas}}}}}\n"))
            .unwrap();
    };
    config("user:nosuchuser: {nvidia.com/gpu: 1}, user:root: {nvidia.com/gpu: 1}");
    let (status, lines) = found(&host, "--config c.yaml", "quotas");
    assert_eq!((status, lines.len()), (Some(4), 1), "{lines:?}");
    says(
        &lines,
        "fail",
        "c.yaml:2:40: user `nosuchuser`, who has a quota, is not in /etc/passwd; name the user by number",
    );
    config("team: {nvidia.com/gpu: 1}, user:root: {nvidia.com/gpu: 1}");
    says(&found(&host, "--config c.yaml", "quotas").1, "ok", "every user with a quota exists");
}

#[test]
fn the_json_has_the_same() {
    let host = Sandbox::with_gpus(1);
    let output = host.command("doctor --json").output().unwrap();
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["version"], 1);
    let checks = json["checks"].as_array().unwrap();
    let of_source = |check: &&Value| check["check"] == "source";
    assert!(checks.iter().filter(of_source).all(|check| check["verdict"] == "ok"), "{checks:?}");
    assert!(checks.iter().all(|check| check["text"].is_string()));
}

/// From NVML, else from the tool, else it is unknown; only for devices of NVIDIA.
#[test]
fn persistence_mode_is_told_by_whoever_knows() {
    let lines = |host: fake_nvml::Host, source: &str| -> Vec<String> {
        let line = format!("doctor --coordination-file coordination --source {source}");
        let output = host.command(&line).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let of = |line: &&str| line.split_ascii_whitespace().nth(1) == Some("persistence");
        text.lines().filter(of).map(str::to_owned).collect()
    };
    let host = fake_nvml::Host::new;
    let on = "ok    persistence  persistence mode is on";
    assert_eq!(lines(host(), "nvml"), [on]);
    let off = |devices: &str| {
        format!(
            "warn  persistence  persistence mode is off on device {devices}, which the driver initialises anew for each caller \
             while nobody uses it: turn it on (`nvidia-smi -pm 1`, or nvidia-persistenced)"
        )
    };
    assert_eq!(lines(host().with("PERSISTENCE", "1:0"), "nvml"), [off("1")]);
    let row = |index: u32| {
        format!("{index}, GPU-{index}, 0000:0{index}:00.0, A, 1, 1, P0, Default, 0, 550.1, Disabled")
    };
    let smi = |modes: &str| {
        format!("case $1 in *persistence_mode) {modes} ;; *) echo '{}'; echo '{}' ;; esac", row(0), row(1))
    };
    let told = |modes: &str| {
        let mut host = host().smi(&smi(modes));
        // The tool is looked for below the driver's root.
        host.driver = host.path("driver");
        std::fs::create_dir_all(host.path("driver/usr")).unwrap();
        std::os::unix::fs::symlink(host.path("bin"), host.path("driver/usr/bin")).unwrap();
        lines(host, "nvidia-smi")
    };
    assert_eq!(told("echo '0, Disabled'; echo '1, Disabled'"), [off("0, 1")]);
    assert_eq!(told("echo '0, Enabled'; echo '1, Enabled'"), [on]);
    let unknown =
        |why: &str| format!("ok    persistence  it is not known whether persistence mode is on: {why}");
    assert_eq!(told("echo '0, [N/A]'; echo '1, Enabled'"), [unknown("nvidia-smi does not report it")]);
    let failed = "nvidia-smi: exit status 9: the driver is not loaded (`no`)";
    assert_eq!(told("echo no; exit 9"), [unknown(failed)]);
    let refused = host().with("REFUSE", "nvmlDeviceGetPersistenceMode:3");
    let why = format!("no nvidia-smi below the driver root {}", refused.driver.display());
    assert_eq!(lines(refused, "nvml"), [unknown(&why)]);
    assert_eq!(lines(host(), "simulated:2"), [""; 0]);
}

#[test]
fn a_directory_in_which_anybody_can_remove_the_record_fails() {
    let host = Sandbox::with_gpus(1);
    let directory = host.path().display().to_string();
    let file = format!("--coordination-file {directory}/record");
    let doctor = |mode: u32| {
        fs::set_permissions(host.path(), fs::Permissions::from_mode(mode)).unwrap();
        let mut command = std::process::Command::new(crate::sandbox::PROGRAM);
        command.args(format!("doctor --source simulated:1 {file}").split(' ')).env_clear();
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), text.lines().map(str::to_owned).collect::<Vec<_>>())
    };
    let (status, lines) = doctor(0o777);
    assert_eq!(status, Some(4));
    let fails = format!(
        "{directory} is world-writable and not sticky, so anybody can remove the record or put another in its \
         place; run `chmod +t {directory}`, or name a file elsewhere"
    );
    says(&lines, "fail", &fails);
    let (status, lines) = doctor(0o1777);
    assert_ne!(status, Some(4));
    says(&lines, "ok", &format!("{directory} is sticky: only the file's owner and root can remove it"));
    let (_, lines) = doctor(0o700);
    assert!(!lines.iter().any(|line| line.contains("sticky")), "{lines:?}");
}

/// What the kernel protects in such a directory, by files in the place of its own.
#[test]
fn a_kernel_that_does_not_protect_a_sticky_directory_is_warned_of() {
    let tree = Tree::new();
    let names = ["protected_regular", "protected_symlinks", "protected_hardlinks"];
    let tree = tree.file(&format!("root/proc/sys/fs/{}", names[0]), "0\n");
    let tree = tree.file(&format!("root/proc/sys/fs/{}", names[1]), "1\n");
    let directory = tree.path("open");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o1777)).unwrap();
    let output = tree
        .program(&["doctor", "--source", "simulated:1", "--coordination-file", "open/record"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let warned: Vec<&str> = text.lines().filter(|line| line.contains("fs.protected")).collect();
    let expected = "warn  file         fs.protected_regular is 0, so in open Flink's own script writes to what anybody \
                    has put in the place of the file; set it to 1 with sysctl";
    assert_eq!(warned, [expected], "{text}");
}
