//! Ids that are the same in every run of a test.

use std::sync::atomic::{AtomicU64, Ordering};

use podium_domain::ids::{ClaimId, RunId};
use podium_domain::split_mix::{STEP, split_mix};
use podium_domain::time::Timestamp;
use podium_ports::clock::Ids;
use uuid::{Builder, Uuid};

/// Valid ids (versions 7 and 4) from a seed and a counter. Run ids sort by time, then by the order in which they were made.
#[derive(Debug)]
pub struct SeededIds {
    seed: u64,
    made: AtomicU64,
}

impl SeededIds {
    /// The ids of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { seed, made: AtomicU64::new(0) }
    }

    fn next(&self) -> (u64, u64) {
        let count = self.made.fetch_add(1, Ordering::Relaxed);
        (count, split_mix(self.seed.wrapping_mul(STEP) ^ count, 1))
    }
}

impl Ids for SeededIds {
    fn run_id(&self, now: Timestamp) -> RunId {
        let (count, noise) = self.next();
        let mut bytes = [0; 10];
        // The first two bytes are overwritten by version and variant, so the counter follows them.
        bytes[2..6].copy_from_slice(&count.to_be_bytes()[4..]);
        bytes[6..].copy_from_slice(&noise.to_be_bytes()[4..]);
        RunId::new(Builder::from_unix_timestamp_millis(now.unix_ms(), &bytes).into_uuid())
    }

    fn claim_id(&self) -> ClaimId {
        let (_, noise) = self.next();
        let bytes = (u128::from(noise) << 64) | u128::from(split_mix(noise, 1));
        ClaimId::new(Builder::from_random_bytes(Uuid::from_u128(bytes).into_bytes()).into_uuid())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn run_ids_sort_by_time_and_making() {
        let ids = SeededIds::new(1);
        let made: Vec<_> = (0..1000).map(|i| ids.run_id(Timestamp::from_unix_ms(5 + i / 100))).collect();
        assert!(made.is_sorted());
        assert_eq!(made[0].as_uuid().get_version_num(), 7);
    }

    #[test]
    fn a_seed_repeats_its_ids_and_shares_none_with_another() {
        let claims = |seed| {
            let ids = SeededIds::new(seed);
            (0..1000).map(|_| ids.claim_id()).collect::<BTreeSet<_>>()
        };
        assert_eq!(claims(1), claims(1));
        assert_eq!(claims(1).union(&claims(2)).count(), 2000);
        assert_eq!(claims(1).first().unwrap().as_uuid().get_version_num(), 4);
    }
}
