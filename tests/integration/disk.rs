//! Disks that are full or cannot be written to.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::record::{Held, held_in, units_of};
use crate::running::{End, Running};
use crate::sandbox::{PROGRAM, Process, may_mount};

/// A small file system of our own, which a shell keeps in a mount namespace of its own.
struct Disk {
    shell: Running,
    directory: tempfile::TempDir,
}

impl Disk {
    /// A tmpfs of `size` bytes, or `None`, with a notice, if it cannot be made.
    fn of(size: usize, test: &str) -> Option<Disk> {
        let mount = format!("mount -t tmpfs -o size={size} none \"$0\" && echo mounted && read x");
        Disk::mounted(&mount, test)
    }

    fn mounted(script: &str, test: &str) -> Option<Disk> {
        if !may_mount(test) {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).arg(directory.path()).stdin(Stdio::piped());
        let mut shell = Running::with_stdout(&mut command, Stdio::piped());
        assert_eq!(shell.line(), "mounted", "{:?}", shell.end());
        Some(Disk { shell, directory })
    }

    /// As it is seen from outside.
    fn path(&self) -> PathBuf {
        let inner = self.directory.path().strip_prefix("/").unwrap();
        Path::new(&format!("/proc/{}/root", self.shell.pid())).join(inner)
    }

    fn file(&self) -> PathBuf {
        self.path().join("coordination")
    }

    fn read(&self) -> Vec<u8> {
        fs::read(self.file()).unwrap()
    }

    fn held(&self) -> Vec<Held> {
        held_in(&self.file())
    }

    /// In the mount namespace.
    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.shell.pid()));
        command.args(["sh", "-c", "cd \"$0\" && exec \"$@\""]).arg(self.directory.path());
        command
    }

    #[track_caller]
    fn run(&self, line: &str) -> (End, String, String) {
        let mut command = self.enter();
        command.arg(PROGRAM).args(line.split(' ')).args(["--coordination-file", "coordination"]);
        if !line.starts_with("deallocate") {
            command.args(["--source", "simulated:4"]);
        }
        Running::start(command).end()
    }

    #[track_caller]
    fn answers(&self, line: &str, stdout: &str) {
        assert_eq!(self.run(line), (End::Exit(0), stdout.to_owned(), String::new()), "{line}");
    }

    #[track_caller]
    fn refuses(&self, line: &str, problem: &str) {
        let stderr = format!("gpu-coord: {problem}\n");
        assert_eq!(self.run(line), (End::Exit(4), String::new(), stderr), "{line}");
    }

    /// Makes the coordination file `size` bytes long, by free lines that are too short for anything, and
    /// takes all the space that is left.
    fn fill(&self, size: usize) {
        let mut file = File::options().create(true).append(true).open(self.file()).unwrap();
        let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
        let short = "#\n".repeat(size);
        file.write_all(&short.as_bytes()[short.len() - (size - len)..]).unwrap();
        let mut rest = File::create(self.path().join("rest")).unwrap();
        while rest.write_all(&[0; 1024]).is_ok() {}
    }
}

const PAGE: usize = 4096;
const READ_ONLY: &str =
    "Read-only file system (os error 30); mount its file system for writing, or name a file on another";
const FULL: &str = "No space left on device (os error 28); make room on its file system";

#[test]
fn on_a_full_disk_nothing_is_granted_and_the_record_stays() {
    let test = "on_a_full_disk_nothing_is_granted_and_the_record_stays";
    // At 4000 bytes the growth is cut short after 96 of them.
    for size in [PAGE, 4000] {
        let Some(disk) = Disk::of(2 * PAGE, test) else { return };
        let (other, owner) = (Process::start(), Process::start());
        disk.answers(&format!("allocate 1 --owner {}", other.pid()), "0\n");
        disk.fill(size);
        let (before, held, status) = (disk.read(), disk.held(), disk.run("status"));
        for line in ["allocate 2", "2 --enable-coordination-mode"] {
            disk.refuses(
                &format!("{line} --owner {}", owner.pid()),
                &format!("cannot grow coordination: {FULL}"),
            );
        }
        let after = disk.read();
        assert_eq!(after[..before.len()], before);
        assert!(after[before.len()..].iter().all(|byte| *byte == b'\n') && after.len() <= PAGE, "{size}");
        assert_eq!((disk.held(), disk.run("status")), (held, status));
    }
}

