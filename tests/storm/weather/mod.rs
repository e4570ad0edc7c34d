//! What a storm is made of. Of use to two test targets: `storm`, and `flink`, which has the stock script.

mod asking;
mod book;
mod call;
mod host;
pub(crate) mod namespace;
mod owner;
mod planted;
mod random;
mod season;
mod truth;
mod watch;

use std::io::{Write, stderr};
use std::path::PathBuf;
use std::time::Instant;

use random::Random;
use season::Season;
use watch::Watch;

const GPU_COORD: &str = env!("CARGO_BIN_EXE_gpu-coord");

/// Calls until everything is begun anew, with another number of units.
const SEASON: usize = 250;

/// A long storm says after so many how it goes.
const NEWS: usize = 10_000;

/// Flink's own script, and the `PATH` on which it finds its tools.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) path: PathBuf,
    pub(crate) search_path: String,
    /// Of the fake host that its tools show. Below ten: it takes the line of 11 for that of 1.
    pub(crate) units: u32,
}

/// What is to come.
#[derive(Debug)]
pub(crate) struct Forecast {
    operations: usize,
    seed: u64,
    script: Option<Script>,
}

impl Forecast {
    /// `operations` and a seed of chance, if the environment does not say otherwise.
    #[expect(
        clippy::disallowed_methods,
        reason = "the rule is for the program; a test has its own environment"
    )]
    pub(crate) fn of(operations: usize, script: Option<Script>) -> Forecast {
        let said = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let operations = said("STORM_OPERATIONS").map_or(operations, |said| usize::try_from(said).unwrap());
        Forecast { operations, seed: said("STORM_SEED").unwrap_or_else(random::seed), script }
    }
}

/// What has been, for whoever reads the test's output.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) calls: usize,
    pub(crate) of_the_script: usize,
    pub(crate) granted: usize,
    pub(crate) refused: usize,
    pub(crate) callers_killed: usize,
    pub(crate) stopped: usize,
    /// Whose answers could not be written.
    pub(crate) not_answered: usize,
    pub(crate) owners_killed: usize,
    pub(crate) pids_reused: usize,
    /// Lines that others wrote.
    pub(crate) planted: usize,
    pub(crate) checks: usize,
}

/// To be called within [`namespace::within`].
pub(crate) fn storm(forecast: &Forecast) {
    let Forecast { operations, seed, script } = forecast;
    say(&format!("STORM_SEED={seed} STORM_OPERATIONS={operations}"));
    let (mut random, mut tally, since) = (Random::of(*seed), Tally::default(), Instant::now());
    let watch = Watch::start();
    while tally.calls < *operations {
        let calls = SEASON.min(operations - tally.calls);
        let news = tally.calls / NEWS;
        Season::new(&mut random, script.as_ref(), &mut tally, &watch).blow(calls);
        if tally.calls / NEWS > news && tally.calls < *operations {
            say(&format!("so far {tally:?}"));
        }
    }
    say(&format!("{tally:?} in {:.1} s", since.elapsed().as_secs_f64()));
    assert!(tally.granted > operations / 20 && tally.refused > 0, "{tally:?}");
    assert!(tally.callers_killed > operations / 50 && tally.stopped > operations / 20, "{tally:?}");
    assert!(
        script.is_some() || tally.pids_reused > operations / 100 && tally.planted > operations / 100,
        "{tally:?}"
    );
    assert!(script.is_none() || tally.of_the_script > operations / 10, "{tally:?}");
}

/// Past the capturing of `cargo test`: a seed is wanted when all is over.
fn say(text: &str) {
    stderr().write_all(format!("storm: {text}\n").as_bytes()).unwrap();
}
