//! Callers without the privileges that isolation requires.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use super::cell::{Version, versions};
use super::owner::Owner;
use super::stage::Stage;
use crate::fake_nvml::Answer;
use crate::sandbox::install;

/// Nobody, who is the owner's user too.
const NOBODY: &[&str] = &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
const HOW: &str = "run gpu-coord as root, in a systemd unit as `ExecStart=+/usr/bin/gpu-coord exec AMOUNT --cgroup \
    --user NAME -- COMMAND`";

/// A host whose record anybody may write, and an owner that is nobody's.
struct Scene {
    stage: Stage,
    owner: Owner,
}

impl Scene {
    fn all(test: &str) -> Vec<Scene> {
        versions(test).into_iter().map(Scene::new).collect()
    }

    fn new(version: Version) -> Scene {
        let stage = Stage::with_gpus(version, 2);
        fs::set_permissions(stage.sandbox.path(), fs::Permissions::from_mode(0o777)).unwrap();
        install(&stage.sandbox.path().join("gpu-coord"));
        let owner = stage.owner_by(&[NOBODY, &["setsid", "bash"]].concat());
        Scene { stage, owner }
    }

    /// The program, by words that come to be it.
    fn runs(&self, words: &[&str], line: &str) -> (i32, String, String) {
        let mut command = Command::new(words[0]);
        self.stage.environment(&mut command);
        command.args(&words[1..]).arg("./gpu-coord").args(line.split(' '));
        command.args(["--owner", &self.owner.pid().to_string()]);
        let Answer { status, stdout, stderr } = Answer::of(&command.output().unwrap());
        (status.unwrap_or(-1), stdout, stderr)
    }

    fn allocate(&self, words: &[&str]) -> (i32, String, String) {
        self.runs(words, &format!("allocate 1 --cgroup={}", self.stage.cell.version.word()))
    }

    #[track_caller]
    fn assert_refused(&mut self, words: &[&str], problem: &str) {
        let refusal = (5, String::new(), format!("gpu-coord: {problem}\n"));
        assert_eq!(self.allocate(words), refusal, "{words:?}");
        self.stage.assert_free(&mut self.owner);
        assert_eq!(self.stage.sandbox.holders(), []);
    }

    /// Goes on without isolation.
    #[track_caller]
    fn assert_warned(&mut self, words: &[&str], problem: &str) {
        let warning =
            format!("gpu-coord: warning: the owner is not confined, and can open every device: {problem}\n");
        let answer = self.runs(words, "allocate 1 --cgroup=best-effort");
        assert_eq!(answer, (0, "0\n".to_owned(), warning));
        self.stage.assert_free(&mut self.owner);
        assert_eq!(self.stage.sandbox.holders(), [(0, self.owner.pid())]);
        assert!(!self.stage.sandbox.text().contains("cgroup="));
    }
}

fn missing(version: Version) -> String {
    let what = match version {
        Version::V1 => "CAP_SYS_ADMIN",
        Version::V2 => "CAP_SYS_ADMIN, or CAP_BPF and CAP_NET_ADMIN",
    };
    format!("isolation by cgroup {} requires {what}, which this process does not have; {HOW}", version.word())
}

#[test]
fn an_ordinary_user_is_told_what_is_missing() {
    for mut scene in Scene::all("an_ordinary_user_is_told_what_is_missing") {
        let version = scene.stage.cell.version;
        scene.assert_refused(NOBODY, &missing(version));
        let without = &["setpriv", "--bounding-set=-sys_admin,-bpf", "--inh-caps=-sys_admin,-bpf"];
        fs::remove_file(scene.stage.sandbox.file()).unwrap();
        scene.assert_refused(without, &missing(version));
        // It takes the version that is tried first.
        scene.assert_warned(without, &missing(Version::V1));
    }
}

#[test]
fn root_of_a_user_namespace_is_no_root() {
    for mut scene in Scene::all("root_of_a_user_namespace_is_no_root") {
        let problem = |version: Version| {
            format!(
                "isolation by cgroup {} requires root's privileges in the initial user namespace, in which this \
                 process is not; {HOW}",
                version.word()
            )
        };
        let version = scene.stage.cell.version;
        scene.assert_refused(&["unshare", "-Ur"], &problem(version));
        scene.assert_warned(&["unshare", "-Ur"], &problem(Version::V1));
    }
}

/// A user with the rights of the kernel and a group that was delegated to it needs no root.
#[test]
fn rights_and_a_group_of_its_own_are_enough_for_v2() {
    let test = "rights_and_a_group_of_its_own_are_enough_for_v2";
    if !Version::V2.may_be_used(test) {
        return;
    }
    let mut scene = Scene::new(Version::V2);
    let some = ["--inh-caps=+bpf,+net_admin", "--ambient-caps=+bpf,+net_admin"];
    // Whoever moves a process must be allowed to in every group on the way: it is in the delegated one itself.
    let enter = r#"echo $$ >"$0"/cgroup.procs && exec "$@""#;
    let cell = scene.stage.cell.directory.display().to_string();
    let some = [&["sh", "-c", enter, &cell], NOBODY, &some].concat();
    let group = scene.stage.group(&scene.owner).display().to_string();
    let closed = format!("cannot make control group {group}: Permission denied (os error 13)");
    scene.assert_refused(&some, &closed);
    chown(&scene.stage.cell.directory, Some(65534), None).unwrap();
    chown(scene.stage.cell.directory.join("cgroup.procs"), Some(65534), None).unwrap();
    assert_eq!(scene.allocate(&some), (0, "0\n".to_owned(), String::new()));
    assert_eq!(scene.owner.reach(), "+-");
    assert_eq!(scene.runs(&some, "deallocateAll"), (0, String::new(), String::new()));
    scene.stage.assert_free(&mut scene.owner);
}
