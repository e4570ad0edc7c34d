//! NVIDIA's cards: every minor of the driver's major, whether a node of it is there or not.
//!
//! The owner lives in a mount namespace whose `/proc` tells of a driver.

use super::cell::{Version, versions};
use super::owner::Owner;
use super::stage::{MAJOR, Stage};
use crate::sandbox::may_mount;

/// `$CARDS`: their minors in the order of the bus.
const DRIVER: &str = r#"
    sed "/^Block/i 195 nvidia-frontend\n508 nvidia-caps" /proc/devices >devices
    mount --bind devices /proc/devices && mount -t tmpfs tmpfs /proc/driver || exit 99
    bus=16
    for minor in $CARDS; do
        card=$(printf '/proc/driver/nvidia/gpus/0000:%x:00.0' $bus)
        mkdir -p $card
        printf 'Model: Fake\nGPU UUID: GPU-00000000-0000-0000-0000-%012d\nDevice Minor: %s\n' $minor $minor >$card/information
        bus=$((bus + 1))
    done
    mkdir /proc/driver/nvidia-caps
    printf 'config 1\nmonitor 2\ngpu0/gi1/access 3\ngpu0/gi1/ci0/access 4\n' >/proc/driver/nvidia-caps/mig-minors
    exec setsid bash"#;

/// The major of NVIDIA's cards, which nobody drives here.
const CARDS: u64 = 195;

fn uuid(minor: u32) -> String {
    format!("GPU-00000000-0000-0000-0000-{minor:012}")
}

fn owner(stage: &Stage, cards: &str) -> Owner {
    let script = format!("export CARDS='{cards}' GPU_COORD_SOURCE=procfs; {DRIVER}");
    stage.owner_by(&["unshare", "-m", "sh", "-c", &script])
}

fn stages(test: &str, minors: &[u64]) -> Vec<Stage> {
    if !may_mount(test) {
        return Vec::new();
    }
    let numbers = || minors.iter().map(|minor| (CARDS, *minor)).collect();
    versions(test).into_iter().map(|version| Stage::of(version, numbers())).collect()
}

fn allocate(version: Version, words: &str) -> String {
    format!("allocate 1 --cgroup={} {words}", version.word())
}

/// The minors of a major that the owner can make nodes of.
fn makeable(owner: &mut Owner, major: u64) -> Vec<u32> {
    let script = format!(
        "for m in {{0..255}}; do mknod made c {major} $m 2>/dev/null && {{ rm made; echo $m; }}; done"
    );
    owner.tell(&script).lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn cards_that_are_not_there_yet_are_denied() {
    for stage in stages("cards_that_are_not_there_yet_are_denied", &[0, 3, 1, 253, 254, 255]) {
        let version = stage.cell.version;
        let mut owner = owner(&stage, "3 0");
        assert_eq!(owner.runs(&allocate(version, "")), (0, "0\n".to_owned(), String::new()));
        let made = makeable(&mut owner, CARDS);
        assert_eq!(made, [3, 254, 255], "{version:?}: 253 minors are denied");
        assert_eq!(makeable(&mut owner, MAJOR).len(), 256, "of another major");
        // By the driver, which is no process of the group.
        (0..6).for_each(|at| stage.make_node(at));
        assert_eq!(owner.reach(), "-+--++");
        assert_eq!(owner.runs(&allocate(version, "--print uuid")), (0, uuid(0) + "\n", String::new()));
        assert_eq!(owner.reach(), "++--++");
        assert_eq!(owner.runs("deallocateAll"), (0, String::new(), String::new()));
        stage.assert_free(&mut owner);
    }
}

/// With no node of any card there, what is asked for is one that only the proof can see.
#[test]
fn the_proof_leaves_no_node() {
    for stage in stages("the_proof_leaves_no_node", &[0]) {
        let version = stage.cell.version;
        let mut owner = owner(&stage, "0");
        let before = owner.tell("ls /proc/driver; cat /proc/self/mounts");
        assert_eq!(owner.runs(&allocate(version, "")), (0, "0\n".to_owned(), String::new()));
        let after = owner.tell("ls /proc/driver; cat /proc/self/mounts");
        // Mounts of other tests go whenever these remove what they were mounted on.
        let new = after.lines().find(|line| !before.lines().any(|other| other == *line));
        assert_eq!(new, None, "{before}");
        stage.make_node(0);
        assert_eq!((owner.reach(), makeable(&mut owner, CARDS)), ("+".to_owned(), vec![0, 254, 255]));
    }
}

/// Its runtime would look for devices that it cannot open.
#[test]
fn an_owner_that_names_its_devices_is_not_confined_by_index() {
    for stage in stages("an_owner_that_names_its_devices_is_not_confined_by_index", &[3, 0]) {
        let (version, mut owner) = (stage.cell.version, owner(&stage, "3 0"));
        stage.make_node(0);
        stage.make_node(1);
        owner.tell("export CUDA_VISIBLE_DEVICES=1");
        let problem = "gpu-coord: a variable such as CUDA_VISIBLE_DEVICES names devices in the owner's environment \
            that it cannot open once it is confined, and its runtime would see none; unset it there, or use \
            --ignore-visible-devices\n";
        assert_eq!(owner.runs(&allocate(version, "")), (2, String::new(), problem.to_owned()));
        stage.assert_free(&mut owner);
        let answer = owner.runs(&allocate(version, "--print uuid"));
        assert_eq!((answer, owner.reach()), ((0, uuid(0) + "\n", String::new()), "-+".to_owned()));
        assert_eq!(owner.runs("deallocateAll"), (0, String::new(), String::new()));
        let answer = owner.runs(&allocate(version, "--ignore-visible-devices"));
        assert_eq!((answer, owner.reach()), ((0, "0\n".to_owned(), String::new()), "+-".to_owned()));
    }
}

/// What can divide a card is denied to whoever is confined, on a host without divided cards too.
#[test]
fn the_making_of_instances_is_denied() {
    for stage in stages("the_making_of_instances_is_denied", &[0]) {
        let (version, mut owner) = (stage.cell.version, owner(&stage, "0 1"));
        assert_eq!(owner.runs(&allocate(version, "")), (0, "0\n".to_owned(), String::new()));
        let denied: Vec<u32> = (0..6).filter(|minor| !makeable(&mut owner, 508).contains(minor)).collect();
        assert_eq!(denied, [1]);
    }
}

/// Those of a dead owner may open none of the 254.
#[test]
fn orphans_are_denied_every_card() {
    for stage in stages("orphans_are_denied_every_card", &[0]) {
        let (version, mut dead) = (stage.cell.version, owner(&stage, "0 1"));
        let mut other = owner(&stage, "0 1");
        dead.tell("bash");
        let line = allocate(version, &format!("--owner {}", dead.pid()));
        assert_eq!(dead.runs(&line), (0, "0\n".to_owned(), String::new()));
        dead.kill();
        let (status, stdout, stderr) = other.runs("1 --enable-coordination-mode");
        assert_eq!((status, stdout.as_str(), stderr.lines().count()), (0, "1\n", 1), "{stderr}");
        assert_eq!(makeable(&mut dead, CARDS), [254, 255]);
    }
}
