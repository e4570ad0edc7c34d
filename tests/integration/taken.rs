//! `gpu-coord AMOUNT` inside `gpu-coord exec`: units that are passed on.

use std::fs;
use std::process::Command;
use std::thread;

use nix::sys::signal::Signal;

use crate::exec::{UUID, exec, script};
use crate::record::{assert_sound, held_in, is_alive, of_the_living, units_of};
use crate::running::{End, Running, answer, wait_until};
use crate::sandbox::{Process, Sandbox, dead_pid};
use crate::strace::{self, Call};
use crate::strict::is_refused_if_strict;

/// `exec` of `amount` units, which sleeps, and its grant.
fn given(host: &Sandbox, line: &str) -> (Running, String) {
    let mut running =
        Running::start(exec(host, line, &["sh", "-c", "echo $GPU_COORD_GRANT; exec sleep 1000"]));
    let grant = running.line();
    (running, grant)
}

/// A request inside `exec`, by `owner`.
fn inside(host: &Sandbox, grant: &str, line: &str, owner: &Process) -> Command {
    let mut command = host.program(&format!("{line} --owner {}", owner.pid()));
    command.env("GPU_COORD_GRANT", grant);
    command
}

#[track_caller]
fn answers(host: &Sandbox, grant: &str, line: &str, owner: &Process, stdout: &str) {
    assert_eq!(Running::start(inside(host, grant, line, owner)).end(), answer(stdout));
}

#[track_caller]
fn refuses(host: &Sandbox, grant: &str, line: &str, owner: &Process, code: i32, problem: &str) {
    let before = fs::read(host.file()).unwrap_or_default();
    let end = Running::start(inside(host, grant, line, owner)).end();
    assert_eq!(end, (End::Exit(code), String::new(), format!("gpu-coord: {problem}\n")));
    assert_eq!(fs::read(host.file()).unwrap_or_default(), before);
}

/// What `exec` has and what was asked for inside, as the record has both.
fn sorted(of_exec: &[(u32, u32)], taken: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut all = [of_exec, taken].concat();
    all.sort_unstable();
    all
}

fn short(asked: &str, all: u32, left: u32) -> String {
    format!(
        "{asked} asked for, and of the {all} that `gpu-coord exec` was given {left} are left; ask for more there, or \
         for further ones with --more"
    )
}

fn unknown(grant: &str) -> String {
    format!(
        "grant `{grant}` of GPU_COORD_GRANT is not in coordination, or its owner has ended (a start script must not \
         exit before this call); start the command with `gpu-coord exec` again, or unset the variable"
    )
}

#[test]
fn each_unit_is_passed_on_once_and_in_order() {
    let (host, first, second) = (Sandbox::with_gpus(5), Process::start(), Process::start());
    host.answers(&format!("allocate 1 --owner {}", first.pid()), "0\n");
    let (running, grant) = given(&host, "3");
    refuses(&host, &grant, "4", &first, 1, &short("4 units", 3, 3));
    answers(&host, &grant, "1", &first, "1\n");
    let of_exec = [(1, running.pid()), (2, running.pid()), (3, running.pid())];
    assert_eq!(host.holders(), sorted(&of_exec, &[(0, first.pid()), (1, first.pid())]));
    refuses(&host, &grant, "3", &first, 1, &short("3 units", 3, 2));
    answers(&host, &grant, "2 --enable-coordination-mode", &second, "2,3\n");
    refuses(&host, &grant, "1", &first, 1, &short("1 unit", 3, 0));
    let huge = "9".repeat(60);
    refuses(&host, &grant, &huge, &first, 1, &short(&format!("{} units", u128::MAX), 3, 0));
    answers(&host, &grant, "0", &first, "");
    let taken = [(0, first.pid()), (1, first.pid()), (2, second.pid()), (3, second.pid())];
    assert_eq!(host.holders(), sorted(&of_exec, &taken));
    assert_sound(&held_in(&host.file()));
    // They belong to them, whoever ended first.
    running.kill();
    host.answers(&format!("1 --enable-coordination-mode --owner {}", first.pid()), "4\n");
    host.answers(&format!("deallocateAll --owner {}", second.pid()), "");
    assert_eq!(units_of(&held_in(&host.file()), first.pid()), [0, 1, 4].into());
    host.answers(&format!("2 --enable-coordination-mode --owner {}", first.pid()), "2,3\n");
}

