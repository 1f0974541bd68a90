//! Fingerprints: 128 bits that stand for a state, and parts of a state that remember theirs.
//!
//! Two states with equal fingerprints are taken to be the same. Among twenty million states the odds
//! that any two differ and collide are below 10⁻²³, which is why nothing but the fingerprint is kept.
//!
//! Not here: the table of what was seen (`search`).

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// Multipliers of the two lanes: odd, without structure (the fractions of π and of e).
const LANES: [u64; 2] = [0x243f_6a88_85a3_08d3, 0xb7e1_5162_8aed_2a6b];

/// A hasher of 128 bits, the same in every process.
#[derive(Clone, Debug)]
pub(super) struct Fingerprint([u64; 2]);

impl Fingerprint {
    pub(super) const fn new() -> Self {
        Self([0x9e37_79b9_7f4a_7c15, 0x6a09_e667_f3bc_c909])
    }

    pub(super) fn of(value: &impl Hash) -> u128 {
        let mut hasher = Self::new();
        value.hash(&mut hasher);
        hasher.bits()
    }

    /// All 128 bits; never zero, which is what an empty place of a table holds.
    pub(super) fn bits(mut self) -> u128 {
        // Twice more, so that the last word reaches every bit of both lanes.
        self.take(0xa409_3822_299f_31d0);
        self.take(0x082e_fa98_ec4e_6c89);
        let [first, second] = self.0;
        (u128::from(first) << 64 | u128::from(second)).max(1)
    }

    fn take(&mut self, word: u64) {
        let [first, second] = self.0;
        self.0 = [
            folded(first ^ word, LANES[0]) ^ second.rotate_left(17),
            folded(second ^ word.rotate_left(32), LANES[1]).wrapping_add(first),
        ];
    }
}

/// Both halves of the product: every bit of the word reaches every bit of the result.
fn folded(word: u64, by: u64) -> u64 {
    let [low, high] = halves(u128::from(word) * u128::from(by));
    low ^ high
}

#[expect(clippy::cast_possible_truncation, reason = "the halves are what is wanted")]
const fn halves(word: u128) -> [u64; 2] {
    [word as u64, (word >> 64) as u64]
}

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.take(u64::from_le_bytes(word) ^ (chunk.len() as u64) << 56);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.take(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.take(word as u64);
    }

    fn write_u8(&mut self, word: u8) {
        self.take(u64::from(word));
    }

    fn write_u128(&mut self, word: u128) {
        let [low, high] = halves(word);
        self.take(low);
        self.take(high);
    }

    fn finish(&self) -> u64 {
        self.0[0]
    }
}

/// A part of a state, shared by all states that have it, with its fingerprint.
#[derive(Clone, Debug)]
pub(super) struct Part<T> {
    value: Arc<T>,
    mark: u128,
}

impl<T: Clone + Hash> Part<T> {
    pub(super) fn new(value: T) -> Self {
        let mark = Fingerprint::of(&value);
        Self { value: Arc::new(value), mark }
    }

    pub(super) fn set(&mut self, value: T) {
        *self = Self::new(value);
    }

    pub(super) fn change<A>(&mut self, change: impl FnOnce(&mut T) -> A) -> A {
        let mut value = T::clone(&self.value);
        let answer = change(&mut value);
        self.set(value);
        answer
    }
}

impl<T> Deref for Part<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Hash for Part<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(self.mark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_values_have_far_fingerprints() {
        let prints: Vec<u128> = (0..2_000_u64).map(|word| Fingerprint::of(&word)).collect();
        for (index, print) in prints.iter().enumerate().skip(1) {
            let changed = (print ^ prints[index - 1]).count_ones();
            assert!((20..108).contains(&changed), "{index}: {changed} bits changed");
        }
        assert_ne!(Fingerprint::of(&"ab"), Fingerprint::of(&"a\0"));
        assert_ne!(Fingerprint::of(&("a", "bc")), Fingerprint::of(&("ab", "c")));
        assert_eq!(Fingerprint::of(&Part::new(7_u64)), Fingerprint::of(&Part::new(7_u64)));
    }
}
