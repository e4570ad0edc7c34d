//! If the answer cannot be printed, or isolation cannot be proven, everything is undone.

use std::io::pipe;
use std::os::fd::AsFd;
use std::process::Stdio;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::bpf;
use super::cell::{Cell, Version, versions};
use super::stage::{MAJOR, Stage};
use crate::running::{End, Running, wait_until};
use crate::strace;

#[test]
fn what_cannot_be_printed_is_undone() {
    for version in versions("what_cannot_be_printed_is_undone") {
        let stage = Stage::with_gpus(version, 2);
        let mut owner = stage.owner();
        let line = format!("gpu-coord allocate 1 --cgroup={}", version.word());
        let answer = owner.tell(&format!("{line} 2>&1 >/dev/full; echo $?"));
        let problem =
            "gpu-coord: cannot write the answer to standard output: No space left on device (os error 28)";
        assert_eq!(answer, format!("{problem}\n4\n"));
        stage.assert_free(&mut owner);
        assert_eq!(stage.sandbox.holders(), []);
    }
}

/// The reader of stdout is gone once the owner is moved.
#[test]
fn what_nobody_reads_is_undone() {
    if !strace::is_there("what_nobody_reads_is_undone") {
        return;
    }
    for version in versions("what_nobody_reads_is_undone") {
        let stage = Stage::with_gpus(version, 2);
        let mut owner = stage.owner();
        let program = stage.sandbox.program(&stage.line(1, &owner));
        let mut stopped = strace::inject(&program, "pwrite64", "signal=SIGSTOP", "1");
        let (reader, writer) = pipe().unwrap();
        let watched = writer.try_clone().unwrap();
        let running = Running::with_stdout(&mut stopped, writer.into());
        stopped.stdout(Stdio::null()); // it keeps the writer's end otherwise
        wait_until("the owner is moved", || version.path_of(owner.pid()) != stage.cell.path);
        assert_eq!(owner.reach(), "+-");
        drop(reader);
        // A child that another test is about to start has it for a moment.
        wait_until("nobody reads", || {
            let mut polled = [PollFd::new(watched.as_fd(), PollFlags::empty())];
            poll(&mut polled, PollTimeout::ZERO).unwrap();
            polled[0].revents() == Some(PollFlags::POLLERR)
        });
        let (end, _, stderr) = running.go_on();
        let problem = "gpu-coord: cannot write the answer to standard output: Broken pipe (os error 32)\n";
        assert_eq!((end, stderr.as_str()), (End::Exit(4), problem));
        stage.assert_free(&mut owner);
        assert_eq!(stage.sandbox.holders(), []);
    }
}

/// A descendant that was in another group goes back to that one.
#[test]
fn what_is_undone_goes_back_to_its_own_group() {
    for version in versions("what_is_undone_goes_back_to_its_own_group") {
        let (stage, elsewhere) = (Stage::with_gpus(version, 2), Cell::make(version));
        let mut owner = stage.owner();
        let child: u32 = owner.tell("sleep 1000 & echo $!").trim().parse().unwrap();
        elsewhere.take(child);
        let line = format!("gpu-coord allocate 1 --cgroup={}", version.word());
        assert!(owner.tell(&format!("{line} 2>&1 >/dev/full; echo $?")).ends_with("\n4\n"));
        assert_eq!(version.path_of(child), elsewhere.path);
        stage.assert_free(&mut owner);
        stage.confine(1, &owner, "0\n");
        assert_eq!(version.path_of(child), version.path_of(owner.pid()));
    }
}

/// The group above denies what is given.
#[test]
fn what_is_not_proven_is_undone() {
    for version in versions("what_is_not_proven_is_undone") {
        let stage = Stage::with_gpus(version, 2);
        let mut owner = stage.owner();
        let (minor, node) = (stage.first_minor, stage.node(0).display().to_string());
        let group = stage.group(&owner).display().to_string();
        let problem = match version {
            Version::V1 => {
                stage.cell.write("devices.deny", &format!("c {MAJOR}:{minor} rwm")).unwrap();
                format!(
                    "cannot write `c {MAJOR}:{minor} rwm` to {group}/devices.allow: this requires CAP_SYS_ADMIN, and \
                     nothing can be allowed that the group above denies; nothing was changed"
                )
            }
            Version::V2 => {
                bpf::attach(&stage.cell.directory, &bpf::denying(MAJOR, minor), bpf::MULTI);
                format!(
                    "{node} ({MAJOR}:{minor}) was granted and is denied by a group above {group}; nothing was changed"
                )
            }
        };
        stage.refuses(&stage.line(1, &owner), 5, &problem);
        assert_eq!(version.path_of(owner.pid()), stage.cell.path);
        assert_eq!((owner.reach(), stage.cell.children()), ("-+".to_owned(), Vec::new()));
        assert_eq!(stage.sandbox.holders(), []);
    }
}
