//! A host booted by systemd in its own namespaces, with the units of `packaging/`: only systemd and the kernel know
//! what the units are forbidden to do.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::sandbox::{PROGRAM, is_root, skip};

/// Enters a control group that is to be the host's root, and boots. Run in a mount namespace; `$1` is a directory.
const ENTER: &str = r#"
set -e
mount --make-rprivate /
mkdir "$1/cgroup"
mount -t cgroup2 cgroup2 "$1/cgroup"
group=$1/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/booted-$$
mkdir "$group"
(
  echo $BASHPID > "$group/cgroup.procs"
  exec timeout -k 1 60 unshare --mount --pid --fork --cgroup --uts --ipc --net --kill-child bash "$1/boot" "$1"
) || true
find "$group" -depth -type d -exec rmdir {} +
"#;

/// What a container manager sets up for systemd in a container: it can write to nothing of the machine.
const BOOT: &str = r#"
set -e
mount --make-rprivate /
mount -t proc proc /proc
for directory in /run /var/log /var/tmp; do mount -t tmpfs tmpfs "$directory"; done
chmod 1777 /var/tmp
mkdir /run/etc /run/work /run/host
mount --bind "$1" /run/host
mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/etc,workdir=/run/work /etc
mount -t overlay overlay -o "lowerdir=$1/usr:/usr" /usr
cp -r "$1/units/." /etc/systemd/system
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount --bind /proc/sys /proc/sys
mount -o remount,ro,bind /proc/sys
systemd=/usr/lib/systemd/systemd
[ -x $systemd ] || systemd=/lib/systemd/systemd
container=other exec $systemd --system --unit=drive.service --log-target=null
"#;

/// An owner that is confined ends, and a child of it goes on for a while.
const DRIVE: &str = r#"#!/bin/bash
set -e
export PATH=/usr/bin:/bin GPU_COORD_SOURCE=file:/run/host/devices.json
bash -c 'sleep 300 & echo $! > /run/child; wait' &
owner=$!
until [ -s /run/child ]; do sleep 0.02; done
child=$(cat /run/child)
gpu-coord allocate 1 --cgroup --owner $owner
kill -9 $owner
wait $owner || true
systemctl start gpu-coord-reclaim.service
gpu-coord status > /run/host/after-the-owner
kill -9 $child
while kill -0 $child 2>/dev/null; do sleep 0.02; done
systemctl start gpu-coord-reclaim.service
gpu-coord status > /run/host/after-the-child
"#;

/// The example's unit, whose TaskManager says what it finds. There are three devices, and each instance wants two.
const TASK_MANAGERS: &str = r#"#!/bin/bash
set -e
export PATH=/usr/bin:/bin GPU_COORD_SOURCE=file:/run/host/devices.json
export GPU_COORD_COORDINATION_FILE=/run/shared/coordination
echo 'flink:x:4242:4242::/:/bin/sh' >> /etc/passwd
echo 'flink:x:4242:' >> /etc/group
install -d -m 750 -g 4242 /run/shared
install -m 660 -g 4242 /dev/null $GPU_COORD_COORDINATION_FILE
ended() { systemctl show --value -p ActiveState $1 | grep -qE 'failed|inactive'; }
until_it_says() { until grep -qs done /run/host/out/$1; do sleep 0.02; done; }
systemctl start flink-taskmanager@1.service
until_it_says 1
gpu-coord status > /run/host/first
systemctl start flink-taskmanager@2.service || true
until ended flink-taskmanager@2.service; do sleep 0.02; done
systemctl show -p Result -p ExecMainStatus flink-taskmanager@2.service > /run/host/second
systemctl stop flink-taskmanager@1.service
gpu-coord status > /run/host/stopped
systemctl reset-failed flink-taskmanager@2.service
systemctl start flink-taskmanager@2.service
until_it_says 2
"#;

/// Stands in for Flink's TaskManager: prints who it is, what it can open and what a call inside answers, then sleeps.
const TASK_MANAGER: &str = r#"#!/bin/bash
{
  id -un
  echo "$1 $CUDA_VISIBLE_DEVICES"
  for node in zero full random; do (exec 3<>/dev/$node) 2>/dev/null && echo "+$node" || echo "-$node"; done
  /usr/bin/gpu-coord 2
  echo done
} > /run/host/out/$INSTANCE 2>&1
exec sleep 300
"#;

/// Without systemd's own units, which would do more than is asked for here.
const ALONE: &str = "[Unit]\nDefaultDependencies=no\n[Service]\n";

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn write_script(path: &Path, text: &str) {
    write(path, text);
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn packaged(unit: &str) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd");
    fs::read_to_string(directory.join(unit)).unwrap()
}

fn streams(name: &str) -> String {
    format!("StandardOutput=append:/run/host/{name}\nStandardError=append:/run/host/{name}\n")
}

