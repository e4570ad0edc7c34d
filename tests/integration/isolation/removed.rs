//! Groups that others removed, left behind or wrote into the record.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::cell::{Cell, Version, members, versions};
use super::container::Container;
use super::stage::Stage;
use crate::fake_nvml::Answer;
use crate::sandbox::{Process, may_mount};

/// Members moved out and the group removed, by hand.
fn remove(stage: &Stage, owner: &super::owner::Owner) {
    let group = stage.group(owner);
    members(&group).iter().for_each(|pid| stage.cell.take(*pid));
    fs::remove_dir(group).unwrap();
}

#[test]
fn a_group_that_was_removed_is_made_again() {
    for version in versions("a_group_that_was_removed_is_made_again") {
        let stage = Stage::with_gpus(version, 3);
        let mut owner = stage.owner();
        stage.confine(1, &owner, "0\n");
        remove(&stage, &owner);
        assert_eq!(owner.reach(), "+++");
        stage.sandbox.answers(&format!("{} --print host-index", stage.line(1, &owner)), "1\n");
        assert_eq!((owner.reach(), stage.cell.children()), ("++-".to_owned(), vec![stage.name(&owner)]));
        stage.release(&owner);
        stage.assert_free(&mut owner);
    }
}

#[test]
fn a_group_that_was_removed_is_given_back() {
    for version in versions("a_group_that_was_removed_is_given_back") {
        let stage = Stage::with_gpus(version, 3);
        let mut owner = stage.owner();
        stage.confine(1, &owner, "0\n");
        remove(&stage, &owner);
        stage.release(&owner);
        stage.assert_free(&mut owner);
        assert_eq!(stage.sandbox.holders(), []);
    }
}

/// The owner is in another group, and the old one is there still.
#[test]
fn an_owner_that_was_moved_is_confined_where_it_is() {
    for version in versions("an_owner_that_was_moved_is_confined_where_it_is") {
        let stage = Stage::with_gpus(version, 3);
        let (mut owner, other) = (stage.owner(), Cell::make(version));
        stage.confine(1, &owner, "0\n");
        other.take(owner.pid());
        stage.sandbox.answers(&format!("{} --print host-index", stage.line(1, &owner)), "1\n");
        assert_eq!((owner.reach(), other.children()), ("++-".to_owned(), vec![stage.name(&owner)]));
        stage.release(&owner);
        assert_eq!(version.path_of(owner.pid()), other.path);
        assert_eq!((other.children(), stage.cell.children()), (Vec::new(), Vec::new()));
        assert_eq!((owner.reach(), stage.sandbox.holders()), ("+++".to_owned(), Vec::new()));
    }
}

/// Moved out by hand, with the group there still.
#[test]
fn an_owner_that_was_moved_out_is_moved_in_again() {
    for version in versions("an_owner_that_was_moved_out_is_moved_in_again") {
        let stage = Stage::with_gpus(version, 3);
        let mut owner = stage.owner();
        stage.confine(1, &owner, "0\n");
        stage.cell.take(owner.pid());
        assert_eq!(owner.reach(), "+++");
        stage.sandbox.answers(&format!("{} --print host-index", stage.line(1, &owner)), "1\n");
        assert_eq!(owner.reach(), "++-");
        stage.release(&owner);
        stage.assert_free(&mut owner);
    }
}

/// Of a call that was killed: its rules are replaced while the owner is in it, so that it is never free, and who else
/// is in it is put back with it.
#[test]
fn a_group_that_was_left_is_not_used_as_it_is() {
    for version in versions("a_group_that_was_left_is_not_used_as_it_is") {
        let stage = Stage::with_gpus(version, 3);
        let (mut owner, stranger) = (stage.owner(), Process::start());
        stage.confine(2, &owner, "0,1\n");
        fs::remove_file(stage.sandbox.file()).unwrap();
        fs::write(stage.group(&owner).join("cgroup.procs"), stranger.pid().to_string()).unwrap();
        stage.sandbox.answers(&format!("{} --devices 2", stage.line(1, &owner)), "0\n");
        assert_eq!(owner.reach(), "--+");
        stage.release(&owner);
        assert_eq!(version.path_of(stranger.pid()), stage.cell.path);
        stage.assert_free(&mut owner);
    }
}

