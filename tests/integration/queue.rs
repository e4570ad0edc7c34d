//! `exec --wait`: a queue of processes that wait for units.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::exec::{exec, script};
use crate::isolation::start_of;
use crate::reclaim::reclaim;
use crate::record::{assert_sound, held_in};
use crate::running::{End, Running, answer, ending_signals, locked, wait_until};
use crate::sandbox::{Process, Sandbox, dead_pid, skip};
use crate::strace;

const HELD: &str = "held by living owners (`gpu-coord status` names them)";
const NOBODY: [u32; 0] = [];

/// Pids of those that wait, by ticket.
fn waiters(host: &Sandbox) -> Vec<u32> {
    let text = fs::read_to_string(host.file()).unwrap_or_default();
    let waiter = |line: &str| -> Option<(u64, u32)> {
        let (pid, keys) = line.strip_prefix("? ")?.split_once('\t')?;
        let ticket = keys.split(';').find_map(|pair| pair.strip_prefix("ticket="))?;
        Some((ticket.parse().unwrap(), pid.parse().unwrap()))
    };
    let mut waiters: Vec<_> = text.lines().filter_map(waiter).collect();
    waiters.sort_unstable();
    waiters.into_iter().map(|(_, pid)| pid).collect()
}

/// A host whose units one process holds, all of them.
fn held(units: u32) -> (Sandbox, Process) {
    let (host, holder) = (Sandbox::with_gpus(units), Process::start());
    host.command(&format!("allocate {units} --owner {}", holder.pid())).assert().code(0);
    (host, holder)
}

/// `exec --wait`, which has its place in the queue by now.
fn queued(host: &Sandbox, command: Command) -> Running {
    let running = Running::start(command);
    wait_until("it waits", || waiters(host).last() == Some(&running.pid()));
    running
}

/// Waits for `amount` units, then says so and sleeps.
fn waiting(host: &Sandbox, line: &str) -> Running {
    queued(host, exec(host, line, &["sh", "-c", "echo had; exec sleep 1000"]))
}

/// What it says when it has its units.
#[track_caller]
fn has_its_units(host: &Sandbox, running: &mut Running, units: &[u32]) {
    let pid = running.pid();
    wait_until("it has its units", || {
        host.file().exists() && host.holders().iter().any(|held| held.1 == pid)
    });
    assert_eq!(running.line(), "had");
    let held: Vec<u32> = host.holders().into_iter().filter(|held| held.1 == pid).map(|held| held.0).collect();
    assert_eq!(held, units);
    assert!(!waiters(host).contains(&pid), "{}", host.text());
}

/// Whether it sleeps, having seen everything in the record.
fn is_asleep(running: &Running) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", running.pid())).unwrap();
    let channel = fs::read_to_string(format!("/proc/{}/syscall", running.pid())).unwrap_or_default();
    stat.rsplit_once(") ").unwrap().1.starts_with('S') && channel.starts_with("7 ") // poll(2) on x86-64
}

#[test]
fn whoever_comes_first_is_served_first() {
    let (host, holder) = held(1);
    let mut running: Vec<Running> = (0..3).map(|_| waiting(&host, "1 --wait")).collect();
    assert_eq!(waiters(&host), running.iter().map(Running::pid).collect::<Vec<_>>());
    host.answers(&format!("deallocateAll --owner {}", holder.pid()), "");
    while !running.is_empty() {
        has_its_units(&host, &mut running[0], &[0]);
        assert_eq!(waiters(&host), running[1..].iter().map(Running::pid).collect::<Vec<_>>());
        running.remove(0).kill(); // its death is no change of the file
    }
    assert_eq!(waiters(&host), NOBODY);
}

