//! From the words and the environment to what is to be done.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{ArgMatches, FromArgMatches};

use super::arguments;
use super::configuration;
use super::environment::Environment;
use super::late::Late;
use super::message::{Medium, arguments, explain};
use super::options::{
    Allocate, Cli, Command, Common, DEFAULT_COORDINATION_FILE, Discover, Drain, Exec, FileOptions, Release,
    SourceOptions, Undrain,
};
use super::variables::{self, Variable};
use crate::config::Config;
use crate::error::Error;
use crate::host::journal::Log;
use crate::inventory::Source;
use crate::notes::Notes;

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Task {
    /// With what the configuration file says, if there is one.
    Run(Box<Command>, Option<Box<Config>>),
    /// `--help` or `--version`
    Print(String),
}

/// `argv` is without the program's name.
pub(super) fn parse(
    mut argv: Vec<OsString>,
    environment: &Environment,
    notes: &mut Notes,
) -> Result<Task, Error> {
    if argv.is_empty() {
        argv.extend(Variable::amount(environment.trusted(&mut Notes::default())));
    }
    let (mut parser, words) = arguments::form(argv)?;
    let given = match parser.try_get_matches_from_mut(&words) {
        Ok(given) => given,
        Err(error) => return text_or_error(&error, chosen(&parser, &words)),
    };
    let variables = environment.trusted(notes);
    notes.warnings.extend(variables::unknown(variables));
    let is_privileged = environment.surroundings.is_privileged;
    let matches = with_variables(&mut parser, &words, given, variables, &[])?;
    let mut command = command(&parser, matches, is_privileged, notes)?;
    let configuration = configuration::read(command.common(), notes)?;
    if let Some(config) = configuration.as_ref().filter(|config| !config.options.is_empty()) {
        let defaults = configuration::defaults(config)?;
        // They have passed before.
        let given = parser.try_get_matches_from_mut(&words).map_err(|error| broken(&error))?;
        let matches = with_variables(&mut parser, &words, given, variables, &defaults)?;
        command = self::command(&parser, matches, is_privileged, &mut Notes::default())?;
    }
    Ok(Task::Run(Box::new(command), configuration.map(Box::new)))
}

/// Why these words would be refused, whatever the environment; `None`: they would not.
pub(crate) fn refusal(words: &[&str]) -> Option<String> {
    let refused =
        arguments::form(words.iter().map(OsString::from).collect()).and_then(|(mut parser, words)| {
            match parser.try_get_matches_from_mut(&words) {
                Ok(_) => Ok(None),
                Err(error) => text_or_error(&error, chosen(&parser, &words)).map(Some),
            }
        });
    match refused {
        Ok(None) => None,
        Ok(Some(_)) => Some("prints a text, and no units".to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

/// The matches of the command line over those of the environment. Parsed again only if the environment
/// sets something, since most calls are to end within a millisecond.
fn with_variables(
    parser: &mut clap::Command,
    words: &[OsString],
    given: ArgMatches,
    variables: &[Variable],
    defaults: &[Variable],
) -> Result<ArgMatches, Error> {
    let given_to_command = given.subcommand().map_or(&given, |(_, matches)| matches);
    let set = variables::words(variables, defaults, chosen(parser, words), given_to_command)?;
    if set.is_empty() {
        return Ok(given);
    }
    // Behind the first word, which is the command or AMOUNT.
    let (first, rest) = words.split_at(1);
    let words = [first, &set, rest].concat();
    // The words of the command line have passed, so what is refused now is the environment's, and, once that has
    // passed, the file's.
    let medium = if defaults.is_empty() { Medium::Environment } else { Medium::File };
    let parsed = parser.try_get_matches_from_mut(&words);
    parsed.map_err(|error| {
        let (command, arguments) = (chosen(parser, &words), arguments(&error));
        let refusal = explain(&error, command, medium);
        // Of two that contradict each other, the first in the file.
        match defaults.iter().find(|variable| variable.is_among(&arguments, command)) {
            Some(variable) => variable.refuse(refusal.to_string()),
            None => refusal,
        }
    })
}

/// The command that the words name, or all that the parser reads.
fn chosen<'a>(parser: &'a clap::Command, words: &[OsString]) -> &'a clap::Command {
    words.first().and_then(|word| parser.find_subcommand(word)).unwrap_or(parser)
}

/// Taken out of the matches, and not copied: it is a part of what a run costs.
fn command(
    parser: &clap::Command,
    mut matches: ArgMatches,
    is_privileged: bool,
    notes: &mut Notes,
) -> Result<Command, Error> {
    let command = if parser.has_subcommands() {
        Cli::from_arg_matches_mut(&mut matches).map(|cli| cli.command)
    } else {
        Discover::from_arg_matches_mut(&mut matches).map(Command::Discover)
    };
    let mut command = command.map_err(|error| broken(&error))?;
    if is_privileged {
        distrust(&mut command, notes)?;
    }
    check_log(&paths_of(&mut command))?;
    Ok(command)
}

/// Lines of the history would make the record unreadable. Neither file is looked at: each may hang.
fn check_log(paths: &Paths<'_>) -> Result<(), Error> {
    let (Log::File(log), Some(file)) = (&paths.common.log, &paths.file) else { return Ok(()) };
    let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if whole(log) == whole(&file.coordination_file) {
        let log = log.display();
        return Err(Error::Usage(format!("--log: {log} is the coordination file; name another")));
    }
    Ok(())
}

fn text_or_error(error: &clap::Error, command: &clap::Command) -> Result<Task, Error> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Task::Print(error.to_string())),
        _ => Err(explain(error, command, Medium::CommandLine)),
    }
}

