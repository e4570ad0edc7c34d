//! What the stock script does wrong alone, and gpu-coord does not.
//!
//! gpu-coord's side is asserted to be perfect. The script's is printed, and asserted where it does not
//! depend on luck, so that a release of Flink that mends it is noticed.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::{self, File};
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use crate::engines::process::{Running, until};
use crate::figures::{Tally, show};
use crate::host::{Answer, Host, Program, dead_pid, doubles};
use Program::{GpuCoord, Script};

const ROUNDS: u64 = 20;

/// The state after every restart of a host: the file names owners that have all ended.
#[test]
fn callers_on_a_file_of_dead_owners_get_different_gpus() {
    let (script, ours) = both(|program| {
        Tally::of((0..ROUNDS).map(|round| {
            let host = Host::new(16);
            host.record_dead_owners(16);
            host.ask_spread(&[program; 8], 2, round)
        }))
    });
    compare("8 callers, 2 GPUs each of 16, all recorded for dead owners", &script, &ours);
    assert_eq!((ours.with_a_double, ours.callers_without), (0, 0));
}

#[test]
fn a_file_lasts_through_20_restarts() {
    let (script, ours) = both(|program| {
        let host = Host::new(8);
        let served = |start: &u64| {
            let callers = host.ask_spread(&[program; 4], 2, *start);
            let full = |answer: &Answer| answer.as_ref().is_ok_and(|indexes| indexes.len() == 2);
            callers.iter().all(|caller| full(&caller.answer)) && doubles(&callers) == 0
        };
        assert!(served(&0), "the first start, on an empty file");
        (1..=ROUNDS).filter(served).count()
    });
    compare(&format!("restarts of {ROUNDS} that went well: 4 callers, 2 GPUs each of 8"), &script, &ours);
    assert_eq!(ours as u64, ROUNDS);
}

#[test]
fn taking_over_gpu_1_leaves_gpu_11_to_its_owner() {
    let (script, ours) = both(|program| {
        let live = sleeper();
        let host = Host::new(12);
        let dead = dead_pid();
        host.record((0..12).map(|index| if index == 1 { dead } else { live.pid() }));
        let callers = [host.ask(program, 1), host.ask(program, 1)];
        callers.map(|caller| caller.answer)
    });
    compare_answers("GPU 1 is free, 0 and 2 to 11 are held; two callers get", &script, &ours);
    assert_eq!(ours, [given([1]), Err(1)]);
    assert_eq!(script, [given([1]), given([11])], "11 is held");
}

#[test]
fn a_zombie_holds_no_gpu() {
    let (script, ours) = both(|program| {
        let zombie = Running::start(&mut Command::new("true"), "coreutils");
        until("a zombie", || (state(zombie.pid()) == "Z").then_some(()));
        let host = Host::new(1);
        host.record([zombie.pid()]);
        [host.ask(program, 1).answer]
    });
    compare_answers("the owner of the only GPU is a zombie; a caller gets", &script, &ours);
    assert_eq!((ours, script), ([given([0])], [Err(1)]));
}

/// What either has recorded, as it is once the owner has died and another process has its pid.
#[test]
fn the_pid_of_a_dead_owner_holds_nothing_for_another_process() {
    let (script, ours) = both(|program| {
        let host = Host::new(1);
        let dead = host.ask(program, 1);
        let (pid, begun) = (dead.pid(), start(dead.pid()));
        drop(dead);
        let other =
            until("a later clock tick", || Some(sleeper()).filter(|other| start(other.pid()) != begun));
        let record = fs::read_to_string(host.coordination_file()).unwrap();
        let reused = record.replacen(&format!("0 {pid}"), &format!("0 {}", other.pid()), 1);
        assert_ne!(reused, record);
        fs::write(host.coordination_file(), reused).unwrap();
        [host.ask(program, 1).answer]
    });
    compare_answers("the dead owner's pid is another process's by now; a caller gets", &script, &ours);
    assert_eq!((ours, script), ([given([0])], [Err(1)]));
}

/// A line of the script, which has nothing but a pid: the time of the file is all that tells.
#[test]
fn a_reboot_ends_every_owner() {
    let (script, ours) = both(|program| {
        let other = sleeper();
        let host = Host::new(1);
        host.record([other.pid()]);
        let before_the_reboot = SystemTime::UNIX_EPOCH + Duration::from_secs(946_684_800);
        let file = File::options().append(true).open(host.coordination_file()).unwrap();
        file.set_modified(before_the_reboot).unwrap();
        [host.ask(program, 1).answer]
    });
    compare_answers(
        "the host has been rebooted, and the owner's pid is another's; a caller gets",
        &script,
        &ours,
    );
    // In a container gpu-coord lets no time prove a death.
    let expected = if sees_when_it_booted() { given([0]) } else { Err(1) };
    assert_eq!((ours, script), ([expected], [Err(1)]));
}

/// The script's figure and gpu-coord's, found at the same time: most of it is waiting.
fn both<T: Send>(figure: impl Fn(Program) -> T + Sync) -> (T, T) {
    thread::scope(|scope| {
        let script = scope.spawn(|| figure(Script));
        let ours = figure(GpuCoord);
        (script.join().unwrap(), ours)
    })
}

fn compare(what: &str, script: &dyn Display, ours: &dyn Display) {
    show(what, [("stock script", script), ("gpu-coord", ours)]);
}

fn compare_answers<const N: usize>(what: &str, script: &[Answer; N], ours: &[Answer; N]) {
    let text = |answers: &[Answer; N]| {
        let words = answers.each_ref().map(|answer| match answer {
            Ok(indexes) => format!("{indexes:?}"),
            Err(status) => format!("status {status}"),
        });
        words.join(", ")
    };
    compare(what, &text(script), &text(ours));
}

fn given<const N: usize>(indexes: [u32; N]) -> Answer {
    Ok(BTreeSet::from(indexes))
}

fn sleeper() -> Running {
    Running::start(Command::new("sleep").arg("infinity"), "coreutils")
}

/// The state of a process, a letter.
fn state(pid: u32) -> String {
    field(pid, 3)
}

/// When a process started, in clock ticks.
fn start(pid: u32) -> String {
    field(pid, 22)
}

/// Field `number` of `/proc/PID/stat`. The second is a name, which may itself hold blanks and parentheses.
fn field(pid: u32, number: usize) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    after_name.split(' ').nth(number - 3).unwrap().to_owned()
}

/// In the initial pid namespace, whose inode is fixed, and with the kernel's own `/dev`.
fn sees_when_it_booted() -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let is_kernels = mounts.lines().any(|mount| mount.contains(" /dev devtmpfs "));
    is_kernels && fs::read_link("/proc/self/ns/pid").unwrap().as_os_str() == "pid:[4026531836]"
}
