//! Shares in the record and in the answer, and what becomes of them when the configuration changes.

use std::fs;
use std::process::Stdio;

use super::{Host, none_free, sliced};
use crate::record::Held;
use crate::running::Running;
use crate::sandbox::{PROGRAM, Process, dead_pid};

#[test]
fn a_share_is_recorded_with_its_slot() {
    let host = Host::new(2, &sliced(2));
    let _one = host.owner_of("2", "0,1\n");
    let _other = host.owner_of("1", "0\n");
    assert_eq!(host.shares(), [(0, Some(0)), (0, Some(1)), (1, Some(0))]);
    let _last = host.owner_of("1", "1\n");
    host.refuses("allocate 1", 1, &none_free(4));
    let five = "5 units asked for, and there are 4: waiting cannot help; ask for fewer";
    host.refuses("allocate 5", 1, five);
    host.refuses("5", 1, five);
}

/// CUDA sees no device at all if one is named twice.
#[test]
#[rustfmt::skip] // a table
fn the_list_never_names_a_device_twice() {
    let host = Host::new(2, &sliced(3));
    let uuid = |index: u32| format!("GPU-00000000-0000-4000-8000-{index:012x}");
    for (words, answer) in [
        ("1",                             "0".to_owned()),
        ("2",                             "0,1".to_owned()),
        ("3",                             "0,1".to_owned()),
        ("6",                             "0,1".to_owned()),
        ("3 --devices 1",                 "1".to_owned()),
        ("3 --policy pack",               "0".to_owned()),
        ("4 --policy pack",               "0,1".to_owned()),
        ("4 --print host-index",          "0,1".to_owned()),
        ("4 --print uuid",                format!("{},{}", uuid(0), uuid(1))),
        ("4 --print pci",                 "fffffff0:00:00.0,fffffff0:00:00.1".to_owned()),
    ] {
        host.answers(words, &format!("{answer}\n"));
        let amount: usize = words.split(' ').next().unwrap().parse().unwrap();
        let owner = host.owner_of(words, &format!("{answer}\n"));
        assert_eq!(host.held().len(), amount, "{words}");
        host.release(&owner);
    }
    host.command("4").env("CUDA_VISIBLE_DEVICES", "1,0").assert().code(0).stderr("").stdout("0,1\n");
    host.command("4 --print host-index").env("CUDA_VISIBLE_DEVICES", "1,0").assert().code(0).stderr("").stdout("1,0\n");
}

/// One device is emptied and one half: the least shared is next, or the most shared that has room.
#[test]
fn shares_are_spread_or_packed() {
    for (policy, answers, released, next) in [
        ("spread", [0, 1, 2, 0, 1, 2], [2, 5, 1], ["2\n", "1\n"]),
        ("pack", [0, 0, 1, 1, 2, 2], [4, 5, 2], ["1\n", "2\n"]),
    ] {
        let host = Host::new(3, &sliced(2));
        let words = format!("1 --policy {policy}");
        let owners: Vec<Process> =
            answers.iter().map(|index| host.owner_of(&words, &format!("{index}\n"))).collect();
        host.refuses(&format!("allocate {words}"), 1, &none_free(6));
        released.iter().for_each(|at| host.release(&owners[*at]));
        let _new = next.map(|answer| host.owner_of(&words, answer));
    }
}

#[test]
fn an_unknown_policy_is_a_wrong_command_line() {
    let host = Host::new(1, &sliced(2));
    host.refuses("allocate 1 --policy fill", 2, "--policy cannot be `fill`: it takes spread or pack");
}

