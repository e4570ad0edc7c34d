//! Hierarchies as they are seen from namespaces of their own.

use super::cell::{Version, versions};
use super::owner::Owner;
use super::stage::Stage;
use crate::sandbox::may_mount;

fn stages(test: &str) -> Vec<Stage> {
    if !may_mount(test) {
        return Vec::new();
    }
    versions(test).into_iter().map(|version| Stage::with_gpus(version, 2)).collect()
}

/// An owner that becomes what the script makes of it. `$ROOT` is where the hierarchy is mounted, `$CELL` the
/// owner's group.
fn owner(stage: &Stage, script: &str) -> Owner {
    let mut owner = stage.owner();
    let (root, cell) = (stage.cell.version.root().unwrap(), stage.cell.directory.display());
    let kind = match stage.cell.version {
        Version::V1 => "-t cgroup -o devices",
        Version::V2 => "-t cgroup2",
    };
    owner.tell(&format!("export ROOT={} CELL={cell} KIND='{kind}'; set +m", root.display()));
    owner.tell(script);
    owner
}

fn allocate(stage: &Stage) -> String {
    format!("allocate 1 --cgroup={}", stage.cell.version.word())
}

fn answer(text: &str) -> (i32, String, String) {
    (0, text.to_owned(), String::new())
}

/// As in a container: the hierarchy is mounted anew, and its root is the owner's group.
const CONTAINER: &str = r#"exec unshare -Cm bash -c 'umount $ROOT && mount $KIND none $ROOT && exec bash'"#;

#[test]
fn in_a_container_the_root_is_the_own_group() {
    for stage in stages("in_a_container_the_root_is_the_own_group") {
        let mut owner = owner(&stage, CONTAINER);
        assert_eq!(owner.runs(&allocate(&stage)), answer("0\n"));
        assert_eq!((owner.reach(), stage.cell.children()), ("+-".to_owned(), vec![stage.name(&owner)]));
        let further = format!("{} --print host-index", allocate(&stage));
        assert_eq!((owner.runs(&further), owner.reach()), (answer("1\n"), "++".to_owned()));
        assert_eq!(owner.runs("deallocateAll"), answer(""));
        stage.assert_free(&mut owner);
    }
}

/// Seen from there, the group that is recorded is none.
#[test]
fn what_is_confined_in_a_container_is_put_back_from_outside() {
    for stage in stages("what_is_confined_in_a_container_is_put_back_from_outside") {
        let mut owner = owner(&stage, CONTAINER);
        assert_eq!(owner.runs(&allocate(&stage)), answer("0\n"));
        stage.release(&owner);
        stage.assert_free(&mut owner);
        assert_eq!(stage.sandbox.holders(), []);
    }
}

/// A private namespace with the mounts of the host: the group cannot be reached.
#[test]
fn a_group_that_cannot_be_reached_is_refused() {
    for stage in stages("a_group_that_cannot_be_reached_is_refused") {
        let mut owner = owner(&stage, "exec unshare -Cm bash -c 'umount -l $ROOT && exec bash'");
        let word = stage.cell.version.word();
        let problem = format!(
            "gpu-coord: no control group of pid {} can be used: cgroup {word}: it is not mounted here\n",
            owner.pid()
        );
        assert_eq!(owner.runs(&allocate(&stage)), (5, String::new(), problem));
        stage.assert_free(&mut owner);
        assert_eq!(stage.sandbox.holders(), []);
    }
}

/// Only a part of the hierarchy is there, at an odd place.
#[test]
fn a_part_of_the_hierarchy_is_enough() {
    const PART: &str = r#"mkdir 'my groups'; exec unshare -m bash -c '
        mount --bind $CELL "my groups" && umount -l $ROOT && exec bash'"#;
    for stage in stages("a_part_of_the_hierarchy_is_enough") {
        let mut owner = owner(&stage, PART);
        assert_eq!(owner.runs(&allocate(&stage)), answer("0\n"));
        assert_eq!((owner.reach(), stage.cell.children()), ("+-".to_owned(), vec![stage.name(&owner)]));
        assert!(stage.sandbox.text().contains(&stage.recorded(&owner)));
        assert_eq!(owner.runs("deallocateAll"), answer(""));
        stage.assert_free(&mut owner);
    }
}

/// From a namespace of its own an owner outside cannot be reached, and is not taken for one of the same name.
#[test]
fn an_owner_outside_of_the_namespace_is_refused() {
    for stage in stages("an_owner_outside_of_the_namespace_is_refused") {
        let (mut inside, mut outside) = (owner(&stage, CONTAINER), stage.owner());
        let elsewhere = super::cell::Cell::make(stage.cell.version);
        elsewhere.take(outside.pid());
        let line = format!("{} --owner {}", allocate(&stage), outside.pid());
        let problem = format!(
            "gpu-coord: no control group of pid {} can be used: cgroup {}: its group /..{} is outside the control \
             group namespace of gpu-coord\n",
            outside.pid(),
            stage.cell.version.word(),
            elsewhere.path
        );
        assert_eq!(inside.runs(&line), (5, String::new(), problem));
        assert_eq!((outside.reach(), stage.sandbox.holders()), ("++".to_owned(), Vec::new()));
    }
}
