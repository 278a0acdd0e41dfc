//! All randomness of a world, from one seed.

/// Pseudo-random numbers: `SplitMix64`, Steele, Lea and Flood 2014. Implemented here so that a seed means the same world as long
/// as the code that draws numbers stays the same.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// From 0 to `bound - 1`; 0 for a bound of 0. The bias of the remainder does not matter here.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound.max(1)
    }

    /// From `least` to `most`, both included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// An index of a slice of length `len`.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// True `permille` times in a thousand. Draws no number for 0, so that a disabled fault changes nothing.
    pub(crate) fn chance(&mut self, permille: u64) -> bool {
        permille > 0 && self.below(1000) < permille
    }

    /// As [`Self::between`], but mostly small: one in eight is beyond an eighth of the span.
    pub(crate) fn mostly_small(&mut self, least: u64, most: u64) -> u64 {
        let small = least + most.saturating_sub(least) / 8;
        if self.chance(125) { self.between(small, most) } else { self.between(least, small) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_bounds_hold() {
        let rolled = |seed| {
            let mut dice = Dice::new(seed);
            (0..100).map(|_| dice.between(3, 9)).collect::<Vec<_>>()
        };
        assert_eq!(rolled(1), rolled(1));
        assert_ne!(rolled(1), rolled(2));
        assert!(rolled(1).iter().all(|number| (3..=9).contains(number)));
        let mut dice = Dice::new(1);
        assert!(!dice.chance(0) && dice.chance(1000));
    }
}
