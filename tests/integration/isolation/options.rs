//! How isolation is asked for.

use super::cell::{Version, versions};
use super::stage::Stage;
use crate::sandbox::{Process, Sandbox};
use crate::strict::is_refused_if_strict;

const UNRECORDED: &str = "--cgroup needs the record of who holds what: add --enable-coordination-mode, and leave \
    --no-coordination out";

#[test]
fn isolation_takes_the_record() {
    let host = Sandbox::with_gpus(2);
    for line in [
        "1 --cgroup",
        "1 --cgroup=v1",
        "1 --cgroup=v2",
        "1 --cgroup=best-effort",
        "allocate 1 --no-coordination --cgroup",
    ] {
        host.refuses(line, 2, UNRECORDED);
    }
    assert!(!host.file().exists());
}

#[test]
fn a_value_is_given_with_an_equals_sign() {
    let host = Sandbox::with_gpus(2);
    let owner = Process::start();
    for (words, problem) in [
        ("--cgroup v2", "`v2` is one argument too many; if it is the value of --cgroup, write `--cgroup=v2`"),
        ("--cgroup=v3", "--cgroup cannot be `v3`: it takes v1, v2 or best-effort"),
        ("--cgroup=", "--cgroup needs a value; it takes v1, v2 or best-effort"),
        ("--cgroup=v1 --cgroup=v2", "--cgroup is given twice"),
    ] {
        host.refuses(&format!("allocate 1 {words} --owner {}", owner.pid()), 2, problem);
    }
    assert!(!host.file().exists());
}

/// Their minor is not known, as on WSL.
#[test]
fn devices_without_nodes_are_not_isolated() {
    for version in versions("devices_without_nodes_are_not_isolated") {
        let stage = Stage::with_gpus(version, 2);
        let mut owner = stage.owner();
        let line = format!("{} --source simulated:2", stage.line(1, &owner));
        let problem = "no device node of device 0 is known to source simulated:2 or the kernel (on WSL and for simulated \
            devices there is none), so it can be neither given nor denied";
        stage.refuses(&line, 5, problem);
        let best = format!("allocate 1 --cgroup=best-effort --source simulated:2 --owner {}", owner.pid());
        let warning =
            format!("gpu-coord: warning: the owner is not confined, and can open every device: {problem}\n");
        is_refused_if_strict(stage.sandbox.program(&best), &stage.sandbox.file(), &warning);
        stage.sandbox.command(&best).assert().code(0).stdout("0\n").stderr(warning);
        stage.release(&owner);
        stage.assert_free(&mut owner);
        assert_eq!(stage.sandbox.holders(), []);
    }
}

#[test]
fn the_environment_asks_too() {
    for version in versions("the_environment_asks_too") {
        let stage = Stage::with_gpus(version, 2);
        let mut owner = stage.owner();
        let word = version.word();
        for (variable, line) in [
            (word, "allocate 1"),
            (word, "1 --enable-coordination-mode"),
            ("no", &format!("allocate 1 --cgroup={word}")),
        ] {
            owner.tell(&format!("export GPU_COORD_CGROUP={variable}"));
            assert_eq!(owner.runs(line), (0, "0\n".to_owned(), String::new()), "{variable} {line}");
            assert_eq!(owner.reach(), "+-", "{variable} {line}");
            assert_eq!(owner.runs("deallocateAll"), (0, String::new(), String::new()));
            stage.assert_free(&mut owner);
        }
        owner.tell("export GPU_COORD_CGROUP=");
        assert_eq!(owner.runs("allocate 1"), (0, "0\n".to_owned(), String::new()));
        stage.assert_free(&mut owner);
    }
}

/// Where both are mounted, the controller of v1 is used.
#[test]
fn without_a_value_the_hierarchy_is_found() {
    let test = "without_a_value_the_hierarchy_is_found";
    if !Version::V1.may_be_used(test) {
        return;
    }
    let stage = Stage::with_gpus(Version::V1, 2);
    for word in ["--cgroup", "--cgroup=any", "--cgroup=best-effort"] {
        let mut owner = stage.owner();
        stage.sandbox.answers(&format!("allocate 1 {word} --owner {}", owner.pid()), "0\n");
        assert_eq!((owner.reach(), stage.cell.children()), ("+-".to_owned(), vec![stage.name(&owner)]));
        stage.release(&owner);
    }
}
