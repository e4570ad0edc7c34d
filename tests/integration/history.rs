//! The history, received by a real socket in the place of the journal's.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::sandbox::{PROGRAM, Process, Sandbox, dead_pid, may_mount};
use crate::tree::write_script;

/// A mount namespace in which the journal's socket is ours.
struct Journal {
    directory: tempfile::TempDir,
    socket: UnixDatagram,
}

impl Journal {
    fn listen() -> Journal {
        let directory = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(directory.path().join("socket")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Journal { directory, socket }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The program, where the journal listens.
    fn run(&self, line: &str) -> Output {
        let script = "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && touch /run/systemd/journal/socket \
                      && mount --bind socket /run/systemd/journal/socket && exec \"$0\" \"$@\"";
        let mut command = Command::new("unshare");
        command.current_dir(self.path()).args(["-m", "sh", "-c", script, PROGRAM]);
        command.args(line.split_ascii_whitespace());
        command.output().unwrap()
    }

    /// The lines of the next entry.
    fn entry(&self) -> Vec<String> {
        let mut buffer = [0; 4096];
        let count = self.socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..count]).lines().map(str::to_owned).collect()
    }

    fn is_empty(&self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        self.socket.recv(&mut [0; 16]).is_err()
    }
}

#[test]
fn grants_releases_and_refusals_are_written_to_the_journal() {
    if !may_mount("grants_releases_and_refusals_are_written_to_the_journal") {
        return;
    }
    let (journal, owner) = (Journal::listen(), Process::start());
    let pid = owner.pid();
    let of = format!("--owner {pid} --coordination-file coordination");
    let source = "--source simulated:2";
    assert_eq!(journal.run(&format!("allocate 2 {of} {source}")).stdout, b"0,1\n");
    let uuid = |index: u32| format!("GPU-00000000-0000-4000-8000-00000000000{index}");
    let gave =
        format!("MESSAGE=gave device 0 ({}), 1 ({}) to pid {pid} of uid 0 (sleep 1000)", uuid(0), uuid(1));
    let fields = |action: &str| {
        let fixed = ["PRIORITY=6".to_owned(), "SYSLOG_IDENTIFIER=gpu-coord".to_owned()];
        fixed.into_iter().chain([format!("GPU_COORD_ACTION={action}"), format!("GPU_COORD_OWNER={pid}")])
    };
    let entry = |message: String, action: &str| -> Vec<String> {
        [message].into_iter().chain(fields(action)).collect()
    };
    assert_eq!(journal.entry(), entry(gave, "grant"));

    assert_eq!(journal.run(&format!("allocate 1 {of} {source}")).status.code(), Some(1));
    let refused = journal.entry();
    let says = format!(
        "MESSAGE=gave nothing to pid {pid} of uid 0 (sleep 1000): 1 unit asked for, 0 of 2 can be given: "
    );
    assert!(refused[0].starts_with(&says), "{refused:?}");
    assert_eq!(refused[1..], fields("refusal").collect::<Vec<_>>());

    assert_eq!(journal.run(&format!("deallocateAll {of}")).status.code(), Some(0));
    let took = format!(
        "MESSAGE=took device 0 ({}), 1 ({}) back from pid {pid} of uid 0 (sleep 1000)",
        uuid(0),
        uuid(1)
    );
    assert_eq!(journal.entry(), entry(took, "release"));
    assert!(journal.is_empty());
}

/// Two owners in one unit of the service manager: a line is written for each.
#[test]
fn what_a_unit_gives_back_is_written_of_each_owner() {
    if !may_mount("what_a_unit_gives_back_is_written_of_each_owner") {
        return;
    }
    let (journal, first, second) = (Journal::listen(), Process::start(), Process::start());
    let ask = |line: &str| {
        let unit = "SYSTEMD_EXEC_PID=$$ INVOCATION_ID=fedcba9876543210fedcba9876543210";
        let script = format!(
            "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && touch /run/systemd/journal/socket && mount --bind \
             socket /run/systemd/journal/socket && export {unit} && exec \"$0\" {line} --coordination-file coordination"
        );
        let output = Command::new("unshare")
            .current_dir(journal.path())
            .args(["-m", "sh", "-c", &script, PROGRAM])
            .output();
        assert!(output.unwrap().status.success(), "{line}");
    };
    for owner in [&first, &second] {
        ask(&format!("allocate 1 --source simulated:2 --owner {}", owner.pid()));
        journal.entry();
    }
    ask("deallocateAll");
    for (index, owner) in [(0, first.pid()), (1, second.pid())] {
        let said = journal.entry()[0].clone();
        let says = format!(
            "MESSAGE=took device {index} (GPU-00000000-0000-4000-8000-00000000000{index}) back from pid {owner}"
        );
        assert!(said.starts_with(&says), "{said}");
    }
    assert!(journal.is_empty());
}