/// Whoever can write the record cannot have groups emptied or removed that are not the owner's.
#[test]
fn a_group_of_another_in_the_record_is_not_touched() {
    for version in versions("a_group_of_another_in_the_record_is_not_touched") {
        let stage = Stage::with_gpus(version, 3);
        let (mut owner, mut victim) = (stage.owner(), stage.owner());
        stage.confine(1, &victim, "0\n");
        stage.sandbox.answers(&format!("allocate 1 --owner {}", owner.pid()), "1\n");
        let (record, pid) = (stage.sandbox.text(), owner.pid());
        let (word, cell, own) = (version.word(), &stage.cell.path, stage.name(&owner));
        let named = "not a name of a group of gpu-coord".to_owned();
        let outside =
            |path: &str| format!("its group {path} is outside the control group namespace of gpu-coord");
        let through = format!("{cell}/{}/../{own}", stage.name(&victim));
        for (group, problem) in [
            (format!("{word}:{cell}/{}", stage.name(&victim)), format!("not of pid {pid}")),
            (format!("{word}:{cell}"), named.clone()),
            (format!("{word}:/"), named.clone()),
            (format!("{word}:{cell}/{own}/.."), named),
            (format!("{word}:{through}"), outside(&through)),
            (format!("{word}:{own}"), outside(&own)),
            (format!("v3:{cell}/{own}"), "neither v1 nor v2".to_owned()),
            (format!("{cell}/{own}"), "not VERSION:PATH".to_owned()),
        ] {
            write_group(stage.sandbox.file().as_path(), &record, pid, &group);
            let problem = format!("control group `{group}` in the record: {problem}");
            stage.refuses(&format!("{} --print host-index", stage.line(1, &owner)), 5, &problem);
            released(&stage, pid, &problem);
            assert_eq!((owner.reach(), victim.reach()), ("+++".to_owned(), "+--".to_owned()), "{group}");
        }
        write_group(stage.sandbox.file().as_path(), &record, pid, &format!("{cell}/{own}"));
        owner.kill();
        victim.reach();
        let Answer { status, stderr, .. } = stage.reclaim("");
        assert_eq!((status, stderr.lines().count()), (Some(0), 1), "{stderr}");
        assert_eq!(victim.reach(), "+--");
    }
}

/// What is none of its groups keeps no owner from giving back what it has.
#[track_caller]
fn released(stage: &Stage, pid: u32, problem: &str) {
    let mut command = stage.sandbox.command(&format!("deallocateAll --owner {pid}"));
    command.assert().code(0).stdout("").stderr(format!("gpu-coord: warning: {problem}\n"));
    assert!(!stage.sandbox.holders().iter().any(|(_, holder)| *holder == pid));
}

/// No process outlives a boot: what cannot be looked into any more holds nothing.
#[test]
fn a_group_of_an_earlier_boot_has_no_orphans() {
    let test = "a_group_of_an_earlier_boot_has_no_orphans";
    if !may_mount(test) {
        return;
    }
    for version in versions(test) {
        let stage = Stage::with_gpus(version, 1);
        let mut dead = stage.owner();
        let mut owner = stage.owner();
        stage.confine(1, &dead, "0\n");
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let text = stage.sandbox.text();
        let earlier = text.replace(&boot.trim().replace('-', ""), "00000000000040008000000000000000");
        assert_ne!(text, earlier);
        fs::write(stage.sandbox.file(), earlier).unwrap();
        remove(&stage, &dead);
        dead.kill();
        let other = if version == Version::V1 { Version::V2 } else { Version::V1 };
        let script = format!(
            "umount -l {} && exec gpu-coord allocate 1 --check-dead --cgroup={} --owner {}",
            version.root().unwrap().display(),
            other.word(),
            owner.pid()
        );
        let mut command = Command::new("unshare");
        stage.environment(&mut command);
        let Answer { status, stdout, stderr } =
            Answer::of(&command.args(["-m", "sh", "-c", &script]).output().unwrap());
        assert_eq!((status, stdout.as_str(), stderr.as_str()), (Some(0), "0\n", ""));
        assert_eq!(owner.reach(), "+");
        stage.release(&owner);
    }
}

/// The pids of its groups mean other processes here, or none.
#[test]
fn a_group_of_a_container_in_the_record_is_not_touched() {
    let test = "a_group_of_a_container_in_the_record_is_not_touched";
    for version in versions(test) {
        let (inside, stage) = (Container::new(version), Stage::with_gpus(version, 3));
        let mut victim = inside;
        victim.answers(&victim.allocate(), "0\n");
        let owner = stage.owner();
        stage.confine(1, &owner, "0\n");
        let group = format!("{}:{}", version.word(), version.path_of(victim.pid));
        write_group(&stage.sandbox.file(), &stage.sandbox.text(), owner.pid(), &group);
        let problem = format!("control group `{group}` in the record: not of pid {}", owner.pid());
        released(&stage, owner.pid(), &problem);
        assert_eq!(victim.owner.reach(), "+--");
    }
}

/// The record with this group in the line of that owner.
fn write_group(file: &Path, record: &str, pid: u32, group: &str) {
    let line = |line: &str| {
        let is_its = line.split([' ', '\t']).nth(1) == Some(&pid.to_string());
        if is_its { format!("{};cgroup={group}\n", line.trim_end()) } else { format!("{line}\n") }
    };
    fs::write(file, record.lines().map(line).collect::<String>()).unwrap();
}
