//! The names of our control groups.

use std::fmt;

use crate::assignment::Owner;
use crate::host::Host;
use crate::host::namespace::INITIAL_PID;

const PREFIX: &str = "gpu-coord-";

/// The process that a group is named after, `gpu-coord-PID-START`: the start tells it from a later process with the same
/// pid. In a pid namespace below the initial one, the name is `gpu-coord-PID-START-NAMESPACE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Namesake {
    pub(super) pid: u32,
    start: u64,
    namespace: u64,
}

impl Namesake {
    pub(super) fn of(owner: &Owner) -> Option<Namesake> {
        Some(Namesake { pid: owner.pid, start: owner.start?, namespace: owner.pid_namespace? })
    }

    pub(super) fn parse(name: &str) -> Option<Namesake> {
        let mut numbers = name.strip_prefix(PREFIX)?.split('-').map(number);
        let (pid, start) = (numbers.next()??, numbers.next()??);
        let namespace = numbers.next().unwrap_or(Some(INITIAL_PID))?;
        let pid = u32::try_from(pid).ok()?;
        Some(Namesake { pid, start, namespace }).filter(|_| numbers.next().is_none())
    }

    /// Whether it is known to have ended. It can be looked up only from its own namespace.
    pub(super) fn has_ended(self, host: &Host) -> bool {
        host.pid_namespace() == Some(self.namespace)
            && match host.process(self.pid) {
                Ok(None) => true,
                Ok(Some(process)) => process.is_dead() || !process.may_have_started_at(Some(self.start)),
                Err(_) => false,
            }
    }
}

impl fmt::Display for Namesake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Namesake { pid, start, namespace } = self;
        write!(out, "{PREFIX}{pid}-{start}")?;
        if *namespace == INITIAL_PID { Ok(()) } else { write!(out, "-{namespace}") }
    }
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether it is the name of one of our groups.
pub(super) fn is_name(text: &str) -> bool {
    Namesake::parse(text).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // a table
    fn a_group_of_ours_is_known_by_its_name() {
        for (text, is_ours) in [
            ("gpu-coord-4711-81526", true),
            ("gpu-coord-4711",       false),
            ("gpu-coord-4711-",      false),
            ("gpu-coord--1",         false),
            ("gpu-coord-1-2-3",      true),
            ("gpu-coord-1-2-",       false),
            ("gpu-coord-1-2-3-4",    false),
            ("gpu-coord-1-+2",       false),
            ("gpu-coord-x-1",        false),
            ("docker-1-2",           false),
        ] {
            assert_eq!(is_name(text), is_ours, "{text}");
        }
    }
}