#[test]
fn what_is_no_grant_is_refused() {
    let (host, owner) = (Sandbox::with_gpus(2), Process::start());
    refuses(&host, "0123456789abcdef", "1", &owner, 4, &unknown("0123456789abcdef"));
    assert!(!host.file().exists());
    let (running, grant) = given(&host, "1");
    let long = "f".repeat(5000);
    for odd in [
        "0123456789abcdef",
        "x",
        "+",
        &format!("+{}", &grant[1..]),
        &format!("{grant}0"),
        &format!("0{grant}"),
        "../../etc",
        " ",
    ] {
        refuses(&host, odd, "1", &owner, 4, &unknown(odd));
    }
    let (end, _, stderr) = Running::start(inside(&host, &long, "1", &owner)).end();
    assert!(end == End::Exit(4) && stderr.len() < 3000 && stderr.lines().count() == 1, "{stderr}");
    let (end, _, stderr) = Running::start(inside(&host, "a\u{1b}[31m\nb", "1", &owner)).end();
    assert!(end == End::Exit(4) && stderr.starts_with("gpu-coord: grant `a\\u{1b}[31m\\nb`"), "{stderr}");
    // Empty is unset.
    let mut command = inside(&host, "", "1 --enable-coordination-mode", &owner);
    assert_eq!(Running::start(command).end(), answer("1\n"));
    // The other forms are not answered from a grant.
    command = inside(&host, &grant, "deallocateAll", &owner);
    assert_eq!(Running::start(command).end(), answer(""));
    running.kill();
    refuses(&host, &grant, "1", &owner, 4, &unknown(&grant));
}

/// No request is answered from the grant of another `exec` by mistake: the id decides.
#[test]
fn one_grant_is_not_the_other() {
    let (host, owner) = (Sandbox::with_gpus(3), Process::start());
    let (one, first) = given(&host, "1");
    let (other, second) = given(&host, "2");
    refuses(&host, &first, "2", &owner, 1, &short("2 units", 1, 1));
    answers(&host, &second, "2 --print host-index", &owner, "1,2\n");
    let of_exec = [(0, one.pid()), (1, other.pid()), (2, other.pid())];
    assert_eq!(host.holders(), sorted(&of_exec, &[(1, owner.pid()), (2, owner.pid())]));
}

#[test]
fn what_cannot_be_printed_can_be_asked_for_again() {
    let (host, owner) = (Sandbox::with_gpus(3), Process::start());
    let (running, grant) = given(&host, "3");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let (end, _, stderr) = Running::with_stdout(&mut inside(&host, &grant, "2", &owner), full.into()).end();
    let problem =
        "gpu-coord: cannot write the answer to standard output: No space left on device (os error 28)\n";
    assert_eq!((end, stderr.as_str()), (End::Exit(4), problem));
    let pid = running.pid();
    assert_eq!(host.holders(), [(0, pid), (1, pid), (2, pid)]);
    assert_eq!(held_in(&host.file()).len(), 3);
    let mut closed = Command::new("sh");
    let program = inside(&host, &grant, "2", &owner);
    closed.args(["-c", "exec \"$0\" \"$@\" >&-"]).arg(program.get_program()).args(program.get_args());
    closed.env("GPU_COORD_GRANT", &grant).current_dir(host.path());
    let problem = "gpu-coord: cannot write the answer to standard output: Bad file descriptor (os error 9)\n";
    assert_eq!(Running::start(closed).end(), (End::Exit(4), String::new(), problem.to_owned()));
    answers(&host, &grant, "2", &owner, "0,1\n");
    answers(&host, &grant, "1", &owner, "2\n");
    assert_sound(&held_in(&host.file()));
}

#[test]
fn those_that_ask_at_once_are_given_different_units() {
    let host = Sandbox::with_gpus(16);
    let (_running, grant) = given(&host, "16");
    let owners: Vec<Process> = (0..16).map(|_| Process::start()).collect();
    let callers: Vec<Running> =
        owners.iter().map(|owner| Running::start(inside(&host, &grant, "1", owner))).collect();
    let mut given: Vec<u32> = callers
        .into_iter()
        .map(|caller| {
            let (end, stdout, stderr) = caller.end();
            assert_eq!((end, stderr), (End::Exit(0), String::new()));
            stdout.trim_end().parse().unwrap()
        })
        .collect();
    given.sort_unstable();
    assert_eq!(given, (0..16).collect::<Vec<_>>());
    let held = held_in(&host.file());
    assert_sound(&held);
    assert!(owners.iter().all(|owner| units_of(&held, owner.pid()).len() == 1));
}

