//! Several owners in one control group, as `exec` leaves them when it passes its units on.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::cell::versions;
use super::owner::Owner;
use super::stage::{Stage, start_of};
use crate::fake_nvml::Answer;
use crate::running::wait_until;
use crate::strict::is_refused_if_strict;

/// A confined owner of units 0 and 1, of which a child of its has been given 0.
fn with_a_second_owner(stage: &Stage) -> (Owner, u32) {
    let mut owner = stage.owner();
    stage.confine(2, &owner, "0,1\n");
    let child: u32 = owner.tell("sleep 1000 >/dev/null 2>&1 & echo $!").trim().parse().unwrap();
    let (from, to) = [owner.pid(), child].map(|pid| format!("start={};", start_of(pid))).into();
    let anew = |line: &str| {
        let Some(rest) = line.strip_prefix(&format!("0 {}\t", owner.pid())) else {
            return format!("{line}\n");
        };
        // A grant of its own: all lines of one hold or none.
        let mut rest = rest.replace(&from, &to);
        let id = rest.find("grant=").unwrap() + "grant=".len();
        rest.replace_range(id..id + 16, "00000000000000ab");
        format!("0 {child}\t{rest}\n")
    };
    let text: String = stage.sandbox.text().lines().map(anew).collect();
    fs::write(stage.sandbox.file(), text).unwrap();
    (owner, child)
}

#[test]
fn what_one_gives_back_stays_recorded_while_the_other_can_open_it() {
    for version in versions("what_one_gives_back_stays_recorded_while_the_other_can_open_it") {
        let stage = Stage::with_gpus(version, 3);
        let (mut owner, child) = with_a_second_owner(&stage);
        let group = stage.recorded(&owner).trim_start_matches("cgroup=").to_owned();
        for (pid, index) in [(owner.pid(), 1), (child, 0)] {
            let warning = format!(
                "gpu-coord: warning: index {index} stays recorded: others in control group {group} can open it until they \
                 end\n"
            );
            let line = format!("deallocateAll --owner {pid}");
            is_refused_if_strict(stage.sandbox.program(&line), &stage.sandbox.file(), &warning);
            let mut command = stage.sandbox.command(&line);
            command.assert().code(0).stdout("").stderr(warning);
        }
        assert_eq!(stage.sandbox.holders(), [(0, child), (1, owner.pid())]);
        assert_eq!(owner.reach(), "++-", "nobody is freed");
        owner.kill();
    }
}

#[test]
fn what_one_is_given_takes_nothing_from_the_other() {
    for version in versions("what_one_is_given_takes_nothing_from_the_other") {
        let stage = Stage::with_gpus(version, 4);
        let (mut owner, _) = with_a_second_owner(&stage);
        let further = format!("{} --print host-index", stage.line(1, &owner));
        let mut full = stage.sandbox.program(&further);
        let full = full.stdout(fs::File::options().write(true).open("/dev/full").unwrap()).status().unwrap();
        assert_eq!((full.code(), owner.reach().as_str()), (Some(4), "++--"));
        stage.sandbox.answers(&further, "2\n");
        assert_eq!(owner.reach(), "+++-");
        owner.kill();
    }
}

#[test]
fn the_dead_take_nothing_from_the_living() {
    for version in versions("the_dead_take_nothing_from_the_living") {
        let stage = Stage::with_gpus(version, 3);
        let (mut owner, child) = with_a_second_owner(&stage);
        owner.tell(&format!("kill -9 {child}; wait {child} 2>/dev/null; true"));
        let mut other = stage.owner();
        stage
            .sandbox
            .command(&format!("{} --check-dead", stage.line(1, &other)))
            .assert()
            .code(0)
            .stdout("0\n");
        assert_eq!((owner.reach().as_str(), other.reach().as_str()), ("++-", "--+"));
        owner.kill();
    }
}

/// What is in the group of a living owner that one can open, so that not even force frees it.
#[test]
fn what_the_living_can_open_is_never_reclaimed() {
    for version in versions("what_the_living_can_open_is_never_reclaimed") {
        let stage = Stage::with_gpus(version, 3);
        let (mut owner, child) = with_a_second_owner(&stage);
        owner.tell(&format!("kill -9 {child}; wait {child} 2>/dev/null; true"));
        let before = stage.sandbox.text();
        for words in ["", "--force"] {
            let Answer { status, stdout, stderr } = stage.reclaim(words);
            let kept =
                format!("kept index 0 of pid {child}: its control group is also that of a living owner\n");
            assert_eq!((status, stdout, stderr.as_str()), (Some(0), kept, ""), "{words}");
            assert_eq!((stage.sandbox.text(), owner.reach().as_str()), (before.clone(), "++-"));
        }
        owner.kill();
    }
}