/// The shares of dead owners are no reason to put two on one device.
#[test]
fn what_a_dead_owner_left_is_spread_as_well() {
    let host = Host::new(2, &sliced(2));
    let left = host.owner_of("2 --devices 1", "1\n");
    let _one = host.owner_of("1 --devices 0", "0\n");
    let gone = left.kill();
    let owner = Process::start();
    host.refuses(
        &format!("allocate 2 --owner {}", owner.pid()),
        1,
        "2 units asked for, 1 of 4 can be given: 2 held by dead owners (--check-dead takes them over); 1 held by \
         living owners (`gpu-coord status` names them)",
    );
    host.answers(&format!("allocate 2 --check-dead --owner {}", owner.pid()), "1,0\n");
    assert_eq!(host.shares(), [(0, Some(0)), (0, Some(1)), (1, Some(0))]);
    assert!(host.held().iter().all(|held| held.pid != gone));
}

#[test]
fn more_than_one_share_is_refused_where_the_configuration_says_so() {
    let config = sliced(4).replace("resources", "failRequestsGreaterThanOne: true, resources");
    let host = Host::new(2, &config);
    let why = "2 shares of shared devices asked for, and at most 1 is given at a time: a second share gives no more of a \
        device, which its owners take in turns; ask for 1 (or set failRequestsGreaterThanOne to false)";
    for form in ["2", "2 --enable-coordination-mode", "allocate 2"] {
        host.refuses(form, 6, why);
    }
    let exec = host.exec("2 --source simulated:2", &["true"]).output().unwrap();
    assert_eq!((exec.status.code(), exec.stdout.len()), (Some(6), 0));
    assert_eq!(String::from_utf8(exec.stderr).unwrap(), format!("gpu-coord: {why}\n"));
    assert!(!host.sandbox.file().exists());
    let _owner = host.owner_of("1", "0\n");
}

/// A recorded share beyond the present number may be any of them.
#[test]
fn fewer_replicas_do_not_take_from_the_living() {
    let host = Host::new(1, &sliced(4));
    let owners: Vec<Process> = (0..4).map(|_| host.owner_of("1", "0\n")).collect();
    let [first, second, third, fourth] = &owners[..] else { panic!("four") };
    host.configure(&sliced(2));
    host.refuses("allocate 1", 1, &none_free(2));
    host.release(first);
    host.release(second);
    assert_eq!(host.shares(), [(0, Some(2)), (0, Some(3))]);
    host.refuses("allocate 1", 1, &none_free(2));
    host.release(third);
    host.refuses("allocate 1", 1, &none_free(2));
    host.release(fourth);
    let _new = host.owner_of("2", "0\n");
    assert_eq!(host.shares(), [(0, Some(0)), (0, Some(1))]);
}

#[test]
fn who_held_a_device_before_it_was_shared_holds_all_of_it() {
    let host = Host::new(2, "version: v1\n");
    let whole = host.owner_of("1", "0\n");
    assert_eq!(host.shares(), [(0, None)]);
    host.configure(&sliced(2));
    let _one = host.owner_of("1", "1\n");
    let _other = host.owner_of("1", "1\n");
    host.refuses("allocate 1", 1, &none_free(4));
    host.release(&whole);
    let _shares = host.owner_of("1", "0\n");
}

#[test]
fn a_share_holds_all_of_a_device_that_is_shared_no_more() {
    let host = Host::new(2, &sliced(2));
    let share = host.owner_of("1", "0\n");
    host.configure("version: v1\n");
    let _whole = host.owner_of("1", "1\n");
    host.refuses("allocate 1", 1, &none_free(2));
    host.release(&share);
    let _other = host.owner_of("1", "0\n");
}

/// Flink's script tests with `grep -c "^INDEX "` whether an index is taken, and deletes lines with "INDEX " anywhere.
#[test]
fn to_the_script_a_shared_device_is_taken() {
    let host = Host::new(12, &sliced(2));
    let _one = host.owner_of("1 --devices 1", "1\n");
    let _other = host.owner_of("1 --devices 1", "1\n");
    let count = |pattern: &str| {
        let mut grep = std::process::Command::new("grep");
        let output = grep.arg("-c").arg(pattern).arg(host.sandbox.file()).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim_end().parse::<u32>().unwrap()
    };
    assert_eq!((count("^1 "), count("^11 "), count("^0 ")), (2, 0, 0));
    assert_eq!((count("1 "), count(" ")), (2, 2), "no other blank that it could take for its own");
}

