//! The pause before a retry.

use std::time::Duration;

use podium_domain::ids::ClaimId;
use podium_domain::retry::Backoff;

use crate::options::Options;

/// The pause before the next attempt after `failed` failed ones. The jitter comes from the claim, which is random already.
pub(crate) fn pause(options: &Options, failed: u32, claim: ClaimId, asked: Duration) -> Duration {
    let backoff = Backoff { first: options.retry_pause, max: options.retry_pause_max };
    backoff.pause(failed, u32::from_be_bytes(last_bytes(claim)), asked)
}

fn last_bytes(claim: ClaimId) -> [u8; 4] {
    let bytes = claim.as_uuid().as_bytes();
    [bytes[12], bytes[13], bytes[14], bytes[15]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_is_a_random_part_of_the_bound() {
        let options = Options::default();
        let after_two = |last: &str| {
            let claim = format!("00000000-0000-4000-8000-0000{last}").parse().unwrap();
            pause(&options, 2, claim, Duration::ZERO)
        };
        assert_eq!(after_two("ffffffff"), options.retry_pause * 2);
        assert_eq!(after_two("00000000"), Duration::ZERO);
    }
}
