//! Device programs of others in the hierarchy v2, and what the kernel makes of threads there.

use std::fs;

use super::bpf;
use super::cell::Version;
use super::stage::{MAJOR, Stage};

/// The one of a test that only root can run.
fn stage(test: &str) -> Option<Stage> {
    Version::V2.may_be_used(test).then(|| Stage::with_gpus(Version::V2, 4))
}

#[test]
fn a_foreign_program_stays_and_both_deny() {
    let Some(stage) = stage("a_foreign_program_stays_and_both_deny") else { return };
    let mut owner = stage.owner();
    bpf::attach(&stage.cell.directory, &bpf::denying(MAJOR, stage.first_minor + 3), bpf::MULTI);
    let above = bpf::attached(&stage.cell.directory);
    stage.confine(1, &owner, "0\n");
    assert_eq!(owner.reach(), "+---");
    // One in our own group, by somebody who found it.
    bpf::attach(&stage.group(&owner), &bpf::denying(MAJOR, stage.first_minor + 2), bpf::MULTI);
    let beside = bpf::attached(&stage.group(&owner));
    stage.sandbox.answers(&format!("{} --print host-index", stage.line(1, &owner)), "1\n");
    assert_eq!(owner.reach(), "++--");
    let after = bpf::attached(&stage.group(&owner));
    assert_eq!((beside.len(), after.len(), bpf::attached(&stage.cell.directory)), (2, 2, above.clone()));
    assert_eq!(
        after.iter().filter(|id| beside.contains(id)).count(),
        1,
        "the foreign one: {beside:?} {after:?}"
    );
    stage.release(&owner);
    assert_eq!((owner.reach(), bpf::attached(&stage.cell.directory)), ("+++-".to_owned(), above));
    assert_eq!(stage.cell.children(), [""; 0]);
}

#[test]
fn an_exclusive_program_above_is_no_place_for_ours() {
    let Some(stage) = stage("an_exclusive_program_above_is_no_place_for_ours") else { return };
    let mut owner = stage.owner();
    bpf::attach(&stage.cell.directory, &bpf::denying(MAJOR, stage.first_minor + 3), bpf::EXCLUSIVE);
    let problem = format!(
        "{}: no device program can be attached: one without BPF_F_ALLOW_MULTI is attached to it or above it, and \
         forbids others; attach that one with BPF_F_ALLOW_MULTI; nothing was changed",
        stage.group(&owner).display()
    );
    stage.refuses(&stage.line(1, &owner), 5, &problem);
    assert_eq!((owner.reach(), stage.cell.children()), ("+++-".to_owned(), Vec::new()));
    assert_eq!(bpf::attached(&stage.cell.directory).len(), 1);
    assert_eq!(stage.sandbox.holders(), []);
}

/// A domain with threaded groups below it takes whole processes in none but itself.
#[test]
fn a_threaded_group_is_refused() {
    let Some(stage) = stage("a_threaded_group_is_refused") else { return };
    let mut owner = stage.owner();
    let threaded = stage.cell.directory.join("threaded");
    fs::create_dir(&threaded).unwrap();
    fs::write(threaded.join("cgroup.type"), "threaded").unwrap();
    for group in [stage.cell.directory.clone(), threaded] {
        fs::write(group.join("cgroup.procs"), owner.pid().to_string()).unwrap();
        let ours = group.join(stage.name(&owner));
        let problem = format!(
            "cannot prove what {} denies: entering the group: the group above is threaded and no longer accepts whole \
             processes; start the owner in a group that is not part of a threaded one; nothing was changed",
            ours.display()
        );
        stage.refuses(&stage.line(1, &owner), 5, &problem);
        assert!(!ours.exists());
        assert_eq!(owner.reach(), "++++");
    }
    stage.cell.take(owner.pid());
}
