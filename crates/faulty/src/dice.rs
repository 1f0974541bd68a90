//! Randomness from one seed, split into named streams, with the simulator's generator.
//!
//! Not here: the odds (`plan`).

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng as _, SeedableRng as _};

/// One stream of random numbers.
#[derive(Debug)]
pub(crate) struct Dice(ChaCha8Rng);

impl Dice {
    /// The stream of this name under this seed.
    pub(crate) fn new(seed: u64, stream: &str) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&fnv1a(stream.as_bytes()).to_le_bytes());
        Self(ChaCha8Rng::from_seed(key))
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }
}

/// A stable hash: the standard library's may change between releases, and seeds must not.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_simulators_numbers() {
        // The simulator's numbers for the same seed and stream.
        let mut dice = Dice::new(42, "promise");
        let drawn: Vec<u64> = (0..4).map(|_| dice.draw() % 1_000_000).collect();
        assert_eq!(drawn, [339_324, 868_971, 482_674, 777_448]);
    }
}