/// A host on which `drive` is run. Its devices are such as everybody may open, and as are everywhere.
fn prepare(directory: &Path, drive: &str) {
    let units = directory.join("units");
    write(&directory.join("boot"), BOOT);
    write_script(&directory.join("drive"), drive);
    let devices = r#"{"devices": [{"id": "a", "nodes": ["/dev/zero"]}, {"id": "b", "nodes": ["/dev/full"]}, {"id": "c", "nodes": ["/dev/random"]}]}"#;
    write(&directory.join("devices.json"), devices);
    let drive =
        "Type=oneshot\nDelegate=yes\nExecStart=/run/host/drive\nExecStopPost=/bin/systemctl poweroff -ff\n";
    write(&units.join("drive.service"), &(ALONE.to_owned() + drive + &streams("drive.log")));
    let source = "Environment=GPU_COORD_SOURCE=file:/run/host/devices.json GPU_COORD_VERBOSE=1\n";
    let drop_in = ALONE.to_owned() + source + &streams("reclaim.log");
    write(&units.join("gpu-coord-reclaim.service.d/alone.conf"), &drop_in);
    write(&units.join("gpu-coord-reclaim.service"), &packaged("gpu-coord-reclaim.service"));
    fs::create_dir_all(directory.join("usr/bin")).unwrap();
    fs::copy(PROGRAM, directory.join("usr/bin/gpu-coord")).unwrap();
}

/// The example's unit there, but for the network, which this host has not.
fn prepare_task_managers(directory: &Path) {
    let unit = packaged("flink-taskmanager@.service");
    let lines = unit.lines().filter(|line| !line.contains("network-online"));
    let unit = lines.map(|line| line.to_owned() + "\n").collect::<String>();
    write(&directory.join("units/flink-taskmanager@.service"), &unit);
    let environment = "Environment=GPU_COORD_SOURCE=file:/run/host/devices.json INSTANCE=%i\n\
                       Environment=GPU_COORD_COORDINATION_FILE=/run/shared/coordination FLINK_HOME=/run/host/flink\n\
                       Restart=no\nSuccessExitStatus=SIGTERM\n";
    let drop_in = ALONE.to_owned() + environment + &streams("taskmanager.log");
    write(&directory.join("units/flink-taskmanager@.service.d/alone.conf"), &drop_in);
    write_script(&directory.join("flink/bin/taskmanager.sh"), TASK_MANAGER);
    fs::create_dir(directory.join("out")).unwrap();
    // User flink is to get at all of it.
    fs::set_permissions(directory.join("out"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
}

fn in_namespaces(script: &str, directory: &Path) -> Output {
    let mut command = Command::new("unshare");
    command.args(["--mount", "bash", "-c", script, "bash"]).arg(directory);
    command.stdin(Stdio::null()).output().unwrap()
}

fn may_boot(test: &str, directory: &Path) -> bool {
    let asks = "set -e; mount --make-rprivate /; mkdir $1/a; mount -t cgroup2 cgroup2 $1/a; systemctl --version; \
                mount -t overlay overlay -o lowerdir=$1:/usr /usr; unshare --pid --fork --cgroup --net true";
    let may = is_root(test) && in_namespaces(asks, directory).status.success();
    if !may {
        skip(test, "it needs root, systemd, cgroup v2, overlayfs and namespaces");
    }
    may
}

#[test]
fn the_reclaim_service_may_do_what_it_has_to() {
    let (directory, probe) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    if !may_boot("the_reclaim_service_may_do_what_it_has_to", probe.path()) {
        return;
    }
    prepare(directory.path(), DRIVE);
    let output = in_namespaces(ENTER, directory.path());
    let text = |name| fs::read_to_string(directory.path().join(name)).unwrap_or_default();
    let log = format!("{output:?}\n{}\n{}", text("drive.log"), text("reclaim.log"));
    // The owner's surviving child keeps the unit from being granted, and may no longer open any.
    let row = text("after-the-owner").lines().find(|line| line.starts_with('0')).map(ToOwned::to_owned);
    assert!(row.is_some_and(|row| row.contains("stale") && row.ends_with("denies 1:5 1:7-8")), "{log}");
    for said in ["released index 0 of pid", "outlived pid", "is empty, and is removed"] {
        assert!(text("reclaim.log").contains(said), "{said}: {log}");
    }
    assert!(text("after-the-child").contains("free") && !text("after-the-child").contains("stale"), "{log}");
}

/// A TaskManager started as the documentation tells administrators to, on three devices.
#[test]
fn a_taskmanagers_unit_starts_with_its_gpus_alone_or_not_at_all() {
    let (directory, probe) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    if !may_boot("a_taskmanagers_unit_starts_with_its_gpus_alone_or_not_at_all", probe.path()) {
        return;
    }
    prepare(directory.path(), TASK_MANAGERS);
    prepare_task_managers(directory.path());
    let output = in_namespaces(ENTER, directory.path());
    let text = |name| fs::read_to_string(directory.path().join(name)).unwrap_or_default();
    let log = format!("{output:?}\n{}\n{}", text("drive.log"), text("taskmanager.log"));
    let says = "flink\nstart-foreground \n+zero\n+full\n-random\n0,1\ndone\n";
    assert_eq!(text("out/1"), says, "{log}");
    assert_eq!(text("second"), "Result=exit-code\nExecMainStatus=1\n", "{log}");
    assert!(text("taskmanager.log").contains("2 units asked for, 1 of 3 can be given"), "{log}");
    let count = |name, state: &str| text(name).matches(&format!("  {state} ")).count();
    assert_eq!((count("first", "held"), count("stopped", "free")), (2, 3), "{}{log}", text("stopped"));
    assert_eq!(text("out/2"), says, "{log}");
}
