//! What isolation still guarantees when the record lies: each sentence of SECURITY.md about it.

use std::fs;

use super::cell::{Version, versions};
use super::stage::Stage;

/// The line of the first device, as one of the second.
fn forged(text: &str) -> String {
    let line = text.lines().find(|line| line.starts_with("0 ")).unwrap();
    let (before, after) = line.split_once("grant=").unwrap();
    let line = format!("{before}grant=0123456789abcdef{}\n", &after[16..]);
    let forged = line.replacen('0', "1", 1).replace("=id-0;", "=id-1;").replace(":00.0;", ":01.0;");
    assert_ne!(forged, line);
    forged
}

/// The record decides what root does next, and root believes it no further than the kernel bears it out: v2 tells
/// what is denied, and v1 does not.
#[test]
fn a_lie_about_a_confined_owner_opens_nothing_to_it_by_itself() {
    for version in versions("a_lie_about_a_confined_owner_opens_nothing_to_it_by_itself") {
        let stage = Stage::with_gpus(version, 4);
        let mut owner = stage.owner();
        stage.confine(1, &owner, "0\n");
        let text = stage.sandbox.text();
        fs::write(stage.sandbox.file(), text.clone() + &forged(&text)).unwrap();
        assert_eq!(stage.sandbox.holders(), [(0, owner.pid()), (1, owner.pid())]);
        stage.sandbox.command("status").assert().code(0);
        assert_eq!(owner.reach(), "+---");
        // With a further grant root writes the rules anew.
        let line = format!("{} --print host-index", stage.line(1, &owner));
        stage.sandbox.answers(&line, "2\n");
        let reach = match version {
            Version::V1 => "+++-",
            Version::V2 => "+-+-",
        };
        assert_eq!(owner.reach(), reach, "{version:?}");
        stage.release(&owner);
        stage.assert_free(&mut owner);
    }
}

/// Then a device is given twice, and each can open what root gave it and no more.
#[test]
fn lines_that_are_taken_away_set_nobody_free() {
    for version in versions("lines_that_are_taken_away_set_nobody_free") {
        let stage = Stage::with_gpus(version, 3);
        let (mut one, mut other) = (stage.owner(), stage.owner());
        stage.confine(1, &one, "0\n");
        fs::write(stage.sandbox.file(), "").unwrap();
        stage.confine(1, &other, "0\n");
        assert_eq!((one.reach(), other.reach()), ("+--".to_owned(), "+--".to_owned()));
        // A name of a device of its own making is a device's number all the same.
        let made =
            one.tell("cp -a $(echo $NODES | cut -d' ' -f2) mine 2>&1; NODES=mine reach 2>&1; rm -f mine");
        assert!(!made.contains('+'), "{made}");
        // And the living are not freed from their isolation by a call for the other.
        stage.release(&other);
        assert_eq!((one.reach(), other.reach()), ("+--".to_owned(), "+++".to_owned()));
    }
}

/// An owner that is named on another's line, and gives back, frees that one from nothing.
#[test]
fn whoever_writes_itself_into_anothers_line_frees_it_from_nothing() {
    for version in versions("whoever_writes_itself_into_anothers_line_frees_it_from_nothing") {
        let stage = Stage::with_gpus(version, 3);
        let (mut victim, mut liar) = (stage.owner(), stage.owner());
        stage.confine(1, &victim, "0\n");
        stage.confine(1, &liar, "0\n");
        let groups = [stage.recorded(&victim), stage.recorded(&liar)];
        let text = stage.sandbox.text();
        fs::write(stage.sandbox.file(), text.replace(&groups[1], &groups[0])).unwrap();
        let warning =
            format!("control group `{}` in the record: not of pid {}", group(&groups[0]), liar.pid());
        let run = stage.sandbox.command(&format!("deallocateAll --owner {}", liar.pid())).assert();
        run.code(0).stdout("").stderr(format!("gpu-coord: warning: {warning}\n"));
        // It gave back what it had, and its own group went with it.
        assert_eq!((victim.reach(), liar.reach()), ("+--".to_owned(), "+++".to_owned()));
    }
}

/// What it does not keep from GPUs: a process with the rights of root can leave its group.
#[test]
fn an_owner_with_the_rights_of_root_can_leave_its_group() {
    for version in versions("an_owner_with_the_rights_of_root_can_leave_its_group") {
        let stage = Stage::with_gpus(version, 3);
        let mut owner = stage.owner();
        stage.confine(1, &owner, "0\n");
        assert_eq!(owner.reach(), "+--");
        owner.tell(&format!("echo $$ > {}/cgroup.procs; echo left", stage.cell.directory.display()));
        assert_eq!(owner.reach(), "+++");
    }
}

fn group(recorded: &str) -> &str {
    recorded.strip_prefix("cgroup=").unwrap()
}
