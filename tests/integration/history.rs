//! The history, received by a real socket in the place of the journal's.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::sandbox::{PROGRAM, Process, may_mount};

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
