//! How the coordination file is opened and created: modes, attributes and world-writable directories.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::running::{End, Running};
use crate::sandbox::{Process, Sandbox, is_root, skip};
use crate::strace;

#[test]
fn an_attribute_that_forbids_writing_is_named() {
    const TEST: &str = "an_attribute_that_forbids_writing_is_named";
    if !is_root(TEST) {
        return;
    }
    let (host, owner) = (Sandbox::with_gpus(2), Process::start());
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
    let before = host.text();
    let set = |attribute: &str| {
        Command::new("chattr")
            .arg(attribute)
            .arg(host.file())
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .success()
    };
    for (attribute, without) in [("+i", "-i"), ("+a", "-a")] {
        if !set(attribute) {
            return skip(TEST, &format!("no chattr {attribute} on this file system"));
        }
        let problem = "coordination: may not be written to by anybody, being immutable or append-only; see lsattr and chattr";
        let runs = ["allocate 1", "deallocateAll"]
            .map(|line| host.command(&format!("{line} --owner {}", owner.pid())).output().unwrap());
        let status = host.command("status").output().unwrap();
        assert!(set(without), "it could not be removed otherwise");
        for run in runs {
            assert_eq!(
                String::from_utf8(run.stderr).unwrap(),
                format!("gpu-coord: {problem}\n"),
                "{attribute}"
            );
            assert_eq!((run.status.code(), run.stdout), (Some(4), Vec::new()), "{attribute}");
        }
        assert!(status.status.success() && status.stderr.is_empty(), "{attribute}");
        assert_eq!(host.text(), before, "{attribute}");
    }
}

#[test]
fn a_new_file_has_mode_0644_less_the_umask() {
    for (umask, mode) in [("0", 0o644), ("022", 0o644), ("027", 0o640), ("077", 0o600), ("0777", 0)] {
        let (host, owner) = (Sandbox::with_gpus(1), Process::start());
        let program = host.program(&format!("allocate 1 --owner {}", owner.pid()));
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("umask {umask}; exec \"$0\" \"$@\""));
        command.arg(program.get_program()).args(program.get_args()).current_dir(host.path());
        assert_eq!(Running::start(command).end(), (End::Exit(0), "0\n".to_owned(), String::new()), "{umask}");
        assert_eq!(fs::metadata(host.file()).unwrap().permissions().mode() & 0o7777, mode, "{umask}");
    }
}

/// Not every kernel is configured to refuse what the next test is about, so the calls themselves are checked.
#[test]
fn no_call_opens_the_file_carelessly() {
    if !strace::is_there("no_call_opens_the_file_carelessly") {
        return;
    }
    let (host, owner) = (Sandbox::with_gpus(3), Process::start());
    let mut made = 0;
    for line in [
        "allocate 1 OWNER",
        "allocate 1 OWNER",
        "1 --enable-coordination-mode OWNER",
        "status",
        "deallocateAll OWNER",
    ] {
        let line = line.replace("OWNER", &format!("--owner {}", owner.pid()));
        let calls = strace::calls(&host.program(&line));
        let opens =
            calls.iter().filter(|call| call.name == "openat" && call.text.contains("\"coordination\""));
        let opens: Vec<&str> = opens.map(|call| call.text.as_str()).collect();
        assert!(!opens.is_empty(), "{line}");
        for open in opens {
            let has = |flag: &str| open.contains(flag);
            assert!(has("O_NOFOLLOW") && has("O_CLOEXEC") && !has("O_TRUNC") && !has("O_APPEND"), "{open}");
            assert!(has("O_NONBLOCK") || has("O_EXCL"), "a FIFO would be waited for: {open}");
            assert_eq!(has("O_CREAT"), has("O_EXCL"), "{open}");
            made += usize::from(has("O_CREAT"));
        }
    }
    assert_eq!(made, 1);
}

/// In a sticky world-writable directory the kernel refuses `O_CREAT` on a file of another user,
/// for root too.
#[test]
fn root_coordinates_in_a_file_that_the_owner_of_the_units_made() {
    const USER: u32 = 4711;
    if !is_root("root_coordinates_in_a_file_that_the_owner_of_the_units_made") {
        return;
    }
    let host = Sandbox::with_gpus(3).recorded("");
    fs::set_permissions(host.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    std::os::unix::fs::chown(host.file(), Some(USER), None).unwrap();
    let protected = fs::read_to_string("/proc/sys/fs/protected_regular").unwrap_or_default();
    let creates = File::options().create(true).append(true).open(host.file());
    assert_eq!(creates.is_err(), protected.trim() != "0" && !protected.is_empty(), "as the kernel was told");
    let mut user = Command::new("sleep");
    let user = Running::start({
        user.arg("1000").uid(USER);
        user
    });
    let line = format!("--owner {}", user.pid());
    host.answers(&format!("allocate 1 {line}"), "0\n");
    host.answers(&format!("1 --enable-coordination-mode {line}"), "1\n");
    assert_eq!(host.holders(), [(0, user.pid()), (1, user.pid())]);
    host.answers(&format!("deallocateAll {line}"), "");
    assert_eq!(host.holders(), []);
}