/// Fifty of them on four units, each of which wants all four and writes down its number.
#[test]
fn fifty_in_a_queue_keep_their_order() {
    let (host, holder) = held(4);
    let line = |at: usize| format!("{} --wait", 4 - usize::from(at % 2 == 1));
    let command = |at: usize| script(&host, &line(at), &format!("echo {at} >> log"));
    // With three units each, a second one does not fit.
    let running: Vec<Running> = (0..50).map(|at| queued(&host, command(at))).collect();
    holder.kill();
    for running in running {
        assert_eq!(running.end(), answer(""));
    }
    let log = fs::read_to_string(host.path().join("log")).unwrap();
    let order: Vec<usize> = log.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(order, (0..50).collect::<Vec<_>>());
    assert_eq!(waiters(&host), NOBODY);
    assert_sound(&held_in(&host.file()));
}

/// Each wants one of four: when one is served, at most three that came before it run still.
#[test]
fn fifty_that_want_one_each_are_all_served() {
    let (host, holder) = held(4);
    let command = |at: usize| script(&host, "1 --wait", &format!("echo {at} >> log"));
    let running: Vec<Running> = (0..50).map(|at| queued(&host, command(at))).collect();
    host.answers(&format!("deallocateAll --owner {}", holder.pid()), "");
    for running in running {
        assert_eq!(running.end(), answer(""));
    }
    let log = fs::read_to_string(host.path().join("log")).unwrap();
    let order: Vec<usize> = log.lines().map(|line| line.parse().unwrap()).collect();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..50).collect::<Vec<_>>());
    assert!(order.iter().enumerate().all(|(place, at)| place + 3 >= *at), "{order:?}");
}

/// All at once, some of them killed.
#[test]
fn fifty_at_once_lose_nobody() {
    let (host, holder) = held(4);
    let command = |at: usize| script(&host, "2 --wait", &format!("echo {at} >> log"));
    let mut running: Vec<Running> = (0..50).map(|at| Running::start(command(at))).collect();
    for _ in 0..10 {
        running.remove(3).kill();
    }
    holder.kill();
    for running in running {
        assert_eq!(running.end(), answer(""));
    }
    let log = fs::read_to_string(host.path().join("log")).unwrap();
    assert!((40..=50).contains(&log.lines().count()), "{log}");
    assert_sound(&held_in(&host.file()));
}

#[test]
fn units_that_are_free_are_had_at_once() {
    let host = Sandbox::with_gpus(2);
    for wait in ["--wait", "--wait=0.001", "--wait=0", "--wait=forever"] {
        assert_eq!(Running::start(exec(&host, &format!("2 {wait}"), &["true"])).end(), answer(""), "{wait}");
        assert_eq!(waiters(&host), NOBODY);
    }
}

#[test]
fn who_has_waited_long_enough_gives_up() {
    let (host, holder) = held(2);
    let before = host.text();
    let since = Instant::now();
    let (end, stdout, stderr) = Running::start(exec(&host, "1 --wait=0.3 --deadline 60", &["true"])).end();
    assert!(since.elapsed() >= Duration::from_millis(300), "{:?}", since.elapsed());
    assert_eq!((end, stdout), (End::Exit(1), String::new()));
    let refusal = format!("gpu-coord: 1 unit asked for, 0 of 2 can be given: 2 {HELD}; waited ");
    let waited = stderr.strip_prefix(&refusal).and_then(|rest| rest.strip_suffix(" s\n"));
    assert!(waited.is_some_and(|waited| waited.parse::<f64>().unwrap() >= 0.3), "{stderr}");
    assert_eq!(&host.text()[..before.len()], before);
    assert_eq!((host.holders(), waiters(&host)), (vec![(0, holder.pid()), (1, holder.pid())], vec![]));
    let mut by_variable = exec(&host, "1", &["true"]);
    by_variable.env("GPU_COORD_WAIT", "0.1");
    let (end, _, stderr) = Running::start(by_variable).end();
    assert!(end == End::Exit(1) && stderr.contains("; waited 0."), "{stderr}");
    let (_, _, stderr) = Running::start(exec(&host, "1 --wait=0", &["true"])).end();
    assert_eq!(stderr, format!("gpu-coord: 1 unit asked for, 0 of 2 can be given: 2 {HELD}\n"));
}

