//! The program killed, or ended by a signal, at every system call from the first that names the coordination file.
//!
//! It runs in a pid namespace of its own beside its owner, so that `/proc` has few processes, and every run makes
//! the same calls.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;

use nix::sys::signal::Signal;

use super::cell::{Version, members, versions};
use super::owner::Owner;
use super::stage::{Stage, start_of};
use crate::running::{End, Running};
use crate::sandbox::PROGRAM;
use crate::strace::{self, Call};

/// What the owner is called inside; the first is the one that waits for it.
const OWNER: u32 = 2;
const INSIDE: &[&str] =
    &["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", "setsid -w bash; exit"];

struct Scene {
    stage: Stage,
    owner: Owner,
    /// The owner as it is called outside.
    pid: u32,
}

impl Scene {
    fn new(version: Version) -> Scene {
        let stage = Stage::with_gpus(version, 3);
        let mut owner = stage.owner_by(INSIDE);
        assert_eq!(owner.tell("echo $$"), format!("{OWNER}\n"));
        let child = |pid: u32| -> u32 {
            let path = format!("/proc/{pid}/task/{pid}/children");
            fs::read_to_string(path).unwrap().trim().parse().unwrap()
        };
        let pid = child(child(owner.pid()));
        stage.cell.take(pid);
        Scene { stage, owner, pid }
    }

    fn allocate(&self) -> String {
        let word = self.stage.cell.version.word();
        format!("allocate 1 --cgroup={word} --print host-index --owner {OWNER}")
    }

    fn deallocate(&self) -> String {
        format!("deallocateAll --owner {OWNER}")
    }

    /// The program in the namespace of the owner, under strace with these options.
    fn traced(&self, options: &[&str], line: &str) -> Command {
        let mut command = Command::new("nsenter");
        self.stage.environment(&mut command);
        command.args(["-p", "-m", "-t", &self.pid.to_string(), "strace", "-qq"]).args(options);
        command.args(["--", PROGRAM]).args(line.split(' ')).stdin(Stdio::null());
        // It would be looked for where the namespace begins.
        command.env("GPU_COORD_COORDINATION_FILE", self.stage.sandbox.file());
        command.env("GPU_COORD_SOURCE", format!("file:{}/devices.json", self.stage.sandbox.path().display()));
        command
    }

    #[track_caller]
    fn answers(&self, line: &str, stdout: &str) {
        let output = self.traced(&["-o", "/dev/null", "-e", "trace=none"], line).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        assert_eq!((text(output.stdout), text(output.stderr)), (stdout.to_owned(), String::new()), "{line}");
        assert!(output.status.success(), "{line}");
    }

    /// The calls of a run that goes well.
    fn calls(&self, line: &str) -> Vec<Call> {
        let log = self.stage.sandbox.path().join("log");
        let output = self.traced(&["-o", log.to_str().unwrap()], line).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let calls = strace::parse(&fs::read_to_string(log).unwrap());
        let is_first = |call: &Call| call.name != "execve" && call.text.contains("/coordination\"");
        let first = calls.iter().position(is_first).unwrap();
        assert!(calls.len() > first + 20, "{calls:?}");
        calls[first..].to_vec()
    }

    fn run_with(&self, signal: Signal, call: &Call, line: &str) -> (End, String) {
        let (name, nth) = (&call.name, call.nth);
        let inject = format!("inject={name}:signal={signal}:when={nth}");
        let trace = format!("trace={name}");
        let options = ["-D", "-o", "/dev/null", "-e", &trace, "-e", &inject];
        let (end, stdout, _) = Running::start(self.traced(&options, line)).end();
        (end, stdout)
    }

    fn is_confined(&self) -> bool {
        self.stage.cell.version.path_of(self.pid) != self.stage.cell.path
    }

    fn is_recorded(&self) -> bool {
        !self.stage.sandbox.holders().is_empty()
    }

    /// As before the first call.
    #[track_caller]
    fn assert_free(&mut self, case: &str) {
        let name = format!("gpu-coord-{OWNER}-{}", start_of(self.pid));
        let left = members(&self.stage.cell.directory.join(name));
        assert!(!self.is_confined() && left.is_empty(), "{case}: {left:?}");
        assert_eq!(self.stage.cell.children(), [""; 0], "{case}");
        assert_eq!(self.owner.reach(), "+++", "{case}");
    }

    fn forget(&self) {
        let _ = fs::remove_file(self.stage.sandbox.file());
    }
}

