//! Where the separators of a record are.
//!
//! By the search of memchr that every processor can do. Its own choice begins by finding out what this one can do
//! besides, and on a virtual machine each of these questions is answered by the hypervisor: a twentieth of a run.

use std::iter;

use memchr::arch::all::memchr::One;

/// The first place of `separator`.
pub(super) fn position(separator: u8, bytes: &[u8]) -> Option<usize> {
    One::new(separator).find(bytes)
}

/// Every place of `separator`.
pub(super) fn positions(separator: u8, bytes: &[u8]) -> impl Iterator<Item = usize> {
    let (one, mut from) = (One::new(separator), 0);
    iter::from_fn(move || {
        let at = from + one.find(&bytes[from..])?;
        from = at + 1;
        Some(at)
    })
}
