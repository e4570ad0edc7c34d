//! Costs of whole processes, taken in turn.

use std::fmt;
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// Medians of one command, in seconds.
pub(crate) struct Cost {
    pub(crate) wall: f64,
    /// User and system time of the process and all that it waited for.
    pub(crate) cpu: f64,
}

impl fmt::Display for Cost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:.2} ms wall, {:.2} ms CPU", self.wall * 1e3, self.cpu * 1e3)
    }
}

/// Each command once in every round, after what prepares it.
pub(crate) fn alternate<const N: usize>(
    rounds: usize,
    mut commands: [(&dyn Fn(), &mut Command); N],
) -> [Cost; N] {
    let mut samples: [Vec<(f64, f64)>; N] = std::array::from_fn(|_| Vec::new());
    for _ in 0..rounds {
        for ((prepare, command), samples) in commands.iter_mut().zip(&mut samples) {
            prepare();
            samples.push(run(command));
        }
    }
    samples.map(|samples| Cost {
        wall: median(samples.iter().map(|sample| sample.0)),
        cpu: median(samples.iter().map(|sample| sample.1)),
    })
}

/// Wall and CPU time of one run, in seconds.
pub(crate) fn run(command: &mut Command) -> (f64, f64) {
    let (cpu, wall) = (cpu(), Instant::now());
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    let wall = wall.elapsed().as_secs_f64();
    assert!(status.success(), "{command:?}: {status}");
    (wall, self::cpu() - cpu)
}

/// Of all children so far.
pub(crate) fn cpu() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    (usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The most memory that any child has had so far, in KiB. A child begins with the peak of the process that
/// starts it, so that it is at least our own.
pub(crate) fn peak_kib() -> i64 {
    getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss()
}
