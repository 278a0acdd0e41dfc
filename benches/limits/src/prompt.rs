//! What is asked: prompts of different lengths, the same ones each time.

/// A prompt of a third of `words_max` words to all of them. `seed` tells callers apart.
pub(crate) fn prompt(seed: u64, call: u64, words_max: u64) -> String {
    let words_min = words_max / 3;
    let words = words_min + scramble(seed, call) % (words_max - words_min + 1);
    "word ".repeat(usize::try_from(words).unwrap_or(1).max(1))
}

/// `SplitMix64`: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014.
fn scramble(seed: u64, call: u64) -> u64 {
    let mut z = (seed << 32 | call).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
