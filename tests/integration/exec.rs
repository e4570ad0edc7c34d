//! `exec`: the command that it becomes, and the environment of that.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{Write, pipe};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};

use crate::record::held_in;
use crate::running::{End, Running, answer, wait_until};
use crate::sandbox::{PROGRAM, Process, Sandbox, is_root, may_mount, skip};
use crate::strict::is_refused_if_strict;
use crate::tree::{Tree, write_script};

/// The names of simulated GPUs begin so.
pub(crate) const UUID: &str = "GPU-00000000-0000-4000-8000-00000000000";

/// `gpu-coord exec`, with the options of `line`, becoming these words.
pub(crate) fn exec<W: AsRef<OsStr>>(host: &Sandbox, line: &str, words: &[W]) -> Command {
    let mut command = host.program(&format!("exec {line}"));
    command.arg("--").args(words);
    command
}

/// A shell in the place of `gpu-coord exec`, and `gpu-coord` on its PATH.
pub(crate) fn script(host: &Sandbox, line: &str, script: &str) -> Command {
    let mut command = exec(host, line, &["sh", "-ec", script]);
    let directory = Path::new(PROGRAM).parent().unwrap().display();
    command.env("PATH", format!("{directory}:/usr/sbin:/usr/bin:/sbin:/bin"));
    command
}

#[track_caller]
fn refuses(command: Command, code: i32, problem: &str) {
    assert_eq!(
        Running::start(command).end(),
        (End::Exit(code), String::new(), format!("gpu-coord: {problem}\n"))
    );
}

#[test]
fn it_becomes_the_command() {
    let host = Sandbox::with_gpus(2);
    let mut running =
        Running::start(exec(&host, "2", &["sh", "-c", "echo $$ $0 $#; exec sleep 1000", "a name", ""]));
    let pid = running.pid();
    assert_eq!(running.line(), format!("{pid} a name 1"));
    assert_eq!(host.holders(), [(0, pid), (1, pid)]);
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end(), (End::Killed(Signal::SIGTERM), String::new(), String::new()));
    for status in [0, 1, 126, 255] {
        let command = exec(&host, "2", &["sh", "-c", &format!("exit {status}")]);
        assert_eq!(Running::start(command).end().0, End::Exit(status));
    }
    let next = Process::start();
    host.answers(&format!("allocate 2 --check-dead --owner {}", next.pid()), "0,1\n");
}

#[test]
fn the_streams_are_the_commands() {
    let host = Sandbox::with_gpus(1);
    let mut command = exec(&host, "1", &["sh", "-c", "read line; echo \"$line\"; echo aside >&2"]);
    let mut running = Running::with_stdout(command.stdin(Stdio::piped()), Stdio::piped());
    running.say("a line");
    assert_eq!(running.end(), (End::Exit(0), "a line\n".to_owned(), "aside\n".to_owned()));
}

/// Neither the lock nor anything else that was open; nor with a wait before it, which opens more.
#[test]
fn nothing_of_ours_stays_open_or_blocked() {
    let host = Sandbox::with_gpus(1);
    for line in ["1", "1 --wait", "0"] {
        let mut command = exec(&host, line, &["sleep", "1000"]);
        // SAFETY: both are system calls that are safe between fork and exec.
        #[expect(unsafe_code, reason = "what a child inherits is set before it is executed")]
        unsafe {
            command.pre_exec(|| {
                signal(Signal::SIGPIPE, SigHandler::SigIgn)?;
                Ok(SigSet::from(Signal::SIGTERM).thread_block()?)
            });
        }
        let holder = (line == "1 --wait").then(Process::start);
        if let Some(holder) = &holder {
            host.answers(&format!("allocate 1 --check-dead --owner {}", holder.pid()), "0\n");
        }
        let running = Running::start(command);
        if let Some(holder) = holder {
            wait_until("it waits", || host.text().contains("\n? ") || host.text().starts_with("? "));
            holder.kill();
        }
        let inherited = Process::start();
        let process = format!("/proc/{}", running.pid());
        let read = |name: &str| fs::read_to_string(format!("{process}/{name}")).unwrap();
        wait_until("it sleeps", || read("cmdline") == "sleep\x001000\0");
        let open = |pid: u32| -> BTreeSet<_> {
            fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(|fd| fd.unwrap().file_name()).collect()
        };
        // Its loader opens something for a moment.
        wait_until("nothing is open but what any process has", || {
            open(running.pid()) == open(inherited.pid())
        });
        let status = read("status");
        let of = |set: &str| status.lines().find_map(|l| l.strip_prefix(set)).unwrap().trim().to_owned();
        assert_eq!(of("SigBlk:"), "0000000000000000", "{line}");
        let pipe = 1_u64 << (Signal::SIGPIPE as u32 - 1);
        assert_eq!(u64::from_str_radix(&of("SigIgn:"), 16).unwrap() & pipe, 0, "{line}");
        drop(running);
    }
}

