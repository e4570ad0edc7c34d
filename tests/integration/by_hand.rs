//! What an operator does by hand: drain, undrain, release.

use std::fs;
use std::process::Command;

use crate::exec::divided;
use crate::running::{End, Running, answer};
use crate::sandbox::{Process, Sandbox, dead_pid};
use crate::strace;

#[test]
fn a_drained_unit_is_kept_from_being_granted_until_it_is_undrained() {
    let owner = Process::start();
    let host = Sandbox::with_gpus(3);
    let mut drain = host.command("drain 1");
    drain.args(["--reason", "fan fails; ticket 4711, 100 %"]).assert().code(0).stdout("").stderr("");
    let text = host.text();
    assert!(text.starts_with("! 1\tv=1;uuid=GPU-00000000-0000-4000-8000-000000000001;"), "{text}");
    let ask = |amount: u32| format!("allocate {amount} --owner {}", owner.pid());
    host.answers(&ask(2), "0,2\n");
    host.refuses(&ask(1), 1, "1 unit asked for, 0 of 3 can be given: 2 held by living owners (`gpu-coord status` names them); 1 drained");
    let status = host.command("status").output().unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(status.contains("drained: fan fails; ticket 4711, 100 %"), "{status}");
    host.answers("undrain 1", "");
    host.answers(&ask(1), "1\n");
    host.command("undrain 1")
        .assert()
        .code(0)
        .stderr("gpu-coord: warning: none of these units is drained; `gpu-coord status` shows which are\n");
}

/// No record is made for it, either.
#[test]
fn without_a_record_nobody_holds_what_is_released() {
    let host = Sandbox::with_gpus(2);
    let says = "gpu-coord: warning: nobody holds these units: there is no coordination\n";
    host.command("release 0 --force").assert().code(0).stdout("").stderr(says);
    assert!(!host.file().exists());
}

#[test]
fn a_second_drain_has_the_last_word_and_a_held_unit_can_be_drained() {
    let owner = Process::start();
    let host = Sandbox::with_gpus(2);
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
    for reason in ["one", "two"] {
        host.command("drain GPU-00000000-0000-4000-8000-000000000000")
            .args(["--reason", reason])
            .assert()
            .code(0);
    }
    let held = |text: String| {
        text.lines().filter(|line| line.starts_with('!')).map(str::to_owned).collect::<Vec<_>>()
    };
    let drained = held(host.text());
    assert!(drained.len() == 1 && drained[0].ends_with(";reason=two"), "{drained:?}");
    host.answers(&format!("deallocateAll --owner {}", owner.pid()), "");
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "1\n");
    let json = host.command("status --json").output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let unit = &json["devices"][0]["units"][0];
    assert_eq!((unit["state"].as_str(), unit["reason"].as_str()), (Some("drained"), Some("two")));
}

#[test]
fn what_is_drained_stays_so_over_owners_and_damage_is_not_made() {
    let host = Sandbox::with_gpus(2);
    host.command("drain 0,1").args(["--reason", "\u{1b}[2J\nline"]).assert().code(0);
    let text = host.text();
    assert!(
        text.lines().all(|line| line.bytes().all(|byte| (b' '..=b'~').contains(&byte) || byte == b'\t')),
        "{text:?}"
    );
    let owner = Process::start();
    host.command(&format!("allocate 1 --owner {} --check-dead", owner.pid())).assert().code(1);
    assert_eq!(host.text(), text);
    host.refuses("drain 0", 2, "--reason is missing; see `gpu-coord drain --help`");
    host.refuses(
        "drain 7 --reason x",
        2,
        "UNIT: `7` names no device; there are 0 (GPU-00000000-0000-4000-8000-000000000000), 1 \
         (GPU-00000000-0000-4000-8000-000000000001)",
    );
}

#[test]
fn release_frees_what_nobody_can_judge_and_nothing_of_the_living() {
    let owner = Process::start();
    let host = Sandbox::with_gpus(3);
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
    let uuid = |index: u32| format!("GPU-00000000-0000-4000-8000-00000000000{index}");
    let elsewhere = format!(
        "1 7\tv=1;grant=00000000000000aa;of=1;uuid={};start=5;boot={};pidns=1;uid=0\n",
        uuid(1),
        "0".repeat(32)
    );
    fs::write(host.file(), host.text() + &elsewhere).unwrap();
    host.refuses("release 1", 2, "--force is missing; see `gpu-coord release --help`");
    let pid = owner.pid();
    let says = format!(
        "device 0 is held by pid {pid}, which is alive; end it, or give back what it holds with `gpu-coord deallocateAll \
         --owner {pid}`"
    );
    host.refuses("release 0-1 --force", 6, &says);
    assert_eq!(host.holders(), [(0, pid), (1, 7)]);
    host.answers("release 1 --force", "released index 1 of pid 7\n");
    assert_eq!(host.holders(), [(0, pid)]);
    host.command("release 1 --force")
        .assert()
        .code(0)
        .stderr("gpu-coord: warning: nobody holds these units\n");
    fs::write(host.file(), host.text() + "2 7 x\n").unwrap();
    let line = host.text().lines().count();
    let withheld = format!(
        "coordination:{line}: `2 7 x` has `7 x` where a pid should be, so that index 2 is withheld; correct the line, or \
         delete it if no process holds the unit"
    );
    host.refuses("release 2 --force", 6, &withheld);
}

