//! Choices that a seed brings back.

use std::hash::{BuildHasher, RandomState};

pub(crate) struct Random(u64);

/// Another one in each run.
pub(crate) fn seed() -> u64 {
    RandomState::new().hash_one(()) >> 16
}

impl Random {
    pub(crate) fn of(seed: u64) -> Random {
        // xorshift has no way out of zero.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// xorshift64*.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        usize::try_from(high).unwrap() % limit
    }

    pub(crate) fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    pub(crate) fn of_these<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.below(these.len())]
    }
}
