//! Randomness from one seed, in one stream per purpose, so that an added draw in one place changes
//! no draw in another.
//!
//! Not here: the odds ([`crate::wire::Weather`]).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// One stream of random draws.
#[derive(Debug)]
pub struct Dice(Mutex<ChaCha8Rng>);

impl Dice {
    /// The stream of this name under this seed.
    pub fn new(seed: u64, stream: &str) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&fnv1a(stream.as_bytes()).to_le_bytes());
        Self(Mutex::new(ChaCha8Rng::from_seed(key)))
    }

    /// Any number.
    pub fn any(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next_u64()
    }

    /// A number below `bound`, which must be at least 1.
    pub fn below(&self, bound: u64) -> u64 {
        // The bias is below 2⁻³² for the bounds used here, and it never changes.
        self.any() % bound.max(1)
    }

    /// True this many times out of a thousand.
    pub fn chance(&self, per_mille: u32) -> bool {
        per_mille > 0 && self.below(1_000) < u64::from(per_mille)
    }

    /// A duration between the two, in whole milliseconds.
    pub fn between(&self, least: Duration, most: Duration) -> Duration {
        let span = u64::try_from(most.saturating_sub(least).as_millis()).unwrap_or(u64::MAX);
        least + Duration::from_millis(self.below(span.saturating_add(1)))
    }

    /// A duration between the two that is mostly short and seldom long, as delays are: half of all
    /// draws are in the first eighth.
    pub fn delay(&self, least: Duration, most: Duration) -> Duration {
        let part = self.below(1_001);
        let span = u64::try_from(most.saturating_sub(least).as_millis()).unwrap_or(u64::MAX);
        least + Duration::from_millis(span.saturating_mul(part * part * part) / 1_000_000_000)
    }

    /// One of the choices, or `None` if there is none.
    pub fn pick<'a, T>(&self, choices: &'a [T]) -> Option<&'a T> {
        let index = self.below(u64::try_from(choices.len()).unwrap_or(u64::MAX));
        choices.get(usize::try_from(index).unwrap_or(usize::MAX))
    }
}

/// A stable hash: the standard library's hash may change between releases, and seeds must not.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_short_as_a_rule_and_seldom_long() {
        let dice = Dice::new(42, "delays");
        let (least, most) = (Duration::from_secs(10), Duration::from_secs(90));
        let drawn: Vec<_> = (0..1_000).map(|_| dice.delay(least, most)).collect();
        assert!(drawn.iter().all(|delay| (least..=most).contains(delay)));
        let short = drawn.iter().filter(|delay| **delay < Duration::from_secs(20)).count();
        assert!((450..550).contains(&short), "{short}");
        assert!(drawn.iter().any(|delay| *delay > Duration::from_secs(80)));
    }

    #[test]
    fn a_seed_is_a_promise() {
        // If this fails, every kept seed draws another world.
        let dice = Dice::new(42, "promise");
        let drawn: Vec<u64> = (0..4).map(|_| dice.below(1_000_000)).collect();
        assert_eq!(drawn, [339_324, 868_971, 482_674, 777_448]);
    }
}
