//! `reclaim`: releasing what dead owners left.

use std::fs;
use std::process::{Command, Stdio};

use crate::record::{held_in, is_alive};
use crate::running::{End, Running, answer};
use crate::sandbox::{PROGRAM, Process, Sandbox, dead_pid, is_root};

/// Run where no control groups can be seen, since those of other tests exist.
pub(crate) fn reclaim(host: &Sandbox, words: &str) -> Command {
    let program = host.program(&format!("reclaim {words}"));
    if !nix::unistd::geteuid().is_root() {
        return program;
    }
    let mut command = Command::new("unshare");
    let script = "umount -l -a -t cgroup,cgroup2; exec \"$0\" \"$@\"";
    command.args(["-m", "sh", "-c", script]).arg(program.get_program()).args(program.get_args());
    command.current_dir(host.path());
    command
}

#[track_caller]
pub(crate) fn reclaims(host: &Sandbox, words: &str, stdout: &str) {
    assert_eq!(Running::start(reclaim(host, words)).end(), answer(stdout));
}

/// Four units: the first of a living owner, and two of a dead one, whose pid is given back.
fn with_a_dead_owner() -> (Sandbox, Process, u32) {
    let (host, living, dead) = (Sandbox::with_gpus(4), Process::start(), Process::start());
    host.answers(&format!("allocate 1 --owner {}", living.pid()), "0\n");
    host.answers(&format!("allocate 2 --owner {}", dead.pid()), "1,2\n");
    let pid = dead.kill();
    (host, living, pid)
}

#[test]
fn what_the_dead_hold_is_released_and_told() {
    let (host, living, dead) = with_a_dead_owner();
    let before = host.text();
    reclaims(
        &host,
        "--dry-run",
        &format!("would release index 1 of pid {dead}\nwould release index 2 of pid {dead}\n"),
    );
    assert_eq!(host.text(), before);
    reclaims(&host, "", &format!("released index 1 of pid {dead}\nreleased index 2 of pid {dead}\n"));
    assert_eq!(host.holders(), [(0, living.pid())]);
    let after = host.text();
    reclaims(&host, "", "");
    reclaims(&host, "--dry-run", "");
    assert_eq!(host.text(), after, "nothing to do, nothing written");
}

#[test]
fn without_a_record_there_is_nothing_to_do() {
    let host = Sandbox::with_gpus(1);
    reclaims(&host, "", "");
    assert!(!host.file().exists());
    let host = host.recorded("");
    reclaims(&host, "", "");
    assert_eq!(host.text(), "");
}

#[test]
fn the_scripts_lines_are_settled() {
    let (living, dead) = (Process::start(), dead_pid());
    let host = Sandbox::with_gpus(4).recorded(format!("0 {}\n3 {dead}\n", living.pid()));
    let before = host.text();
    reclaims(&host, "--dry-run", &format!("would release index 3 of pid {dead}\n"));
    assert_eq!(host.text(), before);
    reclaims(&host, "", &format!("released index 3 of pid {dead}\n"));
    let held = held_in(&host.file());
    assert_eq!((held.len(), held[0].index, held[0].pid, held[0].start.is_some()), (1, 0, living.pid(), true));
    assert!(is_alive(&held[0]));
}

/// On a local disk, and of a device of this host; of another host's device it cannot be told.
#[test]
fn what_another_boot_left_is_released_if_it_is_this_hosts() {
    let boot = "0123456789abcdef0123456789abcdef";
    let held = |index: u32, uuid: &str, grant: u32| {
        format!(
            "{index} 1\tv=1;grant={grant:016x};of=1;uuid={uuid};start=1;boot={boot};pidns=4026531836;uid=0\n"
        )
    };
    let (here, elsewhere) =
        ("GPU-00000000-0000-4000-8000-000000000001", "GPU-ffffffff-0000-4000-8000-000000000001");
    let host = Sandbox::with_gpus(2).recorded(held(1, here, 1) + &held(0, elsewhere, 2));
    let output = reclaim(&host, "").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "released index 1 of pid 1\n");
    assert_eq!(host.holders(), [(0, 1)]);
}

