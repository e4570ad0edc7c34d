//! `gpu-coord check`: files as people write them, before they are deployed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use assert_cmd::Command;
use tempfile::TempDir;

use crate::sandbox::PROGRAM;

/// The example on Flink's own page "External Resources", which contains a mistake.
const DOCUMENTED: &str = "\
external-resources: gpu;fpga # Define two external resources, \"gpu\" and \"fpga\".

external-resource.gpu.driver-factory.class: org.apache.flink.externalresource.gpu.GPUDriverFactory # Define the driver factory class of gpu resource.
external-resource.gpu.amount: 2 # Define the amount of gpu resource per TaskManager.
external-resource.gpu.param.discovery-script.args: --enable-coordination # Define the custom param discovery-script.args which will be passed into the gpu driver.

external-resource.fpga.driver-factory.class: org.apache.flink.externalresource.fpga.FPGADriverFactory # Define the driver factory class of fpga resource.
external-resource.fpga.amount: 1 # Define the amount of fpga resource per TaskManager.
external-resource.fpga.yarn.config-key: yarn.io/fpga # Define the corresponding config key of fpga in Yarn.
";

/// Flink 2.x, with gpu-coord.
const RIGHT: &str = "\
taskmanager:
  numberOfTaskSlots: 2
  memory.process.size: 16384m
external-resources: [gpu]
external-resource:
  gpu:
    amount: 2
    driver-factory.class: org.apache.flink.externalresource.gpu.GPUDriverFactory
    param.discovery-script:
      path: SCRIPT
      args: --enable-coordination-mode --coordination-file /run/gpus
";

const MANIFESTS: &str = "\
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: trainer
spec:
  replicas: 3
  template:
    spec:
      initContainers:
      - name: download
        image: curl
      containers:
      - name: train
        image: pytorch
        resources:
          limits:
            memory: 16Gi
            nvidia.com/gpu.shared: 2
          requests:
            memory: 8Gi
      - name: serve
        image: triton
        resources:
          limits: {nvidia.com/gpu.shared: 1}
---
";

const OVER: &str = "OVER=nvidia.com/gpu.shared=2
m.yaml:23: Deployment trainer, container `train` asks for 2 of nvidia.com/gpu.shared, of which at most 1 is given: a \
second share gives no more of a device, which its owners take in turns; ask for 1
";

/// A directory with these files, in which the program runs.
fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn command(directory: &Path, line: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env_clear().current_dir(directory).args(line.split(' ')).timeout(Duration::from_secs(60));
    command
}

#[track_caller]
fn says(files: &[(&str, &str)], line: &str, status: i32, stdout: &str, stderr: &str) {
    let directory = directory(files);
    command(directory.path(), line).assert().code(status).stdout(stdout.to_owned()).stderr(stderr.to_owned());
}

#[test]
fn what_is_right_is_ok() {
    let right = RIGHT.replace("SCRIPT", "/usr/bin/gpu-coord");
    says(&[("config.yaml", &right)], "check config.yaml", 0, "OK\n", "");
    let manifests = MANIFESTS.replace("shared: 2", "shared: 1");
    says(&[("config.yaml", &right), ("m.yaml", &manifests)], "check config.yaml m.yaml", 0, "OK\n", "");
    says(&[("empty.yaml", "")], "check empty.yaml", 0, "OK\n", "");
}

#[test]
fn the_example_of_flink_s_documentation_is_wrong() {
    let stdout = "\
flink-conf.yaml:4: `external-resource.gpu.param.discovery-script.path` is missing: Flink runs its own script, \
plugins/external-resource-gpu/nvidia-gpu-discovery.sh, and not gpu-coord
flink-conf.yaml:5: Flink's own script passes over `--enable-coordination`, though Flink's documentation says so, and \
coordinates nothing; write `--enable-coordination-mode`
";
    says(&[("flink-conf.yaml", DOCUMENTED)], "check flink-conf.yaml", 1, stdout, "");
    // Flink 2.x reads it as YAML, to the same end.
    let stdout = stdout.replace("flink-conf.yaml:", "config.yaml:");
    says(&[("config.yaml", DOCUMENTED)], "check config.yaml", 1, &stdout, "");
}

#[test]
fn more_than_one_share_is_over() {
    says(&[("m.yaml", MANIFESTS)], "check m.yaml", 1, OVER, "");
    let whole = MANIFESTS.replace("gpu.shared", "gpu");
    says(&[("m.yaml", &whole)], "check m.yaml", 0, "OK\n", "");
    let config = "\
version: v1
sharing:
  timeSlicing:
    failRequestsGreaterThanOne: true
    resources: [{name: nvidia.com/gpu, replicas: 4}]
";
    let files = [("m.yaml", whole.as_str()), ("plugin.yaml", config)];
    says(&files, "check m.yaml --config plugin.yaml", 1, &OVER.replace("gpu.shared", "gpu"), "");
}

