//! What is allowed in one scope, and the pace that follows from it.

use crate::pool::{AccountLimits, Limits, Rates};

/// What is counted: requests, tokens, input tokens, output tokens.
pub const AMOUNTS: usize = 4;

/// A number of each thing that is counted. 0 as a limit is none.
pub type Amounts = [f64; AMOUNTS];

/// How many seconds' worth may be taken at once.
///
/// It is taken off the minute's allowance, so that no sixty seconds whatever see more than that: a vendor may count fixed
/// minutes, sliding ones, or fill a bucket. So this is also how much is given up for it: a sixtieth for each second.
pub const BURST_S: f64 = 1.0;

const MINUTE_S: f64 = 60.0;
const MINUTE_MS: f64 = 60_000.0;

/// What is allowed in one scope.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Most calls at once.
    pub calls_max: f64,
    /// Most of each kind in a minute; 0 is no limit.
    pub per_minute: Amounts,
}

impl Terms {
    /// Those of a worker by itself.
    pub fn of_worker(limits: &Limits) -> Self {
        Self { calls_max: f64::from(limits.in_flight_max), per_minute: per_minute(&limits.rates) }
    }

    /// Those of its vendor's account, if there are any.
    pub fn of_account(limits: &AccountLimits) -> Option<Self> {
        let calls_max = limits.in_flight_max.map_or(f64::from(u32::MAX), f64::from);
        (*limits != AccountLimits::default())
            .then(|| Self { calls_max, per_minute: per_minute(&limits.rates) })
    }

    /// A share of them, more than 0 and at most 1. Calls at once are rounded up.
    #[must_use]
    pub fn share(self, share: f64) -> Self {
        // A third of three is one, though the product of floats may be a little more.
        let calls_max = (self.calls_max * share - 1e-6).ceil().max(1.0);
        Self { calls_max, per_minute: self.per_minute.map(|limit| limit * share) }
    }
}

fn per_minute(rates: &Rates) -> Amounts {
    #[expect(clippy::cast_precision_loss, reason = "limits are far below 2^53")]
    let limit = |limit: Option<u64>| limit.unwrap_or_default() as f64;
    [
        limit(rates.requests_per_minute),
        limit(rates.tokens_per_minute),
        limit(rates.input_tokens_per_minute),
        limit(rates.output_tokens_per_minute),
    ]
}

/// At what pace a limit is spent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Milliseconds for each unit.
    pub unit_ms: f64,
    /// How many milliseconds' worth may be taken at once.
    pub burst_ms: f64,
}

impl Pace {
    /// The pace of a limit a minute.
    pub fn of(per_minute: f64) -> Self {
        let burst = (per_minute * BURST_S / MINUTE_S).max(1.0);
        // Of a limit of one, nothing would be left.
        let steady = (per_minute - burst).max(per_minute / 2.0);
        let unit_ms = MINUTE_MS / steady;
        Self { unit_ms, burst_ms: burst * unit_ms }
    }
}
