//! Every system call of a confinement fails, in each way that its manual page allows: who is given devices is recorded
//! and confined, and who is not is neither. See `crate::faults`.

use std::thread;

use super::cell::versions;
use super::container::Container;
use super::crash::calls;
use crate::faults::{Ended, Fault, Tally, faults, is_one_line, is_warnings};
use crate::running::{End, Running};
use crate::strace;

fn fail(scene: &Container, fault: &Fault<'_>, line: &str) -> Ended {
    let name = &fault.call.name;
    let inject = format!("inject={name}:error={}:when={}", fault.error, fault.when());
    let trace = format!("trace={name}");
    Running::start(scene.traced(&["-D", "-o", "/dev/null", "-e", &trace, "-e", &inject], line)).end()
}

/// What is wrong, before anything is put right.
fn wrong(scene: &mut Container, fault: &Fault<'_>, end: &Ended, is_allocation: bool) -> Option<&'static str> {
    let (end, stdout, stderr) = end;
    let is_recorded = scene.stage.sandbox.file().exists() && scene.is_recorded();
    let is_said = stderr.contains(": recorded for pid ");
    match end {
        End::Exit(0) if !is_warnings(stderr) => Some("something but warnings"),
        End::Exit(0) if is_recorded != is_allocation => Some("recorded, or not, as it should not be"),
        End::Exit(0) if stdout != if is_allocation { "0\n" } else { "" } => Some("another answer"),
        End::Exit(0) if is_allocation && scene.owner.reach() != "+--" => Some("another reach than was given"),
        // What may not be looked at is taken for another container's, with a warning.
        End::Exit(0) if !is_allocation && scene.is_confined() && fault.error != "EACCES" => {
            Some("free, and confined")
        }
        End::Exit(0) => None,
        _ if !stdout.is_empty() => Some("an answer, and a failure"),
        End::Exit(3..=5) if is_allocation && is_recorded && !is_said => Some("refused, and recorded"),
        End::Exit(3..=5) if is_allocation && is_recorded && !scene.is_confined() => {
            Some("recorded, and not confined")
        }
        End::Exit(3..=5) if !is_allocation && !is_recorded && scene.is_confined() => {
            Some("given back, and confined")
        }
        End::Exit(3..=5) if !is_one_line(stderr) => Some("not one line"),
        End::Exit(3..=5) => None,
        End::Exit(_) => Some("the status of another failure"),
        End::Killed(_) => Some("killed"),
    }
}

/// Each call fails once: what fails for good cannot be undone either.
fn sweep(mut scene: Container, is_allocation: bool) {
    let (allocate, deallocate) = (scene.allocate(), scene.deallocate());
    let line = if is_allocation { &allocate } else { &deallocate };
    if !is_allocation {
        scene.answers(&allocate, "0\n");
    }
    let calls = calls(&scene, line);
    if is_allocation {
        scene.answers(&deallocate, "");
    }
    let mut tally = Tally::default();
    for fault in faults(&calls, false) {
        scene.forget();
        if !is_allocation {
            scene.answers(&allocate, "0\n");
        }
        let end = fail(&scene, &fault, line);
        let wrong = wrong(&mut scene, &fault, &end, is_allocation);
        tally.note(line, &fault, &end, wrong);
        // The owner's next calls put right whatever is left.
        scene.answers(&deallocate, "");
        scene.answers(&allocate, "0\n");
        assert_eq!(scene.owner.reach(), "+--", "{fault:?}");
        scene.answers(&deallocate, "");
        scene.assert_free(&format!("{fault:?}"));
    }
    tally.check();
}

fn on_both(test: &str, is_allocation: bool) {
    if !strace::is_there(test) {
        return;
    }
    thread::scope(|scope| {
        for version in versions(test) {
            scope.spawn(move || sweep(Container::new(version), is_allocation));
        }
    });
}

#[test]
fn whatever_fails_who_is_given_devices_is_confined_to_them() {
    on_both("whatever_fails_who_is_given_devices_is_confined_to_them", true);
}

#[test]
fn whatever_fails_who_gives_devices_back_is_free_or_recorded() {
    on_both("whatever_fails_who_gives_devices_back_is_free_or_recorded", false);
}
