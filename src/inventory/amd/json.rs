//! JSON between other lines, as AMD's tools print it: warnings precede it on the same stream, and one call can print
//! several values in a row.

use serde_json::Value;

use crate::inventory::text::quote;

/// The values in `text`, in order. Lines before the first value, and other lines that cannot begin one, are skipped;
/// truncated or wrong JSON is an error, never fewer values.
pub(super) fn values(text: &str) -> Result<Vec<Value>, String> {
    let mut values: Vec<Value> = Vec::new();
    let mut rest = text;
    while let Some(start) = start(rest) {
        rest = &rest[start..];
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        match stream.next() {
            Some(Ok(value)) => {
                values.push(value);
                rest = &rest[stream.byte_offset()..];
            }
            // `[WARNING] ...` is not wrong JSON.
            Some(Err(err)) if values.is_empty() && err.is_syntax() && err.line() == 1 => {
                rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
            }
            Some(Err(err)) => return Err(format!("it printed JSON that is wrong: {err}")),
            None => break,
        }
    }
    Ok(values)
}

/// Where the first value could begin: at the beginning of a line, or right after another value. A newline is searched for
/// only to skip the line, since all values may be on one.
fn start(text: &str) -> Option<usize> {
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        if rest.starts_with(['[', '{']) {
            return Some(text.len() - rest.len());
        }
        (_, rest) = rest.split_once('\n')?;
    }
}

/// The first line that is not blank, for a message.
pub(super) fn first_line<'a>(streams: impl IntoIterator<Item = &'a str>) -> Option<String> {
    streams.into_iter().flat_map(str::lines).map(str::trim).find(|line| !line.is_empty()).map(quote)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn found() {
        for (case, text, found) in [
            ("one",                        "[1]\n",                                          "[1]"),
            ("after an empty line",        "\n{\"a\": 1}\n",                                 "{\"a\":1}"),
            ("after warnings",             "WARNING: low power\nuser is not in [render]\n[1]", "[1]"),
            ("after one in brackets",      "[WARNING] a group\n{\"a\": 1}",                  "{\"a\":1}"),
            ("after a list",               "Permission needed:\n  • /dev/kfd\n\n[1]",        "[1]"),
            ("on many lines",              "[\n    {\n        \"a\": 1\n    }\n]\n",         "[{\"a\":1}]"),
            ("several",                    "[1]\n[2]\n\n[3]\n",                              "[1][2][3]"),
            ("several on one line",        "[1][2]{\"a\":3}",                                "[1][2]{\"a\":3}"),
            ("with a line between",        "[1]\nWARNING: x\n[2]\n",                         "[1][2]"),
            ("with a line after it",       "[1]\nException caught: map::at\n",               "[1]"),
            ("text behind it",             "[1] done\n",                                     "[1]"),
            ("empty",                      "",                                               ""),
            ("only lines",                 "No AMD GPUs specified\n0\nnull\n",               ""),
            ("only one in brackets",       "[WARNING] a group\n",                            ""),
            ("nested without end",         &"[".repeat(200),                                 ""),
        ] {
            let values = values(text).expect(case);
            assert_eq!(values.iter().map(Value::to_string).collect::<String>(), found, "{case}");
        }
    }

    /// To look through the line once for each value would take 4,000,000,000,000 bytes.
    #[test]
    fn two_million_on_one_line() {
        assert_eq!(values(&"[]".repeat(2_000_000)).map(|values| values.len()), Ok(2_000_000));
    }

    #[test]
    #[rustfmt::skip] // a table
    fn rejects() {
        for (case, text, says) in [
            ("cut short",              "[\n  {\"gpu\": 0},\n",      "EOF while parsing"),
            ("cut short on one line",  "[{\"gpu\": 0},",            "EOF while parsing"),
            ("a second, cut short",    "[1]\n[{\"gpu\": 0",         "EOF while parsing"),
            ("a second that is wrong", "[1]\n[nonsense]\n",         "it printed JSON that is wrong: "),
            ("wrong further down",     "[\n  {\"gpu\" 0}\n]\n",     "expected `:` at line 2"),
        ] {
            let problem = values(text).expect_err(case);
            assert!(problem.contains(says), "{case}: {problem}");
        }
    }

    #[test]
    fn the_first_line_that_says_something() {
        assert_eq!(first_line(["\n \n", "\n a\tb \n"]).as_deref(), Some("a\\tb"));
        assert_eq!(first_line(["", "\n"]), None);
    }
}
