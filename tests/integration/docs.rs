//! The documentation agrees with the program.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::sandbox::{Process, Sandbox};

const README: &str = include_str!("../../README.md");
const JSON: &str = include_str!("../../docs/json.md");

#[test]
fn the_readme_has_every_exit_status_and_no_other() {
    let source = include_str!("../../src/exit.rs");
    let of_source = source.lines().filter_map(|line| line.trim().strip_suffix(',')?.rsplit_once(" = "));
    let of_source: Vec<&str> = of_source.map(|(_, status)| status).collect();
    let table = README.split_once("## Exit statuses").unwrap().1.split_once("## ").unwrap().0;
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(' '));
    let of_readme: Vec<&str> =
        rows.map(|(first, _)| first).filter(|first| first.parse::<u8>().is_ok()).collect();
    assert_eq!(of_source, of_readme);
}

#[test]
fn the_readme_has_every_command() {
    let host = Sandbox::with_gpus(1);
    let help = assert_cmd::Command::new(crate::sandbox::PROGRAM).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands = help.split_once("Commands:").unwrap().1.split_once("\n\n").unwrap().0;
    let names = commands.lines().filter_map(|line| line.split_ascii_whitespace().next());
    for name in names.filter(|name| *name != "help") {
        assert!(README.contains(&format!("`gpu-coord {name}")), "{name} is not in the README");
        host.command(name).arg("--help");
    }
}

#[test]
fn the_readme_s_inventory_file_is_one() {
    let host = Sandbox::with_gpus(1);
    let example = README.split_once("```json\n").unwrap().1.split_once("```").unwrap().0;
    fs::write(host.path().join("devices.json"), example).unwrap();
    host.answers("1 --source file:devices.json", "0\n");
}

/// Names that the documentation sets in `code` in the first column or in the running text.
fn documented() -> BTreeSet<&'static str> {
    JSON.split('`').skip(1).step_by(2).collect()
}

fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(key, value)| {
            found.insert(key.clone());
            keys(value, found);
        }),
        Value::Array(values) => values.iter().for_each(|value| keys(value, found)),
        _ => {}
    }
}

#[test]
fn every_name_in_the_json_is_documented() {
    let (host, owner) = (Sandbox::with_gpus(2), Process::start());
    host.answers(&format!("allocate 2 --owner {}", owner.pid()), "0,1\n");
    let waiter = format!("? {}\tv=1;start=1;amount=1;ticket=1\n", owner.pid());
    fs::write(host.file(), host.text() + &waiter).unwrap();
    let output = host.command("status --json --source simulated:1").output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["version"], 1);
    assert_eq!(document["devices"][0]["units"][0]["owner"]["pid"], owner.pid());
    assert_eq!(document["elsewhere"][0]["index"], 1);
    assert_eq!(document["waiters"][0]["ticket"], 1);
    let mut found = BTreeSet::new();
    keys(&document, &mut found);
    let undocumented: Vec<_> = found.iter().filter(|key| !documented().contains(key.as_str())).collect();
    assert!(undocumented.is_empty(), "{undocumented:?}");
}

#[test]
fn the_documents_name_files_that_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for document in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"] {
        let text = fs::read_to_string(root.join(document)).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        for (link, _) in links.filter(|(link, _)| !link.starts_with("http") && !link.starts_with('#')) {
            assert!(root.join(link).exists(), "{document}: {link}");
        }
    }
}
