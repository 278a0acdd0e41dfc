//! How hard workers may be used: what a call is expected to take, what came of it, and the arithmetic of one decision.
//!
//! Whoever keeps limits keeps a [`Meter`] for each *scope*: one for each worker, and one for each vendor's account that has
//! limits of its own. A call needs room in both. The meter is pure, so that a process can keep it in memory; a limiter that is
//! shared by many processes does the same sums where they all can see them, and is tested against this one.

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

/// What a call may take, as far as is known before it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenEstimate {
    /// Tokens of the prompt.
    pub input: u64,
    /// Most tokens of the completion.
    pub output_max: u64,
}

/// What came of a call that was permitted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Settlement {
    /// How the vendor answered.
    pub outcome: Outcome,
    /// What the call consumed, if that is known. Otherwise what was reserved stays taken.
    pub usage: Option<Usage>,
    /// From sending the request to the first piece of the answer.
    pub first_token: Option<Duration>,
    /// What the vendor said of its limits.
    pub quota: Quota,
}

impl Settlement {
    /// A call of which nothing is known but how the vendor answered.
    pub fn of(outcome: Outcome) -> Self {
        Self { outcome, ..Self::default() }
    }
}

/// How a vendor answered a call, as far as limits are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Nobody knows: the caller went away.
    #[default]
    Unknown,
    /// The call was never sent.
    NotSent,
    /// With an answer.
    Answered,
    /// It refused the request itself, or we broke the answer off. This says nothing of how it fares, but that it is there.
    Refused,
    /// Too many requests or tokens.
    Limited {
        /// How long the vendor told us to wait, if it did.
        retry_after: Option<Duration>,
    },
    /// It has too much to do, or did not answer in time.
    Overloaded,
    /// It failed or could not be reached.
    Failed,
}

/// What a vendor said of its limits along with an answer. Vendors say as much of it as they like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Of requests.
    pub requests: Allowance,
    /// Of tokens of prompts and completions together.
    pub tokens: Allowance,
    /// Of tokens of prompts.
    pub input_tokens: Allowance,
    /// Of tokens of completions.
    pub output_tokens: Allowance,
}

impl Quota {
    /// Each kind, in the order of [`Amounts`].
    pub const fn each(&self) -> [Allowance; AMOUNTS] {
        [self.requests, self.tokens, self.input_tokens, self.output_tokens]
    }
}

/// One kind of a [`Quota`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// How much is allowed a minute. Zero is nothing said.
    pub limit: Option<u64>,
    /// How much of it is left now.
    pub remaining: Option<u64>,
}

/// Why there is no room for a call now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Why {
    /// As many calls are under way as may be.
    Busy,
    /// The requests or tokens of the minute are used up.
    Rate,
    /// The vendor answered 429 and is not called before its `Retry-After`, or our own pause, is over.
    Blocked,
    /// The circuit breaker is open: most recent calls failed.
    Broken,
    /// The limiter's server is unreachable, and without it nothing is granted.
    Away,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "as many calls are under way as may be",
            Self::Rate => "the limits per minute are used up",
            Self::Blocked => "the vendor answered 429 and is not called for a while",
            Self::Broken => "its circuit breaker is open",
            Self::Away => "the limiter's server is unreachable",
        })
    }
}

/// The constants of the arithmetic by name, for whoever does the same sums elsewhere. Times are milliseconds.
#[expect(clippy::cast_precision_loss, reason = "they are small")]
pub const CONSTANTS: [(&str, f64); 35] = [
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
    ("usual_up", health::USUAL_UP),
    ("usual_down", health::USUAL_DOWN),
    ("of_late_gain", health::OF_LATE),
];

/// A tier's place in arrays and scripts.
pub(crate) const fn tier_index(tier: Tier) -> usize {
    match tier {
        Tier::Mini => 0,
        Tier::Ultra => 1,
    }
}

#[cfg(test)]
mod tests;