#[test]
#[rustfmt::skip] // a table
fn what_cannot_be_run_is_given_nothing() {
    let host = Sandbox::with_gpus(1);
    fs::write(host.path().join("plain"), "").unwrap();
    for (words, code, problem) in [
        (&["no-such-command"][..],  127, "cannot run no-such-command: No such file or directory (os error 2); name what is there, by a path or in PATH; of a script its interpreter has to be there, too"),
        (&["./missing", "-x"],      127, "cannot run ./missing: No such file or directory (os error 2); name what is there, by a path or in PATH; of a script its interpreter has to be there, too"),
        (&[""],                     127, "cannot run : No such file or directory (os error 2); name what is there, by a path or in PATH; of a script its interpreter has to be there, too"),
        (&["--wait"],               127, "cannot run --wait: No such file or directory (os error 2); name what is there, by a path or in PATH; of a script its interpreter has to be there, too"),
        (&["./plain"],              126, "cannot run ./plain: Permission denied (os error 13); name a file that may be executed"),
        (&["."],                    126, "cannot run .: Permission denied (os error 13); name a file that may be executed"),
        (&["./plain/x"],            126, "cannot run ./plain/x: Not a directory (os error 20)"),
        (&["/etc"],                 126, "cannot run /etc: Permission denied (os error 13); name a file that may be executed"),
    ] {
        for line in ["1", "0", "1 --wait"] {
            refuses(exec(&host, line, words), code, problem);
            assert!(!host.file().exists(), "{words:?}");
        }
    }
}

/// It is executable, but its interpreter is missing, which is noticed too late.
#[test]
fn what_the_kernel_does_not_run_leaves_nothing_recorded() {
    let host = Sandbox::with_gpus(2);
    let holder = Process::start();
    host.answers(&format!("allocate 1 --owner {}", holder.pid()), "0\n");
    let before = host.text();
    let mut make = Command::new("sh");
    make.args(["-c", "echo '#!/no/such/interpreter' > program; chmod 755 program"]).current_dir(host.path());
    assert!(make.status().unwrap().success());
    for line in ["1", "1 --wait", "1 --wait=1"] {
        let problem = "cannot run ./program: No such file or directory (os error 2); name what is there, by a path or in \
                       PATH; of a script its interpreter has to be there, too";
        refuses(exec(&host, line, &["./program"]), 127, problem);
        assert_eq!(host.holders(), [(0, holder.pid())]);
        assert_eq!(&host.text()[..before.len()], before);
    }
    host.answers(&format!("allocate 1 --owner {}", holder.pid()), "1\n");
}

/// In a user namespace that has root alone.
#[test]
fn who_cannot_be_become_is_given_nothing() {
    let namespace = ["--user", "--map-root-user"];
    let made = Command::new("unshare").args(namespace).arg("true").stderr(Stdio::null()).status();
    if !made.is_ok_and(|status| status.success()) {
        return skip("who_cannot_be_become_is_given_nothing", "it makes a user namespace");
    }
    let host = Sandbox::with_gpus(1);
    let program = exec(&host, "1 --user 1000:1000", &["true"]);
    let mut command = Command::new("unshare");
    command.args(namespace).arg(program.get_program()).args(program.get_args()).current_dir(host.path());
    let problem = "cannot become user 1000:1000: Operation not permitted (os error 1); in a container, root becomes only \
                   users that its user namespace has, and needs CAP_SETUID and CAP_SETGID";
    refuses(command, 126, problem);
    assert_eq!(host.holders(), []);
}

