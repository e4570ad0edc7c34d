//! The `key=value;...` part of a line of the coordination file: pure.

use super::separator::position;

/// The version of the keys that this program writes and reads.
const VERSION: &[u8] = b"1";

/// The `key=value` pairs of a line, without the version; an empty one is padding.
pub(super) struct Pairs<'a>(&'a [u8]);

pub(super) type Pair<'a> = (&'a [u8], &'a [u8]);

impl<'a> Pairs<'a> {
    /// Checks all bytes at once and not again with each pair: this dominates the cost of a long record.
    pub(super) fn of(keys: &'a [u8]) -> Result<Pairs<'a>, String> {
        let is_strange = |strange: bool, byte: &u8| strange | !byte.is_ascii_graphic();
        if !keys.iter().fold(false, is_strange) {
            return Ok(Pairs(keys));
        }
        let has_blank = keys.iter().any(|byte| matches!(byte, b' ' | b'\t'));
        let problem =
            if has_blank { "has a blank among its keys" } else { "holds a byte that is not printable ASCII" };
        Err(problem.to_owned())
    }

    /// Takes what comes before the next `;`.
    fn take(&mut self) -> &'a [u8] {
        let end = position(b';', self.0).unwrap_or(self.0.len());
        let (pair, rest) = self.0.split_at(end);
        self.0 = rest.get(1..).unwrap_or_default();
        pair
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<Pair<'a>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.0.is_empty() {
            match parted(self.take()) {
                Ok(None | Some((b"v", VERSION))) => {}
                Ok(Some((b"v", version))) => {
                    let version = printable(version);
                    return Some(Err(format!(
                        "is of format version {version}, which this program does not know"
                    )));
                }
                Ok(Some(pair)) => return Some(Ok(pair)),
                Err(problem) => return Some(Err(problem)),
            }
        }
        None
    }
}

fn parted(pair: &[u8]) -> Result<Option<Pair<'_>>, String> {
    match position(b'=', pair) {
        Some(at) => Ok(Some((&pair[..at], &pair[at + 1..]))),
        None if pair.is_empty() => Ok(None),
        None => Err(format!("has `{}` where key=value should be", printable(pair))),
    }
}

/// Digits only: `str::parse` would take a sign.
pub(super) fn number<T: TryFrom<u64>>(digits: &[u8]) -> Result<T, String> {
    let digit = |number: u64, byte: &u8| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    };
    let number = if digits.is_empty() { None } else { digits.iter().try_fold(0, digit) };
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| format!("has `{}` where a number should be", printable(digits)))
}

pub(super) fn hex64(digits: &[u8]) -> Result<u64, String> {
    let digit = |number: u64, byte: &u8| Some(number << 4 | u64::from(char::from(*byte).to_digit(16)?));
    let number = if digits.len() == 16 { digits.iter().try_fold(0, digit) } else { None };
    number.ok_or_else(|| format!("has `{}` where 16 hexadecimal digits should be", printable(digits)))
}

/// The first bytes of a line, safe for a terminal.
pub(super) fn printable(line: &[u8]) -> String {
    const LONGEST: usize = 60;
    let more = if line.len() > LONGEST { "..." } else { "" };
    format!("{}{more}", line[..line.len().min(LONGEST)].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_where_it_is_told() {
        assert_eq!(printable(b"a\x1b[2J"), "a\\x1b[2J");
        assert_eq!(printable(&[b'x'; 60]), "x".repeat(60));
        assert_eq!(printable(&[b'x'; 61]), "x".repeat(60) + "...");
    }
}
