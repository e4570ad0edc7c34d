//! Parses the bytes of the coordination file into a record: pure.
//!
//! It also keeps where each line is, so that a change is a list of small writes into the existing bytes (`plan`).

use std::collections::HashSet;

use crate::assignment::{Assignment, Drained, Record, Withheld};
use crate::coordination::format::{self, Line};
use crate::coordination::separator;

/// A longer free line is not reused, since all of it would have to be padded.
const LONGEST_REUSED: usize = 4096;

/// Shorter than our lines, for an upper bound of their number in a file.
const SHORT_LINE: usize = 128;

/// Where a line is in the file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) at: usize,
    /// Without the newline.
    pub(crate) len: usize,
}

/// Space for one line, which may be overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) span: Span,
    /// A run of newlines, which needs no padding; otherwise it is a free line, whose length must stay.
    pub(crate) is_blank: bool,
}

/// A line without an index.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// From 1.
    pub(crate) line: usize,
    pub(crate) problem: String,
}

/// The file as it was read under the lock.
#[derive(Debug, Default)]
pub(crate) struct Text {
    pub(crate) bytes: Vec<u8>,
    pub(crate) record: Record,
    /// Where the record's assignments are, in the same order.
    pub(crate) held: Vec<Span>,
    /// Where the record's drained units are, in the same order.
    pub(crate) drained: Vec<Span>,
    /// Where the record's waiters are, in the same order.
    pub(crate) waiting: Vec<Span>,
    /// Lines of unfinished grants; they hold nothing and are freed first.
    pub(crate) unfinished: Vec<Span>,
    pub(crate) space: Vec<Space>,
    pub(crate) malformed: Vec<Malformed>,
    /// Lines that withhold an index or are malformed.
    pub(crate) damaged: Vec<Span>,
    /// Whether the last line lacks its newline.
    pub(crate) is_cut: bool,
    /// The grants that free lines mention.
    marked: HashSet<u64>,
}

impl Text {
    pub(crate) fn read(bytes: Vec<u8>) -> Text {
        let mut text = Text { is_cut: bytes.last().is_some_and(|last| *last != b'\n'), ..Text::default() };
        let most = bytes.len() / SHORT_LINE;
        text.held.reserve(most);
        text.record.assignments.reserve(most);
        let mut at = 0;
        // What follows the last newline is a line too.
        let ends = separator::positions(b'\n', &bytes).chain([bytes.len()]);
        for (number, end) in ends.enumerate() {
            let line = &bytes[at..end];
            let span = Span { at, len: line.len() };
            at += line.len() + 1;
            let is_cut = at > bytes.len();
            match format::parse(line) {
                Ok(line) => text.take(number + 1, span, cut(line, is_cut), is_cut),
                Err(problem) => text.refuse(number + 1, span, problem),
            }
        }
        text.bytes = bytes;
        text.drop_unfinished();
        text
    }

    /// Whether the damage may be what a crash of the machine left of a record: blocks of NULs, and lines that begin
    /// correctly.
    pub(crate) fn is_a_record(&self) -> bool {
        let is_ours = |span: &Span| matches!(self.bytes[span.at], b'\0' | b'!' | b'0'..=b'9');
        !self.record.assignments.is_empty() || self.damaged.iter().all(is_ours)
    }

    fn take(&mut self, number: usize, span: Span, line: Line, is_cut: bool) {
        match line {
            Line::Nothing => self.empty_line(span, is_cut),
            Line::Free(grants) => {
                self.marked.extend(grants);
                if !is_cut && span.len <= LONGEST_REUSED {
                    self.space.push(Space { span, is_blank: false });
                }
            }
            Line::Held(assignment) => {
                self.record.assignments.push(assignment);
                self.held.push(span);
            }
            Line::Withheld { index, problem } => {
                self.record.withheld.push(Withheld { index, line: number, problem });
                self.damaged.push(span);
            }
            Line::Waiter(waiter) => {
                self.record.waiters.push(waiter);
                self.waiting.push(span);
            }
            Line::Drained(drained) => {
                self.record.drained.push(drained);
                self.drained.push(span);
            }
        }
    }

    /// Empty lines are what an unfinished growth leaves. A run of them is space, except for its last newline.
    fn empty_line(&mut self, span: Span, is_cut: bool) {
        match self.space.last_mut() {
            _ if is_cut => {} // nothing follows the last newline
            Some(Space { span: run, is_blank: true }) if run.at + run.len + 1 == span.at => run.len += 1,
            _ => self.space.push(Space { span, is_blank: true }),
        }
    }

    fn refuse(&mut self, line: usize, span: Span, problem: String) {
        self.malformed.push(Malformed { line, problem });
        self.damaged.push(span);
    }

