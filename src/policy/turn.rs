//! Whose turn it is among the waiters: first come, first served.
//!
//! Nobody is served early because it wants less, or else whoever wants many units would wait for ever. A waiter that
//! cannot take anything now holds nobody up: one that is stopped, one that wants more than there is, or one that wants
//! other units.

use crate::assignment::{Owner, Record, Waiter};

/// Those that came before `owner`, or would if it waited, in their order, whether or not they still wait.
pub(crate) fn earlier<'a>(record: &'a Record, owner: &Owner) -> Vec<&'a Waiter> {
    let own = of(record, owner).map(|at| place(&record.waiters[at])).min();
    let is_earlier = |waiter: &&Waiter| !waiter.owner.is(owner) && own.is_none_or(|own| place(waiter) < own);
    let mut earlier: Vec<&Waiter> = record.waiters.iter().filter(is_earlier).collect();
    earlier.sort_by_key(|waiter| place(waiter));
    earlier
}

/// Positions of the waiters that are `owner`.
pub(crate) fn of<'a>(record: &'a Record, owner: &'a Owner) -> impl Iterator<Item = usize> + 'a {
    let waiters = record.waiters.iter().enumerate();
    waiters.filter(|(_, waiter)| waiter.owner.is(owner)).map(|(position, _)| position)
}

/// The ticket for a new waiter, which goes last.
pub(crate) fn next_ticket(record: &Record) -> u64 {
    let last = record.waiters.iter().map(|waiter| waiter.ticket).max();
    last.unwrap_or(0).saturating_add(1)
}

/// Ascending ranks as ranges, each with its first and last.
pub(crate) fn spans(ranks: impl Iterator<Item = u32>) -> Vec<(u32, u32)> {
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => spans.push((rank, rank)),
        }
    }
    spans
}

/// Whether the waiter may be granted the unit of that rank.
pub(crate) fn takes(waiter: &Waiter, rank: u32) -> bool {
    let is_in = |spans: &Vec<(u32, u32)>| spans.iter().any(|(first, last)| (*first..=*last).contains(&rank));
    waiter.among.as_ref().is_none_or(is_in)
}

/// The order of waiters. Two have the same ticket only if somebody edited the record by hand.
fn place(waiter: &Waiter) -> (u64, u32) {
    (waiter.ticket, waiter.owner.pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(pid: u32) -> Owner {
        Owner { pid, start: Some(1), boot: None, pid_namespace: Some(1), uid: None }
    }

    /// Pids, amounts and tickets.
    fn record(waiters: &[(u32, u64, u64)]) -> Record {
        let waiter = |&(pid, amount, ticket): &(u32, u64, u64)| Waiter {
            owner: owner(pid),
            amount,
            ticket,
            among: None,
        };
        Record { waiters: waiters.iter().map(waiter).collect(), ..Record::default() }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn first_come_first_served() {
        for (case, waiters, pids) in [
            ("nobody waits",              &[][..],                              vec![]),
            ("one that is new is last",   &[(1, 1, 7), (2, 1, 3)],              vec![2, 1]),
            ("by ticket and not by line", &[(1, 1, 7), (9, 1, 5), (2, 1, 3)],   vec![2]),
            ("the first",                 &[(9, 1, 3), (2, 1, 7)],              vec![]),
            ("whatever it wants",         &[(1, 4, 1), (9, 1, 2)],              vec![1]),
            ("one ticket twice",          &[(1, 1, u64::MAX), (9, 1, u64::MAX), (10, 1, u64::MAX)], vec![1]),
            ("two lines of one",          &[(9, 1, 2), (1, 1, 4), (9, 1, 6)],   vec![]),
        ] {
            let record = record(waiters);
            let found: Vec<u32> = earlier(&record, &owner(9)).iter().map(|waiter| waiter.owner.pid).collect();
            assert_eq!(found, pids, "{case}");
        }
    }

    /// A pid that is used again, in a record that was written by hand: two that waited for each other would for ever.
    #[test]
    fn of_two_that_cannot_be_told_apart_none_waits_for_the_other() {
        let twin = |start| Waiter {
            owner: Owner { start: Some(start), ..owner(9) },
            ..record(&[(9, 1, 3)]).waiters.remove(0)
        };
        let record = Record { waiters: vec![twin(1), twin(2)], ..Record::default() };
        for waiter in &record.waiters {
            assert_eq!(earlier(&record, &waiter.owner), Vec::<&Waiter>::new());
        }
    }

    #[test]
    fn ranks_are_kept_in_spans() {
        assert_eq!(spans([0, 1, 2, 5, 7, 8].into_iter()), [(0, 2), (5, 5), (7, 8)]);
        let among = Some(vec![(0, 2), (5, 5)]);
        let waiter = Waiter { among, ..record(&[(1, 1, 1)]).waiters.remove(0) };
        let taken: Vec<u32> = (0..9).filter(|rank| takes(&waiter, *rank)).collect();
        assert_eq!(taken, [0, 1, 2, 5]);
        assert!(takes(&Waiter { among: None, ..waiter }, 99));
    }

    #[test]
    fn tickets_grow() {
        assert_eq!(next_ticket(&record(&[])), 1);
        assert_eq!(next_ticket(&record(&[(1, 1, 7), (2, 1, 3)])), 8);
        assert_eq!(next_ticket(&record(&[(1, 1, u64::MAX)])), u64::MAX);
    }
}
