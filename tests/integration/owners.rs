//! Who owns the granted units, and for how long: with real processes, namespaces and wrappers.
//!
//! The scripts below call `gpu-coord` by its name and need no options for the file and the source: both are
//! in their environment.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::sandbox::{PROGRAM, Process, Sandbox, dead_pid, install, is_root, skip};

const BARE: &str = "gpu-coord 1 --enable-coordination-mode";
const CONTAINER: &str = "unshare --pid --fork --mount-proc --kill-child";
/// A whole day later, by the clock that start times are counted in.
const TOMORROW: &str = "unshare --time --boottime 86400 --monotonic 86400 --fork --kill-child";

/// A sandbox in which scripts run.
struct Stage {
    sandbox: Sandbox,
    gpus: u32,
}

impl Stage {
    fn with_gpus(gpus: u32) -> Stage {
        Stage { sandbox: Sandbox::with_gpus(gpus), gpus }
    }

    /// `words` and then, if there is one, `sh -ec SCRIPT`.
    fn command(&self, words: &str, script: Option<&str>) -> Command {
        let mut words = words.split_ascii_whitespace().chain(script.map(|_| "sh"));
        let mut command = Command::new(words.next().unwrap());
        command.args(words).args(script.iter().flat_map(|script| ["-ec", script]));
        let path =
            format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", Path::new(PROGRAM).parent().unwrap().display());
        command.env_clear().env("PATH", path).env("GPU_COORD_SOURCE", format!("simulated:{}", self.gpus));
        command.env("GPU_COORD_COORDINATION_FILE", self.sandbox.file());
        command.current_dir(self.sandbox.path()).stdin(Stdio::null());
        command
    }

    /// Runs a script below `words` to its end: status, stdout and stderr.
    fn run(&self, words: &str, script: &str) -> (i32, String, String) {
        ended(self.command(words, Some(script)))
    }

    #[track_caller]
    fn answers(&self, words: &str, script: &str, stdout: &str) {
        assert_eq!(self.run(words, script), (0, stdout.to_owned(), String::new()), "{script}");
    }

    #[track_caller]
    fn refuses(&self, words: &str, script: &str, status: i32, part: &str) {
        let (code, stdout, stderr) = self.run(words, script);
        assert_eq!((code, stdout.as_str()), (status, ""), "{script}: {stderr}");
        assert!(stderr.contains(part) && stderr.lines().count() == 1, "{script}: {stderr}");
    }

    /// The owner of the first unit, as `status` sees it from here.
    fn owner(&self) -> Value {
        let (code, stdout, stderr) = ended(self.command("gpu-coord status --json", None));
        assert_eq!(code, 0, "{stderr}");
        serde_json::from_str::<Value>(&stdout).unwrap()["devices"][0]["units"][0]["owner"].clone()
    }

    #[track_caller]
    fn assert_owner(&self, pid: u32, standing: &str) {
        let owner = self.owner();
        assert_eq!((&owner["pid"], &owner["standing"]), (&pid.into(), &standing.into()), "{owner}");
    }

    /// An executable file of the sandbox.
    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.sandbox.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A program, built with the linker that Rust itself needs.
    fn build(&self, name: &str, source: &str) -> PathBuf {
        let (text, program) = (self.sandbox.path().join("source.c"), self.sandbox.path().join(name));
        fs::write(&text, source).unwrap();
        assert!(
            Command::new("cc").args(["-pthread", "-o"]).arg(&program).arg(&text).status().unwrap().success()
        );
        program
    }
}

