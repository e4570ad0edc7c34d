//! What outlives its owner in a control group.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::cell::{members, versions};
use super::owner::Owner;
use super::stage::Stage;
use crate::fake_nvml::Answer;
use crate::running::wait_until;
use crate::strict::is_refused_if_strict;

const HELD: &str = "held by living owners (`gpu-coord status` names them)";

/// An owner of the first device that is dead, and a child of its that takes orders still.
struct Orphaned {
    stage: Stage,
    dead: Owner,
    pid: u32,
    name: String,
}

impl Orphaned {
    fn new(version: super::cell::Version) -> Orphaned {
        let stage = Stage::with_gpus(version, 3);
        let mut dead = stage.owner();
        let child: u32 = dead.tell("bash\necho $$").trim().parse().unwrap();
        stage.confine(1, &dead, "0\n");
        let name = stage.name(&dead);
        assert_eq!(members(&stage.group(&dead)).len(), 2);
        dead.kill();
        assert_eq!(dead.reach(), "+--");
        Orphaned { stage, dead, pid: child, name }
    }

    /// What a call warns of.
    fn warning(&self) -> String {
        format!(
            "gpu-coord: warning: pid {} (bash) outlived pid {} in control group {}, and may have its devices open; end \
             what is left of it\n",
            self.pid,
            self.dead.pid(),
            self.group()
        )
    }

    fn line(&self, words: &str, owner: &Owner) -> String {
        format!("{words} --owner {}", owner.pid())
    }

    #[track_caller]
    fn warns(&self, line: &str, stdout: &str) {
        is_refused_if_strict(self.stage.sandbox.program(line), &self.stage.sandbox.file(), &self.warning());
        let assert = self.stage.sandbox.command(line).assert();
        assert.code(0).stdout(stdout.to_owned()).stderr(self.warning());
    }

    fn end(&mut self) {
        self.dead.order("exit");
        wait_until("the orphan has ended", || {
            kill(Pid::from_raw(i32::try_from(self.pid).unwrap()), Signal::SIGCONT).is_err()
        });
    }

    /// What `reclaim` says of the unit.
    fn kept(&self, verb: &str) -> String {
        format!(
            "{verb} index 0 of pid {}: processes live on in its control group; --force releases it anyway\n",
            self.dead.pid()
        )
    }

    fn group(&self) -> String {
        format!("{}:{}/{}", self.stage.cell.version.word(), self.stage.cell.path, self.name)
    }

    fn holders(&self) -> Vec<(u32, u32)> {
        self.stage.sandbox.holders()
    }
}

#[test]
fn orphans_are_kept_from_every_device_and_named() {
    for version in versions("orphans_are_kept_from_every_device_and_named") {
        let mut scene = Orphaned::new(version);
        let owner = scene.stage.owner();
        // Whoever does not take over leaves them alone.
        scene.stage.sandbox.answers(&scene.line("allocate 1", &owner), "1\n");
        assert_eq!(scene.dead.reach(), "+--");
        scene.warns(&scene.line("1 --enable-coordination-mode", &owner), "2\n");
        assert_eq!(scene.dead.reach(), "---", "{version:?}");
        assert_eq!(scene.holders(), [(0, scene.dead.pid()), (1, owner.pid()), (2, owner.pid())]);
        assert_eq!(scene.stage.cell.children(), [scene.name.clone()]);
    }
}

#[test]
fn what_orphans_may_have_open_is_given_last_and_never_with_isolation() {
    for version in versions("what_orphans_may_have_open_is_given_last_and_never_with_isolation") {
        let mut scene = Orphaned::new(version);
        let (owner, other) = (scene.stage.owner(), scene.stage.owner());
        scene.warns(&scene.line("allocate 2 --check-dead", &owner), "1,2\n");
        let open =
            "open to descendants of dead owners that live on (`gpu-coord status` names the control group)";
        let problem = format!("1 unit asked for, 0 of 3 can be given: 2 {HELD}; 1 {open}");
        let confined = format!("{} --check-dead", scene.stage.line(1, &other));
        scene.stage.sandbox.refuses(&confined, 1, &problem);
        scene.warns(&scene.line("allocate 1 --check-dead", &other), "0\n");
        assert_eq!(scene.dead.reach(), "---");
        scene.end();
        let line = scene.line("allocate 1 --check-dead", &owner);
        scene.stage.sandbox.refuses(&line, 1, &format!("1 unit asked for, 0 of 3 can be given: 3 {HELD}"));
        scene.stage.sandbox.answers(&scene.line("deallocateAll", &owner), "");
        scene.stage.sandbox.answers(&line, "1\n");
        assert_eq!(scene.stage.cell.children(), [""; 0]);
        assert!(scene.holders().iter().all(|(_, pid)| *pid != scene.dead.pid()), "{:?}", scene.holders());
    }
}

