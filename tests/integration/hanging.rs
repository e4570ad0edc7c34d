//! Operations that hang in the kernel: on a file system whose server does not answer, and on a driver's files.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::sandbox::{Process, Sandbox, is_root};

/// A FUSE file system that nobody serves: whatever looks into it waits.
struct Hanging<'a> {
    point: &'a Path,
    _server: File,
}

impl Hanging<'_> {
    fn mount(point: &Path) -> Hanging<'_> {
        let server = OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        mount(Some("server"), point, Some("fuse.hanging"), MsFlags::empty(), Some(options.as_str())).unwrap();
        Hanging { point, _server: server }
    }
}

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        umount2(self.point, MntFlags::MNT_DETACH).unwrap();
    }
}

#[test]
fn the_wait_for_it_is_bounded() {
    if !is_root("the_wait_for_it_is_bounded") {
        return;
    }
    let (host, owner) = (Sandbox::with_gpus(1), Process::start());
    let point = host.path().join("far");
    fs::create_dir(&point).unwrap();
    let _hanging = Hanging::mount(&point);
    let path = point.join("coordination");
    for line in ["allocate 1 --source simulated:1", "status --source simulated:1", "deallocateAll"] {
        let mut command = assert_cmd::Command::new(crate::sandbox::PROGRAM);
        command
            .env_clear()
            .args(line.split(' '))
            .args(["--deadline", "0.2", "--coordination-file"])
            .arg(&path);
        if !line.starts_with("status") {
            command.args(["--owner", &owner.pid().to_string()]);
        }
        command.assert().code(3).stdout("").stderr(format!(
            "gpu-coord: the deadline of 0.2 s passed while waiting for the file system of {}, which does not answer\n",
            path.display()
        ));
    }
}

/// The child that writes to it is left behind without the lock, and the answer stands.
#[test]
fn a_history_that_hangs_keeps_nobody() {
    if !is_root("a_history_that_hangs_keeps_nobody") {
        return;
    }
    let (host, owner) = (Sandbox::with_gpus(4), Process::start());
    let point = host.path().join("far");
    fs::create_dir(&point).unwrap();
    let hanging = Hanging::mount(&point);
    let warning = "gpu-coord: warning: the history may lack this: far/log does not answer; see to its file system, or name \
         another place with --log\n";
    let of = format!("--owner {} --log far/log", owner.pid());
    for index in 0..2 {
        let mut command = host.command(&format!("allocate 1 {of}"));
        command.assert().code(0).stdout(format!("{index}\n")).stderr(warning);
    }
    // The command of `exec` has no child that it does not know of, and the lock is free.
    let mut exec = host.command("exec 1 --log far/log");
    let script =
        "read -r children </proc/$$/task/$$/children; echo \"[$children]\"; flock -n coordination echo free";
    exec.args(["--", "sh", "-c", script]).assert().code(0).stdout("[]\nfree\n").stderr(warning);
    host.command(&format!("allocate 5 {of}")).assert().code(1).stdout("");
    host.command(&format!("deallocateAll {of}")).assert().code(0).stdout("").stderr(warning);
    assert!(host.holders().iter().all(|(_, pid)| *pid != owner.pid()), "{:?}", host.holders());
    drop(hanging);
}

#[test]
fn a_driver_whose_files_hang_is_not_waited_for() {
    if !is_root("a_driver_whose_files_hang_is_not_waited_for") {
        return;
    }
    let host = Sandbox::with_gpus(1);
    let gpus = host.path().join("root/proc/driver/nvidia/gpus");
    fs::create_dir_all(&gpus).unwrap();
    let _hanging = Hanging::mount(&gpus);
    let mut command = assert_cmd::Command::new(crate::sandbox::PROGRAM);
    command.env_clear().current_dir(host.path()).args(["devices", "--source", "procfs", "--root", "root"]);
    command.args(["--deadline", "0.2"]).assert().code(3).stdout("").stderr(
        "gpu-coord: the deadline of 0.2 s passed while waiting for a driver, which does not answer; restart the host\n",
    );
}