#[test]
fn what_is_taken_over_is_written_and_nothing_where_it_is_not_wanted() {
    if !may_mount("what_is_taken_over_is_written_and_nothing_where_it_is_not_wanted") {
        return;
    }
    let (journal, dead, owner) = (Journal::listen(), Process::start(), Process::start());
    let source = "--source simulated:1 --coordination-file coordination";
    let gone = dead.pid();
    assert!(journal.run(&format!("allocate 1 --owner {gone} {source} --log none")).status.success());
    dead.kill();
    assert!(
        journal.run(&format!("allocate 1 --check-dead --owner {} {source}", owner.pid())).status.success()
    );
    let released = format!(
        "MESSAGE=released device 0 (GPU-00000000-0000-4000-8000-000000000000), which pid {gone} held until it ended"
    );
    assert_eq!(journal.entry()[0], released);
    assert!(journal.entry()[0].starts_with("MESSAGE=gave device 0 "));
    let line = format!("deallocateAll --owner {} --coordination-file coordination --log ./log", owner.pid());
    assert!(journal.run(&line).status.success());
    let log = std::fs::read_to_string(journal.path().join("log")).unwrap();
    assert!(log.contains("Z took device 0 (") && log.ends_with("(sleep 1000)\n"), "{log}");
    assert!(journal.is_empty());
}

/// Even before the devices are known; and only once.
#[test]
fn every_refusal_is_written_with_its_reason() {
    if !may_mount("every_refusal_is_written_with_its_reason") {
        return;
    }
    let (journal, owner) = (Journal::listen(), Process::start());
    let pid = owner.pid();
    let file = "--coordination-file coordination --source simulated:2";
    for (line, status, reason) in [
        (format!("allocate 1 --owner {pid} --exclude 7 {file}"), 2, "--exclude: `7` names no device"),
        (
            format!("1 --enable-coordination-mode --owner {pid} --exclude 7 {file}"),
            2,
            "--exclude: `7` names no device",
        ),
        (format!("allocate 1 --owner {pid} --source file:missing.json"), 4, "cannot open missing.json"),
        (format!("allocate 3 --owner {pid} {file}"), 1, "3 units asked for"),
    ] {
        assert_eq!(journal.run(&line).status.code(), Some(status), "{line}");
        let refused = journal.entry();
        let says = format!("MESSAGE=gave nothing to pid {pid} of uid 0 (sleep 1000): {reason}");
        assert!(refused[0].starts_with(&says), "{line}: {refused:?}");
        assert_eq!(refused[3..], ["GPU_COORD_ACTION=refusal".to_owned(), format!("GPU_COORD_OWNER={pid}")]);
    }
    // Nothing else is known of a pid without a process.
    let gone = dead_pid();
    assert_eq!(journal.run(&format!("allocate 1 --owner {gone} {file}")).status.code(), Some(2));
    let says = format!("MESSAGE=gave nothing to pid {gone}: ");
    let refused = journal.entry();
    assert!(refused[0].starts_with(&says), "{refused:?}");
    assert_eq!(journal.run(&format!("exec 1 {file} --devices 7 -- true")).status.code(), Some(2));
    let refused = journal.entry();
    assert!(refused[0].contains(" of uid 0 (") && refused[0].contains("): --devices: `7`"), "{refused:?}");
    // Without coordination nothing is written.
    assert_eq!(journal.run(&format!("1 --exclude 7 {file}")).status.code(), Some(2));
    assert_eq!(journal.run(&format!("status --exclude 7 {file}")).status.code(), Some(2));
    assert!(journal.is_empty());
}

#[test]
fn what_an_operator_does_by_hand_is_written() {
    if !may_mount("what_an_operator_does_by_hand_is_written") {
        return;
    }
    let journal = Journal::listen();
    let file = "--coordination-file coordination --source simulated:2";
    let uuid = |index: u32| format!("GPU-00000000-0000-4000-8000-00000000000{index}");
    assert!(journal.run(&format!("drain 0-1 --reason fan {file}")).status.success());
    for index in 0..2 {
        let entry = journal.entry();
        let says = format!("MESSAGE=uid 0 has drained device {index} ({}): fan", uuid(index));
        assert_eq!((&entry[0], entry[3].as_str(), entry.len()), (&says, "GPU_COORD_ACTION=drain", 4));
    }
    assert!(journal.run(&format!("undrain 1 {file}")).status.success());
    let entry = journal.entry();
    let says = format!("MESSAGE=uid 0 lets device 1 ({}) be granted again, which was drained: fan", uuid(1));
    assert_eq!((&entry[0], entry[3].as_str(), entry.len()), (&says, "GPU_COORD_ACTION=undrain", 4));
    assert!(journal.run(&format!("undrain 1 {file}")).status.success());
    assert!(journal.is_empty(), "it was not drained");
}

