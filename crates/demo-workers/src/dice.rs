//! Repeatable random numbers: every draw is a hash of the seed and its labels.

use sha2::{Digest, Sha256};

/// A number that depends only on the seed and the labels.
pub fn draw(seed: u64, labels: &[&str]) -> u64 {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    for label in labels {
        hash.update((label.len() as u64).to_le_bytes());
        hash.update(label.as_bytes());
    }
    let digest: [u8; 32] = hash.finalize().into();
    digest.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// Whether a draw falls within the probability: never for 0, always for 1.
pub fn happens(draw: u64, probability: f64) -> bool {
    // 53 bits are what a double holds exactly, so the quotient is below 1.
    const SCALE: f64 = 9_007_199_254_740_992.0;
    #[expect(
        clippy::cast_precision_loss,
        reason = "the shifted draw has 53 bits, which a double holds exactly"
    )]
    let fraction = (draw >> 11) as f64 / SCALE;
    fraction < probability
}

/// A number from `minimum` to `maximum`, both inclusive.
pub fn within(draw: u64, minimum: u64, maximum: u64) -> u64 {
    match maximum.saturating_sub(minimum).checked_add(1) {
        Some(count) => minimum + draw % count,
        None => draw,
    }
}

#[cfg(test)]
mod tests {
    use super::{draw, happens, within};

    #[test]
    fn draws_repeat_and_differ_by_label() {
        assert_eq!(draw(7, &["a", "b"]), draw(7, &["a", "b"]));
        assert_ne!(draw(7, &["a", "b"]), draw(7, &["ab", ""]));
        assert_ne!(draw(7, &["a"]), draw(8, &["a"]));
    }

    #[test]
    fn the_extremes_of_probability_are_certain() {
        assert!(!happens(0, 0.0) && happens(u64::MAX, 1.0));
        let count = (0..1_000).filter(|index| happens(draw(1, &[&index.to_string()]), 0.65)).count();
        assert!((600..700).contains(&count), "{count} of 1000");
    }

    #[test]
    fn draws_stay_within_their_bounds() {
        assert_eq!(within(u64::MAX, 5, 5), 5);
        assert!((0..100).all(|index| (3..=9).contains(&within(draw(index, &[]), 3, 9))));
    }
}
