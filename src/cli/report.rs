//! What is printed on stderr, and the status with which the program exits.
//!
//! Every message is one line. Flink reads the pipes only after the program has exited, so all messages together must stay
//! far below the 64 KiB that a pipe holds.

use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::time::Duration;

use super::output;
use crate::error::Error;
use crate::exit::Exit;
use crate::host::deadline::Deadline;
use crate::notes::Notes;
use crate::plain;

/// Bytes of warnings and details.
const NOTES_LIMIT: usize = 12 * 1024;
/// Bytes of one message.
const LINE_LIMIT: usize = 2 * 1024;
/// How long to wait for a terminal that accepts nothing (Ctrl-S).
const TELLS_WITHIN: Duration = Duration::from_millis(100);

/// Prints how a run ended and returns its status. Best effort: a stderr that cannot be written changes nothing.
pub(crate) fn report(
    outcome: &Result<Exit, Error>,
    notes: &Notes,
    is_verbose: bool,
    deadline: Deadline,
) -> Exit {
    let text = text(outcome, notes, is_verbose);
    let _ = output::write_all(std::io::stderr().as_fd(), text.as_bytes(), deadline);
    outcome.as_ref().map_or_else(Error::exit, |exit| *exit)
}

/// Whether somebody sits before a terminal, to be told what is waited for.
pub(crate) fn is_told() -> bool {
    std::io::stderr().is_terminal()
}

/// Says at once what is waited for, to whoever sits before a terminal.
pub(crate) fn tell(message: &str) {
    let stderr = std::io::stderr();
    if stderr.is_terminal() {
        let _ = output::write_all(stderr.as_fd(), line(message).as_bytes(), Deadline::after(TELLS_WITHIN));
    }
}

/// The error's line comes last, and without warnings, which are about an answer.
fn text(outcome: &Result<Exit, Error>, notes: &Notes, is_verbose: bool) -> String {
    let warnings = notes.warnings.iter().filter(|_| outcome.is_ok()).map(|line| format!("warning: {line}"));
    let details = notes.details.iter().filter(|_| is_verbose).cloned();
    let mut text = bounded(warnings.chain(details));
    if let Err(error) = outcome {
        text += &line(&error.chain());
    }
    text
}

/// The lines that fit, and how many are left out.
fn bounded(messages: impl Iterator<Item = String>) -> String {
    let mut text = String::new();
    let mut cut = 0;
    for message in messages {
        let line = line(&message);
        if cut == 0 && text.len() + line.len() <= NOTES_LIMIT {
            text += &line;
        } else {
            cut += 1;
        }
    }
    if cut > 0 {
        text += &line(&format!("{cut} more lines are left out"));
    }
    text
}

/// A message as a line. File names in it may contain newlines and escape sequences.
fn line(message: &str) -> String {
    let mut line = "gpu-coord: ".to_owned();
    for character in message.chars() {
        if line.len() > LINE_LIMIT {
            line += "...";
            break;
        }
        if plain::is_unsafe(character) {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line + "\n"
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn failure() -> Result<Exit, Error> {
        Err(Error::io("open", "/a\nb")(io::Error::from_raw_os_error(libc::ENOENT)))
    }

    #[test]
    fn warnings_come_with_an_answer_and_details_when_asked_for() {
        let mut notes = Notes::default();
        notes.warn("odd");
        notes.detail("found");
        let error = "gpu-coord: cannot open /a\\nb: No such file or directory (os error 2)\n";
        for (outcome, is_verbose, expected) in [
            (Ok(Exit::Success), false, "gpu-coord: warning: odd\n".to_owned()),
            (Ok(Exit::Success), true, "gpu-coord: warning: odd\ngpu-coord: found\n".to_owned()),
            (failure(), false, error.to_owned()),
            (failure(), true, format!("gpu-coord: found\n{error}")),
        ] {
            assert_eq!(text(&outcome, &notes, is_verbose), expected);
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_message_is_one_line() {
        for (message, expected) in [
            ("plain",            "gpu-coord: plain\n"),
            ("a\nb\tc\r",        "gpu-coord: a\\nb\\tc\\r\n"),
            ("\u{1b}[31m\0",      "gpu-coord: \\u{1b}[31m\\u{0}\n"),
            ("GPU „A“ \u{9b}1m", "gpu-coord: GPU „A“ \\u{9b}1m\n"),
        ] {
            assert_eq!(line(message), expected);
        }
    }

    #[test]
    fn what_is_said_is_bounded_and_the_error_is_said_whole() {
        let notes = Notes {
            details: (0..10_000).map(|at| format!("{at} {}", "é".repeat(5000))).collect(),
            ..Notes::default()
        };
        let text = text(&failure(), &notes, true);
        assert!(text.len() < NOTES_LIMIT + 2 * LINE_LIMIT, "{}", text.len());
        let lines: Vec<&str> = text.lines().collect();
        let [shown @ .., cut, error] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(*cut, format!("gpu-coord: {} more lines are left out", 10_000 - shown.len()));
        assert!(shown.len() > 1 && shown.iter().all(|line| line.ends_with("éé...")), "{shown:?}");
        assert!(error.ends_with("(os error 2)"), "{error}");
    }
}
