//! `exec --cgroup`: it confines itself, and then becomes the command.

use std::process::Command;

use super::cell::versions;
use super::owner::{Owner, signs};
use super::stage::Stage;
use crate::running::{End, Running};

/// What is run in the test's group, by a shell of its own: `gpu-coord exec` with these words.
fn exec(stage: &Stage, words: &str, script: &str) -> Running {
    let mut command = Command::new("sh");
    stage.environment(&mut command);
    command.env("SCRIPT", script);
    let enter = format!(
        "echo $$ >{}/cgroup.procs && exec gpu-coord exec {words} -- bash -c \"$SCRIPT\"",
        stage.cell.directory.display()
    );
    command.args(["-c", &enter]);
    Running::start(command)
}

const REACH: &str =
    r#"export LC_ALL=C; for node in $NODES; do { true 9<>"$node" && echo opened; } 2>&1; done"#;

#[test]
fn the_command_opens_what_it_was_given_alone() {
    for version in versions("the_command_opens_what_it_was_given_alone") {
        for user in ["", "--user nobody", "--wait --user nobody"] {
            let stage = Stage::with_gpus(version, 3);
            let other = stage.owner();
            stage.sandbox.answers(&format!("allocate 1 --owner {}", other.pid()), "0\n");
            let words = format!("1 --cgroup={} {user}", version.word());
            let (end, stdout, stderr) = exec(&stage, &words, &format!("{REACH}; id -u >&2; (true)")).end();
            let uid = if user.is_empty() { "0\n" } else { "65534\n" };
            assert_eq!((end, signs(&stdout).as_str(), stderr.as_str()), (End::Exit(0), "-+-", uid));
            // What it left is found by whoever comes next.
            let mut next = stage.owner();
            let line = format!("2 --enable-coordination-mode --owner {}", next.pid());
            stage.sandbox.command(&line).assert().code(0).stderr("");
            assert_eq!((stage.cell.children(), next.reach()), (vec![], "+++".to_owned()));
        }
    }
}

/// Inside it counts what it can open, and what is passed on stays confined.
#[test]
fn what_is_passed_on_is_confined_and_counted_inside() {
    for version in versions("what_is_passed_on_is_confined_and_counted_inside") {
        let stage = Stage::with_gpus(version, 4);
        let other = stage.owner();
        stage.sandbox.answers(&format!("allocate 2 --owner {}", other.pid()), "0,1\n");
        let script =
            "setsid -w sh -c 'gpu-coord 1 --cgroup && gpu-coord 1 --cgroup --print host-index'; exit $?";
        let end = exec(&stage, &format!("2 --cgroup={}", version.word()), script).end();
        assert_eq!(end, (End::Exit(0), "0\n3\n".to_owned(), String::new()));
        drop(other);
    }
}

/// The command has the unit still, and stays confined to it.
#[test]
fn what_is_given_back_inside_stays_the_commands() {
    for version in versions("what_is_given_back_inside_stays_the_commands") {
        let stage = Stage::with_gpus(version, 3);
        let other = stage.owner();
        stage.sandbox.answers(&format!("allocate 1 --owner {}", other.pid()), "0\n");
        let asks = "gpu-coord 1 --cgroup";
        let script = format!(
            "setsid -w bash -c '{asks} && gpu-coord deallocateAll && {asks} || exit $?' && {{ {REACH}; {asks} --owner $$; }}"
        );
        let (end, stdout, stderr) = exec(&stage, &format!("1 --cgroup={}", version.word()), &script).end();
        assert_eq!((end, stderr.as_str()), (End::Exit(0), ""));
        let lines: Vec<&str> = stdout.lines().collect();
        assert_eq!((lines.len(), lines[0], lines[1], lines[5]), (6, "0", "0", "0"), "{stdout}");
        assert_eq!(signs(&lines[2..5].join("\n")), "-+-");
    }
}

/// It can open every device, and counts them all.
#[test]
fn whoever_has_left_the_group_is_not_confined() {
    for version in versions("whoever_has_left_the_group_is_not_confined") {
        let stage = Stage::with_gpus(version, 2);
        let other = stage.owner();
        stage.sandbox.answers(&format!("allocate 1 --owner {}", other.pid()), "0\n");
        let script = format!(
            "setsid -w bash -c 'grep -o gpu-coord-.* /proc/$$/cgroup; echo $$ >{}/cgroup.procs; gpu-coord 1 --cgroup; echo $?; \
             gpu-coord 1'",
            stage.cell.directory.display()
        );
        let (end, stdout, stderr) = exec(&stage, &format!("1 --cgroup={}", version.word()), &script).end();
        let name = stdout.lines().next().unwrap();
        let problem = format!(
            "gpu-coord: it is not in control group {}:{}/{name}, to which `gpu-coord exec` confined its command, and can open \
             every device; ask from inside that group\n",
            version.word(),
            stage.cell.path
        );
        assert_eq!((end, stderr), (End::Exit(0), problem));
        assert_eq!(stdout, format!("{name}\n5\n1\n"));
        let taken = stage.sandbox.text().lines().find(|line| line.contains("taken=")).unwrap().to_owned();
        assert!(!taken.contains("cgroup="), "{taken}");
    }
}

/// A confined owner's child could open nothing that it is given itself.
#[test]
fn below_a_confined_owner_there_is_no_other() {
    for version in versions("below_a_confined_owner_there_is_no_other") {
        let stage = Stage::with_gpus(version, 2);
        let mut owner: Owner = stage.owner();
        stage.confine(1, &owner, "0\n");
        let before = stage.sandbox.text();
        for words in ["1", "1 --wait", &format!("1 --cgroup={}", version.word())] {
            let command = format!("gpu-coord exec {words} -- true & wait $! ; echo $?; echo $!");
            let text = owner.tell(&format!("({command}) 2>&1"));
            let lines: Vec<&str> = text.lines().collect();
            let [problem, status, pid] = lines[..] else { panic!("{text}") };
            let expected = format!(
                "gpu-coord: pid {pid} is in control group {} and can open what pid {} was given, and nothing else; ask for \
                 pid {} with --owner {}, or start it outside of that group",
                stage.name(&owner),
                owner.pid(),
                owner.pid(),
                owner.pid()
            );
            assert_eq!((problem, status), (expected.as_str(), "5"), "{words}");
        }
        assert_eq!(stage.sandbox.text(), before);
        assert_eq!(owner.reach(), "+-");
    }
}