/// Whatever was done by then, the owner's next call goes on from there, and `deallocateAll` undoes all of it.
fn kill_allocate(mut scene: Scene) {
    let line = scene.allocate();
    let calls = scene.calls(&line);
    scene.answers(&scene.deallocate(), "");
    let mut killed = 0;
    for call in calls {
        scene.forget();
        let (end, stdout) = scene.run_with(Signal::SIGKILL, &call, &line);
        killed += usize::from(end == End::Killed(Signal::SIGKILL));
        let is_recorded = scene.stage.sandbox.file().exists() && scene.is_recorded();
        assert!(!is_recorded || scene.is_confined(), "{call:?}: recorded, and not confined");
        assert!(is_recorded || stdout.is_empty(), "{call:?}: answered, and not recorded");
        let (answer, signs) = if is_recorded { ("1\n", "++-") } else { ("0\n", "+--") };
        scene.answers(&line, answer);
        assert_eq!(scene.owner.reach(), signs, "{call:?}");
        scene.answers(&scene.deallocate(), "");
        scene.assert_free(&format!("{call:?}"));
    }
    assert!(killed > 100, "killed {killed} times only");
}

/// Without a further allocation in between.
fn kill_allocate_and_give_back(mut scene: Scene) {
    let line = scene.allocate();
    let calls = scene.calls(&line);
    scene.answers(&scene.deallocate(), "");
    for call in calls {
        scene.forget();
        scene.run_with(Signal::SIGKILL, &call, &line);
        scene.answers(&scene.deallocate(), "");
        // An empty group that nobody is in is left to the next call.
        let is_left = !scene.stage.cell.children().is_empty();
        assert!(!scene.is_confined() && scene.owner.reach() == "+++", "{call:?}");
        if is_left {
            scene.answers(&line, "0\n");
            scene.answers(&scene.deallocate(), "");
        }
        scene.assert_free(&format!("{call:?}"));
    }
}

/// Either it is answered, recorded and in force, or nothing is.
fn end_allocate(mut scene: Scene) {
    let line = scene.allocate();
    let calls = scene.calls(&line);
    scene.answers(&scene.deallocate(), "");
    let mut ends = (0, 0);
    for call in calls {
        scene.forget();
        let (end, stdout) = scene.run_with(Signal::SIGTERM, &call, &line);
        if end == End::Exit(0) {
            ends.0 += 1;
            assert_eq!((stdout.as_str(), scene.owner.reach().as_str()), ("0\n", "+--"), "{call:?}");
            assert!(scene.is_recorded(), "{call:?}");
            scene.answers(&scene.deallocate(), "");
        } else {
            ends.1 += 1;
            assert_eq!((end, stdout.as_str()), (End::Killed(Signal::SIGTERM), ""), "{call:?}");
        }
        scene.assert_free(&format!("{call:?}"));
    }
    assert!(ends.0 > 100 && ends.1 > 10, "answered and not answered: {ends:?}");
}

fn kill_deallocate(mut scene: Scene) {
    let line = scene.deallocate();
    scene.answers(&scene.allocate(), "0\n");
    for call in scene.calls(&line) {
        scene.forget();
        scene.answers(&scene.allocate(), "0\n");
        let (end, _) = scene.run_with(Signal::SIGKILL, &call, &line);
        let is_free = !scene.is_recorded();
        assert!(!is_free || !scene.is_confined(), "{call:?}: free, and confined");
        assert!(is_free || end != End::Exit(0), "{call:?}");
        scene.answers(&line, "");
        scene.assert_free(&format!("{call:?}"));
    }
}

fn on_both(test: &str, run: impl Fn(Scene) + Sync) {
    if !strace::is_there(test) {
        return;
    }
    thread::scope(|scope| {
        for version in versions(test) {
            let run = &run;
            scope.spawn(move || run(Scene::new(version)));
        }
    });
}

#[test]
fn killed_at_every_call_allocate_leaves_what_the_next_call_puts_right() {
    on_both("killed_at_every_call_allocate_leaves_what_the_next_call_puts_right", kill_allocate);
}

#[test]
fn killed_at_every_call_allocate_leaves_what_is_given_back() {
    on_both("killed_at_every_call_allocate_leaves_what_is_given_back", kill_allocate_and_give_back);
}

#[test]
fn killed_at_every_call_deallocate_is_finished_by_the_next() {
    on_both("killed_at_every_call_deallocate_is_finished_by_the_next", kill_deallocate);
}

#[test]
fn ended_at_every_call_allocate_confines_whom_it_answers() {
    on_both("ended_at_every_call_allocate_confines_whom_it_answers", end_allocate);
}