/// As an administrator drains it to divide it.
#[test]
fn a_card_that_was_drained_whole_and_divided_since_is_undrained_whole() {
    let card = "! 0\tv=1;uuid=GPU-2-a;pci=0000:02:00.0;uid=0;reason=mig\n";
    let host = divided().recorded(card);
    let path = format!("{}:/usr/bin:/bin", host.path().join("bin").display());
    let run = |line: &str| {
        let mut command = host.program(line);
        command.env("PATH", &path);
        Running::start(command).end()
    };
    let others = "gpu-coord: what is drained of these units is drained together with others of device 0; let go of all of it with `gpu-coord undrain 0`\n";
    let refused = (End::Exit(6), String::new(), others.to_owned());
    assert_eq!(run("undrain MIG-a"), refused);
    assert_eq!(host.text(), card);
    assert_eq!(run("drain MIG-b --reason x"), answer(""));
    assert_eq!(run("undrain MIG-a"), refused);
    assert_eq!(run("undrain 0"), answer(""));
    let owner = Process::start();
    assert_eq!(run(&format!("allocate 1 --owner {}", owner.pid())), answer("MIG-a\n"));
    assert!(!host.text().lines().any(|line| line.starts_with('!')), "{}", host.text());
}

/// A line that may mean any device keeps all of them, and is let go of with all of them.
#[test]
fn what_may_be_drained_is_undrained_with_all_that_it_may_be() {
    let host = Sandbox::with_gpus(3).recorded("! 7\tv=1;id=unknown;reason=x\n");
    let problem = "what is drained of these units is drained together with others of device 0,1,2; let go of all of it with `gpu-coord undrain 0,1,2`";
    host.refuses("undrain 1", 6, problem);
    host.answers("undrain 0,1,2", "");
    assert!(!host.text().contains('!'), "{}", host.text());
}

/// To compare each line with every unit would take minutes, and the sandbox waits one.
#[test]
fn fifty_thousand_drained_units_are_let_go_of() {
    const UNITS: u32 = 50_000;
    let line = |at: u32| format!("! {at}\tv=1;uuid=GPU-00000000-0000-4000-8000-{at:012x};reason=x\n");
    let host = Sandbox::with_gpus(UNITS).recorded((0..UNITS).map(line).collect::<String>());
    host.answers(&format!("undrain 0-{} --deadline 60", UNITS - 1), "");
    assert!(!host.text().contains("\n!") && host.text().starts_with('#'));
}

/// Nothing is done that could not be told.
#[test]
fn nothing_is_released_if_it_cannot_be_said() {
    let host = Sandbox::with_gpus(1).recorded(format!("0 {}\n", dead_pid()));
    let before = host.text();
    let mut command = Command::new("sh");
    let program = host.program("release 0 --force");
    command.args(["-c", "exec \"$0\" \"$@\" >&-"]).arg(program.get_program()).args(program.get_args());
    command.current_dir(host.path());
    let problem = "gpu-coord: cannot write the answer to standard output: Bad file descriptor (os error 9)\n";
    assert_eq!(Running::start(command).end(), (End::Exit(4), String::new(), problem.to_owned()));
    assert_eq!(host.text(), before);
}

/// A full disk cannot be told of what is drained, and says so; what was drained is let go of all the same.
#[test]
fn a_drain_that_finds_no_room_is_no_drain() {
    let host = Sandbox::with_gpus(2);
    let within = |line: &str, bytes: usize| {
        let program = host.program(line);
        let mut command = Command::new("prlimit");
        command.arg(format!("--fsize={bytes}")).arg(program.get_program()).args(program.get_args());
        command.current_dir(host.path());
        Running::start(command).end()
    };
    let problem = "gpu-coord: cannot grow coordination: File too large (os error 27); raise the limit of the size of files (ulimit -f)\n".to_owned();
    let refused = (End::Exit(4), String::new(), problem);
    assert_eq!(within("drain 0 --reason broken", 0), refused);
    assert_eq!(host.text(), "");
    host.answers("drain 0 --reason broken", "");
    // A living owner's line of the script would be rewritten, for which there is no room either.
    let owner = Process::start();
    fs::write(host.file(), format!("{}1 {}\n", host.text(), owner.pid())).unwrap();
    let length = host.text().len();
    assert_eq!(within("drain 1 --reason broken", length), refused);
    assert_eq!(within("undrain 0", length), answer(""));
    assert!(!host.text().contains("\n!") && !host.text().starts_with('!'), "{}", host.text());
}

/// Our pid namespace decides which owners are alive.
#[test]
fn nothing_is_released_after_a_read_that_failed_for_a_moment() {
    const TEST: &str = "nothing_is_released_after_a_read_that_failed_for_a_moment";
    if !strace::is_there(TEST) {
        return;
    }
    let (host, owner) = (Sandbox::with_gpus(1), Process::start());
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
    let before = host.text();
    let program = host.program("release 0 --force --log none");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "calls", "-e", "trace=readlink", "-P", "/proc/self/ns/pid"]);
    command
        .args(["-e", "inject=readlink:error=ENOMEM", "--"])
        .arg(program.get_program())
        .args(program.get_args());
    command.current_dir(host.path());
    let end = Running::start(command).end();
    assert_ne!(end.0, End::Exit(0), "{end:?}");
    assert!(end.1.is_empty() && end.2.starts_with("gpu-coord: "), "{end:?}");
    assert!(fs::read_to_string(host.path().join("calls")).unwrap().contains("INJECTED"));
    assert_eq!(host.text(), before);
}