/// Others would wait for the lock as long.
#[test]
fn a_warning_that_nobody_reads_is_not_waited_for() {
    let host = Sandbox::with_gpus(1);
    let (_reader, mut writer) = pipe().unwrap();
    let size = fcntl(&writer, FcntlArg::F_GETPIPE_SZ).unwrap();
    writer.write_all(&vec![b'x'; usize::try_from(size).unwrap()]).unwrap();
    let mut command = exec(&host, "1 --deadline 600", &["sleep", "1000"]);
    let mut child = command.env("GPU_COORD_UNKNOWN", "1").stderr(writer).spawn().unwrap();
    let comm = format!("/proc/{}/comm", child.id());
    wait_until("it sleeps", || fs::read_to_string(&comm).unwrap() == "sleep\n");
    assert_eq!(host.holders(), [(0, child.id())]);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn odd_command_lines_are_told_apart() {
    let host = Sandbox::with_gpus(1);
    let missing = "COMMAND is missing; see `gpu-coord exec --help`";
    refuses(host.program("exec 1"), 2, missing);
    refuses(exec::<&str>(&host, "1", &[]), 2, missing);
    refuses(host.program("exec 1 true"), 2, "`true` is one argument too many; see `gpu-coord exec --help`");
    refuses(exec(&host, "", &["1", "true"]), 2, "AMOUNT is missing; see `gpu-coord exec --help`");
    refuses(
        exec(&host, "1 --wait=soon", &["true"]),
        2,
        "--wait cannot be `soon`: it takes seconds, at most a year of them, or no value to wait without end",
    );
    refuses(
        exec(&host, "1 --wait 5", &["true"]),
        2,
        "`5` is one argument too many; if it is the value of --wait, write `--wait=5`",
    );
    refuses(
        exec(&host, "2", &["true"]),
        1,
        "2 units asked for, and there are 1: waiting cannot help; ask for fewer",
    );
    refuses(
        exec(&host, "2 --wait", &["true"]),
        1,
        "2 units asked for, and there are 1: waiting cannot help; ask for fewer",
    );
    let huge = "9".repeat(60);
    let most = u128::MAX;
    refuses(
        exec(&host, &huge, &["true"]),
        1,
        &format!("{most} units asked for, and there are 1: waiting cannot help; ask for fewer"),
    );
    refuses(
        exec(&host, "0 --cgroup", &["true"]),
        2,
        "--cgroup needs at least one unit: an owner of no units is not recorded",
    );
    refuses(
        exec(&host, "1 --root .", &["true"]),
        4,
        "gpu-coord cannot find itself in /proc, which belongs to another host",
    );
    assert!(!host.file().exists());
    // Words are bytes, and behind `--` none of them is an option.
    let words = [
        OsStr::new("printf"),
        OsStr::new("%s,"),
        OsStr::from_bytes(b"a\xff"),
        OsStr::new("--wait"),
        OsStr::new("--"),
        OsStr::new(""),
    ];
    let output = exec(&host, "1", &words).output().unwrap();
    assert_eq!(output.stdout, b"a\xff,--wait,--,,");
}

/// What `env` prints, by name.
fn variables(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[track_caller]
fn environment(command: Command) -> BTreeMap<String, String> {
    let (end, stdout, stderr) = Running::start(command).end();
    assert_eq!((end, stderr), (End::Exit(0), String::new()));
    variables(&stdout)
}

#[track_caller]
fn assert_set(set: &BTreeMap<String, String>, expected: &[(&str, Option<&str>)]) {
    for (name, value) in expected {
        assert_eq!(set.get(*name).map(String::as_str), *value, "{name}");
    }
}

#[test]
fn the_runtime_is_told_which_devices() {
    let host = Sandbox::with_gpus(3);
    let holder = Process::start();
    host.answers(&format!("allocate 1 --owner {}", holder.pid()), "0\n");
    let mut command = exec(&host, "2", &["env"]);
    command.env("KEPT", "yes").env("CUDA_DEVICE_ORDER", "FASTEST_FIRST");
    let set = environment(command);
    let uuids = format!("{UUID}1,{UUID}2");
    let file = host.file().display().to_string();
    assert_set(
        &set,
        &[
            ("CUDA_VISIBLE_DEVICES", Some(&uuids)),
            ("NVIDIA_VISIBLE_DEVICES", Some(&uuids)),
            ("CUDA_DEVICE_ORDER", Some("PCI_BUS_ID")),
            ("ROCR_VISIBLE_DEVICES", None),
            ("KEPT", Some("yes")),
            ("GPU_COORD_COORDINATION_FILE", Some(&file)),
            ("GPU_COORD_SOURCE", Some("simulated:3")),
        ],
    );
    let grant =
        held_in(&host.file()).into_iter().find(|held| held.pid != holder.pid()).unwrap().grant.unwrap();
    assert_eq!((set["GPU_COORD_GRANT"].as_str(), grant.1), (grant.0.as_str(), 2));
}

/// In the order of the host, whatever order a variable prefers.
#[test]
fn what_is_visible_already_is_a_limit() {
    let host = Sandbox::with_gpus(3);
    let mut command = exec(&host, "2", &["env"]);
    command.env("CUDA_VISIBLE_DEVICES", "2,1");
    assert_set(&environment(command), &[("CUDA_VISIBLE_DEVICES", Some(&format!("{UUID}1,{UUID}2")))]);
}

#[test]
fn of_nothing_nothing_is_seen() {
    let host = Sandbox::with_gpus(1);
    let set = environment(exec(&host, "0", &["env"]));
    assert_set(
        &set,
        &[
            ("CUDA_VISIBLE_DEVICES", Some("")),
            ("NVIDIA_VISIBLE_DEVICES", Some("")),
            ("ROCR_VISIBLE_DEVICES", Some("")),
            ("GPU_COORD_GRANT", None),
        ],
    );
    assert!(!host.file().exists());
}

/// No variable that names devices is set, and the path is valid from every directory.
#[test]
fn devices_of_any_kind_are_told_by_no_variable() {
    let host = Sandbox::with_source("file:devices.json");
    fs::write(host.path().join("devices.json"), r#"{"devices": [{"id": "a"}]}"#).unwrap();
    let source = format!("file:{}", host.path().join("devices.json").display());
    assert_set(
        &environment(exec(&host, "1", &["env"])),
        &[
            ("CUDA_VISIBLE_DEVICES", None),
            ("NVIDIA_VISIBLE_DEVICES", None),
            ("GPU_COORD_SOURCE", Some(&source)),
        ],
    );
}

/// Both cards are AMD's: ROCr reads one variable, and what HIP and CUDA read would count what it leaves again.
#[test]
fn amds_runtime_is_told_once() {
    if !may_mount("amds_runtime_is_told_once") {
        return;
    }
    const NODES: &str = "root/sys/class/kfd/kfd/topology/nodes";
    let node = |tree: Tree, at: u32| {
        let properties = format!(
            "simd_count 416\nvendor_id 4098\nlocation_id {}\ndomain 0\ndrm_render_minor {}\n",
            at << 8,
            128 + at
        );
        tree.file(&format!("{NODES}/{at}/gpu_id"), &format!("{}\n", 100 + at))
            .file(&format!("{NODES}/{at}/properties"), &properties)
    };
    let tree = (1..=2).fold(Tree::new(), node);
    let mut command = Command::new("unshare");
    let mount =
        "mount --bind root/sys /sys && exec \"$0\" exec 1 --source sysfs --coordination-file c -- env";
    command.args(["-m", "sh", "-c", mount, PROGRAM]).current_dir(tree.path("."));
    let command_with = |name: &str, value: &str| {
        let mut command = Command::new("env");
        command.args([
            format!("{name}={value}"),
            "unshare".to_owned(),
            "-m".to_owned(),
            "sh".to_owned(),
            "-c".to_owned(),
        ]);
        command.arg(mount).arg(PROGRAM).current_dir(tree.path("."));
        command
    };
    let set = environment(command);
    assert_set(
        &set,
        &[
            ("ROCR_VISIBLE_DEVICES", Some("0")),
            ("CUDA_VISIBLE_DEVICES", None),
            ("GPU_COORD_SOURCE", Some("sysfs")),
        ],
    );
    let holder = Process::start();
    let set = environment(command_with("ROCR_VISIBLE_DEVICES", "1"));
    assert_set(&set, &[("ROCR_VISIBLE_DEVICES", Some("1")), ("HIP_VISIBLE_DEVICES", None)]);
    let set = environment(command_with("HIP_VISIBLE_DEVICES", "1"));
    assert_set(&set, &[("ROCR_VISIBLE_DEVICES", Some("1")), ("HIP_VISIBLE_DEVICES", None)]);
    drop(holder);
}

/// An `nvidia-smi` with a card in two instances.
pub(crate) fn divided() -> Sandbox {
    let host = Sandbox::with_source("nvidia-smi");
    let script = r#"case "$*" in
        -L) echo 'GPU 0: NVIDIA A100 (UUID: GPU-2-a)'; echo '  MIG 1g.5gb Device 0: (UUID: MIG-a)'
            echo '  MIG 1g.5gb Device 1: (UUID: MIG-b)' ;;
        '-q -x') echo '<?xml version="1.0" ?><nvidia_smi_log><gpu id="00000000:02:00.0"><uuid>GPU-2-a</uuid><mig_devices>
            <mig_device><index>0</index><gpu_instance_id>7</gpu_instance_id><compute_instance_id>0</compute_instance_id></mig_device>
            <mig_device><index>1</index><gpu_instance_id>8</gpu_instance_id><compute_instance_id>0</compute_instance_id></mig_device>
            </mig_devices></gpu></nvidia_smi_log>' ;;
        *) echo '0, GPU-2-a, 00000000:02:00.0, NVIDIA A100, 40960, 1, P0, Default, 0, 550.54.15, Enabled' ;;
        esac"#;
    fs::create_dir(host.path().join("bin")).unwrap();
    write_script(&host.path().join("bin/nvidia-smi"), script);
    host
}

