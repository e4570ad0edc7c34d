//! Values of options of which there are a few.

use clap::ValueEnum;
use clap::builder::PossibleValue;

/// Which share of what is shared is given first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    Spread,
    Pack,
}

/// What is printed of what was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Print {
    Word(Word),
    Env,
    Json,
    Spark,
}

/// What is printed of each unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Index,
    HostIndex,
    Uuid,
    Pci,
}

impl ValueEnum for Print {
    fn value_variants<'a>() -> &'a [Self] {
        use Word::{HostIndex, Index, Pci, Uuid};
        const ALL: [Print; 7] = [
            Print::Word(Index),
            Print::Word(HostIndex),
            Print::Word(Uuid),
            Print::Word(Pci),
            Print::Env,
            Print::Json,
            Print::Spark,
        ];
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            Print::Word(Word::Index) => "index",
            Print::Word(Word::HostIndex) => "host-index",
            Print::Word(Word::Uuid) => "uuid",
            Print::Word(Word::Pci) => "pci",
            Print::Env => "env",
            Print::Json => "json",
            Print::Spark => "spark",
        }))
    }
}

/// How an owner is kept to what it is given.
///
/// As a flag of the environment it can also be 1 or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cgroup {
    #[value(hide = true, aliases = ["1", "true", "yes"])]
    Any,
    V1,
    V2,
    BestEffort,
    #[value(hide = true, aliases = ["0", "false"])]
    No,
}
