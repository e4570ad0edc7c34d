//! Why a request is not granted, in words that say what to do.

use std::fmt;

use super::{Place, Situation, State, Used, Wanted};
use crate::assignment::{Doubt, Standing};
use crate::error::Error;

/// Fails if the amount can never be granted, which is not the same as units that are not free: this owner may be granted
/// `of` units, whoever holds them, and the host has `all`.
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
    pub(super) fn shortage(&self, eligible: &[&Place<'_>], given: usize, request: &Wanted<'_>) -> Error {
        let mut counts: Vec<(State, Option<Doubt>, usize)> = Vec::new();
        let (mut in_use, mut orphaned) = (0, 0);
        for place in eligible {
            let state = self.state(place, request);
            if request.isolates && self.may_be_given(state, place, request) && self.has_orphans(place) {
                orphaned += 1;
                continue;
            }
            let is_only_in_use = request.in_use == Used::Withhold
                && self.may_be_given(state, place, request)
                && self.is_in_use(place, request);
            if is_only_in_use {
                in_use += 1;
                continue;
            }
            let doubt = if state == State::Unknown { self.doubt(place) } else { None };
            match counts.iter_mut().find(|(of, why, _)| (*of, *why) == (state, doubt)) {
                Some((_, _, count)) => *count += 1,
                None => counts.push((state, doubt, 1)),
            }
        }
        counts.sort_by_key(|(state, ..)| *state);
        let reasons = counts.into_iter().filter_map(|(state, doubt, count)| match doubt {
            Some(doubt) => Some(in_doubt(doubt, count)),
            None => reason(state, count, request),
        });
        let mut reasons: Vec<String> = reasons.collect();
        if orphaned > 0 {
            reasons.push(format!(
                "{orphaned} open to descendants of dead owners that live on (`gpu-coord status` names the control \
                 group)"
            ));
        }
        if in_use > 0 {
            reasons.push(format!("{in_use} in use by others (`gpu-coord status` names them)"));
        }
        let (asked, all) = (units(request.amount), eligible.len());
        Error::NotEnough(format!("{asked} asked for, {given} of {all} can be given: {}", reasons.join("; ")))
    }

    /// The doubt about its first holder that cannot be judged.
    fn doubt(&self, place: &Place<'_>) -> Option<Doubt> {
        place.holders.iter().find_map(|holder| match (self.holdings.standing)(*holder) {
            Standing::Doubtful(doubt) => Some(doubt),
            Standing::Alive | Standing::Dead => None,
        })
    }
}

/// Why the units in a state are not granted, and what to do.
fn reason(state: State, count: usize, request: &Wanted<'_>) -> Option<String> {
    let why = match state {
        State::Free => return None,
        State::Stale if request.takes_over => return None,
        State::Stale => "held by dead owners (--check-dead takes them over)",
        State::Held => "held by living owners (`gpu-coord status` names them)",
        State::Unknown => "held by owners that may be alive",
        State::Withheld => {
            "withheld by damaged lines of the coordination file (`gpu-coord status` names them)"
        }
        State::Drained => "drained",
        State::Sick => "sick (`gpu-coord devices` says why)",
    };
    Some(format!("{count} {why}"))
}

/// Why nobody can tell whether the owners of units are alive, and what to do.
fn in_doubt(doubt: Doubt, count: usize) -> String {
    match doubt {
        Doubt::ForeignNamespace => {
            let are = are(count);
            format!(
                "{are} held from another pid namespace; run `gpu-coord reclaim` on the host, or use --pid=host"
            )
        }
        Doubt::ForeignBoot => format!(
            "{count} held since another boot, which cannot be proven to be this host's; if that host is gone, \
             `gpu-coord release UNIT --force` frees them"
        ),
        Doubt::Unreadable => format!(
            "{} held by processes that /proc hides from this user; run as root, or as a member of the group that \
             the mount option gid= of /proc names",
            are(count)
        ),
    }
}

fn are(count: usize) -> String {
    if count == 1 { "1 unit is".to_owned() } else { format!("{count} units are") }
}

/// `1 unit`, `2 units`.
pub(crate) fn units(count: impl fmt::Display + PartialEq<u128>) -> String {
    if count == 1 { "1 unit".to_owned() } else { format!("{count} units") }
}
