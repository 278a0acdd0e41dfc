//! The limits of workers: the estimate of a call, its outcome, and the arithmetic of one decision.
//!
//! A limiter keeps a [`Meter`] for each *scope*: one for each worker, and one for each vendor's account that has limits of its
//! own. A call needs capacity in both. The meter is pure, so one process can keep it in memory. A limiter shared by many processes
//! does the same arithmetic in a shared place, and is tested against this one.

mod health;
mod meter;
mod terms;
mod turns;

use std::fmt;
use std::time::Duration;

use crate::policy::Tier;
use crate::usage::Usage;

pub use health::{Health, Limited, Window};
pub use meter::{Ask, Drawn, Expectation, Granted, Meter, Refusal, Settled, scatter};
pub use terms::{AMOUNTS, Amounts, BURST_S, Pace, Share, Terms};
pub use turns::{GROUPS_MAX, MINI_WEIGHT, Turns, WAITING_MAX};

/// The tokens that a call may take, as estimated before it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenEstimate {
    /// Tokens of the prompt.
    pub input: u64,
    /// Most tokens of the completion.
    pub output_max: u64,
}

/// The usage and outcome of a permitted call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Settlement {
    /// How the vendor answered.
    pub outcome: Outcome,
    /// The tokens used, if known. Otherwise the reservation stays taken.
    pub usage: Option<Usage>,
    /// From sending the request to the first piece of the answer.
    pub first_token: Option<Duration>,
    /// The limits that the vendor reported.
    pub quota: Quota,
}

impl Settlement {
    /// A call of which only the outcome is known.
    pub fn of(outcome: Outcome) -> Self {
        Self { outcome, ..Self::default() }
    }
}

/// How a vendor answered a call, as far as limits and health are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Unknown: the caller died.
    #[default]
    Unknown,
    /// The call was never sent.
    NotSent,
    /// The vendor answered.
    Answered,
    /// The vendor refused the request itself, or the caller aborted the answer. The vendor is reachable; nothing else is known.
    Refused,
    /// The vendor reported too many requests or tokens.
    Limited {
        /// The `Retry-After` that the vendor sent, if any.
        retry_after: Option<Duration>,
    },
    /// The vendor is overloaded, or did not answer in time.
    Overloaded,
    /// The vendor failed or is unreachable.
    Failed,
}

/// The limits that a vendor reported with an answer. Vendors may leave out any part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Requests.
    pub requests: Allowance,
    /// Tokens of prompts and completions together.
    pub tokens: Allowance,
    /// Tokens of prompts.
    pub input_tokens: Allowance,
    /// Tokens of completions.
    pub output_tokens: Allowance,
}

impl Quota {
    /// All kinds, in the order of [`Amounts`].
    pub const fn each(&self) -> [Allowance; AMOUNTS] {
        [self.requests, self.tokens, self.input_tokens, self.output_tokens]
    }
}

/// One kind of a [`Quota`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// The limit per minute; zero counts as not reported.
    pub limit: Option<u64>,
    /// The amount left now.
    pub remaining: Option<u64>,
}

/// The reason why a call has no capacity now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefusalReason {
    /// All permitted concurrent calls are in flight.
    Busy,
    /// The requests or tokens per minute are used up.
    Rate,
    /// The vendor answered 429 and is not called until its `Retry-After`, or the limiter's own pause, is over.
    Blocked,
    /// The circuit breaker is open: most recent calls failed.
    Broken,
    /// The limiter's server is unreachable, and no call is granted without it.
    Unreachable,
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "the limit of concurrent calls is reached",
            Self::Rate => "the limits per minute are used up",
            Self::Blocked => "the vendor answered 429 and is not called for a while",
            Self::Broken => "its circuit breaker is open",
            Self::Unreachable => "the limiter's server is unreachable",
        })
    }
}

/// The constants by name, for other implementations of the same arithmetic. Times are milliseconds.
#[expect(clippy::cast_precision_loss, reason = "they are small")]
pub const CONSTANTS: [(&str, f64); 36] = [
    ("burst_s", terms::BURST_S),
    ("mini_weight", turns::MINI_WEIGHT),
    ("groups_max", turns::GROUPS_MAX as f64),
    ("waiting_max", turns::WAITING_MAX as f64),
    ("call_ms", meter::CALL_MS),
    ("look_ms", meter::LOOK_MS),
    ("out_of_order_times", meter::OUT_OF_ORDER_TIMES),
    ("slack_ms", meter::SLACK_MS),
    ("grace_ms", meter::GRACE_MS),
    ("minute_ms", terms::MINUTE_MS),
    ("said_kept_ms", meter::SAID_KEPT_MS),
    ("debt_max", meter::DEBT_MAX),
    ("mean_gain", meter::MEAN_GAIN),
    ("deviation_gain", meter::DEVIATION_GAIN),
    ("deviations", meter::DEVIATIONS),
    ("ratio_min", meter::RATIO_MIN),
    ("ratio_max", meter::RATIO_MAX),
    ("pause_ms", health::PAUSE_MS),
    ("pause_ms_max", health::PAUSE_MS_MAX),
    ("limited_min", health::LIMITED_MIN),
    ("span_ms", health::SPAN_MS),
    ("failures_min", health::FAILURES_MIN),
    ("failed_share_max", health::FAILED_SHARE_MAX),
    ("open_ms", health::OPEN_MS),
    ("open_ms_max", health::OPEN_MS_MAX),
    ("probe_ms_max", health::PROBE_MS_MAX),
    ("after_overload", health::AFTER_OVERLOAD),
    ("after_slowness", health::AFTER_SLOWNESS),
    ("slowness_floor", health::SLOWNESS_FLOOR),
    ("slow_times", health::SLOW_TIMES),
    ("slow_more_ms", health::SLOW_MORE_MS),
    ("reduce_every_ms", health::REDUCE_EVERY_MS),
    ("growth", health::GROWTH),
    ("usual_up", health::USUAL_UP),
    ("usual_down", health::USUAL_DOWN),
    ("of_late_gain", health::OF_LATE),
];

/// A tier's index in arrays and scripts.
pub(crate) const fn tier_index(tier: Tier) -> usize {
    match tier {
        Tier::Mini => 0,
        Tier::Ultra => 1,
    }
}

#[cfg(test)]
mod tests;