#[test]
fn more_is_a_grant_of_its_own() {
    let (host, owner) = (Sandbox::with_gpus(4), Process::start());
    let (running, grant) = given(&host, "1");
    answers(&host, &grant, "1 --more", &owner, "1\n");
    answers(&host, &grant, "allocate 1 --more", &owner, "2\n");
    answers(&host, &grant, "1 --more --no-coordination", &owner, "0\n");
    answers(&host, &grant, "1", &owner, "0\n");
    let of_owner = [(0, owner.pid()), (1, owner.pid()), (2, owner.pid())];
    assert_eq!(host.holders(), sorted(&[(0, running.pid())], &of_owner));
    refuses(&host, &grant, "1", &owner, 1, &short("1 unit", 1, 0));
    drop(running);
    refuses(&host, &grant, "allocate 1", &owner, 1, &short("1 unit", 1, 0));
    answers(&host, &grant, "allocate 1 --more", &owner, "3\n");
}

/// What `exec` sets names its own units, which are not those that are meant.
#[test]
fn more_is_not_what_exec_has_set_its_variables_to() {
    let host = Sandbox::with_gpus(5);
    let asks = "exec setsid -w sh -c 'gpu-coord 1 --more; gpu-coord allocate 1; \
        gpu-coord allocate 1 --more --print uuid; gpu-coord allocate 1 --no-coordination --print host-index; \
        gpu-coord exec 1 --more -- sh -c \"echo \\$CUDA_VISIBLE_DEVICES\"; exit $?'";
    let said = format!("2\n0\n{UUID}3\n0\n{UUID}4\n");
    assert_eq!(Running::start(script(&host, "2", asks)).end(), answer(&said));
}

#[test]
fn an_exec_inside_of_another_says_what_to_do() {
    let host = Sandbox::with_gpus(2);
    let problem = "gpu-coord: `gpu-coord exec` inside another one cannot use its units: ask with `gpu-coord AMOUNT`, or \
        add --more for further units\n";
    let asks = "gpu-coord exec 0 -- true; gpu-coord exec 1 -- true";
    let ended = (End::Exit(2), String::new(), problem.to_owned());
    assert_eq!(Running::start(script(&host, "1", asks)).end(), ended);
}

/// The asker counts what `exec` has set in its environment.
#[test]
fn an_index_is_the_askers_own() {
    let host = Sandbox::with_gpus(4);
    let holder = Process::start();
    host.answers(&format!("allocate 2 --owner {}", holder.pid()), "0,1\n");
    let asks = |line: &str| format!("exec setsid -w sh -c 'gpu-coord {line}; exit $?'");
    for (line, stdout) in [
        ("2", "0,1\n".to_owned()),
        ("2 --print host-index", "2,3\n".to_owned()),
        ("2 --ignore-visible-devices", "2,3\n".to_owned()),
        ("2 --print uuid", format!("{UUID}2,{UUID}3\n")),
        ("1 --devices 3", "1\n".to_owned()),
        ("1 --exclude 2", "1\n".to_owned()),
    ] {
        assert_eq!(Running::start(script(&host, "2", &asks(line))).end(), answer(&stdout), "{line}");
    }
    let refused = Running::start(script(&host, "2", &asks("2 --devices 3"))).end();
    assert_eq!(refused, (End::Exit(1), String::new(), format!("gpu-coord: {}\n", short("2 units", 2, 1))));
    let file = Sandbox::with_source("file:devices.json");
    fs::write(file.path().join("devices.json"), r#"{"devices": [{"id": "a"}, {"id": "b"}]}"#).unwrap();
    file.answers(&format!("allocate 1 --owner {}", holder.pid()), "0\n");
    assert_eq!(Running::start(script(&file, "1", &asks("1"))).end(), answer("1\n"));
}

/// A start script forks the JVM, which asks, and leaves.
#[test]
fn whoever_asks_below_a_start_script_owns_its_units() {
    let host = Sandbox::with_gpus(2);
    let start = "setsid sh -c 'gpu-coord 2 --enable-coordination-mode >answer 2>errors; echo $$ >jvm; exec sleep 1000' >/dev/null 2>&1 </dev/null &
        until [ -s jvm ]; do sleep 0.01; done";
    assert_eq!(Running::start(script(&host, "2", start)).end(), answer(""));
    let read = |name: &str| fs::read_to_string(host.path().join(name)).unwrap();
    assert_eq!((read("answer"), read("errors")), ("0,1\n".to_owned(), String::new()));
    let pid: u32 = read("jvm").trim().parse().unwrap();
    let living = [(0, pid), (1, pid)];
    assert_eq!(of_the_living(&held_in(&host.file())), living.into(), "and not the start script");
    let other = Process::start();
    let refused = host.command(&format!("1 --enable-coordination-mode --owner {}", other.pid())).assert();
    refused.code(1).stdout("");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL).unwrap();
    wait_until("the JVM has ended", || !held_in(&host.file()).iter().any(is_alive));
    host.answers(&format!("2 --enable-coordination-mode --owner {}", other.pid()), "0,1\n");
}

