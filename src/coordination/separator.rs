//! Finds the separators of a record.
//!
//! Uses memchr's search for the baseline of the architecture. memchr's own choice would first query the processor's
//! features, and on a virtual machine the hypervisor answers each of these queries: a twentieth of a run.

use std::iter;

use memchr::arch::all;
#[cfg(target_arch = "x86_64")]
use memchr::arch::x86_64::sse2;

/// The position of the first `separator`.
pub(super) fn position(separator: u8, bytes: &[u8]) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    if let Some(vectors) = sse2::memchr::One::new(separator) {
        return vectors.find(bytes);
    }
    all::memchr::One::new(separator).find(bytes)
}

/// The positions of all `separator`s.
pub(super) fn positions(separator: u8, bytes: &[u8]) -> impl Iterator<Item = usize> {
    let mut from = 0;
    iter::from_fn(move || {
        let at = from + position(separator, &bytes[from..])?;
        from = at + 1;
        Some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_separator_is_found() {
        for length in 0..70 {
            let bytes: Vec<u8> =
                (0..length).map(|at| if at % 7 == length % 5 { b';' } else { b'x' }).collect();
            let all = || bytes.iter().enumerate().filter(|(_, byte)| **byte == b';').map(|(at, _)| at);
            assert_eq!(position(b';', &bytes), all().next(), "{length}");
            assert!(positions(b';', &bytes).eq(all()), "{length}");
        }
    }
}