#[test]
fn once_they_have_ended_the_group_goes() {
    for version in versions("once_they_have_ended_the_group_goes") {
        let mut scene = Orphaned::new(version);
        let mut owner = scene.stage.owner();
        scene.end();
        scene.stage.sandbox.answers(&format!("{} --check-dead", scene.stage.line(3, &owner)), "1,2,0\n");
        assert_eq!(scene.stage.cell.children(), [scene.stage.name(&owner)]);
        assert_eq!(owner.reach(), "+++");
        assert!(scene.holders().iter().all(|(_, pid)| *pid == owner.pid()), "{:?}", scene.holders());
        scene.stage.release(&owner);
        scene.stage.assert_free(&mut owner);
    }
}

/// Giving back for the dead keeps what their descendants may have open.
#[test]
fn what_orphans_may_have_open_is_not_given_back() {
    for version in versions("what_orphans_may_have_open_is_not_given_back") {
        let mut scene = Orphaned::new(version);
        let line = scene.line("deallocateAll", &scene.dead);
        scene.warns(&line, "");
        assert_eq!(scene.holders(), [(0, scene.dead.pid())]);
        scene.end();
        scene.stage.sandbox.answers(&line, "");
        assert_eq!((scene.holders(), scene.stage.cell.children()), (Vec::new(), Vec::new()));
    }
}

#[test]
fn reclaim_does_what_a_take_over_does() {
    for version in versions("reclaim_does_what_a_take_over_does") {
        let mut scene = Orphaned::new(version);
        let Answer { status, stdout, stderr } = scene.stage.reclaim("");
        assert_eq!((status, stdout, stderr), (Some(0), scene.kept("kept"), scene.warning()));
        assert_eq!((scene.dead.reach(), scene.holders()), ("---".to_owned(), vec![(0, scene.dead.pid())]));
        scene.end();
        let Answer { status, stdout, stderr } = scene.stage.reclaim("");
        let group = format!("removed control group {}\n", scene.group());
        let released = format!("released index 0 of pid {}\n", scene.dead.pid());
        // The `reclaim` of another test, which looks at every group of the host, may have been faster.
        assert!(stdout == released.clone() + &group || stdout == released, "{stdout}");
        assert_eq!((status, stderr.as_str()), (Some(0), ""));
        assert_eq!((scene.holders(), scene.stage.cell.children()), (Vec::new(), Vec::new()));
    }
}

/// Nobody is ended: what the orphans have open they keep, and anything else they cannot open.
#[test]
fn forced_reclaim_frees_the_unit_and_leaves_the_group() {
    for version in versions("forced_reclaim_frees_the_unit_and_leaves_the_group") {
        let mut scene = Orphaned::new(version);
        let (pid, group, mut owner) = (scene.dead.pid(), scene.group(), scene.stage.owner());
        let before = scene.stage.sandbox.text();
        let says = |verbs: [&str; 2], shut: &str| {
            let [released, left] = verbs;
            format!(
                "{released} index 0 of pid {pid}\n{left} control group {group} to its processes{shut}; reclaim removes it \
                 once they have ended\n"
            )
        };
        let Answer { status, stdout, stderr } = scene.stage.reclaim("--dry-run");
        assert_eq!((status, stdout, stderr), (Some(0), scene.kept("would keep"), scene.warning()));
        let error =
            scene.warning().replace("warning: ", "").trim_end().to_owned() + " (an error by --strict)\n";
        for line in ["--strict", "--force --strict", "--dry-run --strict"] {
            let Answer { status, stdout, stderr } = scene.stage.reclaim(line);
            assert_eq!((status, stdout, stderr), (Some(4), String::new(), error.clone()), "{line}");
        }
        let Answer { status, stdout, stderr } = scene.stage.reclaim("--force --dry-run");
        let dry = says(["would release", "would leave"], "");
        assert_eq!((status, stdout, stderr), (Some(0), dry, scene.warning()));
        assert_eq!((scene.stage.sandbox.text(), scene.dead.reach()), (before, "+--".to_owned()));

        let problem = format!(
            "device 0 is not released: {}, or release it with `gpu-coord reclaim --force`",
            scene.warning().trim_start_matches("gpu-coord: warning: ").trim_end()
        );
        scene.stage.sandbox.refuses("release 0 --force", 6, &problem);

        let Answer { status, stdout, stderr } = scene.stage.reclaim("--force");
        let done = says(["released", "left"], ", which are kept from every GPU but for what they have open");
        assert_eq!((status, stdout, stderr), (Some(0), done, scene.warning()));
        assert_eq!((scene.holders(), scene.dead.reach().as_str()), (Vec::new(), "---"), "{version:?}");
        assert_eq!(members(&scene.stage.cell.directory.join(&scene.name)), [scene.pid], "it lives");
        scene.stage.confine(1, &owner, "0\n");
        assert_eq!(owner.reach(), "+--");
        scene.stage.release(&owner);

        scene.end();
        let Answer { status, stdout, stderr } = scene.stage.reclaim("");
        let removed = format!("removed control group {group}\n");
        // The `reclaim` of another test may have been faster.
        assert!(stdout == removed || stdout.is_empty(), "{stdout}");
        assert_eq!((status, stderr.as_str()), (Some(0), ""));
        assert_eq!(scene.stage.cell.children(), [""; 0]);
    }
}
