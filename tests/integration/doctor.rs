//! What `gpu-coord doctor` finds on hosts that are well and on hosts that are not.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::sandbox::{Process, Sandbox, dead_pid};

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
            ["proc", "boot", "source", "file", "record", "cgroup", "flink"].contains(&words.next().unwrap()),
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
    says(&found(&host, "", "file").1, "ok", "coordination is not there yet: the first allocation makes it");
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
        printed.contains("names Flink's own script, which on 11 devices or more takes one index for another"),
        "{printed}"
    );
    let (status, lines) = found(&host, "--flink-conf missing.yaml", "flink");
    assert_eq!(status, Some(4));
    says(&lines, "fail", "missing.yaml");
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
