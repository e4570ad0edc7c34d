//! Owners that die while they are being confined.

use nix::sys::signal::Signal;

use super::cell::{members, versions};
use super::owner::Owner;
use super::stage::Stage;
use crate::fake_nvml::Answer;
use crate::running::{End, Running, wait_until};
use crate::strace;

/// An owner with a child, which outlives it.
struct Scene {
    stage: Stage,
    owner: Owner,
    child: u32,
}

impl Scene {
    fn all(test: &str) -> Vec<Scene> {
        if !strace::is_there(test) {
            return Vec::new();
        }
        let scene = |version| {
            let stage = Stage::with_gpus(version, 2);
            let mut owner = stage.owner();
            let child = owner.tell("sleep 1000 & echo $!").trim().parse().unwrap();
            Scene { stage, owner, child }
        };
        versions(test).into_iter().map(scene).collect()
    }

    /// Which write(2) of the program, counted from 1, moves the process.
    fn write_that_moves(&self, pid: u32) -> String {
        let calls = strace::calls(&self.stage.sandbox.program(&self.stage.line(1, &self.owner)));
        self.stage.release(&self.owner);
        let text = format!(", \"{pid}\\n\", ");
        let moves = |call: &&strace::Call| call.name == "write" && call.text.contains(&text);
        calls.iter().find(moves).unwrap().nth.to_string()
    }

    /// The program, which is stopped at a call; what it has done by then is waited for.
    fn stopped_at(&self, name: &str, nth: &str, is_done: impl Fn() -> bool) -> Running {
        let program = self.stage.sandbox.program(&self.stage.line(1, &self.owner));
        let running =
            Running::start(strace::inject(&program, name, &format!("signal={}", Signal::SIGSTOP), nth));
        wait_until("it has come that far", is_done);
        running
    }

    /// Its owner is dead: it is said, and all is undone.
    #[track_caller]
    fn assert_undone(&self, running: Running) {
        let problem = format!("gpu-coord: the owner, pid {}, has exited\n", self.owner.pid());
        assert_eq!(running.go_on(), (End::Exit(4), String::new(), problem));
        assert_eq!(self.stage.cell.version.path_of(self.child), self.stage.cell.path);
        assert_eq!((self.stage.cell.children(), self.stage.sandbox.holders()), (Vec::new(), Vec::new()));
    }
}

#[test]
fn an_owner_that_dies_before_it_is_moved_holds_nothing() {
    for mut scene in Scene::all("an_owner_that_dies_before_it_is_moved_holds_nothing") {
        // After the proof. From the making of the group on nobody looks at the owner before.
        let running = scene.stopped_at("wait4", "1", || !scene.stage.cell.children().is_empty());
        scene.owner.kill();
        scene.assert_undone(running);
    }
}

#[test]
fn an_owner_that_dies_while_it_is_moved_holds_nothing() {
    for mut scene in Scene::all("an_owner_that_dies_while_it_is_moved_holds_nothing") {
        let pid = scene.owner.pid();
        let nth = scene.write_that_moves(pid);
        let group = scene.stage.group(&scene.owner);
        let running = scene.stopped_at("write", &nth, || members(&group).contains(&pid));
        scene.owner.kill();
        scene.assert_undone(running);
    }
}

/// It is moved by then, and so is its child.
#[test]
fn an_owner_that_dies_once_it_is_moved_holds_nothing() {
    for mut scene in Scene::all("an_owner_that_dies_once_it_is_moved_holds_nothing") {
        let (child, nth) = (scene.child, scene.write_that_moves(scene.child));
        let group = scene.stage.group(&scene.owner);
        let running = scene.stopped_at("write", &nth, || members(&group).contains(&child));
        scene.owner.kill();
        scene.assert_undone(running);
    }
}

/// With the program killed as well nobody is left to undo it but the next.
#[test]
fn what_a_killed_call_left_of_a_dead_owner_is_reclaimed() {
    for mut scene in Scene::all("what_a_killed_call_left_of_a_dead_owner_is_reclaimed") {
        let nth = scene.write_that_moves(scene.child);
        let (name, group) = (scene.stage.name(&scene.owner), scene.stage.group(&scene.owner));
        let child = scene.child;
        let running = scene.stopped_at("write", &nth, || members(&group).contains(&child));
        scene.owner.kill();
        running.kill();
        let Answer { status, stdout, stderr } = scene.stage.reclaim("");
        assert_eq!((status, stdout.as_str(), stderr.as_str()), (Some(0), "", ""));
        assert_eq!(scene.stage.cell.children(), std::slice::from_ref(&name), "somebody is in it");
        scene.stage.cell.take(child);
        let Answer { status, stdout, stderr } = scene.stage.reclaim("");
        let (word, cell) = (scene.stage.cell.version.word(), &scene.stage.cell.path);
        let says = format!("removed control group {word}:{cell}/{name}\n");
        // Another test's reclaim may have been faster: what the record does not name is removed on the whole host.
        assert!([says, String::new()].contains(&stdout), "{stdout}");
        assert_eq!((status, stderr.as_str()), (Some(0), ""));
        assert_eq!(scene.stage.cell.children(), [""; 0]);
    }
}
