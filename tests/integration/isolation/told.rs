//! What `status` tells of a confined owner.

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
            Version::V1 => ("v1", Value::Null, json!("cgroup v1 does not tell what it denies")),
            Version::V2 => ("v2", json!([format!("{MAJOR}:{}-{}", first + 1, first + 2)]), Value::Null),
        };
        let path = format!("{group}:{}/{}", stage.cell.path, stage.name(&owner));
        assert_eq!((&of["cgroup"], &of["denied"], &of["denied_problem"]), (&json!(path), &denied, &problem));
        let of = owner_of(1);
        assert_eq!((&of["cgroup"], &of["denied"]), (&Value::Null, &Value::Null));
        assert_eq!(owner_of(2), Value::Null);
    }
}
