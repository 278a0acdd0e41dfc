//! The limits of a worker and of a vendor's account in a pool file: keys, defaults and bounds.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::waits::SaidWaits;
use super::{AccountLimits, Feature, Limits, Rates, Waits};

/// Upper bound of concurrent calls.
const IN_FLIGHT_MAX: u64 = 10_000;
/// Upper bound of requests per minute.
const REQUESTS_PER_MINUTE_MAX: u64 = 1_000_000_000;
/// Upper bound of tokens per minute.
const TOKENS_PER_MINUTE_MAX: u64 = 1_000_000_000_000;

/// `limits` of a worker.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LimitsEntry {
    in_flight_max: u32,
    call_ms_max: u64,
    connect_ms_max: Option<u64>,
    first_byte_ms_max: Option<u64>,
    idle_ms_max: Option<u64>,
    requests_per_minute: Option<u64>,
    tokens_per_minute: Option<u64>,
    input_tokens_per_minute: Option<u64>,
    output_tokens_per_minute: Option<u64>,
}

impl Default for LimitsEntry {
    fn default() -> Self {
        Self {
            in_flight_max: 16,
            call_ms_max: 300_000,
            connect_ms_max: None,
            first_byte_ms_max: None,
            idle_ms_max: None,
            requests_per_minute: None,
            tokens_per_minute: None,
            input_tokens_per_minute: None,
            output_tokens_per_minute: None,
        }
    }
}

impl LimitsEntry {
    /// Applies defaults and checks the bounds. Adds problems to `problems`.
    pub(super) fn check(
        &self,
        account: AccountLimits,
        features: &BTreeSet<Feature>,
        at: &str,
        problems: &mut Vec<String>,
    ) -> Limits {
        let rates = Rates {
            requests_per_minute: self.requests_per_minute,
            tokens_per_minute: self.tokens_per_minute,
            input_tokens_per_minute: self.input_tokens_per_minute,
            output_tokens_per_minute: self.output_tokens_per_minute,
        };
        bound("in_flight_max", self.in_flight_max.into(), IN_FLIGHT_MAX, at, problems);
        bound("call_ms_max", self.call_ms_max, Waits::MS_MAX, at, problems);
        let said = SaidWaits {
            connect: self.connect_ms_max,
            first_byte: self.first_byte_ms_max,
            idle: self.idle_ms_max,
        };
        let reasons = features.contains(&Feature::Effort) || features.contains(&Feature::ThinkingBudget);
        let waits = Waits::of(said, reasons, self.call_ms_max);
        for (field, milliseconds) in waits.named() {
            bound(field, milliseconds, Waits::MS_MAX, at, problems);
        }
        check_rates(&rates, at, problems);
        Limits { in_flight_max: self.in_flight_max, call_ms_max: self.call_ms_max, waits, rates, account }
    }
}

/// `limits` of a vendor.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AccountLimitsEntry {
    in_flight_max: Option<u32>,
    requests_per_minute: Option<u64>,
    tokens_per_minute: Option<u64>,
    input_tokens_per_minute: Option<u64>,
    output_tokens_per_minute: Option<u64>,
}

impl AccountLimitsEntry {
    /// Checks the bounds. Adds problems to `problems`.
    pub(super) fn check(&self, at: &str, problems: &mut Vec<String>) -> AccountLimits {
        let rates = Rates {
            requests_per_minute: self.requests_per_minute,
            tokens_per_minute: self.tokens_per_minute,
            input_tokens_per_minute: self.input_tokens_per_minute,
            output_tokens_per_minute: self.output_tokens_per_minute,
        };
        if let Some(in_flight_max) = self.in_flight_max {
            bound("in_flight_max", in_flight_max.into(), IN_FLIGHT_MAX, at, problems);
        }
        check_rates(&rates, at, problems);
        AccountLimits { in_flight_max: self.in_flight_max, rates }
    }
}

fn check_rates(rates: &Rates, at: &str, problems: &mut Vec<String>) {
    for (field, limit, max) in [
        ("requests_per_minute", rates.requests_per_minute, REQUESTS_PER_MINUTE_MAX),
        ("tokens_per_minute", rates.tokens_per_minute, TOKENS_PER_MINUTE_MAX),
        ("input_tokens_per_minute", rates.input_tokens_per_minute, TOKENS_PER_MINUTE_MAX),
        ("output_tokens_per_minute", rates.output_tokens_per_minute, TOKENS_PER_MINUTE_MAX),
    ] {
        if let Some(limit) = limit {
            bound(field, limit, max, at, problems);
        }
    }
}

fn bound(field: &str, value: u64, max: u64, at: &str, problems: &mut Vec<String>) {
    if !(1..=max).contains(&value) {
        problems.push(format!("{at}: limits.{field} is {value}, it must be 1 to {max}"));
    }
}
