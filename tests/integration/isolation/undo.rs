//! `deallocateAll` restores the state before the allocation.

use super::bpf;
use super::cell::{Version, versions};
use super::stage::Stage;

#[test]
fn the_owner_and_its_descendants_are_put_back() {
    for version in versions("the_owner_and_its_descendants_are_put_back") {
        let stage = Stage::with_gpus(version, 2);
        let mut owner = stage.owner();
        owner.tell("sleep 1000 &");
        stage.confine(1, &owner, "0\n");
        owner.tell("(sleep 1000 & sleep 1000 & wait) &");
        stage.release(&owner);
        stage.assert_free(&mut owner);
        for pid in super::descendants::tree_of(owner.pid()) {
            assert_eq!(version.path_of(pid), stage.cell.path);
        }
        assert_eq!(stage.sandbox.holders(), []);
        stage.release(&owner);
        stage.assert_free(&mut owner);
    }
}

#[test]
fn the_program_goes_with_the_group() {
    if !Version::V2.may_be_used("the_program_goes_with_the_group") {
        return;
    }
    let stage = Stage::with_gpus(Version::V2, 2);
    let owner = stage.owner();
    stage.confine(1, &owner, "0\n");
    let programs = bpf::attached(&stage.group(&owner));
    assert_eq!(programs.len(), 1);
    assert!(bpf::is_loaded(programs[0]));
    stage.release(&owner);
    crate::running::wait_until("the program is gone", || !bpf::is_loaded(programs[0]));
}

/// Nobody but the owner is put back, and nobody else's units are free.
#[test]
fn another_owner_stays_confined() {
    for version in versions("another_owner_stays_confined") {
        let stage = Stage::with_gpus(version, 3);
        let (mut one, mut other) = (stage.owner(), stage.owner());
        stage.confine(1, &one, "0\n");
        stage.confine(1, &other, "0\n");
        stage.release(&one);
        assert_eq!((one.reach(), other.reach()), ("+++".to_owned(), "-+-".to_owned()));
        assert_eq!(stage.sandbox.holders(), [(1, other.pid())]);
        assert_eq!(stage.cell.children(), [stage.name(&other)]);
    }
}

#[test]
fn it_can_be_confined_again() {
    for version in versions("it_can_be_confined_again") {
        let stage = Stage::with_gpus(version, 3);
        let (mut one, other) = (stage.owner(), stage.owner());
        for (amount, stdout, signs) in [(1, "0\n", "+--"), (3, "0,1,2\n", "+++"), (2, "0,1\n", "++-")] {
            stage.confine(amount, &one, stdout);
            assert_eq!(one.reach(), signs);
            stage.release(&one);
        }
        stage.confine(1, &other, "0\n");
        stage.confine(2, &one, "0,1\n");
        assert_eq!(one.reach(), "-++");
    }
}
