//! The parsers of single values. Their errors say what is accepted; the message around them says what is wrong.

use std::time::Duration;

use crate::host::journal::Log;

/// Digits only: a sign, a fraction or a blank is refused. A number that does not fit becomes the largest, which is more
/// units than any host has.
pub(super) fn amount(text: &str) -> Result<u128, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("it takes a whole number of units".to_owned());
    }
    Ok(text.parse().unwrap_or(u128::MAX))
}

/// More than 0 and at most a day.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("it takes seconds, more than 0 and at most 86400".to_owned()),
    }
}

/// The name of a namespace, which is a key in the configuration and is shown to others.
pub(super) fn namespace(text: &str) -> Result<String, String> {
    let is_name =
        !text.is_empty() && text.len() <= 253 && !text.contains(char::is_control) && !text.contains(' ');
    let is_user = text.starts_with("user:");
    if is_name && !is_user {
        Ok(text.to_owned())
    } else {
        Err("it takes a name of at most 253 characters, without blanks, that does not begin with `user:`"
            .to_owned())
    }
}

/// A path must contain a `/`, so that a misspelt word does not create a file.
pub(super) fn log(text: &str) -> Result<Log, String> {
    match text {
        "auto" => Ok(Log::Auto),
        "none" => Ok(Log::Nowhere),
        path if path.contains('/') => Ok(Log::File(path.into())),
        _ => Err("it takes auto, none, or a path with a `/` in it".to_owned()),
    }
}

/// How long `exec` waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wait {
    No,
    For(Duration),
    Forever,
}

/// In the environment it can also be a flag, yes or no.
pub(super) fn wait(text: &str) -> Result<Wait, String> {
    const YEAR: f64 = 365.0 * 86_400.0;
    match text.parse() {
        _ if matches!(text, "forever" | "true" | "yes") => Ok(Wait::Forever),
        _ if matches!(text, "0" | "false" | "no") => Ok(Wait::No),
        Ok(seconds) if seconds > 0.0 && seconds <= YEAR => Ok(Wait::For(Duration::from_secs_f64(seconds))),
        _ => Err("it takes seconds, at most a year of them, or no value to wait without end".to_owned()),
    }
}

/// A pid that Linux can assign; the limit is 2^22.
pub(super) fn pid(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(pid) if (1..4_194_304).contains(&pid) && !text.starts_with('+') => Ok(pid),
        _ => Err("it takes the pid of a process, from 1 to 4194303".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn amounts() {
        for (text, expected) in [
            ("0",    Some(0)),
            ("2",    Some(2)),
            ("007",  Some(7)),
            ("99999999999999999999", Some(99_999_999_999_999_999_999)),
            ("999999999999999999999999999999999999999999", Some(u128::MAX)),
            ("",     None),
            ("+1",   None),
            ("-1",   None),
            ("1.5",  None),
            (" 1",   None),
            ("1_0",  None),
        ] {
            assert_eq!(amount(text).ok(), expected, "{text}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn spans() {
        for (text, expected) in [
            ("8",      Some(8_000)),
            ("0.25",   Some(250)),
            ("86400",  Some(86_400_000)),
            ("86401",  None),
            ("0",      None),
            ("-1",     None),
            ("inf",    None),
            ("NaN",    None),
            ("",       None),
            ("8s",     None),
        ] {
            assert_eq!(seconds(text).ok(), expected.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn waits() {
        for (text, expected) in [
            ("30",       Some(Wait::For(Duration::from_secs(30)))),
            ("0.5",      Some(Wait::For(Duration::from_millis(500)))),
            ("1",        Some(Wait::For(Duration::from_secs(1)))),
            ("604800",   Some(Wait::For(Duration::from_secs(604_800)))),
            ("forever",  Some(Wait::Forever)),
            ("yes",      Some(Wait::Forever)),
            ("0",        Some(Wait::No)),
            ("no",       Some(Wait::No)),
            ("1e9",      None),
            ("inf",      None),
            ("NaN",      None),
            ("-1",       None),
            ("",         None),
        ] {
            assert_eq!(wait(text).ok(), expected, "{text}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn pids() {
        for (text, expected) in [
            ("1",       Some(1)),
            ("4194303", Some(4_194_303)),
            ("4194304", None),
            ("0",       None),
            ("-1",      None),
            ("+1",      None),
            ("self",    None),
        ] {
            assert_eq!(pid(text).ok(), expected, "{text}");
        }
    }
}
