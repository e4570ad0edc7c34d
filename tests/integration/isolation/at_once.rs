//! Many owners at once.

use std::thread;

use super::cell::versions;
use super::owner::Owner;
use super::stage::Stage;

const OWNERS: u64 = 8;

/// Runs the line of each at the same time.
fn all_at_once(stage: &Stage, owners: &[Owner], line: impl Fn(&Owner) -> String + Sync, stdout: &str) {
    thread::scope(|scope| {
        for owner in owners {
            let line = &line;
            scope.spawn(move || stage.sandbox.answers(&line(owner), stdout));
        }
    });
}

#[test]
fn no_device_is_opened_by_two() {
    for version in versions("no_device_is_opened_by_two") {
        let stage = Stage::with_gpus(version, OWNERS);
        let mut owners: Vec<Owner> = (0..OWNERS).map(|_| stage.owner()).collect();
        for _ in 0..3 {
            all_at_once(&stage, &owners, |owner| stage.line(1, owner), "0\n");
            let mut opened: Vec<usize> = owners
                .iter_mut()
                .map(|owner| {
                    let signs = owner.reach();
                    assert_eq!(signs.matches('+').count(), 1, "{signs}");
                    signs.find('+').unwrap()
                })
                .collect();
            opened.sort_unstable();
            assert_eq!(opened, (0..owners.len()).collect::<Vec<_>>());
            all_at_once(&stage, &owners, |owner| format!("deallocateAll --owner {}", owner.pid()), "");
            owners.iter_mut().for_each(|owner| stage.assert_free(owner));
        }
    }
}
