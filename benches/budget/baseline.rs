//! Counts, compared with those that were written down.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// In percent.
const MOST_MORE: u64 = 5;
/// A run reads them all, so that what it takes is another host's matter if there are more of them.
const MOUNTS: &str = "mounts";

#[derive(Default)]
pub(crate) struct Counts {
    found: Vec<(String, u64)>,
}

impl Counts {
    pub(crate) fn add(&mut self, what: impl Into<String>, count: u64) {
        self.found.push((what.into(), count));
    }

    /// Whether none is more than the baseline's by more than it may; prints all of them.
    #[expect(clippy::disallowed_methods, reason = "asked of whoever runs the benchmark")]
    pub(crate) fn are_within(&self, directory: &Path) -> bool {
        let (compiler, file) = compiler();
        let path = directory.join(file);
        if std::env::var_os("UPDATE_BASELINE").is_some() {
            fs::create_dir_all(directory).unwrap();
            fs::write(&path, self.print(&compiler)).unwrap();
        }
        let Ok(text) = fs::read_to_string(&path) else {
            print!("{}", self.print(&compiler));
            println!("NOT COMPARED: {} is not there; UPDATE_BASELINE=1 writes it", path.display());
            return true;
        };
        let mounts = mounts();
        if before(&text, MOUNTS) != Some(mounts) {
            print!("{}", self.print(&compiler));
            println!("NOT COMPARED: {mounts} mounts, and the baseline was written where there were others");
            return true;
        }
        self.found.iter().map(|(what, count)| is_within(&text, what, *count)).fold(true, |all, one| all & one)
    }

    fn print(&self, compiler: &str) -> String {
        let mut text = format!("# {compiler}; written by `UPDATE_BASELINE=1 cargo bench --bench budget`\n");
        writeln!(text, "{}\t{MOUNTS}", mounts()).unwrap();
        for (what, count) in &self.found {
            writeln!(text, "{count}\t{what}").unwrap();
        }
        text
    }
}

fn mounts() -> u64 {
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count() as u64
}

/// What the baseline has.
fn before(baseline: &str, what: &str) -> Option<u64> {
    let mut rows = baseline.lines().filter_map(|line| line.split_once('\t'));
    let (count, _) = rows.find(|(_, name)| *name == what)?;
    count.parse().ok()
}

fn is_within(baseline: &str, what: &str, count: u64) -> bool {
    let Some(before) = before(baseline, what) else {
        println!("{count:>9}  NOT COMPARED, the baseline has it not: {what}");
        return true;
    };
    let is_within = count * 100 <= before * (100 + MOST_MORE);
    let verdict = if is_within { "" } else { "  TOO MUCH" };
    println!("{count:>9}  {:+6.1} %  {what}{verdict}", (count as f64 / before as f64 - 1.0) * 100.0);
    is_within
}

/// As it calls itself, and as a file is called after it.
fn compiler() -> (String, String) {
    let output = Command::new("rustc").arg("-vV").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    let (release, host) = (field("release:"), field("host:"));
    (format!("rustc {release} for {host}"), format!("{release}-{host}"))
}
