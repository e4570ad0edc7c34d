//! The output of a tool, made safe for a message of one line.

use crate::plain;

/// The most characters of one line that a message repeats.
const LONGEST: usize = 120;

/// `line` with control characters escaped, so that it can neither break the line nor control a terminal, and shortened.
pub(super) fn quote(line: &str) -> String {
    match line.char_indices().nth(LONGEST) {
        None => plain::escaped(line),
        Some((end, _)) => plain::escaped(&line[..end]) + "...",
    }
}

/// The version of a driver; `None` for a non-value.
pub(super) fn version(text: &str) -> Option<String> {
    let is_version = text.starts_with(|first: char| first.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte));
    is_version.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_and_escaped() {
        assert_eq!(quote("it's \"plain\" – é"), "it's \"plain\" – é");
        assert_eq!(quote("a\tb\u{1b}[31m\0"), "a\\tb\\u{1b}[31m\\u{0}");
        assert_eq!(quote(&"x".repeat(120)), "x".repeat(120));
        assert_eq!(quote(&"x".repeat(121)), format!("{}...", "x".repeat(120)));
    }

    #[test]
    fn a_version_begins_with_a_digit_and_is_one_word() {
        for text in ["550.54.15", "535.161.08", "418.40.04-beta"] {
            assert_eq!(version(text).as_deref(), Some(text));
        }
        for text in ["", "[N/A]", "N/A", "x86_64", "550 x", "5\u{1b}"] {
            assert_eq!(version(text), None, "{text}");
        }
    }
}
