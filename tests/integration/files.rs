//! Coordination files that are refused, each with its own message, and nothing recorded.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::running::Running;
use crate::sandbox::{Process, Sandbox, install, is_root};

/// A user without any privileges.
const USER: u32 = 65534;

fn allow_all(directory: &Path) {
    fs::set_permissions(directory, Permissions::from_mode(0o1777)).unwrap();
}

#[test]
fn what_is_no_regular_file() {
    let (host, owner) = (Sandbox::with_gpus(1), Process::start());
    let refuses = |problem: &str| {
        host.refuses(&format!("allocate 1 --owner {}", owner.pid()), 4, &format!("coordination: {problem}"));
        host.refuses("status", 4, &format!("coordination: {problem}"));
    };
    fs::create_dir(host.file()).unwrap();
    refuses("is a directory; name a file in it");
    fs::remove_dir(host.file()).unwrap();

    nix::unistd::mkfifo(&host.file(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    refuses("is a FIFO and not a regular file; remove it or name another file");
    fs::remove_file(host.file()).unwrap();

    fs::write(host.path().join("target"), "").unwrap();
    symlink("target", host.file()).unwrap();
    refuses("is a symbolic link; name the file that it leads to");
    fs::remove_file(host.file()).unwrap();

    symlink("/dev/null", host.file()).unwrap();
    refuses("is a symbolic link; name the file that it leads to");
    fs::remove_file(host.file()).unwrap();

    let _socket = std::os::unix::net::UnixListener::bind(host.file()).unwrap();
    refuses("is not a regular file; name another file");
}

#[test]
fn a_missing_directory() {
    let (host, owner) = (Sandbox::with_gpus(1), Process::start());
    let run = |path: &str| {
        let mut command = assert_cmd::Command::new(crate::sandbox::PROGRAM);
        command.env_clear().current_dir(host.path()).args(["allocate", "1", "--source", "simulated:1"]);
        command
            .args(["--owner", &owner.pid().to_string(), "--coordination-file", path])
            .assert()
            .code(4)
            .stdout("")
    };
    run("missing/file")
        .stderr("gpu-coord: missing/file: there is no directory missing; make it, or name another file\n");
    fs::write(host.path().join("plain"), "").unwrap();
    run("plain/file").stderr("gpu-coord: cannot look at plain/file: Not a directory (os error 20)\n");
}

#[test]
fn in_a_directory_of_all_a_file_with_another_name_is_refused() {
    let (host, owner) = (Sandbox::with_gpus(1).recorded(""), Process::start());
    fs::hard_link(host.file(), host.path().join("other")).unwrap();
    let line = format!("allocate 1 --owner {}", owner.pid());
    host.answers(&line, "0\n");
    allow_all(host.path());
    let problem = "has another hard link, so its contents may be another file's; remove it";
    host.refuses(&line, 4, &format!("coordination: {problem}"));
    host.command("status").assert().code(0).stderr(format!("gpu-coord: warning: coordination: {problem}\n"));
}

#[test]
fn in_a_directory_of_all_a_file_of_another_user_is_refused() {
    if !is_root("in_a_directory_of_all_a_file_of_another_user_is_refused") {
        return;
    }
    let (host, owner) = (Sandbox::with_gpus(1).recorded(""), Process::start());
    allow_all(host.path());
    std::os::unix::fs::chown(host.file(), Some(4711), None).unwrap();
    let line = format!("allocate 1 --owner {}", owner.pid());
    host.refuses(
        &line,
        4,
        "coordination: belongs to uid 4711, which is neither root nor the caller nor the owner of the units; remove it or name a file in a directory of the administrator's",
    );
    assert_eq!(host.text(), "");
}

/// The program, called and to be owned by that user.
fn allocate_as(user: u32, host: &Sandbox) -> Output {
    let program = host.path().join("gpu-coord"); // where it was built, others may not go
    install(&program);
    let line = "\"$0\" allocate 1 --source simulated:1 --coordination-file coordination";
    let mut shell = Command::new("sh");
    shell.env_clear().current_dir(host.path()).uid(user).gid(user).args(["-c", &format!("{line}; exit $?")]);
    shell.arg(program).output().unwrap()
}

/// Shared by the administrator. Anybody may have created a file there; root does not.
#[test]
fn in_a_directory_of_all_a_file_of_roots_is_used_by_a_user() {
    if !is_root("in_a_directory_of_all_a_file_of_roots_is_used_by_a_user") {
        return;
    }
    let host = Sandbox::with_gpus(1).recorded("");
    allow_all(host.path());
    fs::set_permissions(host.file(), Permissions::from_mode(0o666)).unwrap();
    let Output { status, stdout, stderr } = allocate_as(USER, &host);
    assert_eq!((status.code(), stdout, stderr.as_slice()), (Some(0), b"0\n".to_vec(), &b""[..]));
}

#[test]
fn where_a_user_may_make_no_file_that_is_said() {
    if !is_root("where_a_user_may_make_no_file_that_is_said") {
        return;
    }
    let host = Sandbox::with_gpus(1);
    fs::set_permissions(host.path(), Permissions::from_mode(0o755)).unwrap();
    let Output { status, stderr, .. } = allocate_as(USER, &host);
    let says = "gpu-coord: coordination: uid 65534 may not make files in .; name another file\n";
    assert_eq!((status.code(), String::from_utf8(stderr).unwrap()), (Some(4), says.to_owned()));
    assert!(!host.file().exists());
}

#[test]
fn an_unreadable_file_says_whose_it_is() {
    if !is_root("an_unreadable_file_says_whose_it_is") {
        return;
    }
    let host = Sandbox::with_gpus(1).recorded("");
    fs::set_permissions(host.path(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(host.file(), Permissions::from_mode(0o640)).unwrap();
    let output = allocate_as(USER, &host);
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "gpu-coord: coordination: uid 65534 may not open it: it belongs to uid 0 and has mode 0640; to share it, let the administrator make it with mode 0660 and a common group\n"
    );
}

#[test]
fn a_file_that_is_too_large_is_not_read() {
    let (host, owner) = (Sandbox::with_gpus(1), Process::start());
    fs::File::create(host.file()).unwrap().set_len(1 << 40).unwrap(); // sparse
    host.refuses(
        &format!("allocate 1 --owner {}", owner.pid()),
        4,
        "coordination: has 1099511627776 bytes, and a coordination file has at most 67108864",
    );
}

/// The file's creator may own the units, yet anybody may have written what is in it.
#[test]
fn in_a_directory_of_all_a_users_file_that_all_may_write_to_is_refused() {
    const TEST: &str = "in_a_directory_of_all_a_users_file_that_all_may_write_to_is_refused";
    const OWNER: u32 = 4711;
    if !is_root(TEST) {
        return;
    }
    let host = Sandbox::with_gpus(1).recorded("");
    allow_all(host.path());
    let mut user = Command::new("sleep");
    user.arg("1000").uid(OWNER);
    let user = Running::start(user);
    let mode = |mode| fs::set_permissions(host.file(), Permissions::from_mode(mode)).unwrap();
    let lines = ["allocate 1", "1 --enable-coordination-mode", "deallocateAll"]
        .map(|line| format!("{line} --owner {}", user.pid()));
    std::os::unix::fs::chown(host.file(), Some(OWNER), None).unwrap();
    mode(0o646);
    let problem =
        "coordination: belongs to uid 4711 and everybody may write to it; take that right away (chmod o-w)";
    for line in &lines {
        host.refuses(line, 4, problem);
    }
    assert_eq!(host.text(), "");
    mode(0o664);
    host.answers(&lines[0], "0\n");
    host.answers(&lines[2], "");
    // A file of root may be world-writable: that is how the administrator shares it.
    std::os::unix::fs::chown(host.file(), Some(0), None).unwrap();
    mode(0o666);
    host.answers(&lines[1], "0\n");
}
