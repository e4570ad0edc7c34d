//! Cards that are divided: an instance is opened by nodes of its own.

use std::process::Command;

use super::cell::{Version, versions};
use super::owner::{Owner, signs};
use super::stage::Stage;
use crate::fake_nvml::{Answer, Host};
use crate::sandbox::{PROGRAM, may_mount};

/// The card with minor 1 is divided into 7/0 and 9/0; the other two could be made.
const DRIVER: &str = r#"
    sed "/^Block/i 195 nvidia-frontend\n508 nvidia-caps" /proc/devices >devices
    mount --bind devices /proc/devices && mount -t tmpfs tmpfs /proc/driver || exit 99
    mkdir -p /proc/driver/nvidia-caps /proc/driver/nvidia/gpus
    minor=$FIRST
    { printf 'config 1\nmonitor 2\n'; for of in gpu0/gi7 gpu1/gi7 gpu1/gi8 gpu1/gi9; do
        printf '%s/access %s\n%s/ci0/access %s\n' $of $minor $of $((minor + 1))
        minor=$((minor + 2))
    done; } >/proc/driver/nvidia-caps/mig-minors
    exec setsid "$@" bash"#;
/// How many nodes: of cards 0 and 1, then config, monitor, and each instance with its compute instance.
const NODES: u64 = 12;
const SECOND: &str = "gpu-coord: warning: 2 MIG instances for one owner, but CUDA uses only one of them: ask for 1, or \
    for a larger profile\n";
const ORDINARY: &[&str] = &["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"];

struct Scene {
    stage: Stage,
    owner: Owner,
    driver: Host,
}

impl Scene {
    fn all(test: &str, words: &[&str]) -> Vec<Scene> {
        if !may_mount(test) {
            return Vec::new();
        }
        versions(test).into_iter().map(|version| Scene::new(version, words, 3)).collect()
    }

    /// An owner that comes to be by these words; the nodes of instances begin with this minor.
    fn new(version: Version, words: &[&str], first: u64) -> Scene {
        let instances = (first..first + 8).map(|minor| (508, minor));
        let numbers = [(195, 0), (195, 1), (508, 1), (508, 2)].into_iter().chain(instances);
        let stage = Stage::of(version, numbers.collect());
        (0..NODES).for_each(|at| stage.make_node(at));
        let script = format!("FIRST={first}; {DRIVER}");
        let owner = stage.owner_by(&[&["unshare", "-m", "sh", "-c", &script, "sh"], words].concat());
        Scene { owner, driver: Host::new().with("GPUS", "2").with("MIG", "0:2"), stage }
    }

    /// The program, where the owner's mounts are, and with more rights than the owner.
    fn runs(&self, line: &str) -> (i32, String, String) {
        let pid = self.owner.pid().to_string();
        let directory = self.stage.sandbox.path();
        let mut command = self.driver.environment("nsenter");
        command.current_dir(directory).args(["-m", "-t", &pid, PROGRAM]);
        command.args(line.split(' ')).args(["--owner", &pid]);
        command.env("GPU_COORD_COORDINATION_FILE", directory.join("coordination"));
        if line.starts_with("allocate") {
            command.args(["--source", "nvml", "--driver-root"]).arg(&self.driver.driver);
        }
        ended(&mut command)
    }

    fn allocate(&self, words: &str) -> (i32, String, String) {
        self.runs(&format!("allocate 1 --cgroup={} {words}", self.stage.cell.version.word()))
    }
}

fn ended(command: &mut Command) -> (i32, String, String) {
    let Answer { status, stdout, stderr } = Answer::of(&command.output().unwrap());
    (status.unwrap_or(-1), stdout, stderr)
}

fn instance(place: u32) -> String {
    format!("MIG-fa4e0000-0000-4000-8000-000000{place:06x}")
}

#[test]
fn of_a_divided_card_the_own_instance_opens_alone() {
    let test = "of_a_divided_card_the_own_instance_opens_alone";
    for mut scene in Scene::all(test, ORDINARY) {
        let answer = scene.allocate(&format!("--print uuid --devices {}", instance(2)));
        assert_eq!(answer, (0, instance(2) + "\n", String::new()));
        assert_eq!(scene.owner.reach(), "-+-+++----++");
        let made = scene
            .owner
            .tell("for m in {1..10}; do mknod made c 508 $m 2>&1 && { echo opened; rm made; }; done");
        assert_eq!(signs(&made), "-+++----++");
        let further = scene.allocate(&format!("--print uuid --devices {}", instance(0)));
        assert_eq!(further, (0, instance(0) + "\n", SECOND.to_owned()));
        assert_eq!(scene.owner.reach(), "-+-+++++--++");
        assert_eq!(scene.runs("deallocateAll"), (0, String::new(), String::new()));
        scene.stage.assert_free(&mut scene.owner);
    }
}

/// The drivers of large hosts count far, and a rule for all of a major cannot be written out for ever.
#[test]
fn an_instance_with_a_large_minor_opens_below_a_list() {
    let test = "an_instance_with_a_large_minor_opens_below_a_list";
    if !may_mount(test) || !Version::V1.may_be_used(test) {
        return;
    }
    let mut scene = Scene::new(Version::V1, ORDINARY, 3000);
    scene.stage.cell.allow_only(&["c 195:* rw".to_owned(), "c 508:* rw".to_owned()]);
    for (place, signs, stderr) in [(2, "-+-+------++", ""), (0, "-+-+--++--++", SECOND)] {
        let answer = scene.allocate(&format!("--print uuid --devices {}", instance(place)));
        assert_eq!(answer, (0, instance(place) + "\n", stderr.to_owned()));
        assert_eq!(scene.owner.reach(), signs);
    }
}

/// A whole card is given to one, and all instances of the other are denied.
#[test]
fn with_a_whole_card_no_instance_opens() {
    for mut scene in Scene::all("with_a_whole_card_no_instance_opens", ORDINARY) {
        let answer = scene.allocate("--devices 1");
        assert_eq!(answer, (0, "0\n".to_owned(), String::new()));
        assert_eq!(scene.owner.reach(), "+--+++------");
    }
}

/// The driver lets whoever has it use every instance.
#[test]
fn an_owner_with_all_rights_is_not_kept_to_an_instance() {
    let test = "an_owner_with_all_rights_is_not_kept_to_an_instance";
    for mut scene in Scene::all(test, &["env"]) {
        let problem = format!(
            "pid {} has CAP_SYS_ADMIN, which opens every MIG instance of a card to it; run it as an ordinary user",
            scene.owner.pid()
        );
        let words = format!("--print uuid --devices {}", instance(2));
        assert_eq!(scene.allocate(&words), (5, String::new(), format!("gpu-coord: {problem}\n")));
        scene.stage.assert_free(&mut scene.owner);
        assert_eq!(scene.stage.sandbox.holders(), []);
        let best = scene.runs(&format!("allocate 1 --cgroup=best-effort {words}"));
        let warning =
            format!("gpu-coord: warning: the owner is not confined, and can open every device: {problem}\n");
        assert_eq!(best, (0, instance(2) + "\n", warning));
        scene.stage.assert_free(&mut scene.owner);
    }
}