#[test]
fn files_are_told_apart_and_those_that_are_right_are_not_named() {
    let wrong = MANIFESTS.replace("nvidia.com/gpu.shared: 2", "nvidia.com/gpus: 1");
    let files = [("m.yaml", MANIFESTS), ("right.yaml", ""), ("n.yaml", &wrong)];
    let stdout = format!(
        "{OVER}n.yaml:23: Deployment trainer, container `train`: `nvidia.com/gpus` is not a resource of a device plugin; \
         did you mean `nvidia.com/gpu`?\n"
    );
    says(&files, "check m.yaml right.yaml n.yaml", 1, &stdout, "");
}

#[test]
fn options_of_the_script_are_those_of_the_program() {
    let file = |args: &str| {
        let text = RIGHT.replace("SCRIPT", "/usr/bin/gpu-coord");
        text.replace("--enable-coordination-mode --coordination-file /run/gpus", args)
    };
    for (args, problem) in [
        ("--enable-coordination", None),
        ("--print=uuid --enable-coordination --cgroup", None),
        (
            "--enable-coordinatoin",
            Some(
                "`--enable-coordinatoin` is not an option of `gpu-coord AMOUNT`; did you mean `--enable-coordination-mode`?",
            ),
        ),
        (
            "--print uid",
            Some("--print cannot be `uid`: it takes index, host-index, uuid, pci, env, json or spark"),
        ),
        ("--coordination-file", Some("--coordination-file needs a value; see `gpu-coord 1 --help`")),
        (
            "--enable-coordination-mode --no-coordination",
            Some("--enable-coordination-mode and --no-coordination contradict each other"),
        ),
        ("null 2", Some("`null` is one argument too many; see `gpu-coord 1 --help`")),
        ("--help", Some("prints a text, and no units")),
    ] {
        let stdout = problem.map_or("OK\n".to_owned(), |problem| format!("c.yaml:11: {problem}\n"));
        says(&[("c.yaml", &file(args))], "check c.yaml", problem.map_or(0, |_| 1), &stdout, "");
    }
}

#[test]
fn the_environment_is_no_matter() {
    let directory = directory(&[("c.yaml", &RIGHT.replace("SCRIPT", "/usr/bin/gpu-coord"))]);
    let mut command = command(directory.path(), "check c.yaml");
    command.env("GPU_COORD_PRINT", "no such thing").env("FLINK_HOME", "/nonexistent");
    command.assert().code(0).stdout("OK\n").stderr("");
}

#[test]
fn a_host_has_to_have_the_units_and_the_script() {
    let directory = directory(&[]);
    let script = directory.path().join("gpu-coord");
    let config = RIGHT.replace("SCRIPT", script.to_str().unwrap());
    fs::write(directory.path().join("c.yaml"), config).unwrap();
    let check = |count: u32, status: i32, stdout: String| {
        let line = format!("check --host --source simulated:{count} c.yaml");
        command(directory.path(), &line).assert().code(status).stdout(stdout).stderr("");
    };
    let is_wrong = |what: &str| {
        format!(
            "c.yaml:10: the script {} {what} on this host; name where gpu-coord is, or install it there\n",
            script.display()
        )
    };
    check(2, 1, is_wrong("does not exist"));
    fs::write(&script, "").unwrap();
    check(2, 1, is_wrong("is not executable"));
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    check(2, 0, "OK\n".to_owned());
    check(1, 1, "c.yaml:7: `gpu` asks for 2 units, and this host has 1\n".to_owned());

    // With a part of it only.
    let whole = fs::read_to_string(directory.path().join("c.yaml")).unwrap();
    let less =
        whole.replace("--enable-coordination-mode", "--enable-coordination-mode --devices 0-1 --exclude 1");
    fs::write(directory.path().join("c.yaml"), less).unwrap();
    check(8, 1, "c.yaml:7: `gpu` asks for 2 units, and this host has 1\n".to_owned());
    fs::write(directory.path().join("c.yaml"), whole).unwrap();

    // Under the name of Flink's script, as some install it: it is still known by what the name leads to.
    symlink(&script, directory.path().join("nvidia-gpu-discovery.sh")).unwrap();
    let text = fs::read_to_string(directory.path().join("c.yaml")).unwrap();
    let text = text.replace("/gpu-coord", "/nvidia-gpu-discovery.sh").replace("-mode", "");
    fs::write(directory.path().join("c.yaml"), text).unwrap();
    check(2, 0, "OK\n".to_owned());
}

#[test]
fn a_pod_has_to_find_its_units_on_this_host() {
    let manifests = MANIFESTS.replace("gpu.shared", "gpu");
    let files = [("m.yaml", manifests.as_str())];
    says(&files, "check --host --source simulated:3 m.yaml", 0, "OK\n", "");
    let stdout = "m.yaml:23: Deployment trainer: a pod needs 3 of nvidia.com/gpu, and this host has 2\n";
    says(&files, "check --host --source simulated:2 m.yaml", 1, stdout, "");
}