#[test]
fn of_several_instances_cuda_uses_one() {
    let host = divided();
    let command = |amount: u32| {
        let mut command = exec(
            &host,
            &amount.to_string(),
            &["sh", "-c", "echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES"],
        );
        command.env("PATH", format!("{}:/usr/bin:/bin", host.path().join("bin").display()));
        command
    };
    let run = |amount: u32| Running::start(command(amount)).end();
    assert_eq!(run(1), answer("MIG-a MIG-a\n"));
    let warning = "gpu-coord: warning: 2 MIG instances for one owner, but CUDA uses only one of them: ask for 1, or for a larger profile\n";
    is_refused_if_strict(command(2), &host.file(), warning);
    assert_eq!(run(2), (End::Exit(0), "MIG-a,MIG-b MIG-a,MIG-b\n".to_owned(), warning.to_owned()));
}

#[test]
fn a_run_of_a_systemd_unit_is_recorded() {
    let host = Sandbox::with_gpus(1);
    let started =
        "export SYSTEMD_EXEC_PID=$$ INVOCATION_ID=fedcba9876543210fedcba9876543210; exec \"$0\" \"$@\"";
    let program = exec(&host, "1", &["sleep", "1000"]);
    let mut command = Command::new("sh");
    command
        .args(["-c", started])
        .arg(program.get_program())
        .args(program.get_args())
        .current_dir(host.path());
    let unit = Running::start(command);
    wait_until("it holds its unit", || host.file().exists() && host.holders() == [(0, unit.pid())]);
    assert!(host.text().contains(";inv=fedcba9876543210fedcba9876543210;"), "{}", host.text());
}

