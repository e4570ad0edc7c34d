//! For tests: hosts made of files, and processes in states that are hard to meet by chance.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::Host;
use super::process::Process;

pub(crate) const INITIAL: u64 = 4_026_531_836;
pub(crate) const BOOT: &str = "0123456789abcdef0123456789abcdef";

/// A host made of files.
pub(crate) struct Tree {
    directory: TempDir,
}

impl Tree {
    /// In the initial namespaces, with pid 1 and a kernel's own boot id, and no other process.
    pub(crate) fn new() -> Tree {
        Tree::empty()
            .process(1, "systemd", 'S', 0, 1, 2)
            .link("proc/self/ns/pid", &format!("pid:[{INITIAL}]"))
            .link("proc/1/ns/pid", &format!("pid:[{INITIAL}]"))
            .file(
                "proc/self/mountinfo",
                "24 27 0:6 / /dev rw - devtmpfs devtmpfs rw\n27 1 8:1 / / rw - ext4 x rw\n",
            )
            .file("proc/sys/kernel/random/boot_id", "01234567-89ab-cdef-0123-456789abcdef\n")
    }

    /// Nothing at all.
    pub(crate) fn empty() -> Tree {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("dev")).unwrap();
        Tree { directory }
    }

    pub(crate) fn host(&self) -> Host {
        Host::new(self.directory.path())
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.directory.path().join(relative)
    }

    pub(crate) fn file(self, relative: &str, text: impl AsRef<[u8]>) -> Tree {
        fs::write(self.made(relative), text).unwrap();
        self
    }

    pub(crate) fn link(self, relative: &str, target: &str) -> Tree {
        let path = self.made(relative);
        if path.is_symlink() {
            fs::remove_file(&path).unwrap();
        }
        symlink(target, path).unwrap();
        self
    }

    pub(crate) fn process(
        self,
        pid: u32,
        name: &str,
        state: char,
        parent: u32,
        threads: u32,
        start: u64,
    ) -> Tree {
        let session = 1;
        self.file(&format!("proc/{pid}/stat"), stat(pid, name, state, parent, session, threads, start)).file(
            &format!("proc/{pid}/status"),
            format!("Name:\tx\nTgid:\t{pid}\nUid:\t1000\t998\t998\t998\nNSpid:\t{pid}\n"),
        )
    }

    /// A living process that began at `start`.
    pub(crate) fn alive(self, pid: u32, start: u64) -> Tree {
        self.process(pid, "java", 'S', 1, 40, start)
    }

    /// A thread of some process, that lives and began at `start`.
    pub(crate) fn thread(self, id: u32, start: u64) -> Tree {
        let line = stat(id, "java", 'S', 1, 1, 40, start);
        self.alive(id, start).file(&format!("proc/{id}/stat"), line.replace(" 17\n", " -1\n"))
    }

    /// The pids of a process, the one in the initial namespace first.
    pub(crate) fn pids(self, pids: &[u32]) -> Tree {
        let words: Vec<String> = pids.iter().map(u32::to_string).collect();
        let text = format!("Tgid:\t{0}\nUid:\t0\t0\t0\t0\nNSpid:\t{1}\n", pids[0], words.join("\t"));
        self.file(&format!("proc/{}/status", pids[0]), text)
    }

    pub(crate) fn without(self, relative: &str) -> Tree {
        let path = self.path(relative);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        self
    }

    fn made(&self, relative: &str) -> PathBuf {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }
}

/// A line of `/proc/PID/stat`.
pub(crate) fn stat(
    pid: u32,
    name: &str,
    state: char,
    parent: u32,
    session: i32,
    threads: u32,
    start: u64,
) -> String {
    format!(
        "{pid} ({name}) {state} {parent} 7 {session} 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 {threads} 0 {start} \
         9 9 9 1 1 0 0 0 0 0 4096 0 0 0 0 17\n"
    )
}

/// A real process, ended with the test.
pub(crate) struct Running {
    child: Child,
}

impl Running {
    pub(crate) fn start(program: impl AsRef<Path>, arguments: &[&str]) -> Running {
        let mut command = Command::new(program.as_ref());
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        Running { child: command.spawn().unwrap() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Waits until it has exited, and leaves it a zombie.
    pub(crate) fn becomes_a_zombie(self) -> Running {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap());
        waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
        self
    }

    /// Ends it and sees it reaped.
    pub(crate) fn end(mut self) -> u32 {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.pid()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a real process is as `is_so` wants it.
#[track_caller]
pub(crate) fn wait_for(pid: u32, is_so: impl Fn(&Process) -> bool) -> Process {
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(10) {
        let process = Host::new(Path::new("/")).process(pid).unwrap();
        if let Some(process) = process.filter(|process| is_so(process)) {
            return process;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("pid {pid} is not as expected after 10 s");
}

/// Builds a C program with the linker that Rust itself needs.
pub(crate) fn compile(directory: &Path, source: &str) -> PathBuf {
    let (text, program) = (directory.join("program.c"), directory.join("program"));
    fs::write(&text, source).unwrap();
    let status = Command::new("cc").arg("-pthread").arg("-o").arg(&program).arg(&text).status().unwrap();
    assert!(status.success(), "cc failed");
    program
}

/// Says aloud that a test did not run: what `eprintln!` prints is shown only if the test fails. Where the
/// variable `NOTHING_SKIPS` is set, as in CI, the test fails.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "it is the tests' variable, and not the program's")]
pub(crate) fn skip(test: &str, why: &str) {
    assert!(std::env::var_os("NOTHING_SKIPS").is_none(), "{test} would be skipped: {why}");
    writeln!(std::io::stderr(), "SKIPPED {test}: {why}").unwrap();
}

/// Puts a program into a pid namespace of its own.
pub(crate) const CONTAINER: [&str; 4] = ["--pid", "--fork", "--mount-proc", "--kill-child"];

/// Whether there is another pid namespace to be had, below the initial one; the test is skipped if not.
pub(crate) fn can_make_namespaces(test: &str) -> bool {
    let is_initial = Host::new(Path::new("/")).is_initial_pid_namespace();
    let made = Command::new("unshare").args(CONTAINER).arg("true").stderr(Stdio::null()).status();
    let can = is_initial && made.is_ok_and(|status| status.success());
    if !can {
        skip(test, "it makes pid namespaces below the initial one");
    }
    can
}