/// As by a process that was stopped while it had it.
#[test]
fn a_lock_that_is_kept_past_the_deadline_costs_no_place() {
    let (host, holder) = held(1);
    let mut running = waiting(&host, "1 --wait --deadline 0.2");
    let lock = locked(&host.file());
    holder.kill();
    let since = Instant::now();
    wait_until("the deadline of a try is long past", || since.elapsed() > Duration::from_millis(1000));
    drop(lock);
    has_its_units(&host, &mut running, &[0]);
}

#[test]
fn who_has_waited_long_enough_for_the_lock_says_so() {
    let (host, holder) = held(1);
    let running = queued(&host, exec(&host, "1 --wait=1 --deadline 0.2", &["true"]));
    let lock = locked(&host.file());
    holder.kill();
    let (end, stdout, stderr) = running.end();
    drop(lock);
    let problem = "gpu-coord: the deadline of 0.2 s passed while waiting for the lock on coordination, which is held by pid ";
    assert!(stderr.starts_with(problem) && stderr.lines().count() == 1, "{stderr}");
    assert_eq!((end, stdout), (End::Exit(3), String::new()));
}

/// `--deadline` bounds a try and not the wait.
#[test]
fn a_wait_is_longer_than_a_deadline() {
    let (host, holder) = held(1);
    let since = Instant::now();
    let mut running = waiting(&host, "1 --wait --deadline 0.2");
    wait_until("the deadline of a try is long past", || since.elapsed() > Duration::from_millis(600));
    holder.kill();
    has_its_units(&host, &mut running, &[0]);
}

#[test]
fn an_end_by_a_signal_leaves_nothing_behind() {
    let (host, holder) = held(1);
    for signal in ending_signals() {
        let first = waiting(&host, "1 --wait");
        let second = waiting(&host, "1 --wait");
        first.signal(signal);
        assert_eq!(first.end(), (End::Killed(signal), String::new(), String::new()));
        assert_eq!(waiters(&host), [second.pid()]);
        second.signal(signal);
        assert_eq!(second.end().0, End::Killed(signal));
        assert_eq!((waiters(&host), host.holders()), (vec![], vec![(0, holder.pid())]));
    }
}

/// No signal ends it, unless it sees to that itself.
#[test]
fn the_first_process_of_a_container_ends_by_a_signal_too() {
    let namespaces = ["--pid", "--fork", "--mount-proc", "--kill-child"];
    if !can_unshare("the_first_process_of_a_container_ends_by_a_signal_too", &namespaces) {
        return;
    }
    let (host, holder) = held(1);
    for signal in ending_signals() {
        let program = exec(&host, "1 --wait", &["true"]);
        let mut command = Command::new("unshare");
        command.args(namespaces).arg(program.get_program()).args(program.get_args()).current_dir(host.path());
        let container = Running::start(command);
        wait_until("it waits", || waiters(&host) == [1]);
        let children = format!("/proc/{0}/task/{0}/children", container.pid());
        let first = fs::read_to_string(children).unwrap().trim().parse().unwrap();
        kill(Pid::from_raw(first), signal).unwrap();
        assert_eq!(container.end(), (End::Exit(128 + signal as i32), String::new(), String::new()));
        assert_eq!((waiters(&host), host.holders()), (vec![], vec![(0, holder.pid())]));
    }
}

fn can_unshare(test: &str, namespaces: &[&str]) -> bool {
    let made = Command::new("unshare").args(namespaces).arg("true").stderr(Stdio::null()).status();
    let can = made.is_ok_and(|status| status.success());
    if !can {
        skip(test, "it makes a pid namespace");
    }
    can
}

/// As `nohup` starts it.
#[test]
fn a_signal_that_is_ignored_ends_no_wait() {
    let (host, holder) = held(1);
    let program = exec(&host, "1 --wait", &["echo", "had"]);
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
        .arg(program.get_program())
        .args(program.get_args());
    command.current_dir(host.path());
    let running = queued(&host, command);
    running.signal(Signal::SIGHUP);
    wait_until("it waits still", || is_asleep(&running));
    holder.kill();
    assert_eq!(running.end(), answer("had\n"));
}

