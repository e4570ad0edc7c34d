//! A storm in which a part of the callers is the stock script: see `tests/storm`.

use crate::engines::directory::Directory;
use crate::flink::FLINK_2_3;
use crate::smi;
use crate::weather::{self, Forecast, Script, namespace};

/// Each call of the script takes as long as twenty of ours.
const OPERATIONS: usize = 500;

/// Below ten, since the script takes the line of 11 for that of 1.
const UNITS: u32 = 9;

/// Nobody dies in it: what the script does with the lines of the dead is in `faults`.
#[test]
fn no_unit_has_two_owners_in_a_storm_beside_the_script() {
    const TEST: &str = "storm::no_unit_has_two_owners_in_a_storm_beside_the_script";
    let directory = Directory::new();
    let search_path = smi::install(&directory.path("nvidia-smi"), UNITS as usize);
    let script = Script { path: FLINK_2_3.stock_script(), search_path, units: UNITS };
    let forecast = Forecast::of(OPERATIONS, Some(script));
    namespace::within(TEST, || weather::storm(&forecast));
}
