//! The limits of one scope, and the pace that follows from them.

use crate::pool::{AccountLimits, Limits, Rates};

/// The number of limited amounts: requests, tokens, input tokens, output tokens.
pub const AMOUNTS: usize = 4;

/// One number for each limited amount. As a limit, 0 means unlimited.
pub type Amounts = [f64; AMOUNTS];

/// The burst, as seconds' worth of the limit.
///
/// It is subtracted from the minute's limit, so that no period of sixty seconds exceeds the limit, whether the vendor counts fixed
/// minutes, sliding windows or a bucket. So a sixtieth of the limit stays unused for each second of burst.
pub const BURST_S: f64 = 1.0;

const MINUTE_S: f64 = 60.0;
pub(super) const MINUTE_MS: f64 = 60_000.0;

/// The limits of one scope.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Most concurrent calls.
    pub calls_max: f64,
    /// Most of each amount per minute; 0 is unlimited.
    pub per_minute: Amounts,
    /// For a worker: the configured limit of its account, 0 without one. For an account: 0.
    pub account_per_minute: Amounts,
    /// The part of the whole limits that these terms allow: 1, or less while processes do not share a meter. It also applies to
    /// limits that vendors report.
    pub share: f64,
}

/// The part of the limits that one of several processes may use by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// A fixed part, more than 0 and at most 1. Concurrency is rounded up, so each process may make at least one call.
    Fixed(f64),
    /// One of `of` equal parts. Concurrency is divided so that all parts add up to the limit exactly: the processes with the lowest
    /// `rank`, counted from 0, get one call more.
    Equal {
        /// This process' rank among them.
        rank: u32,
        /// The number of processes, at least 1.
        of: u32,
    },
}

impl Terms {
    /// The limits of a worker.
    pub fn of_worker(limits: &Limits) -> Self {
        let calls_max = f64::from(limits.in_flight_max);
        Self {
            calls_max,
            per_minute: per_minute(&limits.rates),
            account_per_minute: per_minute(&limits.account.rates),
            share: 1.0,
        }
    }

    /// The limits of a vendor's account; `None` without any.
    pub fn of_account(limits: &AccountLimits) -> Option<Self> {
        let calls_max = limits.in_flight_max.map_or(f64::from(u32::MAX), f64::from);
        (*limits != AccountLimits::default()).then(|| Self {
            calls_max,
            per_minute: per_minute(&limits.rates),
            account_per_minute: [0.0; AMOUNTS],
            share: 1.0,
        })
    }

    /// A share of these limits.
    #[must_use]
    pub fn share(self, share: Share) -> Self {
        let (part, calls_max) = match share {
            // Reduced slightly before rounding up, because a product of floats such as a third of three may exceed 1.
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

/// The pace at which a limit is spent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Milliseconds for each unit.
    pub unit_ms: f64,
    /// The burst in milliseconds.
    pub burst_ms: f64,
}

impl Pace {
    /// The pace of a limit per minute.
    pub fn of(per_minute: f64) -> Self {
        let burst = (per_minute * BURST_S / MINUTE_S).max(1.0);
        // A limit of one would leave nothing after the burst.
        let steady = (per_minute - burst).max(per_minute / 2.0);
        let unit_ms = MINUTE_MS / steady;
        Self { unit_ms, burst_ms: burst * unit_ms }
    }
}