#[test]
fn replicas_of_this_host_are_counted() {
    let config = "\
version: v1
sharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 2}]}}
";
    let manifests = MANIFESTS.replace("shared: 2", "shared: 1");
    let files = [("m.yaml", manifests.as_str()), ("plugin.yaml", config)];
    let line = "check --host --source simulated:1 --config plugin.yaml m.yaml";
    says(&files, line, 0, "OK\n", "");
    let whole = manifests.replace("gpu.shared", "gpu");
    let stdout = "m.yaml:23: Deployment trainer: a pod needs 2 of nvidia.com/gpu, and this host has 0\n";
    says(&[("m.yaml", &whole), ("plugin.yaml", config)], line, 1, stdout, "");
}

/// One line on stderr, and nothing of the other files on stdout.
#[test]
fn a_file_that_cannot_be_understood_is_an_error() {
    let bomb: String = (1..30).map(|at| format!("a{at}: &a{at} [*a{0}, *a{0}]\n", at - 1)).collect();
    let bomb = format!("a0: &a0 [x, x]\n{bomb}");
    let large = "#".repeat((4 << 20) + 1);
    let deep = "- ".repeat(50_000);
    let files = [
        ("m.yaml", MANIFESTS),
        ("bracket.yaml", "kind: Pod\nspec: [1"),
        ("twice.yaml", "kind: Pod\nspec: 1\nspec: 2\n"),
        ("template.yaml", "kind: Pod\nspec: {{ .Values.spec }}\n"),
        ("list.yaml", "- a\n"),
        ("bomb.yaml", &bomb),
        ("deep.yaml", &deep),
        ("large.yaml", &large),
    ];
    for (file, problem) in [
        ("bracket.yaml", "bracket.yaml:3:1: not YAML: while parsing a flow sequence, expected ',' or ']'"),
        ("twice.yaml", "twice.yaml:3:1: not YAML: duplicated key in mapping"),
        ("template.yaml", "template.yaml:2:7: has a key that is not text, which means nothing here"),
        (
            "list.yaml",
            "list.yaml:1:1: is neither a Flink configuration nor a Kubernetes manifest, which are keys with values",
        ),
        ("bomb.yaml", "bomb.yaml:16:22: more than 500000 values, those that aliases repeat included"),
        ("deep.yaml", "deep.yaml:1:129: values lie within values more than 64 deep"),
        ("large.yaml", "large.yaml: larger than 4 MiB, so it is not a configuration"),
        (".", "cannot read .: Is a directory (os error 21)"),
        ("none.yaml", "cannot read none.yaml: No such file or directory (os error 2)"),
    ] {
        says(&files, &format!("check m.yaml {file}"), 4, "", &format!("gpu-coord: {problem}\n"));
    }
    let directory = directory(&[]);
    fs::write(directory.path().join("f.yaml"), b"a: b\nc: \xff\n").unwrap();
    let stderr = "gpu-coord: f.yaml:2:4: not UTF-8\n";
    command(directory.path(), "check f.yaml").assert().code(4).stdout("").stderr(stderr);
}

/// The configuration file is read by the same reader.
#[test]
fn a_configuration_file_has_the_same_bounds() {
    let deep = "- ".repeat(50_000);
    let files = [("m.yaml", MANIFESTS), ("deep.yaml", deep.as_str())];
    let stderr = "gpu-coord: deep.yaml:1:129: values lie within values more than 64 deep\n";
    says(&files, "check m.yaml --config deep.yaml", 4, "", stderr);
}

#[test]
fn files_have_to_be_named() {
    let stderr = "gpu-coord: FILE is missing; see `gpu-coord check --help`\n";
    says(&[], "check", 2, "", stderr);
    says(
        &[],
        "check --hots f",
        2,
        "",
        "gpu-coord: `--hots` is not an option of `gpu-coord check`; did you mean `--host`?\n",
    );
}

#[test]
fn a_pipe_is_read_and_its_writer_is_waited_for_no_longer_than_the_deadline() {
    let directory = directory(&[]);
    let pipe = directory.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR).unwrap();
    let started = Instant::now();
    let stderr = "gpu-coord: the deadline of 0.5 s passed while waiting for the contents of pipe\n";
    command(directory.path(), "check pipe --deadline 0.5").assert().code(3).stdout("").stderr(stderr);
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());

    let writer = std::thread::spawn(move || fs::write(pipe, MANIFESTS).unwrap());
    let stdout = OVER.replace("m.yaml", "pipe");
    command(directory.path(), "check pipe").assert().code(1).stdout(stdout).stderr("");
    writer.join().unwrap();
}
