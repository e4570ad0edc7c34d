//! Why a request is not given what it asks for, in words that say what to do.

use std::collections::BTreeMap;
use std::fmt;

use super::{Place, Request, Situation, State, Used};
use crate::error::Error;

/// An amount that there is not is another error than one that is not free: `of` units may be given to this
/// owner, whoever holds them, and the host has `all`.
pub(crate) fn can_ever_be_given(amount: u128, of: usize, all: usize) -> Result<(), Error> {
    if amount <= of as u128 {
        return Ok(());
    }
    let there_are = if of == all {
        format!("there are {of}")
    } else {
        format!("of this host's {all} the options and the owner's environment leave {of}")
    };
    Err(Error::NotEnough(format!(
        "{} asked for, and {there_are}: waiting cannot help; ask for fewer",
        units(amount)
    )))
}

impl Situation<'_> {
    pub(super) fn shortage(&self, eligible: &[&Place<'_>], given: usize, request: &Request<'_>) -> Error {
        let mut states: BTreeMap<State, usize> = BTreeMap::new();
        let mut in_use = 0;
        for place in eligible {
            let state = self.state(place, request);
            let is_only_in_use = request.in_use == Used::Withhold
                && self.may_be_given(state, place, request)
                && self.is_in_use(place, request);
            if is_only_in_use {
                in_use += 1;
            } else {
                *states.entry(state).or_default() += 1;
            }
        }
        let mut reasons: Vec<String> =
            states.iter().filter_map(|(state, count)| reason(*state, *count, request)).collect();
        if in_use > 0 {
            reasons.push(format!("{in_use} in use by others (`gpu-coord status` names them)"));
        }
        let (asked, all) = (units(request.amount), eligible.len());
        Error::NotEnough(format!("{asked} asked for, {given} of {all} can be given: {}", reasons.join("; ")))
    }
}

/// Why the units in a state are not given, and what to do.
fn reason(state: State, count: usize, request: &Request<'_>) -> Option<String> {
    let why = match state {
        State::Free => return None,
        State::Stale if request.takes_over => return None,
        State::Stale => "held by dead owners (--check-dead takes them over)",
        State::Held => "held by living owners (`gpu-coord status` names them)",
        State::Unknown => {
            return Some(format!(
                "{} held from another pid namespace; run `gpu-coord reclaim` on the host, or use --pid=host",
                are(count)
            ));
        }
        State::Withheld => "withheld by lines that are no assignments (`gpu-coord status` names them)",
        State::Drained => "drained",
        State::Sick => "sick (`gpu-coord devices` says why)",
    };
    Some(format!("{count} {why}"))
}

fn are(count: usize) -> String {
    if count == 1 { "1 unit is".to_owned() } else { format!("{count} units are") }
}

/// `1 unit`, `2 units`.
pub(crate) fn units(count: impl fmt::Display + PartialEq<u128>) -> String {
    if count == 1 { "1 unit".to_owned() } else { format!("{count} units") }
}
