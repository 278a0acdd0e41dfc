//! The options of the limiter and their bounds.

use std::time::Duration;

use podium_domain::ids::NAME_BYTES_MAX;

use crate::connection::{InvalidUrl, is_key_prefix};
use crate::limits::extender::EACH_EVERY;

/// Shortest and longest time of any option. Redis counts whole milliseconds.
const TIME_MIN: Duration = Duration::from_millis(1);
const TIME_MAX: Duration = Duration::from_hours(24);

/// Least number of extensions within the time of a lease. One may be late, and one may be lost with its connection.
const EXTENSIONS_MIN: u32 = 3;

/// The calls to grant while Redis is unreachable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Away {
    /// Nothing: every caller must ask again.
    Hold,
    /// The share of this process of each limit.
    Local {
        /// A fixed share, more than 0 and at most 1. `None`: one divided by the number of processes that Redis last knew of; a
        /// process grants nothing before it has reached Redis for two [`extend_every`](Options::extend_every).
        share: Option<f64>,
    },
}

/// How the limits are shared. Processes that share them must have the same options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Prefix of every key: 1 to 64 of a-z, A-Z, 0-9, `.`, `_`, `-`, `:`, `/`. Processes with different prefixes share nothing.
    pub prefix: String,
    /// Length of a lease without a refresh by its process, after which a dead process' permits are released. At least three times
    /// `extend_every`.
    pub lease_ttl: Duration,
    /// How long a process that died still counts as one that shares the limits.
    pub member_ttl: Duration,
    /// Interval at which a process with leases refreshes its entry. After a loss of Redis' data, the bound may be exceeded for this
    /// time.
    pub extend_every: Duration,
    /// How often a connection is tried while Redis is unreachable.
    pub probe_every: Duration,
    /// Time limit of a call to Redis, connecting included. No call of the limiter takes longer.
    pub answer_max: Duration,
    /// Longest pause after which a refused caller must ask again.
    pub ask_again_max: Duration,
    /// How long the state of a worker is kept after its last call and after the end of its back-off. At least `lease_ttl`,
    /// and 8 times `extend_every`: so often a process names all its leases.
    pub kept: Duration,
    /// The calls to grant while Redis is unreachable.
    pub away: Away,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prefix: "podium:limits".to_owned(),
            lease_ttl: Duration::from_secs(30),
            member_ttl: Duration::from_secs(30),
            extend_every: Duration::from_secs(5),
            probe_every: Duration::from_millis(250),
            answer_max: Duration::from_millis(500),
            ask_again_max: Duration::from_secs(2),
            kept: Duration::from_hours(1),
            away: Away::Hold,
        }
    }
}

impl Options {
    /// Checks the bounds.
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        if !is_key_prefix(&self.prefix) {
            return Err(OpenError::Prefix);
        }
        let times = [
            ("extend_every", self.extend_every),
            ("probe_every", self.probe_every),
            ("answer_max", self.answer_max),
            ("ask_again_max", self.ask_again_max),
            ("lease_ttl", self.lease_ttl),
            ("member_ttl", self.member_ttl),
            ("kept", self.kept),
        ];
        if let Some((option, _)) = times.into_iter().find(|(_, time)| !(TIME_MIN..=TIME_MAX).contains(time)) {
            return Err(OpenError::Time { option });
        }
        if self.lease_ttl < self.extend_every * EXTENSIONS_MIN {
            return Err(OpenError::LeaseTtl);
        }
        if self.kept < self.lease_ttl.max(self.extend_every * EACH_EVERY) {
            return Err(OpenError::Kept);
        }
        match self.away {
            Away::Local { share: Some(share) } if !(share > 0.0 && share <= 1.0) => Err(OpenError::Share),
            Away::Local { .. } | Away::Hold => Ok(()),
        }
    }
}

/// The options are invalid. No connection was attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The URL is invalid. It is not repeated because it may contain a password.
    #[error("{InvalidUrl}")]
    Url,
    /// The prefix is invalid.
    #[error("option `prefix` must be 1 to {NAME_BYTES_MAX} of a-z, A-Z, 0-9, `.`, `_`, `-`, `:`, `/`")]
    Prefix,
    /// A time is too short or too long.
    #[error("option `{option}` must be {TIME_MIN:?} to {TIME_MAX:?}")]
    Time {
        /// The name of the option.
        option: &'static str,
    },
    /// A lease would expire while it is held.
    #[error("option `lease_ttl` must be at least {EXTENSIONS_MIN} times `extend_every`")]
    LeaseTtl,
    /// A worker's state would be removed during a call.
    #[error("option `kept` must be at least `lease_ttl`, and at least {EACH_EVERY} times `extend_every`")]
    Kept,
    /// The share is out of bounds.
    #[error("option `away`: `share` must be more than 0 and at most 1")]
    Share,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut Options)) -> Option<OpenError> {
        let mut options = Options::default();
        change(&mut options);
        options.check().err()
    }

    #[test]
    fn an_option_out_of_bounds_is_rejected_by_name() {
        assert_eq!(refusal(|_| ()), None);
        for prefix in ["", "a{b}", "a b", &"x".repeat(65)] {
            assert_eq!(
                refusal(|options| options.prefix = prefix.to_owned()),
                Some(OpenError::Prefix),
                "{prefix}"
            );
        }
        let none = refusal(|options| options.answer_max = Duration::ZERO);
        assert_eq!(none, Some(OpenError::Time { option: "answer_max" }));
        let long = refusal(|options| options.lease_ttl = Duration::MAX);
        assert_eq!(long, Some(OpenError::Time { option: "lease_ttl" }));
        assert_eq!(
            refusal(|options| options.lease_ttl = options.extend_every * 2),
            Some(OpenError::LeaseTtl)
        );
        assert_eq!(refusal(|options| options.kept = options.lease_ttl / 2), Some(OpenError::Kept));
        for share in [0.0, -1.0, 1.5, f64::NAN] {
            assert_eq!(
                refusal(|options| options.away = Away::Local { share: Some(share) }),
                Some(OpenError::Share)
            );
        }
    }
}
