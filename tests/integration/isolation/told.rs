//! What `status` and `doctor` report about a confined owner.

use serde_json::{Value, json};

use super::cell::{Version, versions};
use super::stage::{MAJOR, Stage};

#[test]
fn status_tells_the_group_and_what_the_kernel_denies() {
    for version in versions("status_tells_the_group_and_what_the_kernel_denies") {
        let stage = Stage::with_gpus(version, 3);
        let (owner, other) = (stage.owner(), stage.owner());
        stage.confine(1, &owner, "0\n");
        stage.sandbox.answers(&format!("allocate 1 --owner {}", other.pid()), "1\n");
        let output = stage.sandbox.command("status --json").output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let owner_of = |at: usize| answer["devices"][at]["units"][0]["owner"].clone();
        let (of, first) = (owner_of(0), stage.first_minor);
        let (group, denied, problem) = match version {
            Version::V1 => ("v1", Value::Null, json!("cgroup v1 does not report what it denies")),
            Version::V2 => ("v2", json!([format!("{MAJOR}:{}-{}", first + 1, first + 2)]), Value::Null),
        };
        let path = format!("{group}:{}/{}", stage.cell.path, stage.name(&owner));
        assert_eq!((&of["cgroup"], &of["denied"], &of["denied_problem"]), (&json!(path), &denied, &problem));
        let of = owner_of(1);
        assert_eq!((&of["cgroup"], &of["denied"]), (&Value::Null, &Value::Null));
        assert_eq!(owner_of(2), Value::Null);
    }
}

/// By root, or by a `deallocateAll` that was killed.
#[test]
fn an_owner_that_is_not_in_its_group_is_told() {
    for version in versions("an_owner_that_is_not_in_its_group_is_told") {
        let stage = Stage::with_gpus(version, 2);
        let mut owner = stage.owner();
        stage.confine(1, &owner, "0\n");
        let (group, pid) =
            (format!("{}:{}/{}", version.word(), stage.cell.path, stage.name(&owner)), owner.pid());
        stage.cell.take(pid);
        assert_eq!(owner.reach(), "++");
        let problem = format!(
            "pid {pid} is not in it, and can open every device; `gpu-coord deallocateAll --owner {pid}` gives back what \
             it holds"
        );
        let shown =
            |line: &str| String::from_utf8(stage.sandbox.command(line).output().unwrap().stdout).unwrap();
        let said = |text: &str| text.lines().filter(|line| line.contains(&problem)).count();
        assert_eq!(said(&shown("status")), 1);
        let answer: Value = serde_json::from_str(&shown("status --json")).unwrap();
        let of = &answer["devices"][0]["units"][0]["owner"];
        assert_eq!((&of["denied"], &of["denied_problem"]), (&Value::Null, &json!(problem)));
        let line = format!("fail  record       index 0 is recorded with control group {group}: {problem}");
        assert!(shown("doctor").lines().any(|found| found == line), "{}", shown("doctor"));
        stage.release(&owner);
        stage.assert_free(&mut owner);
    }
}

#[test]
fn doctor_proves_that_a_group_denies_and_leaves_none() {
    for version in versions("doctor_proves_that_a_group_denies_and_leaves_none") {
        let stage = Stage::with_gpus(version, 1);
        let mut owner = stage.owner();
        let (_, stdout, stderr) = owner.runs("doctor");
        let proven = format!(
            "ok    cgroup       --cgroup={} works: proven with a device that does not exist",
            version.word()
        );
        assert!(stdout.lines().any(|line| line == proven), "{stdout}{stderr}");
        stage.assert_free(&mut owner);
    }
}
