//! A host that systemd has booted, in namespaces of its own, and on it the units of `packaging/`: what they may not
//! do is known to systemd and the kernel alone.

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

/// What a container manager does for the systemd in a container: nothing that it writes is the machine's.
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

/// Without systemd's own units, which would do more than is asked for here.
const ALONE: &str = "[Unit]\nDefaultDependencies=no\n[Service]\n";

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn prepare(directory: &Path) {
    let units = directory.join("units");
    write(&directory.join("boot"), BOOT);
    write(&directory.join("drive"), DRIVE);
    fs::set_permissions(directory.join("drive"), fs::Permissions::from_mode(0o755)).unwrap();
    // Devices that everybody may open, and that are everywhere.
    let devices =
        r#"{"devices": [{"id": "a", "nodes": ["/dev/zero"]}, {"id": "b", "nodes": ["/dev/full"]}]}"#;
    write(&directory.join("devices.json"), devices);
    let streams =
        |name| format!("StandardOutput=append:/run/host/{name}\nStandardError=append:/run/host/{name}\n");
    let drive =
        "Type=oneshot\nDelegate=yes\nExecStart=/run/host/drive\nExecStopPost=/bin/systemctl poweroff -ff\n";
    write(&units.join("drive.service"), &(ALONE.to_owned() + drive + &streams("drive.log")));
    let source = "Environment=GPU_COORD_SOURCE=file:/run/host/devices.json GPU_COORD_VERBOSE=1\n";
    let drop_in = ALONE.to_owned() + source + &streams("reclaim.log");
    write(&units.join("gpu-coord-reclaim.service.d/alone.conf"), &drop_in);
    let service = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd/gpu-coord-reclaim.service");
    fs::copy(service, units.join("gpu-coord-reclaim.service")).unwrap();
    fs::create_dir_all(directory.join("usr/bin")).unwrap();
    fs::copy(PROGRAM, directory.join("usr/bin/gpu-coord")).unwrap();
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
    prepare(directory.path());
    let output = in_namespaces(ENTER, directory.path());
    let text = |name| fs::read_to_string(directory.path().join(name)).unwrap_or_default();
    let log = format!("{output:?}\n{}\n{}", text("drive.log"), text("reclaim.log"));
    // What is left of the owner keeps its unit, and may open none any more.
    let row = text("after-the-owner").lines().find(|line| line.starts_with('0')).map(ToOwned::to_owned);
    assert!(row.is_some_and(|row| row.contains("stale") && row.ends_with("denies 1:5 1:7")), "{log}");
    for said in ["released index 0 of pid", "outlived pid", "is empty, and is removed"] {
        assert!(text("reclaim.log").contains(said), "{said}: {log}");
    }
    assert!(text("after-the-child").contains("free") && !text("after-the-child").contains("stale"), "{log}");
}
