//! When to try again.

use std::time::Duration;

use podium_domain::ids::ClaimId;

use crate::options::Options;

/// Pause before the next attempt after `failed` failed ones: exponential with full jitter, but never less than what the
/// vendor asked for. The jitter comes from the claim, which is random already.
///
/// Full jitter: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
pub(crate) fn pause(options: &Options, failed: u32, claim: ClaimId, asked: Duration) -> Duration {
    let doubled = options.retry_pause.saturating_mul(1 << failed.saturating_sub(1).min(16));
    let ceiling = doubled.min(options.retry_pause_max);
    let random = u32::from_be_bytes(last_bytes(claim));
    let jittered = ceiling.mul_f64(f64::from(random) / f64::from(u32::MAX));
    jittered.max(asked)
}

fn last_bytes(claim: ClaimId) -> [u8; 4] {
    let bytes = claim.as_uuid().as_bytes();
    [bytes[12], bytes[13], bytes[14], bytes[15]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(last: &str) -> ClaimId {
        format!("00000000-0000-4000-8000-0000{last}").parse().unwrap()
    }

    #[test]
    fn pauses_grow_stay_below_the_bound_and_obey_the_vendor() {
        let options = Options::default();
        let longest = claim("ffffffff");
        assert_eq!(pause(&options, 1, longest, Duration::ZERO), options.retry_pause);
        assert_eq!(pause(&options, 2, longest, Duration::ZERO), options.retry_pause * 2);
        assert_eq!(pause(&options, 60, longest, Duration::ZERO), options.retry_pause_max);
        assert_eq!(pause(&options, 3, claim("00000000"), Duration::ZERO), Duration::ZERO);
        let asked = Duration::from_secs(7_999);
        assert_eq!(pause(&options, 1, longest, asked), asked);
    }
}
