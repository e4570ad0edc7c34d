//! `man/gpu-coord.1` and `completions/`, made from the commands and options that clap reads.
//!
//! They are checked in, so that a package needs no more than the files, and the test below fails when they are
//! not what the program would make. `UPDATE_PROSE=1 cargo test prose` writes them anew.

mod completions;
mod manual;

use std::fs;
use std::path::Path;

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::late;
use super::options::{Cli, Discover};

/// The first word of the bare form, which has a parser of its own.
const AMOUNT: &str = "AMOUNT";

/// Every form of the command line, in the order of the help.
fn forms() -> Vec<Command> {
    let bare = Discover::command().name(AMOUNT);
    std::iter::once(bare).chain(late::commands(&Cli::command())).collect()
}

/// The options of a form. `--help` is every form's, and clap adds it.
fn options(form: &Command) -> impl Iterator<Item = &Arg> {
    let is_shown = |arg: &&Arg| {
        !arg.is_positional()
            && !arg.is_hide_set()
            && !matches!(arg.get_action(), ArgAction::Help | ArgAction::Version)
    };
    form.get_arguments().filter(is_shown)
}

/// clap keeps names that live as long as the program.
fn leaked(name: &str) -> &'static str {
    name.to_owned().leak()
}

fn files() -> Vec<(String, String)> {
    let mut files = vec![("man/gpu-coord.1".to_owned(), manual::page())];
    files.extend(completions::files());
    files
}

#[test]
#[expect(clippy::disallowed_methods, reason = "asked of whoever runs the tests, not of the program's caller")]
fn the_prose_is_what_the_program_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (path, text) in files() {
        if std::env::var_os("UPDATE_PROSE").is_some() {
            fs::write(root.join(&path), &text).unwrap();
        }
        let there = fs::read_to_string(root.join(&path)).unwrap_or_default();
        let differing = text.lines().zip(there.lines()).find(|(made, there)| made != there);
        assert!(
            there == text,
            "{path} is not what the program makes; write it anew with `UPDATE_PROSE=1 cargo test prose`. \
             The first line that differs: {differing:?}"
        );
    }
}
