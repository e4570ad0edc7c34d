//! Groups with odd names, and groups that may have none below them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use super::cell::{Version, versions};
use super::stage::Stage;

/// As systemd's are, and worse.
const NAMES: [&[u8]; 5] = [
    br"flink\x2dtm.service",
    b"with a blank",
    b"a;cgroup=v1:%2f#\t!",
    "gr\u{fc}n".as_bytes(),
    b"gpu-coord-x",
];

#[test]
fn a_group_is_found_again_by_its_name() {
    for version in versions("a_group_is_found_again_by_its_name") {
        for name in NAMES.map(OsStr::from_bytes) {
            let stage = Stage::with_gpus(version, 3);
            let mut owner = stage.owner();
            let odd = stage.cell.below(name);
            fs::write(odd.join("cgroup.procs"), owner.pid().to_string()).unwrap();
            stage.confine(1, &owner, "0\n");
            assert!(odd.join(stage.name(&owner)).is_dir(), "{name:?}");
            stage.sandbox.answers(&format!("{} --print host-index", stage.line(1, &owner)), "1\n");
            assert_eq!(owner.reach(), "++-", "{name:?}");
            stage.release(&owner);
            assert_eq!(owner.reach(), "+++");
            let processes = fs::read_to_string(odd.join("cgroup.procs")).unwrap();
            assert_eq!(processes, format!("{}\n", owner.pid()));
            assert!(!odd.join(stage.name(&owner)).exists());
        }
    }
}

/// The record holds text, and so does the kernel's own list as far as anybody else reads it.
#[test]
fn a_name_that_is_no_text_is_refused() {
    for version in versions("a_name_that_is_no_text_is_refused") {
        let stage = Stage::with_gpus(version, 2);
        let mut owner = stage.owner();
        let odd = stage.cell.below(OsStr::from_bytes(b"\xff"));
        fs::write(odd.join("cgroup.procs"), owner.pid().to_string()).unwrap();
        let problem = format!("/proc/{}/cgroup: not in the form of proc_pid_cgroup(5)", owner.pid());
        stage.refuses(&stage.line(1, &owner), 4, &problem);
        assert_eq!(owner.reach(), "++");
    }
}

#[test]
fn where_no_group_can_be_made_nothing_is_given() {
    let test = "where_no_group_can_be_made_nothing_is_given";
    if !Version::V2.may_be_used(test) {
        return;
    }
    let stage = Stage::with_gpus(Version::V2, 2);
    let mut owner = stage.owner();
    stage.cell.write("cgroup.max.descendants", "0").unwrap();
    let problem = format!(
        "cannot make control group {}: Resource temporarily unavailable (os error 11)",
        stage.group(&owner).display()
    );
    stage.refuses(&stage.line(1, &owner), 5, &problem);
    stage.assert_free(&mut owner);
    assert_eq!(stage.sandbox.holders(), []);
}
