//! Shares, names of resources and namespaces, as `status` shows them.

use serde_json::{Value, json};

use super::{Host, sliced};
use crate::reclaim::reclaims;
use crate::sandbox::Process;

const CONFIG: &str = "version: v1
sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 2, devices: 1}]}}
gpu-coord:
  quotas:
    team-a: {nvidia.com/gpu: 2, nvidia.com/gpu.shared: 1}
    user:root: {nvidia.com/gpu: 7}
";

/// A table as words, of which the date and the user are left out.
fn words(table: &str) -> Vec<String> {
    let words = |line: &str| {
        let words: Vec<&str> = line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
        let is_date = |word: &&str| word.len() == 20 && word.ends_with('Z');
        words.iter().filter(|word| !is_date(word)).copied().collect::<Vec<_>>().join("|")
    };
    table.lines().map(words).collect()
}

/// Who the owners are: the name, or else the number.
fn user() -> String {
    let uid = nix::unistd::Uid::effective();
    nix::unistd::User::from_uid(uid).unwrap().map_or_else(|| uid.to_string(), |user| user.name)
}

fn scene() -> (Host, Process, Process) {
    let host = Host::new(2, CONFIG);
    let whole = host.owner_of("1 --namespace team-a", "1\n");
    let share = host.owner_of("1 --resource nvidia.com/gpu.shared", "0\n");
    (host, whole, share)
}

#[test]
fn the_table_shows_slots_and_resources_and_namespaces() {
    let (host, whole, share) = scene();
    let user = user();
    let output = host.command("status").assert().code(0).stderr("").get_output().stdout.clone();
    let model = "Simulated GPU";
    let mut namespaces = vec![
        format!("{user}|nvidia.com/gpu.shared|1|-"),
        "team-a|nvidia.com/gpu|1|2".to_owned(),
        "team-a|nvidia.com/gpu.shared|0|1".to_owned(),
    ];
    namespaces.sort_by_key(|line| line.split('|').next().map(str::to_owned)); // which stays as it is otherwise
    let expected = [
        "INDEX|MODEL|MEMORY|STATE|PID|USER|SINCE|COMMAND|RESOURCE".to_owned(),
        format!(
            "0#0|{model}|-/16384 MiB|held (shared 1/2)|{}|{user}|sleep 1000|nvidia.com/gpu.shared",
            share.pid()
        ),
        format!("0#1|{model}|-/16384 MiB|free|-|-|-|-|nvidia.com/gpu.shared"),
        format!("1|{model}|-/16384 MiB|held|{}|{user}|sleep 1000|nvidia.com/gpu", whole.pid()),
        String::new(),
        "NAMESPACE|RESOURCE|USED|LIMIT".to_owned(),
    ];
    let roots = u32::from(user == "root");
    let users =
        [String::new(), "USER|RESOURCE|USED|LIMIT".to_owned(), format!("root|nvidia.com/gpu|{roots}|7")];
    assert_eq!(words(&String::from_utf8(output).unwrap()), [&expected[..], &namespaces, &users].concat());
}

#[test]
fn where_nothing_is_configured_the_table_is_as_ever() {
    let host = Host::new(1, "version: v1\n");
    let owner = host.owner_of("1", "0\n");
    let user = user();
    let output = host.command("status").assert().code(0).stderr("").get_output().stdout.clone();
    let expected = [
        "INDEX|MODEL|MEMORY|STATE|PID|USER|SINCE|COMMAND".to_owned(),
        format!("0|Simulated GPU|-/16384 MiB|held|{}|{user}|sleep 1000", owner.pid()),
    ];
    assert_eq!(words(&String::from_utf8(output).unwrap()), expected);
}

