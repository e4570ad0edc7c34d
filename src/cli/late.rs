//! Options that are put together only once their command is called: of a dozen commands a run needs one, and all of
//! them together took a tenth of an allocation's time.

use std::ops::Deref;

use clap::builder::{Resettable, StyledStr};
use clap::{ArgMatches, Args, Command, Error, FromArgMatches};

#[derive(Debug)]
pub(crate) struct Late<T>(pub(crate) T);

impl<T> Deref for Late<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Args> Args for Late<T> {
    fn augment_args(command: Command) -> Command {
        command.defer(with_options::<T>)
    }

    fn augment_args_for_update(command: Command) -> Command {
        command.defer(T::augment_args_for_update)
    }
}

impl<T: FromArgMatches> FromArgMatches for Late<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Late<T>, Error> {
        T::from_arg_matches(matches).map(Late)
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Late<T>, Error> {
        T::from_arg_matches_mut(matches).map(Late)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// What is said about the command stays: each structure has words of its own for whoever reads it.
fn with_options<T: Args>(command: Command) -> Command {
    let about = [command.get_about(), command.get_long_about()].map(Option::<&StyledStr>::cloned);
    let [about, long_about] = about.map(Resettable::from);
    T::augment_args(command).about(about).long_about(long_about)
}

/// Every command that is not hidden, with its options.
pub(super) fn commands(root: &Command) -> impl Iterator<Item = Command> {
    let shown = root.get_subcommands().filter(|command| !command.is_hide_set());
    shown.cloned().map(|mut command| {
        command.build();
        command
    })
}
