//! Who is moved with an owner, and who is not.

use std::collections::HashMap;
use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::cell::{Cell, Version, members, versions};
use super::stage::Stage;
use crate::running::wait_until;
use crate::strace;

/// The parent of every process.
fn parents() -> HashMap<u32, u32> {
    let parent = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, parent(pid)?))).collect()
}

/// An owner's descendants, and itself.
pub(crate) fn tree_of(owner: u32) -> Vec<u32> {
    let parents = parents();
    let is_below =
        |pid: u32| std::iter::successors(Some(pid), |pid| parents.get(pid).copied()).any(|pid| pid == owner);
    let mut tree: Vec<u32> = parents.keys().copied().filter(|pid| is_below(*pid)).collect();
    tree.sort_unstable();
    tree
}

#[test]
fn a_child_that_is_born_later_is_confined() {
    for version in versions("a_child_that_is_born_later_is_confined") {
        let stage = Stage::with_gpus(version, 2);
        let mut owner = stage.owner();
        stage.confine(1, &owner, "0\n");
        assert_eq!(owner.reach_of_a_child(), "+-");
        owner.tell("bash\nbash");
        assert_eq!(owner.reach(), "+-", "of a grandchild");
    }
}

/// The shells read their orders from one pipe: the innermost has it.
#[test]
fn whoever_descends_from_the_owner_is_moved_with_it() {
    for version in versions("whoever_descends_from_the_owner_is_moved_with_it") {
        let stage = Stage::with_gpus(version, 2);
        let (mut owner, mut other) = (stage.owner(), stage.owner());
        owner.tell("bash");
        owner.tell("setsid -f sleep 1000; (sleep 1000 & sleep 1000 & wait) & bash");
        wait_until("all of them were born", || tree_of(owner.pid()).len() == 6);
        stage.confine(1, &owner, "0\n");
        let mut confined = members(&stage.group(&owner));
        confined.sort_unstable();
        assert_eq!(confined, tree_of(owner.pid()));
        for depth in ["the grandchild", "the child", "the owner"] {
            assert_eq!(owner.reach(), "+-", "{version:?}: {depth}");
            owner.order("exit");
        }
        assert_eq!(other.reach(), "++", "another's process of the same group");
    }
}

/// Born of the owner itself, and in a line, each of the one before.
#[test]
fn children_that_are_born_during_the_move_are_confined() {
    const STORM: &str = "line() { if (($1)); then line $(($1 - 1)) & fi; sleep 1000; }
        line 60 & for i in {1..150}; do sleep 1000 & done; echo born";
    for version in versions("children_that_are_born_during_the_move_are_confined") {
        let stage = Stage::with_gpus(version, 2);
        let mut owner = stage.owner();
        owner.order(STORM);
        wait_until("the storm has begun", || tree_of(owner.pid()).len() > 5);
        stage.confine(1, &owner, "0\n");
        assert_eq!(owner.line(), "born");
        wait_until("all were born", || tree_of(owner.pid()).len() == 1 + 150 + 2 * 61);
        let mut confined = members(&stage.group(&owner));
        confined.sort_unstable();
        assert_eq!(confined, tree_of(owner.pid()));
        stage.release(&owner);
        assert_eq!(stage.cell.children(), [""; 0]);
        let left = tree_of(owner.pid()).into_iter().filter(|pid| version.path_of(*pid) != stage.cell.path);
        assert_eq!(left.collect::<Vec<_>>(), [0; 0]);
    }
}

/// The storm has no end, and neither does that of others.
#[test]
fn an_owner_that_never_stops_forking_is_confined() {
    const STORM: &str = "while :; do sleep 0.02 & done 2>/dev/null & echo $!";
    for version in versions("an_owner_that_never_stops_forking_is_confined") {
        let (stage, elsewhere) = (Stage::with_gpus(version, 2), Cell::make(version));
        let (mut owner, mut other) = (stage.owner(), stage.owner());
        owner.tell(STORM);
        elsewhere.take(other.tell(STORM).trim().parse().unwrap());
        stage.confine(1, &owner, "0\n");
        let born = tree_of(owner.pid()).into_iter().filter(|pid| has_path(version, *pid, &stage.cell.path));
        assert_eq!(born.collect::<Vec<_>>(), [0; 0], "left outside");
        stage.release(&owner);
        stage.assert_free(&mut owner);
    }
}

/// False if it has ended. A zombie stays where it was.
fn has_path(version: Version, pid: u32, path: &str) -> bool {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let (text, stat) = (read("cgroup"), read("stat"));
    if stat.contains(") Z ") {
        return false;
    }
    let line = if version == Version::V1 { format!(":devices:{path}") } else { format!("0::{path}") };
    text.lines().any(|other| other.ends_with(&line))
}

/// It is a child of the owner, and stopped at its first write to the record, when all others were moved.
#[test]
fn gpu_coord_stays_where_it_is() {
    if !strace::is_there("gpu_coord_stays_where_it_is") {
        return;
    }
    for version in versions("gpu_coord_stays_where_it_is") {
        let stage = Stage::with_gpus(version, 2);
        let mut owner = stage.owner();
        owner.order(&format!(
            "strace -D -qq -o /dev/null -e trace=pwrite64 -e inject=pwrite64:signal=SIGSTOP:when=1 \
             gpu-coord allocate 1 --cgroup={} & echo $!; wait; echo ended",
            version.word()
        ));
        let pid: u32 = owner.line().parse().unwrap();
        wait_until("the owner is moved", || members(&stage.group(&owner)) == [owner.pid()]);
        assert_eq!(version.path_of(pid), stage.cell.path, "gpu-coord");
        let pid = Pid::from_raw(i32::try_from(pid).unwrap());
        // It may not have stopped yet, so that it is told again.
        wait_until("it has gone on and ended", || kill(pid, Signal::SIGCONT).is_err());
        assert_eq!((owner.line(), owner.line()), ("0".to_owned(), "ended".to_owned()));
    }
}
