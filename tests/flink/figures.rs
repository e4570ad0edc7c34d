//! Figures for whoever reads the test's output.

use std::fmt::{self, Display, Formatter};
use std::io::{Write, stderr};

use crate::host::{Caller, doubles};

/// What went wrong in several rounds of callers.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    rounds: usize,
    pub(crate) with_a_double: usize,
    pub(crate) callers_without: usize,
}

impl Tally {
    pub(crate) fn of(rounds: impl Iterator<Item = Vec<Caller>>) -> Tally {
        let mut tally = Tally::default();
        for callers in rounds {
            tally.rounds += 1;
            tally.with_a_double += usize::from(doubles(&callers) > 0);
            tally.callers_without += callers.iter().filter(|caller| caller.answer.is_err()).count();
        }
        tally
    }
}

impl Display for Tally {
    fn fmt(&self, text: &mut Formatter) -> fmt::Result {
        let Tally { rounds, with_a_double, callers_without } = self;
        write!(
            text,
            "a GPU given twice in {with_a_double} of {rounds} rounds; {callers_without} callers without"
        )
    }
}

/// Prints one row for each of those compared, past the capturing of `cargo test`: whoever runs this wants to
/// see the figures when all is well.
pub(crate) fn show<const N: usize>(what: &str, rows: [(&str, &dyn Display); N]) {
    let rows = rows.map(|(of, figure)| format!("    {of:<14} {figure}\n"));
    stderr().write_all(format!("\n{what}\n{}", rows.concat()).as_bytes()).unwrap();
}
