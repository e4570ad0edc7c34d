//! A real standalone Spark whose workers have gpu-coord as their discovery script.
//!
//! `cargo test --features real-spark --test spark` is the one command. It wants Python with pip, a JDK of 17 or
//! later, `setpriv` and `ps`; Spark itself is fetched through pip, once (see `engines/cache.rs`). What is missing
//! fails a test, with a line that says what to install: nothing is skipped.
//!
//! * `discovery`: what the workers get, tell their master, and hold.
//! * `cluster`: a master and its workers, started by Spark's own `spark-class` with a `conf` as the README has it.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "what a test calls panics as a test does")]

mod cluster;
mod configuration;
mod discovery;
#[path = "../engines/mod.rs"]
mod engines;
mod spark;

const GPU_COORD: &str = env!("CARGO_BIN_EXE_gpu-coord");
