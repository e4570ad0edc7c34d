//! A storm of real processes, which ask for units, give them back, die and are followed by others of the same pid;
//! and a checker that shares nothing with the program (G3, G4, G5).
//!
//! `cargo test --test storm` is the short form. `STORM_OPERATIONS` is how many calls are made, and `STORM_SEED` makes
//! the same choices again: who asks, for what, and who is killed when. In which order the kernel lets the processes
//! run is its own affair, so that a seed brings back the kind of weather and not every gust.
//!
//! `cargo test --features real-flink --test flink storm` is the same beside Flink's own script.

#![expect(clippy::unwrap_used, reason = "what a test calls panics as a test does")]

mod weather;

use weather::{Forecast, namespace};

/// What a run without `STORM_OPERATIONS` makes.
const OPERATIONS: usize = 5_000;

#[test]
fn no_unit_has_two_living_owners_in_a_storm() {
    let forecast = Forecast::of(OPERATIONS, None);
    namespace::within("no_unit_has_two_living_owners_in_a_storm", || weather::storm(&forecast));
}
