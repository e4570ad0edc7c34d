//! Every option can be set by an environment variable: `GPU_COORD_COORDINATION_FILE` sets `--coordination-file`.
//!
//! Flink splits its arguments at blanks, so this is the only way to pass a value with a blank. The command line takes
//! precedence: a variable is ignored if its option, or one that contradicts it, is given there.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory};

use super::late;
use super::options::{Cli, Discover};
use crate::config::yaml::Position;
use crate::config::{Config, Preset};
use crate::error::Error;
use crate::nearest::nearest;

const PREFIX: &str = "GPU_COORD_";

/// Set by `exec` for the command that it becomes.
pub(crate) const GRANT: &str = "GPU_COORD_GRANT";

/// For callers that pass no arguments at all, such as Spark's workers.
const AMOUNT: &str = "GPU_COORD_AMOUNT";

/// A `GPU_COORD_` variable that is set, or an option of the configuration file in the form of one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Variable {
    name: String,
    value: OsString,
    /// Its name as written where it is set.
    spelt: String,
    /// The file and position, if it is set in a file.
    place: Option<(PathBuf, Position)>,
}

impl Variable {
    /// `None` if it is not ours, or is empty, which counts as unset.
    pub(super) fn new(name: &OsStr, value: &OsStr) -> Option<Variable> {
        let is_set = name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) && !value.is_empty();
        let name = name.to_string_lossy().into_owned();
        is_set.then(|| Variable { spelt: name.clone(), name, value: value.to_owned(), place: None })
    }

    /// The AMOUNT of a call without any words.
    pub(super) fn amount(variables: &[Variable]) -> Option<OsString> {
        let amount = variables.iter().find(|variable| variable.name == AMOUNT)?;
        Some(amount.value.clone())
    }

    /// The variable for an option that is set in the configuration file.
    pub(super) fn of_option(config: &Config, Preset { name, value, position }: &Preset) -> Variable {
        let place = Some((config.path.clone(), *position));
        Variable { name: name_of(name), value: value.into(), spelt: format!("`{name}`"), place }
    }

    /// An error about it, with its place.
    pub(super) fn refuse(&self, problem: String) -> Error {
        match self.place.clone() {
            None => Error::Usage(problem),
            Some((path, (line, column))) => Error::Configuration { path, line, column, problem },
        }
    }

    /// Whether it sets one of these options.
    pub(super) fn is_among(&self, options: &[String], command: &Command) -> bool {
        let long = self.arg(command).and_then(Arg::get_long);
        long.is_some_and(|long| options.iter().any(|option| option == long))
    }

    fn arg<'a>(&self, command: &'a Command) -> Option<&'a Arg> {
        command.get_arguments().find(|arg| names(arg).any(|name| name == self.name))
    }

    /// The equivalent argument on a command line; `None` for a flag that is off.
    fn word(&self, arg: &Arg) -> Result<Option<OsString>, Error> {
        let mut word = OsString::from("--");
        word.push(arg.get_long().unwrap_or_default());
        if matches!(arg.get_action(), ArgAction::SetTrue) {
            return Ok(self.is_on()?.then_some(word));
        }
        word.push("=");
        word.push(&self.value);
        Ok(Some(word))
    }

    fn is_on(&self) -> Result<bool, Error> {
        let value = self.value.to_string_lossy();
        match value.to_ascii_lowercase().as_str() {
            "1" | "true" | "yes" => Ok(true),
            "0" | "false" | "no" => Ok(false),
            _ => Err(self.refuse(format!(
                "{} cannot be `{value}`: it takes 1, true, yes, 0, false or no",
                self.spelt
            ))),
        }
    }
}

/// The variable of an option, `--print` or `print`.
pub(super) fn name_of(option: &str) -> String {
    PREFIX.to_owned() + &option.trim_start_matches('-').replace('-', "_").to_ascii_uppercase()
}