fn ended(mut command: Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// A process that prints what it does and stays until it is dropped.
struct Running {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(mut command: Command) -> Running {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Running { child, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it; it stays a zombie until it is dropped.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        wait_until("it is a zombie", || state(self.pid()) == Some('Z'));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(10), "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether `words` can be put before a program here: root of a container may not make namespaces.
fn can(test: &str, words: &str) -> bool {
    let mut words = words.split_ascii_whitespace().chain(["true"]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).stdin(Stdio::null()).stderr(Stdio::null());
    let can = command.status().is_ok_and(|status| status.success());
    if !can {
        skip(test, &format!("{command:?} fails"));
    }
    can
}

/// Whether the host's own processes are seen.
pub(crate) fn is_on_the_host(test: &str) -> bool {
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap();
    let is_initial = namespace.to_str() == Some("pid:[4026531836]");
    if !is_initial {
        skip(test, "it needs the initial pid namespace");
    }
    is_initial
}

/// A program called `java` that, like Flink, runs its words and prints the status, and then stays.
fn jvm(stage: &Stage, words: &[&str]) -> Running {
    let source = "#include <stdio.h>\n#include <unistd.h>\n#include <sys/wait.h>\n\
        int main(int n, char **words) { int status; if (!fork()) { execvp(words[1], words + 1); _exit(99); }\n\
        wait(&status); printf(\"exit %d\\n\", WEXITSTATUS(status)); fflush(stdout); getchar(); return 0; }\n";
    let program = stage.build("java", source);
    let mut command = stage.command(program.to_str().unwrap(), None);
    command.args(words).stderr(fs::File::create(stage.sandbox.path().join("stderr")).unwrap());
    Running::start(command)
}

#[test]
fn the_jvm_is_the_owner_also_behind_wrappers() {
    let nested = format!("timeout 60 nice sh -c '{BARE}; :'");
    for (case, words) in [
        ("directly", BARE.split(' ').collect::<Vec<_>>()),
        ("sh -c", vec!["sh", "-c", "gpu-coord 1 --enable-coordination-mode; :"]),
        ("a script", vec!["./gpus.sh"]),
        ("a script that execs", vec!["./exec.sh"]),
        (
            "env and timeout",
            vec!["env", "X=1", "timeout", "60", "gpu-coord", "1", "--enable-coordination-mode"],
        ),
        ("nested", vec!["sh", "-c", &nested]),
    ] {
        let stage = Stage::with_gpus(1);
        stage.script("gpus.sh", &format!("#!/bin/sh\n{BARE}\n:\n"));
        stage.script("exec.sh", &format!("#!/bin/sh\nexec {BARE}\n"));
        let mut jvm = jvm(&stage, &words);
        assert_eq!((jvm.line(), jvm.line()), ("0".to_owned(), "exit 0".to_owned()), "{case}");
        assert_eq!(fs::read_to_string(stage.sandbox.path().join("stderr")).unwrap(), "", "{case}");
        stage.assert_owner(jvm.pid(), "alive");
    }
}

/// A caller that ends with the call would hold nothing a moment later.
#[test]
fn a_tool_that_ends_with_the_call_is_warned_of() {
    let host = Sandbox::with_gpus(2);
    for (line, stdout) in [("allocate 1", "0\n"), ("deallocateAll", "")] {
        let program = host.program(line);
        let mut tool = Command::new("timeout");
        tool.arg("60").arg(program.get_program()).args(program.get_args()).current_dir(host.path());
        let child = tool.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let output = child.wait_with_output().unwrap();
        let warning = format!(
            "gpu-coord: warning: the owner is timeout, pid {pid}, which ends with this call; name the process that holds \
             the units with --owner PID\n"
        );
        assert_eq!(String::from_utf8(output.stderr).unwrap(), warning);
        assert_eq!((output.status.code(), &*output.stdout), (Some(0), stdout.as_bytes()));
    }
}

#[test]
fn allocate_takes_its_parent_as_it_is() {
    let stage = Stage::with_gpus(1);
    let mut jvm = jvm(&stage, &["sh", "-c", "echo $$; gpu-coord allocate 1; :"]);
    let shell = jvm.line().parse().unwrap();
    assert_eq!((jvm.line(), jvm.line()), ("0".to_owned(), "exit 0".to_owned()));
    stage.assert_owner(shell, "dead");
}

#[test]
fn a_wrapper_without_a_jvm_is_warned_of() {
    if !can("a_wrapper_without_a_jvm_is_warned_of", CONTAINER) {
        return;
    }
    // In a namespace of its own, so that no JVM is above this test.
    let strict = format!("sh -c '{BARE} --strict || exit 7' || test $? = 7");
    let (code, stdout, stderr) = Stage::with_gpus(1).run(CONTAINER, &strict);
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
    assert!(
        stderr.starts_with("gpu-coord: the owner is sh, pid 2, ")
            && stderr.ends_with(" (an error by --strict)\n")
    );
    let (code, stdout, stderr) = Stage::with_gpus(1).run(CONTAINER, &format!("sh -c '{BARE}; :'; :"));
    assert_eq!((code, stdout.as_str()), (0, "0\n"), "{stderr}");
    assert!(stderr.starts_with("gpu-coord: warning: the owner is sh, pid 2, "), "{stderr}");
    Stage::with_gpus(1).answers(CONTAINER, &format!("setsid -w sh -c '{BARE}; :'; :"), "0\n");
}

#[test]
fn a_named_owner_must_be_a_living_process() {
    let stage = Stage::with_gpus(1);
    let mut zombie = Running::start(stage.command("sleep 1000", None));
    zombie.kill();
    let leader = Running::start(stage.command(stage.build("leader", LEADER).to_str().unwrap(), None));
    wait_until("the leader is a zombie", || state(leader.pid()) == Some('Z'));
    let threads = fs::read_dir(format!("/proc/{}/task", leader.pid())).unwrap();
    let tasks: Vec<u32> =
        threads.map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    let thread = *tasks.iter().find(|task| **task != leader.pid()).unwrap();
    for (pid, problem) in [
        (dead_pid(), "does not exist"),
        (zombie.pid(), "has exited (it is a zombie)"),
        (thread, "is a thread, not a process"),
    ] {
        let message = format!("--owner: pid {pid} {problem}; name the process that holds the units");
        stage.sandbox.refuses(&format!("allocate 1 --owner {pid}"), 2, &message);
    }
    // Its thread runs, and may have the GPU open.
    stage.sandbox.command(&format!("allocate 1 --owner {}", leader.pid())).assert().code(0).stdout("0\n");
    stage.assert_owner(leader.pid(), "alive");
}

/// Its first thread ends, and another one stays.
const LEADER: &str = "#include <pthread.h>\n#include <unistd.h>\n\
    static void *stay(void *x) { for (;;) pause(); return x; }\n\
    int main(void) { pthread_t t; pthread_create(&t, 0, stay, 0); pthread_exit(0); }\n";

#[test]
fn a_zombies_unit_is_taken_over() {
    let stage = Stage::with_gpus(1);
    let mut zombie = Running::start(stage.command("sleep 1000", None));
    let (first, second) = (zombie.pid(), Process::start());
    stage.sandbox.answers(&format!("allocate 1 --owner {first}"), "0\n");
    let take_over = format!("1 --enable-coordination-mode --owner {}", second.pid());
    stage.sandbox.command(&take_over).assert().code(1);
    zombie.kill();
    stage.assert_owner(first, "dead");
    stage.sandbox.answers(&take_over, "0\n");
    stage.assert_owner(second.pid(), "alive");
}

#[test]
fn a_reused_pid_is_not_the_owner() {
    if !can("a_reused_pid_is_not_the_owner", CONTAINER) {
        return;
    }
    if !Path::new("/proc/sys/kernel/ns_last_pid").exists() {
        return skip("a_reused_pid_is_not_the_owner", "the next pid cannot be chosen here");
    }
    // In a small namespace the next pid can be chosen. A start is told to one tick of 10 ms, so that the
    // next process must wait for the tick to pass.
    let script = "sleep 1000 & first=$!
        gpu-coord allocate 1 --owner $first
        start() { cut -d' ' -f22 /proc/$1/stat; }
        began=$(start $first); kill $first; wait $first 2>/dev/null || :
        while [ $(start self) = $began ]; do :; done
        echo $((first - 1)) > /proc/sys/kernel/ns_last_pid
        sleep 1000 & test $! = $first
        gpu-coord 1 --enable-coordination-mode --owner 1";
    let stage = Stage::with_gpus(1);
    stage.answers(CONTAINER, script, "0\n0\n");
}

#[test]
fn pid_1_of_a_container_is_an_owner() {
    if !is_on_the_host("pid_1_of_a_container_is_an_owner")
        || !can("pid_1_of_a_container_is_an_owner", CONTAINER)
    {
        return;
    }
    let stage = Stage::with_gpus(1);
    let mut container = Running::start(stage.command(CONTAINER, Some("gpu-coord allocate 1; read x")));
    assert_eq!(container.line(), "0");
    // Seen from the host, its pid is another one.
    stage.assert_owner(1, "alive");
    let other = Process::start();
    let take_over = format!("1 --enable-coordination-mode --owner {}", other.pid());
    stage.sandbox.command(&take_over).assert().code(1);
    drop(container);
    wait_until("the container has ended", || stage.owner()["standing"] == "dead");
    stage.sandbox.answers(&take_over, "0\n");
}

#[test]
fn two_containers_with_one_file_do_not_take_each_others_units() {
    if !can("two_containers_with_one_file_do_not_take_each_others_units", CONTAINER) {
        return;
    }
    let stage = Stage::with_gpus(1);
    let mut container = Running::start(stage.command(CONTAINER, Some("gpu-coord allocate 1; read x")));
    assert_eq!(container.line(), "0");
    // The other one's pid 1 is neither this one's pid 1, nor a dead process.
    stage.answers(CONTAINER, "gpu-coord deallocateAll; :", "");
    stage.refuses(CONTAINER, &format!("{BARE} || exit $?"), 1, "held from another pid namespace");
    assert_eq!(stage.sandbox.holders(), [(0, 1)]);
}

#[test]
fn a_parent_outside_the_pid_namespace_is_no_owner() {
    if !can("a_parent_outside_the_pid_namespace_is_no_owner", CONTAINER) {
        return;
    }
    let stage = Stage::with_gpus(1);
    let mut container = Running::start(stage.command(CONTAINER, Some("echo ready; read x")));
    assert_eq!(container.line(), "ready");
    let children = format!("/proc/{0}/task/{0}/children", container.pid());
    let inside = fs::read_to_string(children).unwrap().trim().to_owned();
    // As `docker exec` does.
    let enter = format!("nsenter --target {inside} --pid --mount gpu-coord allocate 1");
    let (code, stdout, stderr) = ended(stage.command(&enter, None));
    let message = "gpu-coord: the parent process is outside this pid namespace (its pid is 0, as under `docker exec`); \
                   name the process that should hold the units with --owner PID\n";
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (4, "", message));
    assert_eq!(ended(stage.command(&format!("{enter} --owner 1"), None)).1, "0\n");
}

#[test]
fn the_hosts_pid_1_is_no_owner_by_accident() {
    if !is_on_the_host("the_hosts_pid_1_is_no_owner_by_accident") {
        return;
    }
    // It is started by a subshell once the shell above has exited and been reaped.
    let stage = Stage::with_gpus(1);
    let script = "(while kill -0 $$ 2>/dev/null; do :; done; exec gpu-coord allocate 1 > out 2> err) &";
    let mut shell = stage.command("sh -ec", None);
    assert!(shell.arg(script).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
    let read = |name: &str| fs::read_to_string(stage.sandbox.path().join(name)).unwrap_or_default();
    wait_until("gpu-coord has answered", || !read("err").is_empty() || !read("out").is_empty());
    if !read("out").is_empty() {
        assert_ne!(stage.sandbox.holders(), [(0, 1)]);
        return skip("the_hosts_pid_1_is_no_owner_by_accident", "another process adopts orphans here");
    }
    assert!(read("err").contains("the process that started gpu-coord has exited"), "{}", read("err"));
}

#[test]
fn a_proc_that_cannot_tell_is_refused() {
    if !can("a_proc_that_cannot_tell_is_refused", CONTAINER) {
        return;
    }
    let stage = Stage::with_gpus(1);
    let allocate = "gpu-coord allocate 1 || exit $?";
    stage.refuses(
        "unshare --pid --fork --kill-child",
        allocate,
        4,
        "/proc/: belongs to another pid namespace",
    );
    stage.refuses(
        "unshare --mount",
        &format!("mount -t tmpfs none /proc; {allocate}"),
        4,
        "/proc/: shows no process",
    );
    assert!(!stage.sandbox.file().exists());
}

#[test]
fn a_hidden_owner_lives() {
    if !is_root("a_hidden_owner_lives") || !can("a_hidden_owner_lives", CONTAINER) {
        return;
    }
    let stage = Stage::with_gpus(1);
    let owner = Process::start();
    stage.sandbox.answers(&format!("allocate 1 --owner {}", owner.pid()), "0\n");
    // The other user must get at the file, and at the program.
    fs::set_permissions(stage.sandbox.path(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(stage.sandbox.file(), Permissions::from_mode(0o666)).unwrap();
    install(&stage.sandbox.path().join("gpu-coord"));
    let as_nobody = "mount -t proc -o hidepid=2 proc /proc
        exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -ec";
    let hidden = format!("test ! -e /proc/{}", owner.pid());
    let bare = BARE.replace("gpu-coord", "./gpu-coord");
    let says = "1 unit is held by processes that /proc hides from this user; run as root, ";
    stage.refuses("unshare --mount", &format!("{as_nobody} '{hidden}; {bare} || exit $?'"), 1, says);
    assert_eq!(stage.sandbox.holders(), [(0, owner.pid())]);
    owner.kill();
    // Only that no signal can be sent to it proves that it has gone.
    stage.answers("unshare --mount", &format!("{as_nobody} 'setsid -w sh -c \"{bare}; :\"'"), "0\n");
}

#[test]
fn a_start_is_the_same_in_every_time_namespace() {
    if !can("a_start_is_the_same_in_every_time_namespace", TOMORROW) {
        return;
    }
    let (owner, other) = (Process::start(), Process::start());
    let allocate = format!("gpu-coord allocate 1 --owner {}", owner.pid());
    let take_over = format!("{BARE} --owner {} || exit $?", other.pid());
    for (case, recorded_in, judged_in) in [
        ("recorded inside", TOMORROW, "env"),
        ("judged inside", "env", TOMORROW),
        ("both", TOMORROW, TOMORROW),
    ] {
        let stage = Stage::with_gpus(1);
        stage.answers(recorded_in, &allocate, "0\n");
        let stat = fs::read_to_string(format!("/proc/{}/stat", owner.pid())).unwrap();
        let start: u64 = stat.split(' ').nth(21).unwrap().parse().unwrap();
        assert_eq!(stage.owner()["start"], start, "{case}");
        assert_eq!(stage.run(judged_in, &take_over).0, 1, "{case}");
    }
}

#[test]
fn a_boot_id_that_is_not_the_kernels_is_not_recorded() {
    if !can("a_boot_id_that_is_not_the_kernels_is_not_recorded", "unshare --mount") {
        return;
    }
    let stage = Stage::with_gpus(2);
    let owner = Process::start();
    let allocate = format!("gpu-coord allocate 1 --owner {}", owner.pid());
    stage.answers("env", &allocate, "0\n");
    assert!(stage.owner()["boot_id"].is_string());
    let stage = Stage::with_gpus(2);
    let mount = "echo 01234567-89ab-cdef-0123-456789abcdef > id
        mount --bind id /proc/sys/kernel/random/boot_id";
    stage.answers("unshare --mount", &format!("{mount}\n{allocate}"), "0\n");
    assert!(stage.owner()["boot_id"].is_null());
    stage.assert_owner(owner.pid(), "alive");
}

/// That of a user adopts what a session leaves behind, and lives on for days.
#[test]
fn a_process_that_systemd_has_adopted_has_no_owner() {
    let stage = Stage::with_gpus(1);
    let manager = stage.sandbox.path().join("systemd");
    fs::copy("/bin/sh", &manager).unwrap();
    for line in ["1 --enable-coordination-mode", "allocate 1", "deallocateAll"] {
        let script = format!("./systemd -c 'gpu-coord {line}; exit $?'");
        stage.refuses("env", &script, 4, ", is systemd, which has started gpu-coord or adopted it, and holds nothing; name the process that should hold the units with --owner PID");
    }
    assert!(!stage.sandbox.file().exists());
}

/// What systemd starts, in the environment that it gives.
fn started_by_systemd(variables: &str, line: &str) -> String {
    format!(
        "export SYSTEMD_EXEC_PID=$$ INVOCATION_ID=fedcba9876543210fedcba9876543210 {variables}; exec gpu-coord {line}"
    )
}

#[test]
fn a_units_commands_act_for_its_main_process() {
    let stage = Stage::with_gpus(2);
    let main = Process::start();
    let variable = format!("MAINPID={}", main.pid());
    stage.answers("env", &started_by_systemd(&variable, "allocate 1"), "0\n");
    stage.assert_owner(main.pid(), "alive");
    assert_eq!(stage.owner()["invocation_id"], "fedcba9876543210fedcba9876543210");
    stage.answers("env", &started_by_systemd(&variable, "deallocateAll"), "");
    assert_eq!(stage.sandbox.holders(), []);
    stage.refuses("env", &started_by_systemd("", "allocate 1"), 2, "gpu-coord exec");
    assert_eq!(stage.sandbox.holders(), []);
}

#[test]
fn after_the_stop_a_run_of_a_unit_gives_back_what_it_holds() {
    let stage = Stage::with_gpus(2);
    let (main, other) = (Process::start(), Process::start());
    stage.sandbox.answers(&format!("allocate 1 --owner {}", other.pid()), "0\n");
    let variable = format!("MAINPID={}", main.pid());
    stage.answers("env", &started_by_systemd(&variable, "allocate 1"), "1\n");
    main.kill();
    // ExecStopPost has no $MAINPID.
    stage.answers("env", &started_by_systemd("", "deallocateAll"), "");
    assert_eq!(stage.sandbox.holders(), [(0, other.pid())]);
}

#[test]
fn what_a_process_that_has_gone_left_can_be_given_back() {
    let stage = Stage::with_gpus(2);
    let (gone, other) = (Process::start(), Process::start());
    stage.sandbox.answers(&format!("allocate 1 --owner {}", gone.pid()), "0\n");
    stage.sandbox.answers(&format!("allocate 1 --owner {}", other.pid()), "1\n");
    let pid = gone.kill();
    stage.sandbox.answers(&format!("deallocateAll --owner {pid}"), "");
    assert_eq!(stage.sandbox.holders(), [(1, other.pid())]);
}
