//! When failed calls are repeated, and when a lost watch is resumed.

use std::time::Duration;

use rand::Rng as _;

use crate::error::CallError;

/// When a failed call is repeated. Only `UNAVAILABLE`, `ABORTED`, lost connections, and limits
/// that pass within a minute are. Every call of this client can be
/// repeated safely: a run is created with a `request_id`.
///
/// The pause doubles with each failure, up to `backoff_max`; up to half of it is random. If the server asks for a longer pause
/// (`google.rpc.RetryInfo`), the client waits that long. A call whose deadline would pass meanwhile fails at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum number of attempts of one call, the first included. Default: 5.
    pub attempts_max: u32,
    /// The pause after the first failure. Default: 100 ms.
    pub backoff_initial: Duration,
    /// The longest pause. Default: 5 s.
    pub backoff_max: Duration,
    /// How long a watch tries to resume after the last message that it received. Default: 5 min.
    pub resume_within: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts_max: 5,
            backoff_initial: Duration::from_millis(100),
            backoff_max: Duration::from_secs(5),
            resume_within: Duration::from_mins(5),
        }
    }
}

impl RetryPolicy {
    /// The pause after so many failures in a row, from 1.
    pub(crate) fn pause(&self, failures: u32, error: &CallError) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let longest = self.backoff_initial.saturating_mul(1 << doublings).min(self.backoff_max);
        let backoff = longest.mul_f64(rand::rng().random_range(0.5..=1.0));
        backoff.max(error.retry_delay.unwrap_or_default())
    }
}

#[expect(clippy::disallowed_methods, reason = "the client has no clock port")]
pub(crate) async fn wait(pause: Duration) {
    tokio::time::sleep(pause).await;
}

#[cfg(test)]
mod tests {
    use tonic::{Code, Status};
    use tonic_types::{ErrorDetails, StatusExt as _};

    use super::*;

    fn unavailable(delay: Option<Duration>) -> CallError {
        let mut details = ErrorDetails::new();
        details.set_retry_info(delay);
        CallError::new("GetRun", Status::with_error_details(Code::Unavailable, "later", details))
    }

    #[test]
    fn pauses_double_up_to_their_maximum() {
        let policy = RetryPolicy::default();
        for (failures, longest_ms) in [(1, 100), (2, 200), (3, 400), (7, 5000), (u32::MAX, 5000)] {
            let pause = policy.pause(failures, &unavailable(None));
            let longest = Duration::from_millis(longest_ms);
            assert!(pause >= longest / 2 && pause <= longest, "{failures}: {pause:?}");
        }
    }

    #[test]
    fn a_pause_is_at_least_what_the_server_asks_for() {
        let policy = RetryPolicy::default();
        let asked = Duration::from_secs(7);
        assert_eq!(policy.pause(1, &unavailable(Some(asked))), asked);
        assert!(policy.pause(7, &unavailable(Some(Duration::from_millis(1)))) >= Duration::from_millis(2500));
    }
}