/// Flink's script does not know shares.
#[test]
fn a_line_of_the_script_holds_every_share() {
    let host = Host::new(2, &sliced(2));
    let owner = Process::start();
    let host = Host { sandbox: host.sandbox.recorded(format!("0 {}\n", owner.pid())) };
    let _new = host.owner_of("2", "1\n");
    let host = Host { sandbox: host.sandbox.recorded(format!("0 {}\n1 {}\n", dead_pid(), owner.pid())) };
    let _one = host.owner_of("1", "0\n");
    let _other = host.owner_of("1", "0\n");
    host.refuses("allocate 1", 1, &none_free(4));
}

/// The command of `exec` asks for what it was given, while the shares are others by now.
fn asks_inside(host: &Host, before: &str, after: &str, says: &[&str]) {
    host.configure(before);
    let script = "echo ready; read go; for amount in 1 1; do \
        $PROGRAM $amount --owner $$ --config config.yaml 2>&1; echo $?; done; read go";
    let mut exec = host.exec("1 --source simulated:1", &["sh", "-c", script]);
    let mut running =
        Running::with_stdout(exec.env("PROGRAM", PROGRAM).stdin(Stdio::piped()), Stdio::piped());
    assert_eq!(running.line(), "ready");
    host.configure(after);
    running.say("go");
    let said: Vec<String> = (0..4).map(|_| running.line()).collect();
    assert_eq!(said, says);
    let held = host.held();
    let held: Vec<&Held> = held.iter().filter(|held| held.pid == running.pid()).collect();
    assert_eq!(held.iter().map(|held| held.is_taken).collect::<Vec<_>>(), [false, true]);
    assert_eq!(held[0].slot, held[1].slot, "the same share, once for the command and once for who asked");
}

#[test]
fn what_exec_was_given_is_asked_for_once_however_it_is_shared_by_then() {
    let no_more = "gpu-coord: 1 unit asked for, and of the 1 that `gpu-coord exec` was given 0 are left; ask for more there, \
        or for further ones with --more";
    let says = ["0", "0", no_more, "1"];
    asks_inside(&Host::new(1, ""), "", &sliced(4), &says);
    asks_inside(&Host::new(1, ""), &sliced(4), "", &says);
    let host = Host::new(1, &sliced(4));
    let others = host.owner_of("3", "0\n");
    assert_eq!(host.shares().len(), 3);
    asks_inside(&host, &sliced(4), &sliced(2), &says);
    host.release(&others);
}

/// What a living owner has of the device stays its own.
#[test]
fn a_share_that_nobody_can_judge_is_released_beside_those_of_the_living() {
    let host = Host::new(2, &sliced(2));
    let owner = host.owner_of("1", "0\n");
    let uuid = "GPU-00000000-0000-4000-8000-000000000000";
    let elsewhere = format!(
        "0 7\tv=1;slot=1;grant=00000000000000aa;of=1;uuid={uuid};start=5;boot={};pidns=1;uid=0\n",
        "0".repeat(32)
    );
    fs::write(host.sandbox.file(), host.sandbox.text() + &elsewhere).unwrap();
    let pid = owner.pid();
    let says = format!("released index 0#1 of pid 7\nkept index 0#0 of pid {pid}, which is alive\n");
    host.answers("release 0 --force", &says);
    assert_eq!(host.shares(), [(0, Some(0))]);
    let refused = format!(
        "device 0 is held by pid {pid}, which is alive; end it, or give back what it holds with `gpu-coord \
         deallocateAll --owner {pid}`"
    );
    host.refuses("release 0 --force", 6, &refused);
}