/// The arguments to put before those of the command line, which gave `given` to `command`. Leaves out those of `defaults`
/// that a variable overrules.
pub(super) fn words(
    variables: &[Variable],
    defaults: &[Variable],
    command: &Command,
    given: &ArgMatches,
) -> Result<Vec<OsString>, Error> {
    let variables = set(variables, command)?;
    let mut defaults = set(defaults, command)?;
    defaults.retain(|(arg, _)| {
        let overrules = |(other, variable): &(&Arg, &Variable)| {
            // A flag that is off contradicts nothing.
            let is_on = || variable.word(other).is_ok_and(|word| word.is_some());
            other.get_id() == arg.get_id() || (contradict(arg, other, command) && is_on())
        };
        !variables.iter().any(overrules)
    });
    let mut words = Vec::new();
    for (arg, variable) in variables.into_iter().chain(defaults) {
        if !is_overruled(arg, command, given) {
            words.extend(variable.word(arg)?);
        }
    }
    Ok(words)
}

/// The variables that are options of the command, each with its argument.
fn set<'a>(variables: &'a [Variable], command: &'a Command) -> Result<Vec<(&'a Arg, &'a Variable)>, Error> {
    let mut set: Vec<(&Arg, &Variable)> = Vec::new();
    for variable in variables {
        let Some(arg) = variable.arg(command) else { continue };
        if let Some((_, other)) = set.iter().find(|(other, _)| other.get_id() == arg.get_id()) {
            let problem = format!("{} and {} set the same option", other.spelt, variable.spelt);
            return Err(variable.refuse(problem));
        }
        set.push((arg, variable));
    }
    Ok(set)
}

/// A warning for each variable that no command knows. One that only another command knows is ignored.
pub(super) fn unknown(variables: &[Variable]) -> Vec<String> {
    if variables.is_empty() {
        return Vec::new();
    }
    let known = known();
    let is_known = |name: &str| known.iter().any(|known| known == name) || matches!(name, GRANT | AMOUNT);
    let unknown = variables.iter().filter(|variable| !is_known(&variable.name));
    unknown.map(|variable| complaint(&variable.name, &known)).collect()
}

/// Whether some command has the option.
pub(super) fn is_option(name: &str) -> bool {
    known().contains(&name_of(name))
}

/// The option that may have been meant, without `--`.
pub(super) fn nearest_option(name: &str) -> Option<String> {
    let (name, known) = (name_of(name), known());
    let near = nearest(significant(&name), known.iter().map(|known| significant(known)))?;
    Some(near.to_ascii_lowercase().replace('_', "-"))
}

/// The variables of every option of every command.
fn known() -> Vec<String> {
    let (root, bare) = (Cli::command(), Discover::command());
    let every = late::commands(&root).chain([bare]);
    every.flat_map(|command| command.get_arguments().flat_map(names).collect::<Vec<_>>()).collect()
}

fn complaint(name: &str, known: &[String]) -> String {
    match nearest(significant(name), known.iter().map(|known| significant(known))) {
        Some(near) => format!("{name} is not a variable of gpu-coord; did you mean {PREFIX}{near}?"),
        None => format!("{name} is not a variable of gpu-coord"),
    }
}

fn significant(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or_default()
}

/// The variables of an argument, for its long name and its aliases. None for AMOUNT and `--help`.
fn names(arg: &Arg) -> impl Iterator<Item = String> {
    let is_option = !matches!(arg.get_action(), ArgAction::Help | ArgAction::Version);
    let aliases = arg.get_all_aliases().unwrap_or_default();
    arg.get_long().into_iter().chain(aliases).filter(move |_| is_option).map(name_of)
}

fn is_overruled(arg: &Arg, command: &Command, given: &ArgMatches) -> bool {
    let is_given =
        |other: &Arg| given.value_source(other.get_id().as_str()) == Some(ValueSource::CommandLine);
    let is_same = |other: &Arg| other.get_id() == arg.get_id();
    command
        .get_arguments()
        .any(|other| is_given(other) && (is_same(other) || contradict(arg, other, command)))
}

/// clap knows a conflict from only one side.
fn contradict(one: &Arg, other: &Arg, command: &Command) -> bool {
    let says = |one, other: &Arg| {
        command.get_arg_conflicts_with(one).iter().any(|arg| arg.get_id() == other.get_id())
    };
    says(one, other) || says(other, one)
}