/// A helper of the command requests units and ends: the command goes on using them.
#[test]
fn what_a_helper_asked_for_stays_the_commands() {
    let host = Sandbox::with_gpus(2);
    let (running, grant) = given(&host, "1");
    let helper = Process::start();
    answers(&host, &grant, "1", &helper, "0\n");
    helper.kill();
    let other = Process::start();
    let line = |amount: u32| format!("{amount} --enable-coordination-mode --owner {}", other.pid());
    host.command(&line(2)).assert().code(1).stdout("");
    // Who comes after it is told the same, and its line goes.
    let next = Process::start();
    answers(&host, &grant, "1", &next, "0\n");
    assert_eq!(host.holders(), sorted(&[(0, running.pid())], &[(0, next.pid())]));
    host.answers(&line(1), "1\n");
    host.answers(&format!("deallocateAll --owner {}", next.pid()), "");
    answers(&host, &grant, "1", &next, "0\n");
}

/// Flink's script has given it away, or whoever saw that `exec` had ended, which was not seen from here.
#[test]
fn what_others_hold_is_not_passed_on() {
    let host = Sandbox::with_gpus(2);
    let (running, grant) = given(&host, "2");
    let (other, first, second) = (Process::start(), Process::start(), Process::start());
    fs::write(host.file(), format!("{}0 {}\n", host.text(), other.pid())).unwrap();
    answers(&host, &grant, "1", &first, "1\n");
    refuses(&host, &grant, "1", &second, 1, &short("1 unit", 2, 0));
    let mut all = vec![(0, running.pid()), (1, running.pid()), (0, other.pid()), (1, first.pid())];
    all.sort_unstable();
    assert_eq!(host.holders(), all);
    other.kill();
    answers(&host, &grant, "1", &second, "0\n");
}