    /// Removes the lines of unfinished grants. A grant does not hold while any free line mentions its id: its last line
    /// was never completed, or its first one was freed.
    fn drop_unfinished(&mut self) {
        if self.marked.is_empty() {
            return;
        }
        let marked = std::mem::take(&mut self.marked);
        let assignments = std::mem::take(&mut self.record.assignments);
        let spans = std::mem::take(&mut self.held);
        for (assignment, span) in assignments.into_iter().zip(spans) {
            if assignment.grant.is_some_and(|grant| marked.contains(&grant.id)) {
                self.unfinished.push(span);
            } else {
                self.record.assignments.push(assignment);
                self.held.push(span);
            }
        }
    }
}

/// A last line without a newline was cut short. It cannot be trusted: a truncated pid is another pid, and a truncated
/// identity is no device's.
fn cut(line: Line, is_cut: bool) -> Line {
    match line {
        Line::Held(Assignment { index, .. }) | Line::Drained(Drained { index, .. }) if is_cut => {
            let problem = "is cut short: the last line has no end".to_owned();
            Line::Withheld { index, problem }
        }
        Line::Waiter(_) if is_cut => Line::Free(Vec::new()),
        line => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indexes(text: &str) -> Vec<u32> {
        Text::read(text.into()).record.assignments.iter().map(|assignment| assignment.index).collect()
    }

    #[test]
    #[rustfmt::skip] // a table
    fn what_is_held() {
        for (case, text, held) in [
            ("an empty file",           "",                                                        vec![]),
            ("lines of the script",     "0 11\n1 12\n",                                            vec![0, 1]),
            ("duplicates",              "0 11\n0 12\n",                                            vec![0, 0]),
            ("a freed line",            "# 11\n1 12\n",                                            vec![1]),
            ("what a growth left",      "0 11\n\n\n\n1 12\n",                                     vec![0, 1]),
            ("a finished grant",        "0 1\tgrant=00000000000000aa;of=2\n1 1\tgrant=00000000000000aa;of=2\n", vec![0, 1]),
            ("an unfinished grant",     "0 1\tgrant=00000000000000aa;of=2\n# 1\tgrant=00000000000000aa;of=2\n", vec![]),
            ("marked later in the file", "0 1\tgrant=00000000000000aa;of=1\n1 2\n#;grant=00000000000000aa\n",       vec![1]),
            ("a torn id marks nothing", "0 1\tgrant=00000000000000aa;of=1\n#;grant=00000000000000a\n",             vec![0]),
        ] {
            assert_eq!(indexes(text), held, "{case}");
        }
    }

    #[test]
    fn a_last_line_without_its_end_withholds_its_index() {
        for line in ["1 47", "! 1\tuuid=GPU-12"] {
            let text = Text::read(format!("0 11\n{line}").into());
            assert_eq!((text.record.assignments.len(), text.record.drained.len()), (1, 0), "{line}");
            assert_eq!((text.record.withheld[0].index, text.record.withheld[0].line), (1, 2), "{line}");
            assert!(text.is_cut);
        }
    }

    #[test]
    fn a_waiter_without_a_line_end_waits_not() {
        let line = "? 12\tstart=5;amount=1;ticket=1";
        for (text, waiting) in [
            (format!("0 11\n{line}\n"), vec![Span { at: 5, len: line.len() }]),
            (format!("0 11\n{line}"), vec![]),
        ] {
            let text = Text::read(text.into());
            assert_eq!((text.record.waiters.len(), text.waiting), (waiting.len(), waiting));
            assert_eq!(text.space, []);
        }
    }

    #[test]
    fn what_cannot_be_understood_is_named_by_its_line() {
        let text = Text::read(b"0 11\n\nx\n3 y\n".to_vec());
        let malformed: Vec<_> = text.malformed.iter().map(|malformed| malformed.line).collect();
        let withheld: Vec<_> = text.record.withheld.iter().map(|withheld| withheld.line).collect();
        assert_eq!((malformed, withheld), (vec![3], vec![4]));
    }

    #[test]
    #[rustfmt::skip] // a table
    fn a_file_of_another_kind_is_no_record() {
        for (text, is_a_record) in [
            ("",                             true),
            ("0 11\nx\n",                    true),
            ("\0\0\0",                       true),
            ("\0\0\0=7\n0 4\n# 12\n1",       true),
            ("# comment\nssh 22/tcp\n",      false),
            ("\0ELF\n\x7f",                  false),
        ] {
            assert_eq!(Text::read(text.into()).is_a_record(), is_a_record, "{text:?}");
        }
    }

    #[test]
    #[rustfmt::skip] // a table
    fn where_a_line_may_be_written() {
        for (text, space) in [
            ("#abc\n",         vec![(0, 4, false)]),
            ("0 1\n\n\n\n",   vec![(4, 2, true)]),
            ("\n\n#a\n\n\n",  vec![(0, 1, true), (2, 2, false), (5, 1, true)]),
            ("\n\n0 1\n\n\n", vec![(0, 1, true), (6, 1, true)]),
            ("#abc",           vec![]),
        ] {
            let read = Text::read(text.into());
            let found: Vec<_> = read.space.iter().map(|s| (s.span.at, s.span.len, s.is_blank)).collect();
            assert_eq!(found, space, "{text:?}");
        }
    }
}
