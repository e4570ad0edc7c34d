//! Two owners that are isolated from each other.

use std::fs;

use nix::sys::stat::makedev;

use super::cell::versions;
use super::stage::{Stage, make_node};

#[test]
fn each_of_two_owners_opens_its_own_device_only() {
    for version in versions("each_of_two_owners_opens_its_own_device_only") {
        let stage = Stage::with_gpus(version, 3);
        let (mut one, mut other) = (stage.owner(), stage.owner());
        stage.confine(1, &one, "0\n");
        stage.confine(2, &other, "0,1\n");
        assert_eq!((one.reach(), other.reach()), ("+--".to_owned(), "-++".to_owned()), "{version:?}");
        assert_eq!(version.path_of(one.pid()), format!("{}/{}", stage.cell.path, stage.name(&one)));
        let text = stage.sandbox.text();
        assert!(text.contains(&stage.recorded(&one)) && text.contains(&stage.recorded(&other)), "{text}");
    }
}

#[test]
fn an_owner_that_calls_by_itself_is_confined() {
    for version in versions("an_owner_that_calls_by_itself_is_confined") {
        let stage = Stage::with_gpus(version, 2);
        let mut owner = stage.owner();
        let word = version.word();
        for line in [
            format!("allocate 1 --cgroup={word}"),
            format!("1 --enable-coordination-mode --cgroup={word}"),
            format!("1 --enable-coordination --cgroup={word}"),
        ] {
            assert_eq!(owner.runs(&line), (0, "0\n".to_owned(), String::new()), "{line}");
            assert_eq!((owner.reach(), owner.reach_of_a_child()), ("+-".to_owned(), "+-".to_owned()));
            assert_eq!(owner.runs("deallocateAll"), (0, String::new(), String::new()));
            stage.assert_free(&mut owner);
        }
    }
}

/// An owner keeps what it had open; that is no way around the filter.
#[test]
fn a_descriptor_of_before_stays_and_opens_nothing_anew() {
    for version in versions("a_descriptor_of_before_stays_and_opens_nothing_anew") {
        let stage = Stage::with_gpus(version, 2);
        let mut owner = stage.owner();
        // Nobody drives the nodes of the test, and what is to be open must open.
        let full = stage.node(1);
        fs::remove_file(&full).unwrap();
        make_node(&full, makedev(1, 7));
        owner.tell(&format!("exec 8<>{}", full.display()));
        stage.confine(1, &owner, "0\n");
        assert_eq!(owner.tell("head -c 3 <&8 | wc -c"), "3\n", "{version:?}");
        let again = owner.tell("{ true 9<>/proc/self/fd/8; } 2>&1");
        assert!(again.ends_with(": Operation not permitted\n"), "{again}");
        assert_eq!(owner.reach(), "+-");
    }
}
