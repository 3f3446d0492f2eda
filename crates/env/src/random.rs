//! Random numbers, reproducible from a seed.
//!
//! The generator is splitmix64: fast, eight bytes of state, every seed is a good one. It is for shuffling, jitter and
//! names, never for secrets.

use std::hash::{BuildHasher, Hasher};

#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The same seed gives the same numbers on every machine and in every version.
    pub fn seeded(seed: u64) -> Random {
        Random { state: seed }
    }

    /// A generator seeded by the operating system.
    #[allow(
        clippy::disallowed_types,
        reason = "draws the system's randomness for all others"
    )]
    pub fn from_os() -> Random {
        // Std draws the keys of its hash maps from the system's generator; the hash of nothing depends on them alone.
        Random::seeded(
            std::collections::hash_map::RandomState::new()
                .build_hasher()
                .finish(),
        )
    }

    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 to `limit`, exclusive; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_the_published_sequence() {
        let mut random = Random::seeded(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn numbers_stay_below_their_limit_and_reach_all_of_it() {
        let mut random = Random::seeded(1);
        let mut seen = [false; 10];
        for _ in 0..1000 {
            seen[random.below(10) as usize] = true;
        }
        assert_eq!(seen, [true; 10]);
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn two_generators_of_the_system_differ() {
        assert_ne!(Random::from_os().next_u64(), Random::from_os().next_u64());
    }
}
