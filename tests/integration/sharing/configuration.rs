//! How the configuration file is found and read, and its defaults of options.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::{Host, sliced};
use crate::fake_nvml::Answer;
use crate::reclaim::reclaims;
use crate::sandbox::{PROGRAM, is_root, may_mount};

const UUID: &str = "GPU-00000000-0000-4000-8000-000000000000\n";
const PCI: &str = "fffffff0:00:00.0\n";

fn options(text: &str) -> String {
    format!("version: v1\ngpu-coord:\n  options: {{{text}}}\n")
}

#[test]
fn the_command_line_wins_over_the_environment_and_that_over_the_file() {
    let host = Host::new(1, &options("print: uuid"));
    host.answers("1", UUID);
    host.command("1").env("GPU_COORD_PRINT", "pci").assert().code(0).stderr("").stdout(PCI);
    host.command("1 --print index").env("GPU_COORD_PRINT", "pci").assert().code(0).stderr("").stdout("0\n");
    host.answers("1 --print pci", PCI);
    host.command("1").env("GPU_COORD_PRINT", "").assert().code(0).stderr("").stdout(UUID);
}

/// A default that contradicts an option or a variable is ignored.
#[test]
#[rustfmt::skip] // a table
fn what_is_contradicted_nearer_by_is_passed_over() {
    let no = ("GPU_COORD_NO_COORDINATION", "1");
    for (file, variable, line, is_recorded) in [
        ("enable-coordination-mode: true", None,                                     "1",                              true),
        ("enable-coordination: true",      None,                                     "1",                              true),
        ("enable-coordination-mode: true", Some(no),                                 "1",                              false),
        ("enable-coordination-mode: true", Some(("GPU_COORD_NO_COORDINATION", "0")), "1",                              true),
        ("enable-coordination-mode: true", Some(("GPU_COORD_ENABLE_COORDINATION", "0")), "1",                          false),
        ("enable-coordination-mode: true", None,                                     "1 --no-coordination",            false),
        ("no-coordination: true",          None,                                     "1 --enable-coordination-mode",   true),
        ("no-coordination: true",          Some(("GPU_COORD_ENABLE_COORDINATION_MODE", "1")), "1",                     true),
        ("no-coordination: true",          None,                                     "allocate 1",                     false),
        ("no-coordination: false",         None,                                     "allocate 1",                     true),
        ("no-coordination: \"0\"",         None,                                     "allocate 1",                     true),
    ] {
        let host = Host::new(1, &options(file));
        host.command(line).envs(variable).assert().code(0).stderr("").stdout("0\n");
        assert_eq!(host.sandbox.file().exists(), is_recorded, "{file} {variable:?} {line}");
    }
}

#[test]
fn options_of_other_commands_are_passed_over() {
    let host = Host::new(1, &options("json: true, dry-run: true, user: nobody, print: uuid, policy: pack"));
    host.answers("1", UUID);
    let output = host.command("status").assert().code(0).stderr("").get_output().stdout.clone();
    assert!(output.starts_with(b"{"), "status has --json");
    reclaims(&host.sandbox, "--config config.yaml", "");
}

#[test]
#[rustfmt::skip] // a table
fn a_wrong_option_is_told_with_the_file() {
    for (text, problem) in [
        ("prnt: uuid",            "config.yaml:3:13: `prnt` is not an option that can be set here; did you mean `print`?"),
        ("nonsense: 1",           "config.yaml:3:13: `nonsense` is not an option that can be set here"),
        ("amount: 1",             "config.yaml:3:13: `amount` is not an option that can be set here"),
        ("help: true",            "config.yaml:3:13: `help` is not an option that can be set here"),
        ("print: uuid, config: x", "config.yaml:3:26: `config` is not an option that can be set here"),
        ("config-key: x",         "config.yaml:3:13: `config-key` is not an option that can be set here"),
        ("print: uid",            "config.yaml:3:13: `print` cannot be `uid`: it takes index, host-index, uuid, pci, env, json or spark"),
        ("deadline: soon",        "config.yaml:3:13: `deadline` cannot be `soon`: it takes seconds, more than 0 and at most 86400"),
        ("skip-busy: maybe",      "config.yaml:3:13: `skip-busy` cannot be `maybe`: it takes 1, true, yes, 0, false or no"),
        ("skip-busy: true, skip_busy: false", "config.yaml:3:30: `skip-busy` and `skip_busy` set the same option"),
        ("enable-coordination: true, enable-coordination-mode: true", "config.yaml:3:40: `enable-coordination` and `enable-coordination-mode` set the same option"),
        ("enable-coordination: true, no-coordination: true", "config.yaml:3:13: `enable-coordination-mode` and `no-coordination` contradict each other"),
    ] {
        Host::new(1, &options(text)).refuses("1", 4, problem);
    }
}