#[test]
fn the_dead_keep_nobody_waiting() {
    let (host, holder) = held(1);
    let (first, second) = (waiting(&host, "1 --wait"), waiting(&host, "1 --wait"));
    let mut third = waiting(&host, "1 --wait");
    first.kill();
    assert_eq!(waiters(&host).len(), 3, "nobody has written since");
    let dead = second.pid();
    second.kill();
    host.answers(&format!("deallocateAll --owner {}", holder.pid()), "");
    has_its_units(&host, &mut third, &[0]);
    assert_eq!(waiters(&host), NOBODY, "{dead} is cleared away");
}

#[test]
fn whoever_writes_clears_the_dead_away() {
    for line in ["allocate 1", "1 --enable-coordination-mode", "deallocateAll", "reclaim"] {
        let (host, holder) = (Sandbox::with_gpus(2), Process::start());
        host.answers(&format!("allocate 1 --owner {}", holder.pid()), "0\n");
        let dead = waiting(&host, "2 --wait");
        let living = waiting(&host, "2 --wait");
        let pid = dead.pid();
        dead.kill();
        let owner = if line == "reclaim" { String::new() } else { format!(" --owner {}", holder.pid()) };
        let mut command = match line {
            "reclaim" => reclaim(&host, ""),
            _ => host.program(&format!("{line}{owner}")),
        };
        let output = command.output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        if line == "reclaim" {
            assert_eq!(
                String::from_utf8(output.stdout).unwrap(),
                format!("removed pid {pid} from the queue\n")
            );
        }
        wait_until("the dead one is gone", || !waiters(&host).contains(&pid));
        if line != "deallocateAll" {
            assert_eq!(waiters(&host), [living.pid()], "{line}");
        }
    }
}