#[test]
fn what_is_asked_for_inside_of_exec_is_written() {
    if !may_mount("what_is_asked_for_inside_of_exec_is_written") {
        return;
    }
    let journal = Journal::listen();
    let file = "--coordination-file coordination --source simulated:2";
    let inner = journal.path().join("inner");
    write_script(&inner, &format!("{PROGRAM} 1 {file}; exec {PROGRAM} 2 {file}"));
    let output = journal.run(&format!("exec 2 {file} -- ./inner"));
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b"0\n"[..]));
    assert!(journal.entry()[0].starts_with("MESSAGE=gave device 0 ("));
    let entry = journal.entry();
    let says = "MESSAGE=passed device 0 (GPU-00000000-0000-4000-8000-000000000000) of exec on to pid ";
    assert!(entry[0].starts_with(says) && entry[3] == "GPU_COORD_ACTION=taken", "{entry:?}");
    let entry = journal.entry();
    assert!(
        entry[0].contains(": 2 units asked for, and of the 2 that `gpu-coord exec` was given 1 "),
        "{entry:?}"
    );
    assert!(journal.is_empty());
}

/// The answer stands, with a warning about what is missing in the history.
#[test]
fn a_log_that_cannot_be_written_is_warned_of() {
    let (host, owner) = (Sandbox::with_gpus(2), Process::start());
    let line = format!("allocate 1 --owner {} --log nowhere/log", owner.pid());
    let warning = "gpu-coord: warning: the history lacks this: cannot write to nowhere/log: No such file or directory \
                   (os error 2); mend that, or name another place with --log\n";
    host.command(&line).assert().code(0).stdout("0\n").stderr(warning);
    let mut exec = host.command("exec 1 --log nowhere/log");
    exec.args(["--", "echo", "here"]).assert().code(0).stdout("here\n").stderr(warning);
    // With an error there is one line.
    let mut refused = host.command("exec 3 --log nowhere/log");
    let refused = refused.args(["--", "true"]).assert().code(1).get_output().stderr.clone();
    assert_eq!(String::from_utf8(refused).unwrap().lines().count(), 1);
}

/// Its lines would make the record unreadable.
#[test]
fn a_log_that_is_the_record_is_refused() {
    let (host, owner) = (Sandbox::with_gpus(1), Process::start());
    let line = format!("allocate 1 --owner {}", owner.pid());
    host.answers(&line, "0\n");
    let before = host.text();
    let absolute = host.file().display().to_string();
    for log in ["./coordination", &absolute] {
        for line in [&*line, "deallocateAll", "status", "drain 0 --reason x"] {
            let problem = format!("--log: {log} is the coordination file; name another");
            host.refuses(&format!("{line} --log {log}"), 2, &problem);
        }
    }
    assert_eq!(host.text(), before);
}

/// A line is written whole or not at all.
#[test]
fn a_log_without_room_for_the_line_is_warned_of() {
    if !may_mount("a_log_without_room_for_the_line_is_warned_of") {
        return;
    }
    let (host, owner) = (Sandbox::with_gpus(1), Process::start());
    let script = "mkdir full && mount -t tmpfs -o size=4096 none full && head -c 4090 /dev/zero >full/log && exec \"$0\" \"$@\"";
    let program = host.program(&format!("allocate 1 --owner {} --log full/log", owner.pid()));
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(program.get_program()).args(program.get_args());
    let output = command.current_dir(host.path()).output().unwrap();
    let warning = "gpu-coord: warning: the history lacks this: cannot write to full/log: No space left on device (os error 28); \
                   mend that, or name another place with --log\n";
    assert_eq!(
        (output.stdout.as_slice(), String::from_utf8(output.stderr).unwrap()),
        (&b"0\n"[..], warning.to_owned())
    );
}

/// The first process of a container adopts orphans, and would never reap this one.
#[test]
fn nothing_is_left_to_whoever_takes_orphans_in() {
    if !may_mount("nothing_is_left_to_whoever_takes_orphans_in") {
        return;
    }
    let host = Sandbox::with_gpus(1);
    let program = host.program("exec 1 --log ./log");
    let mut command = Command::new("unshare");
    command.args(["-p", "-f", "--mount-proc"]).arg(program.get_program()).args(program.get_args());
    let script = "read -r children </proc/1/task/1/children; echo \"$$ [$children]\"; cat log";
    command.args(["--", "sh", "-c", script]).current_dir(host.path());
    let output = command.output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.starts_with("1 []\n") && stdout.contains("Z gave device 0 ("), "{stdout}");
}
