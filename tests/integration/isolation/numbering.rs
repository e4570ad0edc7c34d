//! The indexes that are printed for a confined owner, and how a further grant changes them.

use super::cell::versions;
use super::stage::Stage;

fn changed(pid: u32) -> String {
    format!(
        "pid {pid} already holds devices, whose indexes would change if it could open more; ask with --print uuid \
         (or pci, or host-index)"
    )
}

/// Its runtime counts what it can open.
#[test]
fn indexes_are_those_that_the_owner_counts() {
    for version in versions("indexes_are_those_that_the_owner_counts") {
        let stage = Stage::with_gpus(version, 4);
        let (other, mut owner) = (stage.owner(), stage.owner());
        stage.confine(2, &other, "0,1\n");
        for (print, answer) in
            [("index", "0,1\n"), ("host-index", "2,3\n"), ("pci", "ffff:00:02.0,ffff:00:03.0\n")]
        {
            let line = stage.line(2, &owner);
            stage.sandbox.answers(&format!("{line} --print {print}"), answer);
            assert_eq!(owner.reach(), "--++");
            stage.release(&owner);
        }
    }
}

#[test]
fn a_further_grant_adds_to_what_can_be_opened() {
    for version in versions("a_further_grant_adds_to_what_can_be_opened") {
        let stage = Stage::with_gpus(version, 4);
        let mut owner = stage.owner();
        stage.confine(1, &owner, "0\n");
        let line = stage.line(1, &owner);
        stage.refuses(&line, 6, &changed(owner.pid()));
        assert_eq!(owner.reach(), "+---");
        stage.sandbox.answers(&format!("{line} --print host-index"), "1\n");
        assert_eq!((owner.reach(), owner.reach_of_a_child()), ("++--".to_owned(), "++--".to_owned()));
        stage.sandbox.answers(&format!("{line} --print pci"), "ffff:00:02.0\n");
        assert_eq!(owner.reach(), "+++-");
        assert_eq!(stage.cell.children(), [stage.name(&owner)]);
        stage.release(&owner);
        stage.assert_free(&mut owner);
        assert_eq!(stage.sandbox.holders(), []);
    }
}

/// A confined owner stays confined, whether the option is given again or not.
#[test]
fn a_further_grant_without_the_option_is_confined_too() {
    for version in versions("a_further_grant_without_the_option_is_confined_too") {
        let stage = Stage::with_gpus(version, 3);
        let mut owner = stage.owner();
        stage.confine(1, &owner, "0\n");
        let line = format!("allocate 1 --owner {}", owner.pid());
        stage.refuses(&line, 6, &changed(owner.pid()));
        stage.sandbox.answers(&format!("{line} --print host-index"), "1\n");
        assert_eq!(owner.reach(), "++-");
        stage.release(&owner);
        stage.assert_free(&mut owner);
    }
}

#[test]
fn a_further_grant_that_fails_leaves_the_first_in_force() {
    for version in versions("a_further_grant_that_fails_leaves_the_first_in_force") {
        let stage = Stage::with_gpus(version, 3);
        let mut owner = stage.owner();
        stage.confine(1, &owner, "0\n");
        let pid = owner.pid();
        let many = format!("{} --print host-index", stage.line(3, &owner));
        let held =
            "3 units asked for, 2 of 3 can be given: 1 held by living owners (`gpu-coord status` names them)";
        stage.refuses(&many, 1, held);
        assert_eq!(owner.reach(), "+--");
        let one = stage.line(1, &owner);
        let script = format!("gpu-coord {one} --print host-index 2>&1 >/dev/full; echo $?");
        let answer = owner.tell(&script);
        let problem =
            "gpu-coord: cannot write the answer to standard output: No space left on device (os error 28)";
        assert_eq!(answer, format!("{problem}\n4\n"));
        assert_eq!((owner.reach(), owner.reach_of_a_child()), ("+--".to_owned(), "+--".to_owned()));
        assert_eq!(stage.sandbox.holders(), [(0, pid)]);
        stage.release(&owner);
        stage.assert_free(&mut owner);
    }
}

/// What was given without isolation can be opened afterwards too.
#[test]
fn an_earlier_grant_without_isolation_is_kept() {
    for version in versions("an_earlier_grant_without_isolation_is_kept") {
        let stage = Stage::with_gpus(version, 3);
        let mut owner = stage.owner();
        stage.sandbox.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
        assert_eq!(owner.reach(), "+++");
        let line = stage.line(1, &owner);
        stage.refuses(&line, 6, &changed(owner.pid()));
        stage.sandbox.answers(&format!("{line} --print host-index"), "1\n");
        assert_eq!(owner.reach(), "++-");
        stage.release(&owner);
        stage.assert_free(&mut owner);
        assert_eq!(stage.sandbox.holders(), []);
    }
}

/// A hierarchy, once chosen, is kept.
#[test]
fn a_further_grant_stays_in_the_hierarchy_of_the_first() {
    for version in versions("a_further_grant_stays_in_the_hierarchy_of_the_first") {
        let stage = Stage::with_gpus(version, 3);
        let mut owner = stage.owner();
        stage.confine(1, &owner, "0\n");
        for word in ["--cgroup", "--cgroup=best-effort"] {
            let line = format!("allocate 1 {word} --print host-index --owner {}", owner.pid());
            stage.sandbox.command(&line).assert().code(0).stderr("");
        }
        assert_eq!(owner.reach(), "+++");
        assert_eq!(stage.cell.children(), [stage.name(&owner)]);
        stage.release(&owner);
        stage.assert_free(&mut owner);
    }
}
