//! Text of others, made safe for a line of ours: names of devices and processes, words of the command line, output
//! of tools.
//!
//! Bytes that need not be text, in the record and in command lines, are escaped as ASCII where they are read
//! (`coordination::pairs`, `host::program`).

/// Whether a character could control the reader's terminal, end the line, or disguise it: control characters, those
/// without a width, and those that change the direction of the text.
pub(crate) fn is_unsafe(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// For a cell or a label, whose width matters: replaces each unsafe character with `?`.
pub(crate) fn masked(text: &str) -> String {
    text.replace(is_unsafe, "?")
}

/// For a message, whose reader needs to know what was there: `\u{1b}`, `\n`.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        if is_unsafe(char) {
            escaped.extend(char.escape_default());
        } else {
            escaped.push(char);
        }
    }
    escaped
}

/// The first `most` of many, and how many more there are: `1, 2, 3 and 4 more`.
pub(crate) fn few<T>(all: &[T], most: usize, name: impl Fn(&T) -> String) -> String {
    let named = all.iter().take(most).map(name).collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(most) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn nothing_drives_a_terminal() {
        for (text, masks, escapes) in [
            ("plain é „A“",      "plain é „A“", "plain é „A“"),
            ("\u{1b}[31m\0",     "?[31m?",      "\\u{1b}[31m\\u{0}"),
            ("a\nb\tc\r",        "a?b?c?",      "a\\nb\\tc\\r"),
            ("\u{9b}1m",         "?1m",         "\\u{9b}1m"),
            ("a\u{202e}b\u{200b}", "a?b?",      "a\\u{202e}b\\u{200b}"),
            ("\"quoted\" \\",    "\"quoted\" \\", "\"quoted\" \\"),
        ] {
            assert_eq!((masked(text), escaped(text)), (masks.to_owned(), escapes.to_owned()));
        }
    }

    #[test]
    fn many_are_counted() {
        for (all, told) in [
            (0..0, ""),
            (0..1, "0"),
            (0..3, "0, 1, 2"),
            (0..4, "0, 1, 2 and 1 more"),
            (0..9, "0, 1, 2 and 6 more"),
        ] {
            assert_eq!(few(&all.collect::<Vec<u32>>(), 3, u32::to_string), told);
        }
    }
}
