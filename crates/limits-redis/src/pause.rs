//! When to ask again.

use std::time::Duration;

/// Shortest time before a refused call may ask again.
const ASK_AGAIN_MIN: Duration = Duration::from_millis(20);

/// When to ask again for a call that was refused with `first_out` to go until the first lease runs out: at most `max`, because
/// permits come back sooner than leases run out. Half of it is random, so that those who are refused together do not come
/// back together. `seed` is different for each refusal.
pub(crate) fn ask_again(first_out: Duration, max: Duration, seed: u64) -> Duration {
    let ceiling = first_out.max(ASK_AGAIN_MIN).min(max);
    let half = ceiling / 2;
    let random = u32::try_from(scramble(seed) >> 32).unwrap_or(u32::MAX);
    half + half.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// `SplitMix64`: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014.
fn scramble(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn pauses_are_positive_bounded_and_spread() {
        let max = Duration::from_millis(250);
        for first_out in [Duration::ZERO, Duration::from_millis(100), Duration::from_secs(30)] {
            let pauses: BTreeSet<_> = (0..100).map(|seed| ask_again(first_out, max, seed)).collect();
            assert!(pauses.iter().all(|pause| *pause > Duration::ZERO && *pause <= max));
            assert!(pauses.len() > 90, "{} different pauses", pauses.len());
        }
        assert!(ask_again(Duration::ZERO, Duration::from_millis(1), 7) <= Duration::from_millis(1));
    }

    #[test]
    fn a_lease_that_runs_out_soon_is_waited_for_and_no_longer() {
        let (first_out, max) = (Duration::from_millis(100), Duration::from_secs(1));
        assert!((0..100).all(|seed| ask_again(first_out, max, seed) <= first_out));
        assert!((0..100).all(|seed| ask_again(first_out, max, seed) >= first_out / 2));
    }
}