#[test]
fn on_a_full_disk_there_is_no_new_file_that_holds_anything() {
    let Some(disk) = Disk::of(PAGE, "on_a_full_disk_there_is_no_new_file_that_holds_anything") else {
        return;
    };
    let owner = Process::start();
    fs::write(disk.path().join("rest"), [0; PAGE]).unwrap();
    disk.refuses(
        &format!("allocate 1 --owner {}", owner.pid()),
        &format!("cannot grow coordination: {FULL}"),
    );
    assert_eq!(disk.read(), b"");
    fs::remove_file(disk.path().join("rest")).unwrap();
    disk.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
}

#[test]
fn on_a_full_disk_units_are_given_back_and_given_again() {
    let Some(disk) = Disk::of(2 * PAGE, "on_a_full_disk_units_are_given_back_and_given_again") else {
        return;
    };
    let (other, owner) = (Process::start(), Process::start());
    disk.answers(&format!("allocate 1 --owner {}", other.pid()), "0\n");
    disk.answers(&format!("allocate 2 --owner {}", owner.pid()), "1,2\n");
    disk.fill(PAGE);
    disk.answers(&format!("deallocateAll --owner {}", owner.pid()), "");
    assert_eq!(units_of(&disk.held(), owner.pid()).len(), 0);
    assert_eq!(disk.held().len(), 1);
    disk.answers(&format!("allocate 2 --owner {}", owner.pid()), "1,2\n");
}

/// The script's lines would be written anew first, for which there is no room.
#[test]
fn on_a_full_disk_units_are_given_back_beside_lines_of_the_script() {
    let test = "on_a_full_disk_units_are_given_back_beside_lines_of_the_script";
    let Some(disk) = Disk::of(2 * PAGE, test) else { return };
    let (scripts, owner) = (Process::start(), Process::start());
    disk.answers(&format!("allocate 2 --owner {}", owner.pid()), "0,1\n");
    let mut file = File::options().append(true).open(disk.file()).unwrap();
    writeln!(file, "3 {}", scripts.pid()).unwrap();
    disk.fill(PAGE);
    let mut expected = disk.read();
    let second = expected.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    (expected[0], expected[second]) = (b'#', b'#');
    disk.answers(&format!("deallocateAll --owner {}", owner.pid()), "");
    assert_eq!(String::from_utf8(disk.read()).unwrap(), String::from_utf8(expected).unwrap());
}

#[test]
fn a_read_only_disk_is_said_and_read() {
    let read_only = "mount -t tmpfs none \"$0\" && echo mounted && read x && mount -o remount,ro \"$0\"";
    let script = format!("{read_only} && echo mounted && read x");
    let Some(mut disk) = Disk::mounted(&script, "a_read_only_disk_is_said_and_read") else { return };
    let owner = Process::start();
    let lines = ["allocate 1", "1 --enable-coordination-mode", "deallocateAll"];
    let lines = lines.map(|line| format!("{line} --owner {}", owner.pid()));
    disk.answers(&lines[0], "0\n");
    let status = disk.run("status");
    disk.shell.say("");
    assert_eq!(disk.shell.line(), "mounted");
    for line in &lines {
        disk.refuses(line, &format!("cannot open coordination: {READ_ONLY}"));
    }
    assert_eq!(disk.run("status"), status);
}

#[test]
fn a_read_only_disk_without_a_file() {
    let script = "mount -t tmpfs -o ro none \"$0\" && echo mounted && read x";
    let Some(disk) = Disk::mounted(script, "a_read_only_disk_without_a_file") else { return };
    let owner = Process::start();
    let line = format!("allocate 1 --owner {}", owner.pid());
    disk.refuses(&line, &format!("cannot make coordination: {READ_ONLY}"));
    disk.answers(&format!("deallocateAll --owner {}", owner.pid()), "");
    assert_eq!(disk.run("status").0, End::Exit(0));
}