const RIGHTS: &str =
    "id -u; id -g; id -G; grep -E '^(Cap|NoNewPrivs)' /proc/self/status; echo $USER $LOGNAME $HOME $SHELL";

#[test]
fn a_user_has_its_rights_and_no_more() {
    if !is_root("a_user_has_its_rights_and_no_more") {
        return;
    }
    let host = Sandbox::with_gpus(1);
    let none = "0000000000000000";
    let capabilities: String =
        ["Inh", "Prm", "Eff", "Bnd", "Amb"].map(|set| format!("Cap{set}:\t{none}\n")).concat();
    for (user, ids, entry) in [
        ("nobody", "65534\n65534\n65534\n", "nobody nobody /nonexistent /usr/sbin/nologin"),
        ("nobody:daemon", "65534\n1\n1\n", "nobody nobody /nonexistent /usr/sbin/nologin"),
        ("4711:4712", "4711\n4712\n4712\n", "u u h s"),
    ] {
        for line in ["1", "0", "1 --wait"] {
            let mut command = exec(&host, &format!("{line} --user {user}"), &["sh", "-c", RIGHTS]);
            command.env("USER", "u").env("LOGNAME", "u").env("HOME", "h").env("SHELL", "s");
            let (end, stdout, stderr) = Running::start(command).end();
            let expected = format!("{ids}{capabilities}NoNewPrivs:\t1\n{entry}\n");
            assert_eq!((end, stdout, stderr), (End::Exit(0), expected, String::new()), "{user}");
        }
        let uid = ids.lines().next().unwrap();
        assert!(host.text().contains(&format!(";uid={uid};")), "{}", host.text());
    }
}

#[test]
fn a_user_that_is_not_there_is_refused() {
    let host = Sandbox::with_gpus(1);
    let refused = |user: &str, problem: &str| {
        refuses(exec(&host, &format!("1 --user {user}"), &["true"]), 2, problem);
    };
    refused(
        "no-such-user",
        "--user cannot be `no-such-user`: there is no user `no-such-user` in /etc/passwd",
    );
    refused(
        "root:no-such-group",
        "--user cannot be `root:no-such-group`: there is no group `no-such-group` in /etc/group",
    );
    refused("4294967296:0", "--user cannot be `4294967296:0`: there is no user `4294967296` in /etc/passwd");
    assert!(!host.file().exists());
    if !is_root("a_user_that_is_not_there_is_refused") {
        return;
    }
    let program = exec(&host, "1 --user nobody", &["true"]);
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.arg(program.get_program()).args(program.get_args()).current_dir(host.path());
    refuses(command, 2, "--user requires root, which may run a command as another user");
}
