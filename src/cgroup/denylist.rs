//! Which device nodes the owner of a grant may not open: pure.
//!
//! All nodes of the host's GPUs but those of what was granted, whether or not they are there at this moment:
//! a driver makes nodes late, and tools make them again. What every process needs (nvidiactl, modeset, uvm,
//! kfd) is no node of a GPU and is never denied; nor is a card that is no device of the inventory, which may
//! drive a display.

use std::collections::BTreeSet;

use crate::device::{Inventory, Part, Unit};
use crate::host::node::{Access, Capability, NodeNumber};

/// NVIDIA's cards have the minors below; 254 is modeset, 255 nvidiactl.
const LAST_CARD: u32 = 253;

/// Minors of one major, from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    pub(crate) major: u32,
    pub(crate) first: u32,
    pub(crate) last: u32,
}

/// Character devices that may not be opened or made: spans in order, none of which touches another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Denylist {
    pub(crate) spans: Vec<Span>,
}

impl Denylist {
    pub(crate) fn of(numbers: impl IntoIterator<Item = NodeNumber>) -> Denylist {
        let numbers: BTreeSet<NodeNumber> = numbers.into_iter().collect();
        let mut spans: Vec<Span> = Vec::new();
        for NodeNumber { major, minor } in numbers {
            match spans.last_mut() {
                Some(span) if span.major == major && span.last + 1 == minor => span.last = minor,
                _ => spans.push(Span { major, first: minor, last: minor }),
            }
        }
        Denylist { spans }
    }

    pub(crate) fn denies(&self, number: NodeNumber) -> bool {
        let holds = |span: &Span| span.major == number.major && (span.first..=span.last).contains(&number.minor);
        self.spans.iter().any(holds)
    }

    /// Every node, in order.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = NodeNumber> + '_ {
        self.spans
            .iter()
            .flat_map(|span| (span.first..=span.last).map(|minor| NodeNumber { major: span.major, minor }))
    }
}
