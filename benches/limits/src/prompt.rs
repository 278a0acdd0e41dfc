//! What is asked: prompts of different lengths, the same ones each time.

use podium_domain::split_mix::split_mix;

/// A prompt of a third of `words_max` words to all of them. `seed` tells callers apart.
pub(crate) fn prompt(seed: u64, call: u64, words_max: u64) -> String {
    let words_min = words_max / 3;
    let words = words_min + split_mix(seed << 32 | call, 1) % (words_max - words_min + 1);
    "word ".repeat(usize::try_from(words).unwrap_or(1).max(1))
}
