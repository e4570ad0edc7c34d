//! The default path of the coordination file, in places where other processes do not see it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::running::{End, Running};
use crate::sandbox::{PROGRAM, Process, Sandbox, may_mount};
use crate::strict::is_refused_if_strict;

const PRIVATE_TMP: &str =
    "1 0 8:2 /tmp/systemd-private-0f-flink.service-Xy/tmp /var/tmp rw master:2 - ext4 x rw\n";
const CONTAINER: &str = "1 0 0:9 / / rw - overlay x rw\n";
const TABLE: &str = "INDEX  MODEL          MEMORY       STATE  PID  USER  SINCE  COMMAND\n\
                     0      Simulated GPU  -/16384 MiB  free   -    -     -      -\n";

/// A host whose mounts are these, and whose processes are the owner, as the kernel has it, and pid 1.
fn with_mounts(mountinfo: &str, owner: &Process) -> Sandbox {
    let host = Sandbox::with_gpus(1);
    let proc = host.path().join("root/proc");
    fs::create_dir_all(proc.join("self")).unwrap();
    fs::create_dir_all(proc.join("sys/kernel")).unwrap();
    let pid = owner.pid().to_string();
    for (name, is) in [("1", "1"), (&pid, &pid), ("sys/kernel/random", "sys/kernel/random")] {
        symlink(Path::new("/proc").join(is), proc.join(name)).unwrap();
    }
    for name in ["stat", "status", "ns"] {
        symlink(Path::new("/proc").join(&pid).join(name), proc.join("self").join(name)).unwrap();
    }
    fs::write(proc.join("self/mountinfo"), mountinfo).unwrap();
    host
}

/// Runs it with the default path and an empty `/var/tmp` of its own, which is listed behind its stdout.
fn run(host: &Sandbox, line: &str) -> (End, String, String) {
    Running::start(command(host, line)).end()
}

fn command(host: &Sandbox, line: &str) -> Command {
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs none /var/tmp && \"$0\" \"$@\"; code=$?; ls -A /var/tmp; exit $code";
    command.args(["-m", "sh", "-c", script, PROGRAM]).args(line.split(' ')).args(["--root", "root"]);
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").current_dir(host.path());
    if !line.starts_with("deallocate") {
        command.args(["--source", "simulated:1"]);
    }
    command
}

#[test]
fn a_directory_of_one_systemd_unit_is_refused() {
    if !may_mount("a_directory_of_one_systemd_unit_is_refused") {
        return;
    }
    let owner = Process::start();
    let host = with_mounts(PRIVATE_TMP, &owner);
    let problem = "/var/tmp/flink-gpu-coordination: is private to this systemd unit (PrivateTmp=, DynamicUser=), so it coordinates with nothing outside; set PrivateTmp=no, or name a file in /run or /var/lib with --coordination-file";
    for line in ["allocate 1", "1 --enable-coordination-mode", "deallocateAll"] {
        let refused = (End::Exit(4), String::new(), format!("gpu-coord: {problem}\n"));
        assert_eq!(run(&host, &format!("{line} --owner {}", owner.pid())), refused, "{line}");
    }
    let shown = (End::Exit(0), TABLE.to_owned(), format!("gpu-coord: warning: {problem}\n"));
    is_refused_if_strict(command(&host, "status"), &host.file(), problem);
    assert_eq!(run(&host, "status"), shown);
    // A path that was chosen explicitly is the user's responsibility.
    let chosen = format!("allocate 1 --coordination-file /var/tmp/chosen --owner {}", owner.pid());
    assert_eq!(run(&host, &chosen), (End::Exit(0), "0\nchosen\n".to_owned(), String::new()));
}

#[test]
fn a_containers_own_file_system_is_warned_of() {
    if !may_mount("a_containers_own_file_system_is_warned_of") {
        return;
    }
    let owner = Process::start();
    let host = with_mounts(CONTAINER, &owner);
    let warning = "gpu-coord: warning: /var/tmp/flink-gpu-coordination is on this container's own file system, so it coordinates with nothing outside; mount the host's file there\n";
    let given = "0\nflink-gpu-coordination\n";
    for (line, stdout) in [
        ("status", TABLE),
        ("allocate 1 OWNER", given),
        ("1 --enable-coordination-mode OWNER", given),
        ("deallocateAll OWNER", ""),
    ] {
        let line = line.replace("OWNER", &format!("--owner {}", owner.pid()));
        let (end, stdout_of_ls, stderr) = run(&host, &format!("{line} --strict"));
        let error = warning.replace("warning: ", "").trim_end().to_owned();
        assert_eq!((end, stderr), (End::Exit(4), format!("{error} (an error by --strict)\n")), "{line}");
        assert!(!stdout_of_ls.contains('0'), "{line}: {stdout_of_ls}");
        assert_eq!(run(&host, &line), (End::Exit(0), stdout.to_owned(), warning.to_owned()), "{line}");
    }
    // The host's directory, mounted there.
    let mounted = with_mounts(&format!("{CONTAINER}2 1 8:2 /var/tmp /var/tmp rw - ext4 x rw\n"), &owner);
    assert_eq!(run(&mounted, "status"), (End::Exit(0), TABLE.to_owned(), String::new()));
}
