//! The table of `status`: what it says of devices, instances and users.

use std::fs;

use crate::fake_nvml::Host;
use crate::sandbox::{Process, Sandbox};

/// The rows, cells parted by `|`, without the head and without the date.
fn rows(table: &[u8]) -> Vec<String> {
    let table = std::str::from_utf8(table).unwrap();
    let is_date = |word: &str| word.len() == 20 && word.ends_with('Z');
    let cells = |line: &str| {
        let words = line.split("  ").map(str::trim).filter(|word| !word.is_empty() && !is_date(word));
        words.collect::<Vec<_>>().join("|")
    };
    table.lines().skip(1).map(cells).collect()
}

#[test]
fn memory_is_shown_as_far_as_the_source_tells() {
    let host = Host::new().with("MIG", "1:2");
    let output = host.command("status --source nvml --coordination-file coordination").output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    let expected = [
        "0|NVIDIA Fake, 40GB|256/40960 MiB|free|-|-|-|-",
        "1|NVIDIA Fake, 40GB MIG 1g.5gb MIG-fa4e0000-0000-4000-8000-000001000000|-/4864 MiB|free|-|-|-|-",
        "1|NVIDIA Fake, 40GB MIG 1g.5gb MIG-fa4e0000-0000-4000-8000-000001000002|-/4864 MiB|free|-|-|-|-",
    ];
    assert_eq!(rows(&output.stdout)[..3], expected);
    let host = Sandbox::with_source("file:devices.json");
    fs::write(host.path().join("devices.json"), r#"{"devices": [{"id": "board-0"}]}"#).unwrap();
    let output = host.command("status").assert().code(0).stderr("").get_output().stdout.clone();
    assert_eq!(rows(&output), ["0|-|-|free|-|-|-|-"]);
}

/// In one line of the record each, of one living owner.
#[test]
fn a_user_is_shown_by_name_or_else_by_number() {
    let owner = Process::start();
    let host = Sandbox::with_gpus(3);
    for _ in 0..3 {
        host.command(&format!("allocate 1 --owner {}", owner.pid())).assert().code(0);
    }
    let mut users = [";uid=0", ";uid=4123456789", ""].iter();
    let mark = format!(";uid={}", nix::unistd::getuid());
    let line = |line: &str| line.replace(&mark, users.next().unwrap()) + "\n";
    let text: String = host.text().lines().map(line).collect();
    fs::write(host.file(), text).unwrap();
    let output = host.command("status").assert().code(0).stderr("").get_output().stdout.clone();
    let row = |index: u32, user: &str| {
        format!("{index}|Simulated GPU|-/16384 MiB|held|{}|{user}|sleep 1000", owner.pid())
    };
    assert_eq!(rows(&output), [row(0, "root"), row(1, "4123456789"), row(2, "-")]);
    let output = host.command("status --json").assert().code(0).get_output().stdout.clone();
    let json: serde_json::Value = serde_json::from_slice(&output).unwrap();
    let user = |at: usize| json["devices"][at]["units"][0]["owner"]["user"].clone();
    assert_eq!(
        [user(0), user(1), user(2)],
        ["root".into(), serde_json::Value::Null, serde_json::Value::Null]
    );
}

/// To compare each line with every other would take minutes, and the sandbox waits one.
#[test]
fn a_hundred_thousand_owners_of_one_unit_are_shown() {
    const FIRST: u32 = 4_000_000;
    const OWNERS: u32 = 100_000;
    let line = |at: u32| format!("0 {}\tv=1;grant={at:016x};of=1;start={at};boot=-;pidns=7\n", FIRST + at);
    let host = Sandbox::with_gpus(2).recorded((0..OWNERS).map(line).collect::<String>());
    let output = host.command("status --deadline 60").assert().code(0).stderr("").get_output().stdout.clone();
    let rows = rows(&output);
    let pids = rows.iter().map(|row| row.split('|').nth(4).unwrap().to_owned());
    let expected = (FIRST..FIRST + OWNERS).map(|pid| pid.to_string()).chain(["-".to_owned()]);
    assert!(pids.eq(expected), "{} rows", rows.len());
}