#[test]
fn the_json_has_them_too() {
    let (host, whole, share) = scene();
    let output = host.command("status --json").assert().code(0).stderr("").get_output().stdout.clone();
    let document: Value = serde_json::from_slice(&output).unwrap();
    let units = |device: usize| -> Vec<Value> {
        let shown = document["devices"][device]["units"].as_array().unwrap().iter();
        shown
            .map(|unit| {
                let owner = &unit["owner"];
                json!([unit["slot"], unit["resource"], unit["state"], owner["pid"], owner["namespace"]])
            })
            .collect()
    };
    let shared = "nvidia.com/gpu.shared";
    assert_eq!(
        units(0),
        [json!([0, shared, "held", share.pid(), null]), json!([1, shared, "free", null, null])]
    );
    assert_eq!(units(1), [json!([null, "nvidia.com/gpu", "held", whole.pid(), "team-a"])]);
    let mut sums = document["namespaces"].as_array().unwrap().clone();
    sums.retain(|sum| sum["namespace"] == "team-a");
    let sum = |resource: &str, used: u32, limit: u32| json!({ "namespace": "team-a", "resource": resource, "used": used, "limit": limit });
    assert_eq!(sums, [sum("nvidia.com/gpu", 1, 2), sum(shared, 0, 1)]);
    let roots = u32::from(user() == "root");
    let users = json!([{ "user": "root", "resource": "nvidia.com/gpu", "used": roots, "limit": 7 }]);
    assert_eq!(document["users"], users);
    let other = document["namespaces"].as_array().unwrap().iter().find(|sum| sum["namespace"] != "team-a");
    let other = other.unwrap();
    assert_eq!(
        (&other["resource"], &other["used"], &other["limit"]),
        (&json!(shared), &json!(1), &Value::Null)
    );
}

#[test]
fn the_metrics_have_them_too() {
    let (host, _whole, _share) = scene();
    let output = host.command("status --prometheus").assert().code(0).stderr("").get_output().stdout.clone();
    let text = String::from_utf8(output).unwrap();
    for line in [
        "gpu_coord_namespace_limit_units{namespace=\"team-a\",resource=\"nvidia.com/gpu\"} 2".to_owned(),
        format!(
            "gpu_coord_user_used_units{{user=\"root\",resource=\"nvidia.com/gpu\"}} {}",
            u32::from(user() == "root")
        ),
        "gpu_coord_user_limit_units{user=\"root\",resource=\"nvidia.com/gpu\"} 7".to_owned(),
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }
}

/// Who holds what is to be seen also while the driver is broken, whatever the configuration names.
#[test]
fn the_record_is_shown_where_the_devices_of_the_configuration_are_not() {
    let host = Host::new(1, &sliced(2));
    let owner = host.owner_of("1", "0\n");
    host.configure(&sliced(2).replace("replicas: 2", "replicas: 2, devices: [0]"));
    let assert = host.command("status --source file:nowhere.json").assert().code(0);
    let (stdout, stderr) = (assert.get_output().stdout.clone(), assert.get_output().stderr.clone());
    assert_eq!(
        String::from_utf8(stderr).unwrap(),
        "gpu-coord: warning: cannot open nowhere.json: No such file or directory (os error 2); only the record is shown\n"
    );
    let user = user();
    let expected = [
        "INDEX|MODEL|MEMORY|STATE|PID|USER|SINCE|COMMAND".to_owned(),
        format!("0|-|-|not here|{}|{user}|sleep 1000", owner.pid()),
    ];
    assert_eq!(words(&String::from_utf8(stdout).unwrap()), expected);
    let missing = sliced(2).replace("replicas: 2", "replicas: 2, devices: [7]");
    host.configure(&missing);
    let problem = "config.yaml:2:37: `7` among the shared devices of nvidia.com/gpu is not a device of that resource on this \
                   host; `gpu-coord devices` shows them";
    host.refuses("allocate 1", 4, problem);
    let assert = host.command("status").assert().code(0);
    let stderr = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert_eq!(stderr, format!("gpu-coord: warning: {problem}; only the record is shown\n"));
    let gone = owner.kill();
    reclaims(&host.sandbox, "--config config.yaml", &format!("released index 0#0 of pid {gone}\n"));
}