/// Who holds it is told first, and nobody twice; it is one unit to a quota.
#[test]
fn what_is_held_by_two_is_shown_and_counted_once() {
    let host = Sandbox::with_gpus(2);
    let config = "gpu-coord: {quotas: {team: {nvidia.com/gpu: 2}}}\n";
    fs::write(host.path().join("config.yaml"), config).unwrap();
    let (running, grant) = given(&host, "1 --namespace team --config config.yaml");
    let owner = Process::start();
    answers(&host, &grant, "1", &owner, "0\n");
    let status = || {
        let output = host.program("status --json --config config.yaml").output().unwrap();
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let shown = status();
    let unit = &shown["devices"][0]["units"][0];
    assert_eq!(
        (&unit["owner"]["pid"], &unit["other_owners"][0]["pid"]),
        (&owner.pid().into(), &running.pid().into())
    );
    assert_eq!(shown["namespaces"][0]["used"], 1, "{shown:#}");
    let other = Process::start();
    let line = format!("allocate 1 --namespace team --config config.yaml --owner {}", other.pid());
    host.answers(&line, "1\n");
    host.answers(&format!("deallocateAll --owner {}", other.pid()), "");
    // The command itself asks, too.
    host.answers(&format!("deallocateAll --owner {}", owner.pid()), "");
    let mut asks = host.program(&format!("1 --owner {}", running.pid()));
    asks.env("GPU_COORD_GRANT", &grant);
    assert_eq!(Running::start(asks).end(), answer("0\n"));
    let shown = status();
    let unit = &shown["devices"][0]["units"][0];
    assert_eq!(
        (&unit["owner"]["pid"], unit["other_owners"].as_array().map(Vec::len)),
        (&running.pid().into(), Some(0))
    );
}

/// Shares that a device has no more are each of any of them, and count all the same.
#[test]
fn shares_of_one_exec_count_each() {
    let host = Sandbox::with_gpus(1);
    for replicas in [2, 4] {
        let config = format!(
            "sharing: {{timeSlicing: {{resources: [{{name: nvidia.com/gpu, replicas: {replicas}}}]}}}}\n"
        );
        fs::write(host.path().join(format!("{replicas}.yaml")), config).unwrap();
    }
    let (_running, grant) = given(&host, "4 --namespace team --config 4.yaml");
    answers(&host, &grant, "1 --config 4.yaml", &Process::start(), "0\n");
    for (config, used) in [("4.yaml", 4), ("2.yaml", 4)] {
        let output = host.program(&format!("status --json --config {config}")).output().unwrap();
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(shown["namespaces"][0]["used"], used, "{config}: {shown:#}");
    }
}

/// From another directory, with nothing but the environment.
#[test]
fn inside_is_asked_as_exec_was() {
    let host = Sandbox::with_gpus(2);
    let config =
        "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n";
    fs::write(host.path().join("config.yaml"), config).unwrap();
    let line = "3 --config config.yaml --resource gpu.shared --vendor nvidia";
    let asks = "cd /; exec setsid -w sh -c 'echo $GPU_COORD_VENDOR; gpu-coord 1; gpu-coord 1 --resource gpu.shared; gpu-coord 1; gpu-coord 1 --resource gpu'";
    let (end, stdout, stderr) = Running::start(script(&host, line, asks)).end();
    assert_eq!((end, stdout.as_str()), (End::Exit(2), "nvidia\n0\n0\n1\n"), "{stderr}");
    let problem = "this host has no resource `nvidia.com/gpu`; it has nvidia.com/gpu.shared (4): name one with --resource";
    assert_eq!(stderr, format!("gpu-coord: {problem}\n"));
}

/// It was not asked for where it would have had to be.
#[test]
fn isolation_is_asked_of_exec() {
    let (host, owner) = (Sandbox::with_gpus(1), Process::start());
    let (_running, grant) = given(&host, "1");
    let problem = "`gpu-coord exec` took these units without isolation, and its command can open every device; give \
                   --cgroup to `gpu-coord exec`";
    for how in ["--cgroup", "--cgroup=v1", "--cgroup=v2"] {
        refuses(&host, &grant, &format!("1 {how}"), &owner, 5, problem);
    }
    let line = "1 --cgroup=best-effort";
    is_refused_if_strict(inside(&host, &grant, line, &owner), &host.file(), problem);
    let end = Running::start(inside(&host, &grant, line, &owner)).end();
    assert_eq!(end, (End::Exit(0), "0\n".to_owned(), format!("gpu-coord: warning: {problem}\n")));
}

/// Our write renews the time by which the owners of the script's lines are judged.
#[test]
fn the_scripts_lines_are_settled_before_a_unit_is_passed_on() {
    let (host, owner, living) = (Sandbox::with_gpus(4), Process::start(), Process::start());
    let (running, grant) = given(&host, "1");
    let lines = format!("2 {}\n3 {}\n", living.pid(), dead_pid());
    fs::write(host.file(), host.text() + &lines).unwrap();
    answers(&host, &grant, "1", &owner, "0\n");
    assert_eq!(host.holders(), sorted(&[(0, running.pid())], &[(0, owner.pid()), (2, living.pid())]));
    assert!(held_in(&host.file()).iter().all(|held| held.start.is_some()), "{}", host.text());
}

/// A device that is gone from the inventory stays the command's, though others of its grant are passed on.
#[test]
fn what_cannot_be_passed_on_stays_where_it_is() {
    let (host, owner) = (Sandbox::with_source("file:devices.json"), Process::start());
    let write = |text: &str| fs::write(host.path().join("devices.json"), text).unwrap();
    let both = r#"{"devices": [{"id": "a"}, {"id": "b"}]}"#;
    write(both);
    let (running, grant) = given(&host, "2");
    write(r#"{"devices": [{"id": "b"}]}"#);
    answers(&host, &grant, "1", &owner, "0\n");
    refuses(&host, &grant, "1", &owner, 1, &short("1 unit", 1, 0));
    write(both);
    let of_exec = [(0, running.pid()), (1, running.pid())];
    // The index is that of the line that `exec` has, by which Flink's script knows the unit.
    assert_eq!(host.holders(), sorted(&of_exec, &[(1, owner.pid())]));
    answers(&host, &grant, "1", &owner, "0\n");
    assert_eq!(host.holders(), sorted(&of_exec, &[(0, owner.pid()), (1, owner.pid())]));
}

/// The calls from the first that names the file.
fn calls(command: &Command) -> Vec<Call> {
    let calls = strace::every_call(command);
    let first = calls.iter().position(|call| call.name != "execve" && call.text.contains("\"coordination\""));
    calls[first.unwrap()..].to_vec()
}

/// At every call each unit is the command's, and what was not told can be asked for.
#[test]
fn killed_at_every_call_a_unit_is_taken_or_can_be_asked_for() {
    if !strace::is_there("killed_at_every_call_a_unit_is_taken_or_can_be_asked_for") {
        return;
    }
    let (host, owner) = (Sandbox::with_gpus(3), Process::start());
    let (running, grant) = given(&host, "3");
    let before = host.text();
    let program = inside(&host, &grant, "2", &owner);
    let mut killed = 0;
    for call in calls(&program) {
        fs::write(host.file(), &before).unwrap();
        let mut command = strace::inject(&program, &call.name, "signal=SIGKILL", &call.nth.to_string());
        command.env("GPU_COORD_GRANT", &grant);
        let (end, stdout, _) = Running::start(command).end();
        killed += usize::from(end == End::Killed(Signal::SIGKILL));
        let units = |pid: u32| units_of(&held_in(&host.file()), pid);
        let (old, new) = (units(running.pid()), units(owner.pid()));
        assert_eq!(old.len(), 3, "{call:?}: {old:?} {new:?}");
        assert!(new.is_empty() || new.len() == 2, "{call:?}: {new:?}");
        // Between the record and the answer it is as with every grant: the owner has them, and was not told.
        let is_passed_on = new.len() == 2;
        assert!(stdout.is_empty() || (stdout == "0,1\n" && is_passed_on), "{call:?}: {stdout}");
        if !is_passed_on {
            answers(&host, &grant, "2", &owner, "0,1\n");
        }
        answers(&host, &grant, "1", &owner, "2\n");
        refuses(&host, &grant, "1", &owner, 1, &short("1 unit", 3, 0));
        let held = held_in(&host.file());
        assert_sound(&held);
        assert_eq!((held.len(), units_of(&held, owner.pid()).len()), (6, 3), "{call:?}");
    }
    assert!(killed > 20, "killed {killed} times only");
}

/// The same of `exec`, which becomes the owner itself: what it leaves is stale, or nothing.
#[test]
fn killed_at_every_call_exec_leaves_a_record_that_holds() {
    if !strace::is_there("killed_at_every_call_exec_leaves_a_record_that_holds") {
        return;
    }
    let scene = |line: &'static str, stale: bool| {
        let (host, other) = (Sandbox::with_gpus(4), Process::start());
        host.answers(&format!("allocate 1 --owner {}", other.pid()), "0\n");
        if stale {
            let dead = Process::start();
            host.answers(&format!("allocate 3 --owner {}", dead.pid()), "1,2,3\n");
            dead.kill();
        }
        let before = host.text();
        let program = exec(&host, line, &["true"]);
        let mut killed = 0;
        for call in calls(&program) {
            fs::write(host.file(), &before).unwrap();
            let command = strace::inject(&program, &call.name, "signal=SIGKILL", &call.nth.to_string());
            let (end, ..) = Running::start(command).end();
            killed += usize::from(end == End::Killed(Signal::SIGKILL));
            let held = held_in(&host.file());
            assert_sound(&held);
            assert_eq!(of_the_living(&held), [(0, other.pid())].into(), "{call:?}");
            let next = Process::start();
            let line = format!("3 --enable-coordination-mode --owner {}", next.pid());
            host.command(&line).assert().code(0).stderr("");
            assert_eq!(units_of(&held_in(&host.file()), next.pid()), [1, 2, 3].into(), "{call:?}");
            assert!(held_in(&host.file()).iter().all(is_alive), "{call:?}");
            assert!(!host.text().lines().any(|line| line.starts_with('?')), "{call:?}: {}", host.text());
        }
        assert!(killed > 20, "{line}: killed {killed} times only");
    };
    thread::scope(|scope| {
        scope.spawn(|| scene("2", false));
        scope.spawn(|| scene("3 --wait", true));
    });
}