/// If the devices are unknown, nothing is freed.
#[test]
fn without_an_inventory_nothing_is_released() {
    let (host, ..) = with_a_dead_owner();
    let before = host.text();
    let output = reclaim(&host, "--source file:missing.json").output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(4), 0));
    assert_eq!(host.text(), before);
}

#[test]
fn what_cannot_be_told_is_not_done() {
    let (host, _living, dead) = with_a_dead_owner();
    let before = host.text();
    let mut closed = Command::new("sh");
    let program = reclaim(&host, "");
    closed.args(["-c", "exec \"$0\" \"$@\" >&-"]).arg(program.get_program()).args(program.get_args());
    closed.current_dir(host.path());
    let problem = "gpu-coord: cannot write the answer to standard output: Bad file descriptor (os error 9)\n";
    assert_eq!(Running::start(closed).end(), (End::Exit(4), String::new(), problem.to_owned()));
    assert_eq!(host.text(), before);
    reclaims(&host, "", &format!("released index 1 of pid {dead}\nreleased index 2 of pid {dead}\n"));
}

#[test]
fn a_damaged_record_is_let_be() {
    let (host, living, dead) = with_a_dead_owner();
    let damaged = host.text() + "3 x\n";
    fs::write(host.file(), &damaged).unwrap();
    // The line withholds its index; the others are what they are.
    let output = reclaim(&host, "").output().unwrap();
    let released = format!("released index 1 of pid {dead}\nreleased index 2 of pid {dead}\n");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), released);
    assert!(host.text().contains("\n3 x\n"));
    fs::write(host.file(), format!("0 {}\nx\n", living.pid())).unwrap();
    let problem = "coordination:2: `x` does not begin with an index and a blank; correct the line, or delete it if no process holds its unit";
    let refused = Running::start(reclaim(&host, "")).end();
    assert_eq!(
        refused,
        (
            End::Exit(4),
            String::new(),
            format!(
                "gpu-coord: {problem}
"
            )
        )
    );
}

/// A file that the caller may not write to, and its own.
#[test]
fn an_ordinary_user_reclaims_what_it_may_write() {
    if !is_root("an_ordinary_user_reclaims_what_it_may_write") {
        return;
    }
    let (host, _living, dead) = with_a_dead_owner();
    let as_nobody = || {
        let program = host.program("reclaim");
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", PROGRAM]);
        command.args(program.get_args()).current_dir(host.path()).stdin(Stdio::null());
        command
    };
    let open = Command::new("chmod").arg("755").arg(host.path()).status().unwrap();
    assert!(open.success());
    let problem = "gpu-coord: coordination: uid 65534 may not open it: it belongs to uid 0 and has mode 0644; to share it, let the \
                   administrator make it with mode 0660 and a common group\n";
    assert_eq!(Running::start(as_nobody()).end(), (End::Exit(4), String::new(), problem.to_owned()));
    let own = Command::new("chown").arg("65534").arg(host.file()).status().unwrap();
    assert!(own.success());
    let released = format!("released index 1 of pid {dead}\nreleased index 2 of pid {dead}\n");
    assert_eq!(Running::start(as_nobody()).end(), answer(&released));
}

/// Each line is examined once and not compared with every other, since the lock is held meanwhile.
#[test]
fn ten_thousand_lines_of_one_group_keep_nobody() {
    let (host, owner) = (Sandbox::with_gpus(4), Process::start());
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().replace('-', "");
    let line = |at: u32| {
        format!(
            "{index} 1\tv=1;grant={at:016x};of=1;uuid=GPU-00000000-0000-4000-8000-00000000000{index};start=1;boot={boot};\
             pidns=4026531836;uid=0;cgroup=v2:/gpu-coord-1-1;exec=0000000000000007\n",
            index = at % 4
        )
    };
    let host = host.recorded((0..10_000).map(line).collect::<String>());
    let output = reclaim(&host, "--dry-run --deadline 60").output().unwrap();
    assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(0), false));
    let asks = format!("allocate 4 --check-dead --deadline 60 --owner {}", owner.pid());
    host.command(&asks).assert().code(0).stdout("0,1,2,3\n");
}
