//! Real Flink with gpu-coord as its discovery script, and Flink's own script beside us.
//!
//! `cargo test --features real-flink --test flink` is the one command. It wants Python with pip, a JDK of
//! 17 or later, `setpriv`, `ps` and `flock`; Flink itself is fetched through pip, once, into
//! `$FLINK_TEST_CACHE` (see `engines/cache.rs`). What is missing fails a test, with a line that says what to
//! install: nothing is skipped. CONTRIBUTING.md says more.
//!
//! * `discovery`: standalone clusters whose TaskManagers call gpu-coord, and a job that reports what each
//!   of them was told.
//! * `beside`: the stock script and gpu-coord on one coordination file, as during a migration.
//! * `storm`: many of both, at random.
//! * `faults`: what the stock script does wrong alone, with gpu-coord's column next to it.
//!
//! The stock script is run out of the fetched archive, never from a copy of ours. Figures that depend on
//! its luck are printed and not asserted; ours are always asserted.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "what a test calls panics as a test does")]

mod beside;
mod cluster;
mod configuration;
mod discovery;
#[path = "../engines/mod.rs"]
mod engines;
mod faults;
mod figures;
mod flink;
mod host;
mod job;
mod jvm;
mod rest;
mod smi;
mod storm;
#[path = "../storm/weather/mod.rs"]
mod weather;

const GPU_COORD: &str = env!("CARGO_BIN_EXE_gpu-coord");