/// clap has checked the matches already.
fn broken(error: &clap::Error) -> Error {
    Error::Usage(error.kind().to_string())
}

/// The caller has fewer rights than the program: it must not choose what is read or written with them.
fn distrust(command: &mut Command, notes: &mut Notes) -> Result<(), Error> {
    let refused = match command {
        Command::Exec(_) => Some("exec"),
        Command::Check(_) => Some("check"),
        _ => None,
    };
    if let Some(name) = refused {
        return Err(Error::Usage(format!(
            "{name} is refused: this program runs with more rights than its caller"
        )));
    }
    if let Command::Doctor(options) = command
        && options.0.flink_conf.take().is_some()
    {
        notes.warn(ignored("--flink-conf"));
    }
    let Paths { common, file, source } = paths_of(command);
    if common.config.take().is_some() {
        notes.warn(ignored("--config"));
    }
    if matches!(common.log, Log::File(_)) {
        common.log = Log::Auto;
        notes.warn(ignored("--log"));
    }
    if common.root != Path::new("/") {
        common.root = PathBuf::from("/");
        notes.warn(ignored("--root"));
    }
    if let Some(file) = file.filter(|file| file.coordination_file != Path::new(DEFAULT_COORDINATION_FILE)) {
        file.coordination_file = PathBuf::from(DEFAULT_COORDINATION_FILE);
        notes.warn(ignored("--coordination-file"));
    }
    let Some(source) = source else { return Ok(()) };
    if source.driver_root.take().is_some() {
        notes.warn(ignored("--driver-root"));
    }
    if matches!(source.source, Source::File(_)) {
        source.source = Source::Auto;
        notes.warn(ignored("--source file:PATH"));
    }
    Ok(())
}

fn ignored(option: &str) -> String {
    format!("{option} is ignored: this program runs with more rights than its caller")
}

/// The options that name what is read and written; `None`: the command has none.
struct Paths<'a> {
    common: &'a mut Common,
    file: Option<&'a mut FileOptions>,
    source: Option<&'a mut SourceOptions>,
}

