//! What a misspelt word was meant to be.

/// The candidate nearest to `word`, if it is near enough to be meant. Case is ignored.
pub(crate) fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let measured = candidates.filter_map(|candidate| Some((distance_within(&word, candidate)?, candidate)));
    measured.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// None if more than a third of the longer one differs. The lengths are compared first, since a word can be as long as
/// the kernel lets an argument be.
fn distance_within(word: &str, candidate: &str) -> Option<usize> {
    let candidate = candidate.to_lowercase();
    // `deallocate` means `deallocateAll`, though `allocate` has fewer letters that differ.
    if word.len() >= 3 && candidate.starts_with(word) {
        return Some(0);
    }
    let limit = word.len().max(candidate.len()) / 3;
    let is_possible = word.len().abs_diff(candidate.len()) <= limit;
    is_possible.then(|| distance(word.as_bytes(), candidate.as_bytes())).filter(|distance| *distance <= limit)
}

/// Insertions, deletions, replacements and swaps of neighbours that make one into the other (optimal
/// string alignment).
fn distance(one: &[u8], other: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for i in 1..=one.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let replaced = last[j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut cost = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                cost = cost.min(before[j - 2] + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn distances() {
        for (one, other, expected) in [
            ("",       "",       0),
            ("",       "abc",    3),
            ("status", "status", 0),
            ("statsu", "status", 1),
            ("stat",   "status", 2),
            ("sattus", "status", 1),
            ("device", "devices", 1),
            ("abc",    "status", 5),
        ] {
            assert_eq!(distance(one.as_bytes(), other.as_bytes()), expected, "{one} {other}");
            assert_eq!(distance(other.as_bytes(), one.as_bytes()), expected, "{other} {one}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn near_and_far() {
        let commands = ["allocate", "deallocateAll", "deallocate-all", "status", "devices"];
        for (word, expected) in [
            ("statsu",        Some("status")),
            ("STATUS",        Some("status")),
            ("stat",          Some("status")),
            ("st",            None),
            ("deallocate",    Some("deallocateAll")),
            ("dealocateall",  Some("deallocateAll")),
            ("deallocate_all", Some("deallocateAll")),
            ("abc",           None),
            ("",              None),
            ("2",             None),
            ("ständer",       None),
        ] {
            assert_eq!(nearest(word, commands.into_iter()), expected, "{word}");
        }
        let endless = "status".repeat(20_000);
        assert_eq!(nearest(&endless, commands.into_iter()), None);
    }
}
