//! Values of keys in the coordination file: printable ASCII, with `%XX` for every other byte.

use std::fmt::Write as _;

/// Writes every byte that has a meaning in the format, or is not printable ASCII, as `%XX`.
pub(super) fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_graphic() && !matches!(byte, b'%' | b';') {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}"); // writing to a String cannot fail
        }
    }
    escaped
}

/// The inverse of [`escape`]. A `%` that is not followed by two hexadecimal digits stands for itself.
pub(super) fn unescape(value: &[u8]) -> String {
    // The common case: most values are ASCII and need no unescaping.
    if !value.contains(&b'%')
        && let Ok(plain) = std::str::from_utf8(value)
    {
        return plain.to_owned();
    }
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [first, tail @ ..] = rest {
        let escaped = (*first == b'%').then(|| tail.first_chunk::<2>().and_then(hex8)).flatten();
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex8(digits: &[u8; 2]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(digits[0])? * 16 + digit(digits[1])?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_and_keeps_to_the_alphabet() {
        for (value, escaped) in [
            ("GPU-5", "GPU-5"),
            ("", ""),
            ("a b;c=d", "a%20b%3Bc=d"),
            ("100 %\n\0", "100%20%25%0A%00"),
            ("\u{e9}", "%C3%A9"),
        ] {
            assert_eq!(escape(value), escaped);
            assert_eq!(unescape(escaped.as_bytes()), value);
        }
    }

    #[test]
    fn what_is_no_escape_stands_for_itself() {
        for value in ["%", "%4", "%zz", "%%", "a%"] {
            assert_eq!(unescape(value.as_bytes()), value);
        }
    }
}
