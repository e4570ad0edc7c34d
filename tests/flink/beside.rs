//! The stock script and gpu-coord on one coordination file, as while a host is migrated.

use std::thread;

use crate::engines::record::{Holdings, holdings};
use crate::figures::{Tally, show};
use crate::host::{Caller, Host, Program, doubles};
use Program::{GpuCoord, Script};

const MIXED: [Program; 8] = [Script, GpuCoord, Script, GpuCoord, Script, GpuCoord, Script, GpuCoord];
const ROUNDS: u64 = 20;

/// The promise for a migration, within its limits: no dead line, which the script would remove by replacing
/// the file, and no index from 10 on, whose line it removes for that of another.
#[test]
fn neither_gives_away_what_the_other_has_recorded() {
    for round in 0..6 {
        let host = Host::new(8);
        let callers = match round % 2 {
            0 => host.ask_at_once(&MIXED, 1),
            _ => host.ask_spread(&MIXED, 1, round),
        };
        let given = given(&callers);
        assert_eq!(given.values().flatten().count(), 8, "{given:?}");
        assert_eq!(doubles(&callers), 0, "{given:?}");
        // `holdings` finds whatever one of them overwrote or glued onto another's line.
        assert_eq!(holdings(&host.coordination_file()), given);
        for program in [Script, GpuCoord, Script] {
            assert_eq!(host.ask(program, 1).answer, Err(1));
            assert_eq!(holdings(&host.coordination_file()), given);
        }
    }
}

/// The script's fault: it replaces the file that others have locked, or are about to.
#[test]
fn on_dead_lines_gpu_coord_gives_nothing_twice_unless_the_script_is_beside_it() {
    let tally = |programs: [Program; 8]| {
        Tally::of((0..ROUNDS).map(|round| {
            let host = Host::new(8);
            host.record_dead_owners(8);
            host.ask_spread(&programs, 1, round)
        }))
    };
    let (mixed, alone) = thread::scope(|scope| {
        let mixed = scope.spawn(|| tally(MIXED));
        let alone = tally([GpuCoord; 8]);
        (mixed.join().unwrap(), alone)
    });
    let what = "8 callers, a GPU each of 8, all recorded for dead owners";
    show(what, [("4 are scripts", &mixed), ("gpu-coord", &alone)]);
    assert_eq!((alone.with_a_double, alone.callers_without), (0, 0));
}

fn given(callers: &[Caller]) -> Holdings {
    let of = |caller: &Caller| Some((caller.pid(), caller.answer.clone().ok()?));
    callers.iter().filter_map(of).collect()
}
