//! The words of the command line before clap reads them: the first word decides.
//!
//! A command is a command; any other word is AMOUNT, for which the hidden command `discover` is put before
//! it. Flink's GPUDriver runs `PATH AMOUNT ARGS`, so nothing can stand before AMOUNT.

use std::ffi::OsString;

use clap::Command;

use super::nearest::nearest;
use super::values::amount;
use crate::error::Error;

/// The hidden command whose argument AMOUNT is. Typed by hand it is a word like any other.
pub(super) const DISCOVER: &str = "discover";

/// What clap is to read, the program's name included. `argv` is without it.
pub(super) fn words(mut argv: Vec<OsString>, root: &Command) -> Result<Vec<OsString>, Error> {
    let Some(first) = argv.first().map(|first| first.to_string_lossy().into_owned()) else {
        return Err(usage(
            "AMOUNT is missing: `gpu-coord AMOUNT [OPTIONS]`, or a command; see `gpu-coord --help`",
        ));
    };
    if first == "help" && argv.get(1).is_some_and(|word| word == DISCOVER) {
        return Err(usage(format!("`{DISCOVER}` is not a command; see `gpu-coord --help`")));
    }
    if matches!(first.as_str(), "-h" | "--help" | "-V" | "--version" | "help") || is_command(&first, root) {
        argv.insert(0, root.get_name().into());
        return Ok(argv);
    }
    check_amount(&first, root)?;
    if argv.len() == 2 && argv[1] == "null" {
        // Flink joins the configured arguments to the call, and with none configured that is this word.
        argv.pop();
    }
    argv.splice(0..0, [root.get_name().into(), DISCOVER.into()]);
    Ok(argv)
}

fn is_command(word: &str, root: &Command) -> bool {
    visible_names(root).any(|name| name == word)
}

fn visible_names(root: &Command) -> impl Iterator<Item = &str> {
    let visible = root.get_subcommands().filter(|command| !command.is_hide_set());
    visible.flat_map(|command| std::iter::once(command.get_name()).chain(command.get_all_aliases()))
}

/// Said here and not left to clap, which might first complain about a word behind it.
fn check_amount(word: &str, root: &Command) -> Result<(), Error> {
    let is_option = word.starts_with('-') && !word[1..].starts_with(|next: char| next.is_ascii_digit());
    if is_option {
        return Err(usage(format!("`{word}` comes too early: AMOUNT or a command is the first word")));
    }
    let Err(expected) = amount(word) else { return Ok(()) };
    if let Some(near) = nearest(word, visible_names(root).chain(["help"])) {
        return Err(usage(format!("`{word}` is neither an amount nor a command; did you mean `{near}`?")));
    }
    let is_name = word.starts_with(|first: char| first.is_alphabetic());
    let hint = if is_name { "; for the commands see `gpu-coord --help`" } else { "" };
    Err(usage(format!("AMOUNT cannot be `{word}`: {expected}{hint}")))
}

fn usage(message: impl Into<String>) -> Error {
    Error::Usage(message.into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::options::Cli;

    fn words_of(argv: &[&str]) -> Result<Vec<OsString>, String> {
        words(argv.iter().map(OsString::from).collect(), &Cli::command()).map_err(|error| error.to_string())
    }

    #[test]
    #[rustfmt::skip] // a table
    fn the_first_word_decides() {
        for (argv, expected) in [
            (&["2"] as &[&str],         &["gpu-coord", "discover", "2"] as &[&str]),
            (&["2", "--print", "uuid"], &["gpu-coord", "discover", "2", "--print", "uuid"]),
            (&["2", "allocate"],        &["gpu-coord", "discover", "2", "allocate"]),
            (&["99999999999999999999999999999999999999999"],
                 &["gpu-coord", "discover", "99999999999999999999999999999999999999999"]),
            (&["allocate", "2"],        &["gpu-coord", "allocate", "2"]),
            (&["deallocateAll"],        &["gpu-coord", "deallocateAll"]),
            (&["deallocate-all"],       &["gpu-coord", "deallocate-all"]),
            (&["--help"],               &["gpu-coord", "--help"]),
            (&["-V"],                   &["gpu-coord", "-V"]),
            (&["help", "status"],       &["gpu-coord", "help", "status"]),
        ] {
            assert_eq!(words_of(argv).unwrap(), expected, "{argv:?}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn null_is_dropped_after_amount_alone() {
        for (argv, kept) in [
            (&["2", "null"] as &[&str], &["discover", "2"] as &[&str]),
            (&["2", "null", "null"],    &["discover", "2", "null", "null"]),
            (&["2", "-v", "null"],      &["discover", "2", "-v", "null"]),
            (&["2", "NULL"],            &["discover", "2", "NULL"]),
            (&["status", "null"],       &["status", "null"]),
        ] {
            assert_eq!(&words_of(argv).unwrap()[1..], kept, "{argv:?}");
        }
    }

    #[test]
    fn a_first_word_that_is_not_utf_8_is_no_amount() {
        use std::os::unix::ffi::OsStringExt;

        let error = words(vec![OsString::from_vec(vec![b'2', 0xff])], &Cli::command()).unwrap_err();
        assert_eq!(error.to_string(), "AMOUNT cannot be `2\u{fffd}`: it takes a whole number of units");
    }
}
