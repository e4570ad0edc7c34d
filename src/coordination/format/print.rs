//! Prints values as lines of the coordination file, without newlines.

use std::fmt::{Display, Write as _};

use crate::assignment::{Assignment, Drained, Origin, Owner, Waiter};
use crate::coordination::escape::escape;
use crate::device::Identity;

/// A line under construction: its head, and then keys.
struct Written {
    text: String,
}

impl Written {
    fn new(head: impl Display) -> Written {
        Written { text: format!("{head}\tv=1") }
    }

    /// Adds a key; an unknown value is left out.
    fn key(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            let _ = write!(self.text, ";{key}={value}"); // writing to a String cannot fail
        }
    }

    fn identity(&mut self, Identity { uuid, pci, id }: &Identity) {
        self.key("uuid", uuid.as_deref().map(escape));
        self.key("pci", *pci);
        self.key("id", id.as_deref().map(escape));
    }

    /// Adds all of an owner but the pid, which is in the head.
    fn owner(&mut self, Owner { pid: _, start, boot, pid_namespace, uid }: &Owner) {
        self.key("start", *start);
        self.key("boot", Some(boot.as_deref().map_or_else(|| "-".to_owned(), escape)));
        self.key("pidns", *pid_namespace);
        self.key("uid", *uid);
    }
}

/// An assignment.
pub(crate) fn print(assignment: &Assignment) -> String {
    let Assignment {
        index,
        slot,
        identity,
        owner,
        grant,
        since,
        invocation,
        cgroup,
        namespace,
        origin,
        unknown,
    } = assignment;
    let mut line = Written::new(format_args!("{index} {}", owner.pid));
    line.key("grant", grant.map(|grant| hex(grant.id)));
    line.key("of", grant.map(|grant| grant.of));
    line.identity(identity);
    line.key("slot", *slot);
    line.owner(owner);
    line.key("time", *since);
    line.key("inv", invocation.as_deref().map(escape));
    line.key("cgroup", cgroup.as_deref().map(escape));
    line.key("ns", namespace.as_deref().map(escape));
    if let Some(Origin { grant, is_taken }) = origin {
        line.key(if *is_taken { "taken" } else { "exec" }, Some(hex(*grant)));
    }
    if !unknown.is_empty() {
        line.text.push(';');
        line.text.push_str(unknown);
    }
    line.text
}

fn hex(number: u64) -> String {
    format!("{number:016x}")
}

/// A drained unit.
pub(crate) fn print_drained(drained: &Drained) -> String {
    let Drained { index, identity, uid, since, reason } = drained;
    let mut line = Written::new(format_args!("! {index}"));
    line.identity(identity);
    line.key("uid", *uid);
    line.key("time", *since);
    line.key("reason", Some(escape(reason)));
    line.text
}

/// A waiter.
pub(crate) fn print_waiter(waiter: &Waiter) -> String {
    let Waiter { owner, amount, ticket, among } = waiter;
    let mut line = Written::new(format_args!("? {}", owner.pid));
    line.owner(owner);
    line.key("amount", Some(amount));
    line.key("ticket", Some(ticket));
    let spans = |spans: &Vec<(u32, u32)>| {
        spans.iter().map(|(first, last)| format!("{first}-{last}")).collect::<Vec<_>>().join(",")
    };
    line.key("among", among.as_ref().map(spans));
    line.text
}