/// A mistake in the environment is reported as such, even if there is a file too.
#[test]
fn a_wrong_variable_is_told_as_one() {
    let host = Host::new(1, &options("deadline: 5"));
    let says = "gpu-coord: GPU_COORD_PRINT cannot be `uid`: it takes index, host-index, uuid, pci, env, json or spark\n";
    host.command("1").env("GPU_COORD_PRINT", "uid").assert().code(2).stdout("").stderr(says);
}

#[test]
#[rustfmt::skip] // a table
fn a_file_that_is_named_has_to_be_readable() {
    let host = Host::new(1, "version: v1\n");
    fs::create_dir(host.sandbox.path().join("directory")).unwrap();
    nix::unistd::mkfifo(&host.sandbox.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::write(host.sandbox.path().join("latin1.yaml"), b"version: v1\n# \xe9\n").unwrap();
    fs::write(host.sandbox.path().join("broken.yaml"), "version: v1\nsharring: {}\n").unwrap();
    fs::write(host.sandbox.path().join("empty.yaml"), "").unwrap();
    for (path, problem) in [
        ("nowhere.yaml", "cannot read nowhere.yaml: No such file or directory (os error 2)"),
        ("directory",    "cannot read directory: Is a directory (os error 21)"),
        ("config.yaml/x", "cannot read config.yaml/x: Not a directory (os error 20)"),
        ("pipe",         "cannot read pipe: it is not a regular file"),
        ("/proc/kmsg",   "cannot read /proc/kmsg: Resource temporarily unavailable (os error 11)"),
        ("/dev/zero",    "cannot read /dev/zero: it is not a regular file"),
        ("latin1.yaml",  "latin1.yaml:1:1: not UTF-8"),
        ("broken.yaml",  "broken.yaml:2:1: `sharring` is not a key here; did you mean `sharing`?"),
    ] {
        for command in ["1", "allocate 1", "status", "deallocateAll", "reclaim"] {
            host.refuses(&format!("{command} --config {path}"), 4, problem);
        }
    }
    host.answers("1 --config empty.yaml", "0\n");
    host.answers("1 --config /dev/null", "0\n");
    assert!(!host.sandbox.file().exists());
}

/// Whether it can be read matters, not who owns it: whoever names it is responsible for it.
#[test]
fn a_file_of_another_user_is_read_if_it_may_be() {
    if !is_root("a_file_of_another_user_is_read_if_it_may_be") {
        return;
    }
    let host = Host::new(1, &options("print: uuid"));
    let path = host.sandbox.path().join("config.yaml");
    fs::set_permissions(host.sandbox.path(), Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(&path, Some(4712), Some(4712)).unwrap();
    let as_another = |mode: u32| {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let program = host.program("1");
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--reuid=4711", "--regid=4711", "--clear-groups"]).arg(program.get_program());
        setpriv.args(program.get_args()).env_clear().env("GPU_COORD_CONFIG", "config.yaml");
        let Answer { status, stdout, stderr } =
            Answer::of(&setpriv.current_dir(host.sandbox.path()).output().unwrap());
        (status, stdout, stderr)
    };
    let denied = "gpu-coord: cannot read config.yaml: Permission denied (os error 13); run gpu-coord as a user who may do that\n";
    assert_eq!(as_another(0o600), (Some(4), String::new(), denied.to_owned()));
    assert_eq!(as_another(0o644), (Some(0), UUID.to_owned(), String::new()));
}

/// In mounts of its own, where `/etc` has what the script puts there.
fn with_etc(script: &str, line: &str) -> (Option<i32>, String, String) {
    let host = Host::new(1, "");
    let mut unshare = Command::new("unshare");
    unshare.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").current_dir(host.sandbox.path());
    let script =
        format!("mount -t tmpfs tmpfs /etc && mkdir /etc/gpu-coord || exit 99; {script}; exec \"$0\" \"$@\"");
    unshare.args(["--mount", "sh", "-c", &script, PROGRAM]).args(line.split(' '));
    let output = unshare.args(["--source", "simulated:1", "--coordination-file", "coordination"]).output();
    let Answer { status, stdout, stderr } = Answer::of(&output.unwrap());
    (status, stdout, stderr)
}

#[test]
#[rustfmt::skip] // a table
fn a_file_in_etc_is_read_if_it_is_there() {
    if !may_mount("a_file_in_etc_is_read_if_it_is_there") {
        return;
    }
    const SAY: &str = "printf 'gpu-coord: {options: {print: uuid}}' >/etc/gpu-coord/config.yaml";
    let answer = |text: &str| (Some(0), text.to_owned(), String::new());
    let refused = |problem: &str| (Some(4), String::new(), format!("gpu-coord: {problem}\n"));
    for (script, line, expected) in [
        (":",                                              "1",             answer("0\n")),
        ("rmdir /etc/gpu-coord",                           "1",             answer("0\n")),
        (SAY,                                              "1",             answer(UUID)),
        (SAY,                                              "1 --print pci", answer(PCI)),
        (SAY,                                              "1 --config /dev/null", answer("0\n")),
        ("echo broken >/etc/gpu-coord/config.yaml",        "1",             refused("/etc/gpu-coord/config.yaml:1:1: a configuration takes keys with values")),
        ("mkdir /etc/gpu-coord/config.yaml",               "1",             refused("cannot read /etc/gpu-coord/config.yaml: Is a directory (os error 21)")),
        ("ln -s config.yaml /etc/gpu-coord/config.yaml",   "1",             refused("cannot read /etc/gpu-coord/config.yaml: Too many levels of symbolic links (os error 40)")),
    ] {
        assert_eq!(with_etc(script, line), expected, "{script} {line}");
    }
}

#[test]
fn one_configuration_of_a_config_map_is_chosen() {
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plugin}\ndata:\n  plain: |-\n    version: v1\n  small: |\n    \
        version: v1\n    sharing:\n      timeSlicing:\n        resources:\n        - name: nvidia.com/gpu\n          replicas: 3\n";
    let host = Host::new(1, map);
    host.answers("3 --config-key small", "0\n");
    host.answers("1 --config-key plain", "0\n");
    host.command("3").env("GPU_COORD_CONFIG_KEY", "small").assert().code(0).stderr("").stdout("0\n");
    host.refuses(
        "3 --config-key plain",
        1,
        "3 units asked for, and there are 1: waiting cannot help; ask for fewer",
    );
    let several = "config.yaml:5:3: has several configurations (plain, small): choose one with --config-key";
    host.refuses("1", 4, several);
    host.refuses("1 --config-key x", 4, "config.yaml:5:3: has no configuration `x`; it has plain, small");
    host.configure(&sliced(3));
    let no_map = "config.yaml:1:1: not a ConfigMap, so there is no `small` to choose; leave --config-key out";
    host.refuses("1 --config-key small", 4, no_map);
}

#[test]
fn what_is_for_the_plugin_alone_is_named_to_who_asks() {
    let host = Host::new(1, "version: v1\nflags: {failOnInitError: true}\nimex: {}\nhealth: {x: y}\n");
    host.answers("1", "0\n");
    let assert = host.command("1 -v").assert().code(0).stdout("0\n");
    let stderr = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    let named: Vec<&str> = stderr.lines().filter(|line| line.contains("plugin")).collect();
    let line = |key: &str| {
        format!("gpu-coord: config.yaml: {key} is for the Kubernetes device plugin, and is ignored here")
    };
    assert_eq!(named, [line("flags.failOnInitError"), line("imex"), line("health")]);
}

#[test]
fn the_packaged_example_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/config.yaml");
    let host = Host::new(2, &fs::read_to_string(path).unwrap());
    let assert = host.command("status").assert().code(0).stderr("");
    let table = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    let (units, quotas) = table.split_once("\n\n").unwrap();
    assert_eq!(units.matches("nvidia.com/gpu.shared").count(), 8, "{table}");
    assert_eq!(
        quotas,
        "NAMESPACE  RESOURCE               USED  LIMIT\nteam-a     nvidia.com/gpu.shared  0     3\n\n\
         USER  RESOURCE               USED  LIMIT\n1000  nvidia.com/gpu.shared  0     6\n"
    );
    host.answers("1", "0\n");
}

/// The daemon and its clients use the same directory.
#[test]
fn the_packaged_daemon_has_our_directories() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let unit = fs::read_to_string(root.join("packaging/systemd/nvidia-mps.service")).unwrap();
    let host = Host::new(1, "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}\n");
    let says = "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps";
    assert!(unit.lines().any(|line| line == format!("Environment={says}")), "{unit}");
    assert!(
        unit.lines().any(|line| line == "Environment=CUDA_MPS_LOG_DIRECTORY=/var/log/nvidia-mps"),
        "{unit}"
    );
    if !Path::new("/tmp/nvidia-mps").exists() {
        let stderr = host.command("allocate 1").assert().code(4).stdout("").get_output().stderr.clone();
        assert!(String::from_utf8(stderr).unwrap().contains(says));
    }
}
