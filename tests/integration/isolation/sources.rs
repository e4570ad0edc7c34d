//! One record for devices of two kinds, each described by a source of its own.

use std::fs;

use serde_json::json;

use super::cell::versions;
use super::owner::Owner;
use super::stage::Stage;

/// The first two devices are of one source, the others of another.
fn stages(test: &str) -> Vec<Stage> {
    let stage = |version| {
        let stage = Stage::with_gpus(version, 4);
        for (name, first) in [("gpus.json", 0), ("fpgas.json", 2)] {
            let device = |at: u64| json!({ "id": format!("{name}-{at}"), "nodes": [stage.node(at)] });
            let text = json!({ "devices": [device(first), device(first + 1)] }).to_string();
            fs::write(stage.sandbox.path().join(name), text).unwrap();
        }
        stage
    };
    versions(test).into_iter().map(stage).collect()
}

fn line(stage: &Stage, owner: &Owner, source: &str) -> String {
    format!("{} --print host-index --source file:{source}", stage.line(1, owner))
}

#[test]
fn a_grant_of_another_kind_lifts_nothing() {
    for stage in stages("a_grant_of_another_kind_lifts_nothing") {
        let mut owner = stage.owner();
        stage.sandbox.answers(&line(&stage, &owner, "gpus.json"), "0\n");
        assert_eq!(owner.reach(), "+-++");
        stage.sandbox.answers(&line(&stage, &owner, "fpgas.json"), "0\n");
        assert_eq!(owner.reach(), "+-+-", "{:?}", stage.cell.version);
        stage.sandbox.answers(&line(&stage, &owner, "gpus.json"), "1\n");
        assert_eq!(owner.reach(), "+++-", "{:?}", stage.cell.version);
        stage.release(&owner);
        stage.assert_free(&mut owner);
    }
}

#[test]
fn a_take_over_of_another_kind_frees_no_orphans() {
    for stage in stages("a_take_over_of_another_kind_frees_no_orphans") {
        let (mut dead, owner) = (stage.owner(), stage.owner());
        dead.tell("bash");
        stage.sandbox.answers(&line(&stage, &dead, "gpus.json"), "0\n");
        dead.kill();
        let line = format!("1 --enable-coordination-mode --source file:fpgas.json --owner {}", owner.pid());
        let output = stage.sandbox.command(&line).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "0\n");
        let signs = dead.reach();
        assert!(signs.starts_with("--") || signs.starts_with("+-"), "{:?}: {signs}", stage.cell.version);
    }
}
