//! The words of the command line before clap reads them: the first word decides.
//!
//! An AMOUNT is the form that Flink's GPUDriver calls, `PATH AMOUNT ARGS`, so nothing can stand before it.
//! It has a parser of its own: to build the commands' parser too would be a good part of the time that a call
//! takes. Any other word is a command, or wrong.

use std::ffi::OsString;

use clap::{Command, CommandFactory};

use super::options::{Cli, Discover};
use super::values::amount;
use crate::error::Error;
use crate::nearest::nearest;

/// The parser, and the words for it. Neither they nor `argv` have the program's name.
pub(super) fn form(mut argv: Vec<OsString>) -> Result<(Command, Vec<OsString>), Error> {
    let Some(first) = argv.first().map(|first| first.to_string_lossy().into_owned()) else {
        return Err(usage(
            "AMOUNT is missing: `gpu-coord AMOUNT [OPTIONS]`, or a command; see `gpu-coord --help`",
        ));
    };
    let Err(expected) = amount(&first) else {
        if argv.len() == 2 && argv[1] == "null" {
            // Flink joins the configured arguments to the call, and with none configured that is this word.
            argv.pop();
        }
        return Ok((Discover::command().no_binary_name(true), argv));
    };
    let root = Cli::command().no_binary_name(true);
    if matches!(first.as_str(), "-h" | "--help" | "-V" | "--version" | "help") || is_command(&first, &root) {
        return Ok((root, argv));
    }
    Err(refusal(&first, &expected, &root))
}

fn is_command(word: &str, root: &Command) -> bool {
    names(root).any(|name| name == word)
}

fn names(root: &Command) -> impl Iterator<Item = &str> {
    let commands = root.get_subcommands();
    commands.flat_map(|command| std::iter::once(command.get_name()).chain(command.get_all_aliases()))
}

/// Said here and not left to clap, which might first complain about a word behind it.
fn refusal(word: &str, expected: &str, root: &Command) -> Error {
    let is_option = word.starts_with('-') && !word[1..].starts_with(|next: char| next.is_ascii_digit());
    if is_option {
        return usage(format!("`{word}` comes too early: AMOUNT or a command is the first word"));
    }
    if let Some(near) = nearest(word, names(root).chain(["help"])) {
        return usage(format!("`{word}` is neither an amount nor a command; did you mean `{near}`?"));
    }
    let is_name = word.starts_with(|first: char| first.is_alphabetic());
    let hint = if is_name { "; for the commands see `gpu-coord --help`" } else { "" };
    usage(format!("AMOUNT cannot be `{word}`: {expected}{hint}"))
}

fn usage(message: impl Into<String>) -> Error {
    Error::Usage(message.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn the_first_word_decides() {
        for (line, parser, words) in [
            ("2",                   "gpu-coord AMOUNT", "2"),
            ("2 --print uuid",      "gpu-coord AMOUNT", "2 --print uuid"),
            ("2 allocate",          "gpu-coord AMOUNT", "2 allocate"),
            ("999999999999999999999999999999999999999999999",
                                    "gpu-coord AMOUNT", "999999999999999999999999999999999999999999999"),
            ("allocate 2",          "gpu-coord",        "allocate 2"),
            ("deallocate-all",      "gpu-coord",        "deallocate-all"),
            ("--help",              "gpu-coord",        "--help"),
            ("help status",         "gpu-coord",        "help status"),
            // Flink's word for "no arguments are configured".
            ("2 null",              "gpu-coord AMOUNT", "2"),
            ("2 null null",         "gpu-coord AMOUNT", "2 null null"),
            ("2 -v null",           "gpu-coord AMOUNT", "2 -v null"),
            ("2 NULL",              "gpu-coord AMOUNT", "2 NULL"),
            ("status null",         "gpu-coord",        "status null"),
        ] {
            let (command, kept) = form(line.split(' ').map(OsString::from).collect()).unwrap();
            assert_eq!((command.get_name(), kept.join(" ".as_ref())), (parser, words.into()), "{line}");
        }
    }

    #[test]
    fn a_first_word_that_is_not_utf_8_is_no_amount() {
        let error = form(vec![OsString::from_vec(vec![b'2', 0xff])]).unwrap_err();
        assert_eq!(error.to_string(), "AMOUNT cannot be `2\u{fffd}`: it takes a whole number of units");
    }
}