/// The command of an `exec` of units 0 and 1, and somebody inside who was given 0.
fn with_an_asker(stage: &Stage) -> (Owner, u32) {
    let mut owner = stage.owner();
    owner.order(&format!("exec gpu-coord exec 2 --cgroup={} -- bash", stage.cell.version.word()));
    let asks = "setsid bash -c 'gpu-coord 1 >answer 2>&1; echo $$ >asker; exec sleep 1000' >/dev/null 2>&1 &
        until [ -s asker ]; do sleep 0.01; done; cat asker answer";
    let told = owner.tell(asks);
    let (asker, answer) = told.split_once('\n').unwrap();
    assert_eq!(answer, "0\n");
    (owner, asker.parse().unwrap())
}

fn can_open(stage: &Stage, owner: &Owner, index: u32) -> String {
    let group = stage.recorded(owner).trim_start_matches("cgroup=").to_owned();
    format!(
        "gpu-coord: warning: index {index} stays recorded: others in control group {group} can open it until they end\n"
    )
}

/// All lines of a grant hold or none: what the asker has as well is not given back alone.
#[test]
fn a_grant_is_not_parted_by_what_somebody_inside_was_given() {
    for version in versions("a_grant_is_not_parted_by_what_somebody_inside_was_given") {
        let stage = Stage::with_gpus(version, 3);
        let ((mut owner, asker), other) = (with_an_asker(&stage), stage.owner());
        let pid = owner.pid();
        let all = [(0, pid.min(asker)), (0, pid.max(asker)), (1, pid)];
        let mut command = stage.sandbox.command(&format!("deallocateAll --owner {pid}"));
        let warnings = can_open(&stage, &owner, 0) + &can_open(&stage, &owner, 1);
        command.assert().code(0).stdout("").stderr(warnings);
        assert_eq!((stage.sandbox.holders(), owner.reach().as_str()), (all.to_vec(), "++-"));
        // Nor by whoever takes over: what the asker can open is for nobody who is to have it alone.
        let (group, name) =
            (stage.group(&owner), stage.recorded(&owner).replace("cgroup=", "control group "));
        owner.kill();
        let line = |amount: u32| format!("{} --check-dead --print host-index", stage.line(amount, &other));
        stage.sandbox.command(&line(2)).assert().code(1).stdout("");
        stage.sandbox.command(&line(1)).assert().code(0).stdout("2\n");
        let holders = stage.sandbox.holders();
        assert!(all.iter().all(|line| holders.contains(line)), "{holders:?}");
        stage.sandbox.command(&line(1)).assert().code(1).stdout("");
        // Who need not have it alone is given it, and told.
        let plain = stage.owner();
        let line_of_plain = format!("allocate 1 --check-dead --owner {}", plain.pid());
        stage.sandbox.command(&line_of_plain).arg("--strict").assert().code(4).stdout("");
        let assert = stage.sandbox.command(&line_of_plain).assert().code(0).stdout("1\n");
        let said = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
        assert!(
            said.contains(&format!("device 1 is given although pid {asker} ")) && said.contains(&name),
            "{said}"
        );
        assert!(said.trim_end().ends_with(&format!("can open it, where pid {pid} held it")), "{said}");
        stage.release(&plain);
        let told =
            String::from_utf8(stage.sandbox.program("reclaim --dry-run").output().unwrap().stdout).unwrap();
        assert!(
            !told.contains(&format!("would remove {name}")) && told.contains("would keep index 1"),
            "{told}"
        );
        stage.release(&other);
        kill(Pid::from_raw(i32::try_from(asker).unwrap()), Signal::SIGKILL).unwrap();
        wait_until("the group is empty", || {
            fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|members| members.is_empty())
        });
        stage.sandbox.command(&line(3)).assert().code(0).stdout("2,0,1\n");
    }
}

/// Who has ended can open nothing.
#[test]
fn what_a_helper_asked_for_is_given_back_with_all() {
    for version in versions("what_a_helper_asked_for_is_given_back_with_all") {
        let stage = Stage::with_gpus(version, 3);
        let (mut owner, asker) = with_an_asker(&stage);
        owner.tell(&format!("kill -9 {asker}; wait {asker} 2>/dev/null; true"));
        stage.release(&owner);
        stage.assert_free(&mut owner);
        let other = stage.owner();
        stage.sandbox.command(&format!("{} --check-dead", stage.line(3, &other))).assert().code(0);
    }
}

/// What the command of exec left may have the rest open.
#[test]
fn nobody_gives_back_what_others_left_who_have_ended() {
    for version in versions("nobody_gives_back_what_others_left_who_have_ended") {
        let stage = Stage::with_gpus(version, 3);
        let ((mut owner, asker), other) = (with_an_asker(&stage), stage.owner());
        let warning = can_open(&stage, &owner, 0);
        owner.kill();
        let before = stage.sandbox.holders();
        let mut command = stage.sandbox.command(&format!("deallocateAll --owner {asker}"));
        command.assert().code(0).stdout("").stderr(warning);
        assert_eq!(stage.sandbox.holders(), before);
        let line = format!("{} --check-dead", stage.line(2, &other));
        stage.sandbox.command(&line).assert().code(1).stdout("");
        kill(Pid::from_raw(i32::try_from(asker).unwrap()), Signal::SIGKILL).unwrap();
    }
}
