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
pub(super) const MINUTE_MS: f64 = 60_000.0;

/// What is allowed in one scope.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Most calls at once.
    pub calls_max: f64,
    /// Most of each kind in a minute; 0 is no limit.
    pub per_minute: Amounts,
    /// A worker: the limit configured for its account, 0 without one. An account: 0.
    pub account_per_minute: Amounts,
    /// Which part of the whole limits this is: 1, or less while processes do not share a meter. It applies to what vendors say as
    /// well.
    pub share: f64,
}

/// The part of the limits that one of several processes may use by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// A fixed part, more than 0 and at most 1. Concurrency is rounded up, so each process may make at least one call.
    Fixed(f64),
    /// One of `of` equal parts. Concurrency is divided so that all parts together are exactly the limit: the processes with the
    /// lowest `rank`, counted from 0, have one call more.
    Equal {
        /// This process' place among them.
        rank: u32,
        /// How many there are, at least 1.
        of: u32,
    },
}

impl Terms {
    /// Those of a worker by itself.
    pub fn of_worker(limits: &Limits) -> Self {
        let calls_max = f64::from(limits.in_flight_max);
        Self {
            calls_max,
            per_minute: per_minute(&limits.rates),
            account_per_minute: per_minute(&limits.account.rates),
            share: 1.0,
        }
    }

    /// Those of its vendor's account, if there are any.
    pub fn of_account(limits: &AccountLimits) -> Option<Self> {
        let calls_max = limits.in_flight_max.map_or(f64::from(u32::MAX), f64::from);
        (*limits != AccountLimits::default()).then(|| Self {
            calls_max,
            per_minute: per_minute(&limits.rates),
            account_per_minute: [0.0; AMOUNTS],
            share: 1.0,
        })
    }

    /// A share of these terms.
    #[must_use]
    pub fn share(self, share: Share) -> Self {
        let (part, calls_max) = match share {
            // A third of three is one, though the product of floats may be a little more.
            Share::Fixed(part) => (part, (self.calls_max * part - 1e-6).ceil().max(1.0)),
            Share::Equal { rank, of } => {
                let (rank, of) = (f64::from(rank), f64::from(of.max(1)));
                let each = (self.calls_max / of).floor();
                let left = self.calls_max - each * of;
                (1.0 / of, if rank < left { each + 1.0 } else { each })
            }
        };
        Self {
            calls_max,
            per_minute: self.per_minute.map(|limit| limit * part),
            account_per_minute: self.account_per_minute.map(|limit| limit * part),
            share: self.share * part,
        }
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
