//! A coordination file, read as any other reader would: the two words that every held line begins with.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Who holds what: indexes by pid.
pub(crate) type Holdings = BTreeMap<u32, BTreeSet<u32>>;

/// The held lines of `file`, none of which may give away what another has. Who asks inside of `exec` and is its
/// command has two lines.
#[track_caller]
pub(crate) fn holdings(file: &Path) -> Holdings {
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut owners = BTreeMap::new();
    let mut holdings = Holdings::new();
    for (index, pid) in text.lines().filter_map(held) {
        let owner = *owners.entry(index).or_insert(pid);
        assert_eq!(owner, pid, "index {index} is recorded of two:\n{text}");
        holdings.entry(pid).or_default().insert(index);
    }
    holdings
}

/// The first byte decides: a digit is an assignment, anything else is none.
fn held(line: &str) -> Option<(u32, u32)> {
    if !line.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let words = line.split('\t').next()?.split_once(' ')?;
    Some((words.0.parse().expect(line), words.1.parse().expect(line)))
}