fn paths_of(command: &mut Command) -> Paths<'_> {
    let (common, file, source) = match command {
        Command::Discover(Discover { allocation, .. }) | Command::Allocate(Late(Allocate { allocation })) => {
            let request = &mut allocation.request;
            (&mut request.common, Some(&mut request.file), Some(&mut request.source))
        }
        Command::Exec(Late(Exec { request, .. })) => {
            (&mut request.common, Some(&mut request.file), Some(&mut request.source))
        }
        Command::DeallocateAll(Late(options)) => (&mut options.common, Some(&mut options.file), None),
        Command::Reclaim(Late(options)) => {
            (&mut options.common, Some(&mut options.file), Some(&mut options.source))
        }
        Command::Release(Late(Release { by_hand, .. }))
        | Command::Drain(Late(Drain { by_hand, .. }))
        | Command::Undrain(Late(Undrain { by_hand })) => {
            (&mut by_hand.common, Some(&mut by_hand.file), Some(&mut by_hand.source))
        }
        Command::Status(Late(options)) => {
            (&mut options.common, Some(&mut options.file), Some(&mut options.source))
        }
        Command::Doctor(Late(options)) => {
            (&mut options.common, Some(&mut options.file), Some(&mut options.source))
        }
        Command::Devices(Late(options)) => (&mut options.common, None, Some(&mut options.source)),
        Command::Check(Late(options)) => (&mut options.common, None, Some(&mut options.source)),
    };
    Paths { common, file, source }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// What the words and the variables ask for, as `Debug` prints it, and the warnings.
    fn asked(
        argv: &str,
        variables: &[(&str, &str)],
        is_privileged: bool,
    ) -> Result<(String, Vec<String>), String> {
        let pairs: Vec<_> = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let environment = Environment::from_pairs(&pairs, is_privileged);
        let mut notes = Notes::default();
        let argv = argv.split(' ').map(OsString::from).collect();
        let task = parse(argv, &environment, &mut notes).map_err(|error| error.to_string())?;
        Ok((format!("{task:?}"), notes.warnings))
    }

    #[test]
    fn claps_own_rules_hold() {
        Cli::command().debug_assert();
        Discover::command().debug_assert();
    }

    #[test]
    #[rustfmt::skip] // a table
    fn the_environment_sets_what_the_command_line_leaves_open() {
        for (argv, variables, says) in [
            ("2", &[("GPU_COORD_PRINT", "uuid")] as &[(&str, &str)],             "print: Word(Uuid)"),
            ("2 --print pci", &[("GPU_COORD_PRINT", "uuid")],                    "print: Word(Pci)"),
            ("2 --print pci", &[("GPU_COORD_PRINT", "no such thing")],           "print: Word(Pci)"),
            ("allocate 2", &[("GPU_COORD_PRINT", "uuid")],                       "print: Word(Uuid)"),
            ("2", &[("GPU_COORD_COORDINATION_FILE", "/a b/c=d")],                "coordination_file: \"/a b/c=d\""),
            ("deallocateAll", &[("GPU_COORD_COORDINATION_FILE", "/a b")],        "coordination_file: \"/a b\""),
            ("2", &[("GPU_COORD_COORDINATION_FILE", "-v")],                      "coordination_file: \"-v\""),
            ("2", &[("GPU_COORD_DEADLINE", "1.5"), ("GPU_COORD_PRINT", "pci")],  "deadline: 1.5s"),
            ("2", &[("GPU_COORD_DEADLINE", "")],                                 "deadline: 8s"),
            ("2", &[("GPU_COORD_VERBOSE", "1")],                                 "verbose: true"),
            ("2", &[("GPU_COORD_VERBOSE", "Yes")],                               "verbose: true"),
            ("2", &[("GPU_COORD_VERBOSE", "TRUE")],                              "verbose: true"),
            ("2", &[("GPU_COORD_VERBOSE", "0")],                                 "verbose: false"),
            ("2", &[("GPU_COORD_VERBOSE", "no")],                                "verbose: false"),
            ("2", &[("GPU_COORD_VERBOSE", "False")],                             "verbose: false"),
            ("2 -v", &[("GPU_COORD_VERBOSE", "0")],                              "verbose: true"),
            ("2", &[("GPU_COORD_ENABLE_COORDINATION", "1")],                     "enable_coordination_mode: true"),
            ("2", &[("GPU_COORD_ENABLE_COORDINATION_MODE", "1")],                "enable_coordination_mode: true"),
            ("2 --no-coordination", &[("GPU_COORD_ENABLE_COORDINATION", "1")],   "enable_coordination_mode: false, no_coordination: true"),
            ("2 --enable-coordination", &[("GPU_COORD_NO_COORDINATION", "1")],   "enable_coordination_mode: true, no_coordination: false"),
            ("status", &[("GPU_COORD_PRINT", "no such thing")],                  "json: false"),
            ("status", &[("GPU_COORD_JSON", "yes")],                             "json: true"),
        ] {
            let (task, warnings) = asked(argv, variables, false).unwrap();
            assert!(task.contains(says), "{argv} {variables:?}: {task}");
            assert_eq!(warnings, Vec::<String>::new(), "{argv} {variables:?}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_wrong_variable_is_named() {
        for (variables, says) in [
            (&[("GPU_COORD_PRINT", "uid")] as &[(&str, &str)],
                "GPU_COORD_PRINT cannot be `uid`: it takes index, host-index, uuid, pci, env, json or spark"),
            (&[("GPU_COORD_DEADLINE", "1 s")],
                "GPU_COORD_DEADLINE cannot be `1 s`: it takes seconds, more than 0 and at most 86400"),
            (&[("GPU_COORD_VERBOSE", "on")],
                "GPU_COORD_VERBOSE cannot be `on`: it takes 1, true, yes, 0, false or no"),
            (&[("GPU_COORD_NO_COORDINATION", "1"), ("GPU_COORD_ENABLE_COORDINATION_MODE", "1")],
                "GPU_COORD_NO_COORDINATION and GPU_COORD_ENABLE_COORDINATION_MODE contradict each other"),
            (&[("GPU_COORD_ENABLE_COORDINATION", "1"), ("GPU_COORD_ENABLE_COORDINATION_MODE", "0")],
                "GPU_COORD_ENABLE_COORDINATION and GPU_COORD_ENABLE_COORDINATION_MODE set the same option"),
        ] {
            assert_eq!(asked("2", variables, false).unwrap_err(), says, "{variables:?}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn an_unknown_variable_is_warned_of() {
        for (variable, warnings) in [
            (("GPU_COORD_PRNT", "uuid"),      &["GPU_COORD_PRNT is not a variable of gpu-coord; did you mean GPU_COORD_PRINT?"] as &[&str]),
            (("GPU_COORD_Print", "uuid"),     &["GPU_COORD_Print is not a variable of gpu-coord; did you mean GPU_COORD_PRINT?"]),
            (("GPU_COORD_COLOUR", "1"),       &["GPU_COORD_COLOUR is not a variable of gpu-coord"]),
            (("GPU_COORD_AMOUNT", "1"),       &[]),
            (("GPU_COORD_HELP", "1"),         &["GPU_COORD_HELP is not a variable of gpu-coord"]),
            (("GPU_COORD_", "1"),             &["GPU_COORD_ is not a variable of gpu-coord"]),
            (("GPU_COORD_COLOUR", ""),        &[]),
            (("GPU_COORD_JSON", "1"),         &[]),
            (("GPU_COORD_GRANT", "0123"),     &[]),
            (("gpu_coord_print", "uuid"),     &[]),
        ] {
            assert_eq!(asked("2", &[variable], false).unwrap().1, warnings, "{variable:?}");
        }
    }

    #[test]
    fn raised_privilege_chooses_no_root() {
        let argv = "2 --root /tmp --driver-root /tmp --coordination-file /c";
        let (task, warnings) = asked(argv, &[("GPU_COORD_PRINT", "uuid")], true).unwrap();
        for says in [
            "root: \"/\"",
            "driver_root: None",
            "print: Word(Index)",
            "file: FileOptions { coordination_file: \"/var/",
        ] {
            assert!(task.contains(says), "{task}");
        }
        let cause = "is ignored: this program runs with more rights than its caller";
        assert_eq!(
            warnings,
            ["the environment", "--root", "--coordination-file", "--driver-root"]
                .map(|what| format!("{what} {cause}"))
        );
        let (task, warnings) = asked("devices --source file:/secret", &[], true).unwrap();
        assert!(task.contains("source: Auto"), "{task}");
        assert_eq!(warnings, [format!("--source file:PATH {cause}")]);
        let (task, warnings) = asked("doctor --flink-conf /secret", &[], true).unwrap();
        assert!(task.contains("flink_conf: None"), "{task}");
        assert_eq!(warnings, [format!("--flink-conf {cause}")]);
        let refused = "check is refused: this program runs with more rights than its caller";
        assert_eq!(asked("check /secret", &[], true).unwrap_err(), refused);
    }
}
