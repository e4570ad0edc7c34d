//! Devices shared through MPS: its daemon must run, and its clients are told their limits.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::Host;
use crate::fake_nvml;
use crate::sandbox::{Process, skip};

fn mps(replicas: u32, more: &str) -> String {
    format!("version: v1\nsharing: {{mps: {{resources: [{{name: gpu, replicas: {replicas}{more}}}]}}}}\n")
}

fn directories(pipe: &Path) -> String {
    format!("gpu-coord: {{mps: {{pipe-directory: {}, log-directory: /var/log/mps}}}}\n", pipe.display())
}

fn no_daemon(pipe: &Path) -> String {
    let pipe = pipe.display();
    format!(
        "{pipe}: no MPS control daemon answers here; start it with `CUDA_MPS_PIPE_DIRECTORY={pipe} \
         nvidia-cuda-mps-control -d`"
    )
}

/// A daemon's FIFO, for as long as it is held.
fn daemon(pipe: &Path) -> File {
    fs::create_dir_all(pipe).unwrap();
    mkfifo(&pipe.join("control"), Mode::S_IRWXU).unwrap();
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open(pipe.join("control")).unwrap()
}

/// What a command finds of MPS in its environment, sorted.
fn told(mut exec: std::process::Command) -> Vec<String> {
    let output = exec.output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(0), String::new()));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut told: Vec<String> =
        text.lines().filter(|line| line.starts_with("CUDA_MPS_")).map(str::to_owned).collect();
    told.sort();
    told
}

#[test]
fn without_a_daemon_nothing_is_given() {
    let host = Host::new(1, "");
    let pipe = host.sandbox.path().join("pipe");
    host.configure(&(mps(4, "") + &directories(&pipe)));
    let owner = Process::start();
    let refused = |host: &Host| {
        host.refuses(&format!("allocate 1 --owner {}", owner.pid()), 4, &no_daemon(&pipe));
        host.refuses("1 --enable-coordination-mode", 4, &no_daemon(&pipe));
        let exec = host.exec("1 --source simulated:1", &["true"]).output().unwrap();
        assert_eq!((exec.status.code(), exec.stdout.len()), (Some(4), 0));
        assert_eq!(String::from_utf8(exec.stderr).unwrap(), format!("gpu-coord: {}\n", no_daemon(&pipe)));
        assert_eq!(host.held(), []);
    };
    refused(&host);
    let reader = daemon(&pipe);
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
    host.release(&owner);
    drop(reader);
    refused(&host);
    fs::remove_file(pipe.join("control")).unwrap();
    let _listener = UnixListener::bind(pipe.join("control")).unwrap();
    host.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
}

#[test]
fn the_daemon_is_looked_for_where_cuda_does() {
    const TEST: &str = "the_daemon_is_looked_for_where_cuda_does";
    let pipe = PathBuf::from("/tmp/nvidia-mps");
    if pipe.exists() {
        return skip(TEST, "this host has MPS");
    }
    Host::new(1, &mps(4, "")).refuses("allocate 1", 4, &no_daemon(&pipe));
}

#[test]
fn a_client_is_told_its_limits() {
    let host = Host::new(2, "");
    let pipe = host.sandbox.path().join("pipe");
    let _reader = daemon(&pipe);
    for (replicas, percentage, memory) in [(2, 50, 8192), (3, 33, 5461), (10, 10, 1638), (200, 1, 81)] {
        host.configure(&(mps(replicas, "") + &directories(&pipe)));
        let expected = [
            format!("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={percentage}"),
            "CUDA_MPS_LOG_DIRECTORY=/var/log/mps".to_owned(),
            format!("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={memory}M"),
            format!("CUDA_MPS_PIPE_DIRECTORY={}", pipe.display()),
        ];
        assert_eq!(told(host.exec("1 --source simulated:2", &["env"])), expected);
        // It is the first that the client sees, whichever it is of the host.
        assert_eq!(told(host.exec("1 --source simulated:2 --devices 1", &["env"])), expected);
    }
}

/// Where the memory is not known there is no limit to tell; of an instance it is its own.
#[test]
fn the_limit_is_of_what_is_shared() {
    let host = fake_nvml::Host::new().with("GPUS", "1").with("MIG", "0:1");
    let pipe = host.path("pipe");
    let _reader = daemon(&pipe);
    let flags = "flags: {migStrategy: mixed}\n";
    fs::write(
        host.path("config.yaml"),
        mps(2, "").replace("gpu,", "mig-1g.5gb,") + flags + &directories(&pipe),
    )
    .unwrap();
    let line = "exec 1 --resource nvidia.com/mig-1g.5gb --source nvml --config config.yaml --coordination-file record";
    let mut exec = host.command(line);
    let told_of_instance = told({
        exec.args(["--", "env"]);
        exec
    });
    assert!(
        told_of_instance.contains(&"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2432M".to_owned()),
        "{told_of_instance:?}"
    );
    let host = Host::new(1, "");
    host.configure(&(mps(2, "") + &directories(&pipe)));
    fs::write(host.sandbox.path().join("devices.json"), r#"{"devices": [{"id": "a"}]}"#).unwrap();
    let told = told(host.exec("1 --source file:devices.json", &["env"]));
    assert_eq!(told.len(), 3);
    assert!(told.iter().all(|line| !line.contains("MEM_LIMIT")), "{told:?}");
}

/// With time slicing, or without sharing, a command gets no such variables.
#[test]
fn others_are_told_nothing() {
    let host = Host::new(2, &super::sliced(4));
    assert_eq!(told(host.exec("1 --source simulated:2", &["env"])), [""; 0]);
    let pipe = host.sandbox.path().join("nowhere");
    host.configure(&(mps(4, ", devices: [0]") + &directories(&pipe)));
    assert_eq!(told(host.exec("1 --source simulated:2 --devices 1", &["env"])), [""; 0]);
    host.refuses("allocate 1 --devices 0", 4, &no_daemon(&pipe));
}

#[test]
fn a_client_has_one_share() {
    let host = Host::new(2, "");
    let pipe = host.sandbox.path().join("pipe");
    let _reader = daemon(&pipe);
    host.configure(&(mps(4, "") + &directories(&pipe)));
    host.refuses(
        "allocate 2",
        6,
        "2 shares of shared devices asked for, and at most 1 is given at a time: a second share gives no more of a device to \
         a client of MPS, which has the limits of one; ask for 1",
    );
}
