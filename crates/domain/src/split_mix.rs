//! Repeatable pseudo-random numbers: the generator `SplitMix64` (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
//! Generators", 2014).
//!
//! The numbers are fixed: a seed gives the same tokens, pauses and test data on every machine and in every version.

/// The increment of the generator's state.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output with this number, from 1, of the generator with this seed.
pub const fn split_mix(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add(number.wrapping_mul(STEP));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outputs_are_those_of_the_reference_implementation() {
        // From the authors' C code, with seed 1234567.
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([1, 2, 3].map(|number| split_mix(1_234_567, number)), expected);
    }
}