#[test]
fn the_stopped_keep_nobody_waiting() {
    let (host, holder) = held(1);
    let (mut first, mut second) = (waiting(&host, "1 --wait"), waiting(&host, "1 --wait"));
    first.signal(Signal::SIGSTOP);
    wait_until("it is stopped", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", first.pid())).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    });
    holder.kill();
    has_its_units(&host, &mut second, &[0]);
    assert_eq!(waiters(&host), [first.pid()], "it keeps its place");
    let third = waiting(&host, "1 --wait");
    first.signal(Signal::SIGCONT);
    second.kill();
    has_its_units(&host, &mut first, &[0]);
    assert_eq!(waiters(&host), [third.pid()]);
}

/// Here the stop is the only event: no unit becomes free.
#[test]
fn who_is_stopped_later_is_passed_over_too() {
    let (host, holder) = (Sandbox::with_gpus(2), Process::start());
    host.answers(&format!("allocate 1 --owner {}", holder.pid()), "0\n");
    let (first, mut second) = (waiting(&host, "2 --wait"), waiting(&host, "1 --wait"));
    wait_until("both wait", || is_asleep(&first) && is_asleep(&second));
    first.signal(Signal::SIGSTOP);
    has_its_units(&host, &mut second, &[1]);
    first.signal(Signal::SIGCONT);
}

/// A line as `exec --wait` writes it.
fn line_of(pid: u32, start: u64, keys: &str) -> String {
    let read = |name: &str| fs::read_to_string(name).unwrap();
    let boot = read("/proc/sys/kernel/random/boot_id").trim().replace('-', "");
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap().display().to_string();
    let namespace = namespace.trim_matches(|letter: char| !letter.is_ascii_digit()).to_owned();
    format!("? {pid}\tv=1;start={start};boot={boot};pidns={namespace};uid=0;{keys}\n")
}

/// Whether one that waits behind this line of a living process gets its unit.
fn passes_over(keys: &str) -> bool {
    let other = Process::start();
    let line = line_of(other.pid(), start_of(other.pid()), keys);
    let host = Sandbox::with_gpus(2).recorded(line);
    Running::start(exec(&host, "1 --wait=0.2", &["true"])).end().0 == End::Exit(0)
}

#[test]
fn whoever_asks_for_what_is_not_there_keeps_nobody_waiting() {
    assert!(!passes_over("amount=2;ticket=1"), "it goes first");
    assert!(passes_over("amount=3;ticket=1"));
    assert!(passes_over("amount=18446744073709551615;ticket=1"));
    assert!(passes_over("amount=0;ticket=1"));
    assert!(passes_over("amount=1"));
    assert!(passes_over("amount=2;ticket=1;among=0-0"));
    assert!(passes_over("amount=1;ticket=1;among=2-9"));
    assert!(!passes_over("amount=1;ticket=1;among=1-1"));
    assert!(!passes_over("amount=1;ticket=18446744073709551615"));
}

/// A queue of a hundred would else be looked through by each of them, whenever something changes.
#[test]
fn in_a_long_queue_each_waits_for_the_one_before_it() {
    let (host, holder) = held(1);
    let mut others: Vec<Process> = (0..8).map(|_| Process::start()).collect();
    let line = |at: usize, other: &Process| {
        line_of(other.pid(), start_of(other.pid()), &format!("amount=1;ticket={}", at + 1))
    };
    let lines: String = others.iter().enumerate().map(|(at, other)| line(at, other)).collect();
    fs::write(host.file(), host.text() + &lines).unwrap();
    let mut running = waiting(&host, "1 --wait");
    while let Some(last) = others.pop() {
        wait_until("it waits for the last", || watched(&running) == [last.pid()] && is_asleep(&running));
        last.kill();
    }
    wait_until("it is the first", || watched(&running) == [holder.pid()]);
    holder.kill();
    has_its_units(&host, &mut running, &[0]);
}

/// The processes whose ends it waits for.
fn watched(running: &Running) -> Vec<u32> {
    let directory = format!("/proc/{}/fdinfo", running.pid());
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let pid = |text: String| text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
    entries.filter_map(|entry| pid(fs::read_to_string(entry.path()).ok()?)).collect()
}

/// What is drained is not there for now.
#[test]
fn whoever_asks_for_what_is_drained_keeps_nobody_waiting() {
    let other = Process::start();
    let line = line_of(other.pid(), start_of(other.pid()), "amount=2;ticket=1");
    let drained = "! 1\tv=1;uuid=GPU-00000000-0000-4000-8000-000000000001;uid=0;reason=x\n";
    let host = Sandbox::with_gpus(2).recorded(line + drained);
    assert_eq!(Running::start(exec(&host, "1 --wait", &["true"])).end(), answer(""));
    assert_eq!(waiters(&host), [other.pid()]);
}

#[test]
fn a_later_process_of_a_waiters_pid_does_not_wait() {
    let (other, host) = (Process::start(), Sandbox::with_gpus(1));
    let line = line_of(other.pid(), start_of(other.pid()) - 1, "amount=1;ticket=1");
    let dead = line_of(dead_pid(), 1, "amount=1;ticket=2");
    let host = host.recorded(line + &dead);
    assert_eq!(Running::start(exec(&host, "1 --wait", &["true"])).end(), answer(""));
    assert_eq!(waiters(&host), NOBODY);
}

/// Waiters for different devices do not wait for each other.
#[test]
fn nobody_waits_for_those_that_want_other_devices() {
    let (host, holder, other) = (Sandbox::with_gpus(3), Process::start(), Process::start());
    host.answers(&format!("allocate 2 --owner {}", holder.pid()), "0,1\n");
    host.answers(&format!("allocate 1 --owner {}", other.pid()), "2\n");
    let mut first = waiting(&host, "1 --wait --devices 0,1");
    let mut second = waiting(&host, "1 --wait --devices 2");
    let mut third = waiting(&host, "1 --wait --devices 1-2");
    host.answers(&format!("deallocateAll --owner {}", other.pid()), "");
    has_its_units(&host, &mut second, &[2]);
    assert_eq!(waiters(&host), [first.pid(), third.pid()]);
    host.answers(&format!("deallocateAll --owner {}", holder.pid()), "");
    has_its_units(&host, &mut first, &[0]);
    has_its_units(&host, &mut third, &[1]);
}

/// Whoever edits the record may take a line away.
#[test]
fn who_is_taken_out_of_the_queue_takes_a_new_place() {
    let (host, _holder) = held(1);
    let running = waiting(&host, "1 --wait");
    wait_until("it waits", || is_asleep(&running));
    // One byte, and not the whole file anew: it would write over what the waiter writes at that moment.
    let at = host.text().find("? ").unwrap();
    File::options().write(true).open(host.file()).unwrap().write_all_at(b"#", at as u64).unwrap();
    wait_until("it is in the queue again", || waiters(&host) == [running.pid()]);
}

#[test]
fn who_finds_no_room_for_its_line_does_not_wait() {
    let (host, _holder) = held(1);
    let before = host.text();
    let program = exec(&host, "1 --wait", &["true"]);
    let mut command = Command::new("prlimit");
    command.arg(format!("--fsize={}", before.len())).arg(program.get_program()).args(program.get_args());
    command.current_dir(host.path());
    let problem = "gpu-coord: cannot grow coordination: File too large (os error 27); raise the limit of the size of files (ulimit -f)\n";
    assert_eq!(Running::start(command).end(), (End::Exit(4), String::new(), problem.to_owned()));
    assert_eq!(host.text(), before);
}

#[test]
fn who_does_not_wait_is_not_held_up() {
    let (host, holder) = (Sandbox::with_gpus(5), Process::start());
    host.answers(&format!("allocate 1 --owner {}", holder.pid()), "0\n");
    let waiter = waiting(&host, "5 --wait");
    host.answers(&format!("allocate 1 --owner {}", holder.pid()), "1\n");
    host.answers(&format!("1 --enable-coordination-mode --owner {}", holder.pid()), "2\n");
    assert_eq!(Running::start(exec(&host, "1", &["true"])).end(), answer(""));
    assert_eq!(Running::start(exec(&host, "1 --wait=0", &["true"])).end(), answer(""));
    assert_eq!(waiters(&host), [waiter.pid()]);
}

/// Flink's script replaces the file (`sed -i`), and an administrator may remove it.
#[test]
fn a_file_that_is_replaced_or_removed_loses_nobody() {
    for script in ["cp coordination new && mv new coordination", "rm coordination"] {
        let (host, holder) = held(1);
        let (mut first, second) = (waiting(&host, "1 --wait"), waiting(&host, "1 --wait"));
        let lock = locked(&host.file());
        let done = Command::new("sh").args(["-c", script]).current_dir(host.path()).status().unwrap();
        assert!(done.success());
        drop(lock);
        if script.starts_with("cp") {
            host.answers(&format!("deallocateAll --owner {}", holder.pid()), "");
            has_its_units(&host, &mut first, &[0]);
            assert_eq!(waiters(&host), [second.pid()]);
        } else {
            // Nobody holds anything any more, and both ask again.
            wait_until("one of them has the unit", || host.file().exists() && host.holders().len() == 1);
            wait_until("the other waits again", || waiters(&host).len() == 1);
        }
    }
}

/// It does not wait on, and says what is wrong.
#[test]
fn a_record_that_is_damaged_ends_the_wait() {
    let (host, _holder) = held(1);
    let running = waiting(&host, "1 --wait");
    wait_until("it waits", || is_asleep(&running));
    File::options().append(true).open(host.file()).unwrap().write_all(b"x\n").unwrap();
    let lines = host.text().lines().count();
    let (end, _, stderr) = running.end();
    let problem = "`x` does not begin with an index and a blank; correct the line, or delete it if no process holds its unit";
    assert_eq!((end, stderr), (End::Exit(4), format!("gpu-coord: coordination:{lines}: {problem}\n")));
}

/// A host that loses a card for a while keeps its queue.
#[test]
fn what_is_gone_for_a_while_is_waited_for() {
    let host = Sandbox::with_source("file:devices.json");
    // At once: who waits looks now and then, and takes half a file for a broken one.
    let write = |text: &str| {
        fs::write(host.path().join("next.json"), text).unwrap();
        let replaced =
            Command::new("mv").args(["next.json", "devices.json"]).current_dir(host.path()).status();
        assert!(replaced.unwrap().success());
    };
    let both = r#"{"devices": [{"id": "a"}, {"id": "b"}]}"#;
    write(both);
    let holder = Process::start();
    host.answers(&format!("allocate 1 --owner {}", holder.pid()), "0\n");
    let mut running = waiting(&host, "2 --wait");
    write(r#"{"devices": [{"id": "a"}]}"#);
    host.answers(&format!("deallocateAll --owner {}", holder.pid()), "");
    wait_until("it waits", || is_asleep(&running));
    assert_eq!(waiters(&host), [running.pid()]);
    write(both);
    File::options().append(true).open(host.file()).unwrap().write_all(b"\n").unwrap();
    has_its_units(&host, &mut running, &[0, 1]);
}

/// On a terminal, and once for each change.
#[test]
fn a_terminal_is_told_for_whom_it_waits() {
    if Command::new("script").args(["-qec", "true", "/dev/null"]).stdout(Stdio::null()).status().is_err() {
        return skip("a_terminal_is_told_for_whom_it_waits", "it needs script(1)");
    }
    let (host, holder) = held(2);
    let program = exec(&host, "2 --wait", &["echo", "had"]);
    let words: Vec<_> = program.get_args().map(|word| word.to_str().unwrap()).collect();
    let line = format!("{} {}", program.get_program().display(), words.join(" "));
    let mut command = Command::new("script");
    command.args(["-qefc", &line, "/dev/null"]).current_dir(host.path());
    let mut running = Running::start(command);
    let told = |held: &str| format!("gpu-coord: waiting for 2 units, held by {held}\r");
    let first = format!("pid {} (sleep 1000)", holder.pid());
    assert_eq!(running.line(), told(&first));
    host.answers(&format!("deallocateAll --owner {}", holder.pid()), "");
    assert_eq!(running.line(), "had\r");
    running.end();
    // Of a process that has control characters in its name none reaches the terminal.
    let mut named = Command::new("bash");
    named.args(["-c", "exec -a $'a\\e[31m\\nb' sleep 1000"]).stdout(Stdio::null());
    let mut named = named.spawn().unwrap();
    let pid = named.id();
    wait_until("it sleeps", || fs::read_to_string(format!("/proc/{pid}/comm")).unwrap() == "sleep\n");
    host.command(&format!("allocate 1 --check-dead --owner {pid}")).assert().code(0);
    host.command(&format!("allocate 1 --check-dead --owner {}", holder.pid())).assert().code(0);
    let mut command = Command::new("script");
    command.args(["-qefc", &line, "/dev/null"]).current_dir(host.path());
    let mut running = Running::start(command);
    let (one, other) = (format!("{pid} (a\\x1b[31m\\nb 1000)"), format!("{} (sleep 1000)", holder.pid()));
    let both = if pid < holder.pid() { [one, other] } else { [other, one] };
    assert_eq!(running.line(), told(&format!("pid {}", both.join(", "))));
    named.kill().unwrap();
    named.wait().unwrap();
    let mut line = running.line();
    while line.contains(&pid.to_string()) {
        line = running.line(); // it was ending just then, and had no command line any more
    }
    assert_eq!(line, told(&format!("pid {} (sleep 1000)", holder.pid())));
    running.kill();
}

/// It sleeps while nothing happens: it looks only a few times a second.
#[test]
fn a_wait_costs_next_to_nothing() {
    if !strace::is_there("a_wait_costs_next_to_nothing") {
        return;
    }
    let (host, _holder) = held(1);
    let calls = strace::every_call(&exec(&host, "1 --wait=3", &["true"]));
    let waits = calls.iter().filter(|call| call.name == "poll" && !call.text.contains(", 0)")).count();
    assert!((3..12).contains(&waits), "{waits} waits in 3 s");
    let tries = calls.iter().filter(|call| call.name == "flock" && call.text.contains("LOCK_EX")).count();
    assert_eq!(tries, 2, "one to enter, and one to leave");
}
