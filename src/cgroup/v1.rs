//! cgroup v1: the rules of the controller `devices` (kernel document admin-guide/cgroup-v1/devices.rst).
//!
//! A group allows everything but its exceptions, or nothing but its exceptions; it inherits this from the group above when
//! it is created. In the first kind the exceptions cannot be read back: the list stays `a *:* rwm`. In the second kind,
//! denying one node has no effect on a rule that allows all nodes of a major, so such a rule has to be replaced by one
//! rule per node.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::cgroup::denylist::Denylist;
use crate::error::Error;
use crate::host::node::NodeNumber;

/// How many minors stay allowed one by one, besides those granted, where a rule for a whole major is replaced.
const WRITTEN_OUT: u32 = 256;

/// A line of `devices.list` that allows character devices.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Allowed {
    /// `None`: all.
    major: Option<u32>,
    minor: Option<u32>,
    access: String,
}

impl Allowed {
    fn opens(&self, number: NodeNumber) -> bool {
        self.major.is_none_or(|major| major == number.major)
            && self.minor.is_none_or(|minor| minor == number.minor)
            && ['r', 'w'].iter().all(|access| self.access.contains(*access))
    }
}

/// What a group allows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowance {
    AllBut,
    NoneBut(Vec<Allowed>),
}

/// Rules to be written, one per write, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Edits {
    allow: Vec<String>,
    deny: Vec<String>,
    /// Allowed again after the rule that covered them was removed.
    allow_again: Vec<String>,
}

fn parse(list: &str) -> Allowance {
    if list.lines().any(|line| line.starts_with('a')) {
        return Allowance::AllBut;
    }
    Allowance::NoneBut(list.lines().filter_map(parse_line).collect())
}

/// `c 195:* rwm`
fn parse_line(line: &str) -> Option<Allowed> {
    let (number, access) = line.strip_prefix("c ")?.split_once(' ')?;
    let (major, minor) = number.split_once(':')?;
    let part = |text: &str| if text == "*" { Some(None) } else { text.parse().ok().map(Some) };
    Some(Allowed { major: part(major)?, minor: part(minor)?, access: access.trim().to_owned() })
}

/// The edits that deny `denied`. They allow `granted` again, in case the group denied it before.
fn rules(policy: &Allowance, denied: &Denylist, granted: &BTreeSet<NodeNumber>) -> Result<Edits, String> {
    let rule = |number: NodeNumber| format!("c {number} rwm");
    let mut rules = Edits { deny: denied.numbers().map(rule).collect(), ..Edits::default() };
    let Allowance::NoneBut(allowed) = policy else {
        rules.allow = granted.iter().copied().map(rule).collect();
        return Ok(rules);
    };
    // Only `rw`: the kernel refuses a rule if the group above does not allow all of its access.
    let missing = granted.iter().filter(|number| !allowed.iter().any(|allowed| allowed.opens(**number)));
    rules.allow = missing.map(|number| format!("c {number} rw")).collect();
    for wide in allowed.iter().filter(|allowed| allowed.minor.is_none() && allowed.access != "m") {
        let Some(major) = wide.major else {
            let problem =
                "the group allows every character device with a single rule, from which none can be excluded";
            return Err(problem.to_owned());
        };
        if denied.spans.iter().any(|span| span.major == major) {
            rules.deny.push(format!("c {major}:* {}", wide.access));
            let others = (0..WRITTEN_OUT).map(|minor| NodeNumber { major, minor });
            let granted = granted.iter().copied().filter(|number| number.major == major);
            let kept: BTreeSet<NodeNumber> =
                others.chain(granted).filter(|number| !denied.denies(*number)).collect();
            let kept = kept.into_iter();
            rules.allow_again.extend(kept.map(|number| format!("c {number} {}", wide.access)));
        }
    }
    Ok(rules)
}

/// Makes the group at `directory` deny `denied` and allow `granted`.
pub(crate) fn set(directory: &Path, denied: &Denylist, granted: &BTreeSet<NodeNumber>) -> Result<(), Error> {
    let path = directory.join("devices.list");
    let list = fs::read_to_string(&path).map_err(|error| refused("read", &path, &error))?;
    let rules = rules(&parse(&list), denied, granted)
        .map_err(|problem| Error::Isolation(format!("{}: {problem}", directory.display())))?;
    write(&directory.join("devices.allow"), &rules.allow)?;
    write(&directory.join("devices.deny"), &rules.deny)?;
    write(&directory.join("devices.allow"), &rules.allow_again)
}

/// Writes rules. The kernel accepts one rule per write.
fn write(path: &Path, rules: &[String]) -> Result<(), Error> {
    if rules.is_empty() {
        return Ok(());
    }
    let mut file = File::options().write(true).open(path).map_err(|error| refused("open", path, &error))?;
    for rule in rules {
        file.write_all(rule.as_bytes()).map_err(|error| {
            Error::Isolation(format!("cannot write `{rule}` to {}: {}", path.display(), explain(&error)))
        })?;
    }
    Ok(())
}

fn refused(action: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::Isolation(format!("cannot {action} {}: {}", path.display(), explain(error)))
}

fn explain(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) => {
            "this requires CAP_SYS_ADMIN, and nothing can be allowed that the group above denies".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> NodeNumber {
        text.parse().unwrap()
    }

    fn of(list: &str) -> Result<Edits, String> {
        let denied = Denylist::of(["195:1", "195:2", "226:1"].map(number));
        rules(&parse(list), &denied, &BTreeSet::from([number("195:0"), number("195:3000")]))
    }

    #[test]
    fn a_group_that_allows_all_is_told_the_exceptions() {
        let rules = of("a *:* rwm\n").unwrap();
        assert_eq!(rules.allow, ["c 195:0 rwm", "c 195:3000 rwm"]);
        assert_eq!(rules.deny, ["c 195:1 rwm", "c 195:2 rwm", "c 226:1 rwm"]);
        assert!(rules.allow_again.is_empty());
    }

    #[test]
    fn a_rule_for_all_of_a_major_is_written_out() {
        let rules = of("c *:* m\nb *:* m\nc 1:3 rwm\nc 195:* rw\nc 136:* rwm\n").unwrap();
        assert_eq!(rules.deny, ["c 195:1 rwm", "c 195:2 rwm", "c 226:1 rwm", "c 195:* rw"]);
        assert!(rules.allow.is_empty(), "195:0 is allowed already");
        assert_eq!(rules.allow_again.len(), 255);
        assert_eq!(rules.allow_again[254], "c 195:3000 rw");
        assert_eq!(rules.allow_again[..2], ["c 195:0 rw", "c 195:3 rw"]);
        assert!(rules.allow_again.contains(&"c 195:255 rw".to_owned()));
    }

    #[test]
    fn what_was_denied_is_allowed_again_as_far_as_opening_goes() {
        let rules = of("c *:* m\nc 195:0 r\nc 1:3 rwm\n").unwrap();
        assert_eq!(rules.allow, ["c 195:0 rw", "c 195:3000 rw"]);
        assert_eq!(rules.deny, ["c 195:1 rwm", "c 195:2 rwm", "c 226:1 rwm"]);
    }

    #[test]
    fn a_rule_for_every_device_is_no_isolation() {
        let problem = of("c *:* rwm\n").unwrap_err();
        assert!(problem.starts_with("the group allows every character device"), "{problem}");
    }
}
