//! Turns what clap refuses into one line in our own words.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

use super::variables;
use crate::error::Error;
use crate::nearest::nearest;

/// Where the refused words came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    CommandLine,
    Environment,
    File,
}

/// `command`: the chosen command, or the whole program's parser if none was chosen yet.
pub(super) fn explain(error: &clap::Error, command: &Command, medium: Medium) -> Error {
    let refusal = Refusal { error, command, medium };
    Error::Usage(refusal.message())
}

struct Refusal<'a> {
    error: &'a clap::Error,
    command: &'a Command,
    medium: Medium,
}

impl Refusal<'_> {
    fn message(&self) -> String {
        match self.error.kind() {
            ErrorKind::UnknownArgument => self.unknown(&self.text(ContextKind::InvalidArg)),
            ErrorKind::InvalidValue | ErrorKind::ValueValidation => self.invalid_value(),
            ErrorKind::ArgumentConflict => self.conflict(),
            ErrorKind::MissingRequiredArgument => {
                format!("{} is missing; {}", self.argument(), self.help())
            }
            ErrorKind::TooManyValues => {
                format!("{} takes no value, not `{}`", self.argument(), self.text(ContextKind::InvalidValue))
            }
            ErrorKind::InvalidSubcommand => {
                format!("`{}` is not a command; {}", self.text(ContextKind::InvalidSubcommand), self.help())
            }
            ErrorKind::InvalidUtf8 => format!("an argument is not UTF-8; {}", self.help()),
            kind => format!("{kind}; {}", self.help()),
        }
    }

    fn unknown(&self, word: &str) -> String {
        if !word.starts_with('-') {
            let cure = self.behind_equals(word).unwrap_or_else(|| self.help());
            return format!("`{word}` is one argument too many; {cure}");
        }
        let longs = self.command.get_arguments().flat_map(longs);
        match nearest(word.trim_start_matches('-'), longs).and_then(|name| self.main_name(name)) {
            Some(near) => format!("`{word}` is not an option of `{}`; did you mean `--{near}`?", self.form()),
            None => format!("`{word}` is not an option of `{}`; {}", self.form(), self.help()),
        }
    }

    /// Advice if the word may be the value of an option with an optional value, which must follow after `=`.
    fn behind_equals(&self, word: &str) -> Option<String> {
        let takes = |arg: &&Arg| {
            let values = arg.get_possible_values();
            let is_number = word.parse::<f64>().is_ok();
            arg.is_require_equals_set()
                && if values.is_empty() {
                    is_number
                } else {
                    values.iter().any(|value| !value.is_hide_set() && value.get_name() == word)
                }
        };
        let option = self.command.get_arguments().find(takes)?.get_long()?;
        Some(format!("if it is the value of --{option}, write `--{option}={word}`"))
    }

    /// The main name of an option, which may have aliases.
    fn main_name(&self, name: &str) -> Option<&str> {
        let mut arguments = self.command.get_arguments();
        arguments.find(|arg| longs(arg).any(|long| long == name))?.get_long()
    }

    fn invalid_value(&self) -> String {
        let value = self.text(ContextKind::InvalidValue);
        let argument = self.argument();
        if value.is_empty() && argument.starts_with('-') {
            return format!("{argument} needs a value; {}", self.expected());
        }
        format!("{argument} cannot be `{value}`: {}", self.expected())
    }

    /// What the parser of the value says it accepts.
    fn expected(&self) -> String {
        if let Some(source) = std::error::Error::source(self.error) {
            return source.to_string();
        }
        match self.error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(values)) if !values.is_empty() => {
                format!("it takes {}", any_of(values))
            }
            _ => self.help(),
        }
    }

    fn conflict(&self) -> String {
        let argument = self.argument();
        let prior = self.spell(&self.text(ContextKind::PriorArg));
        if argument == prior {
            return format!("{argument} is given twice");
        }
        format!("{argument} and {prior} contradict each other")
    }

    fn argument(&self) -> String {
        self.spell(&self.text(ContextKind::InvalidArg))
    }

    /// clap prints an argument with the name of its value: `--print <WHAT>`, `<AMOUNT>`, `<COMMAND>...`.
    fn spell(&self, argument: &str) -> String {
        let name = argument.split([' ', '=', '[']).next().unwrap_or_default();
        match self.medium {
            _ if !name.starts_with('-') => name.trim_end_matches("...").trim_matches(['<', '>']).to_owned(),
            Medium::CommandLine => name.to_owned(),
            Medium::Environment => variables::name_of(name),
            Medium::File => format!("`{}`", name.trim_start_matches('-')),
        }
    }

    fn text(&self, kind: ContextKind) -> String {
        match self.error.get(kind) {
            Some(ContextValue::String(text)) => text.clone(),
            Some(ContextValue::Strings(texts)) => texts.join(" "),
            _ => String::new(),
        }
    }

    fn help(&self) -> String {
        // AMOUNT itself is not a word that could be typed.
        format!("see `{} --help`", self.form().replace("AMOUNT", "1"))
    }

    /// The command as typed, without options.
    fn form(&self) -> String {
        match self.command.get_name() {
            name if name.starts_with("gpu-coord") => name.to_owned(),
            "help" => "gpu-coord".to_owned(),
            name => format!("gpu-coord {name}"),
        }
    }
}

/// The options that clap refuses, without `--`.
pub(super) fn arguments(error: &clap::Error) -> Vec<String> {
    let named = [ContextKind::InvalidArg, ContextKind::PriorArg].map(|kind| error.get(kind));
    let texts = named.into_iter().flatten().map(ToString::to_string);
    texts
        .filter_map(|text| Some(text.split([' ', '=', '[']).next()?.strip_prefix("--")?.to_owned()))
        .collect()
}

/// The names of an option, without `--`.
fn longs(arg: &Arg) -> impl Iterator<Item = &str> {
    arg.get_long().into_iter().chain(arg.get_all_aliases().unwrap_or_default())
}

/// `a, b or c`
fn any_of(values: &[String]) -> String {
    match values {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => values.concat(),
    }
}
