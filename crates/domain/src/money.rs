//! Prices and costs in whole numbers: sums of costs are exact, whatever their order.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

/// An amount in billionths of a US dollar. Saturates at about 18 billion dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cost(u64);

impl Cost {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// From billionths of a US dollar.
    pub const fn from_nano_usd(nano: u64) -> Self {
        Self(nano)
    }

    /// Billionths of a US dollar.
    pub const fn nano_usd(self) -> u64 {
        self.0
    }

    /// From dollars; `None` when negative, not a number or beyond a billion dollars.
    pub fn from_usd(usd: f64) -> Option<Self> {
        scaled(usd, 1e9).map(Self)
    }

    /// In dollars, for people and for wire formats that want a float.
    #[expect(clippy::cast_precision_loss, reason = "a float of dollars is for display")]
    pub fn usd(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${:.6}", self.usd())
    }
}

/// A price in trillionths of a US dollar a token, which is millionths of a US dollar a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Price(u64);

impl Price {
    /// From the form that vendors publish; `None` when negative, not a number or absurd.
    pub fn from_usd_per_million_tokens(usd: f64) -> Option<Self> {
        scaled(usd, 1e6).map(Self)
    }

    /// In the form that vendors publish.
    #[expect(clippy::cast_precision_loss, reason = "a float of dollars is for display")]
    pub fn usd_per_million_tokens(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// What `tokens` cost in trillionths of a dollar.
    fn pico_usd(self, tokens: u64) -> u128 {
        u128::from(self.0) * u128::from(tokens)
    }
}

/// What a worker charges a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prices {
    /// Prompt tokens.
    pub input: Price,
    /// Prompt tokens that the vendor had cached.
    pub cached_input: Price,
    /// Completion tokens, reasoning included.
    pub output: Price,
}

impl Prices {
    /// The cost of a call, rounded up to a billionth of a dollar.
    pub fn cost(&self, usage: &crate::usage::Usage) -> Cost {
        let cached = usage.cached_tokens.min(usage.prompt_tokens);
        let pico = self.input.pico_usd(usage.prompt_tokens - cached)
            + self.cached_input.pico_usd(cached)
            + self.output.pico_usd(usage.completion_tokens);
        Cost(u64::try_from(pico.div_ceil(1000)).unwrap_or(u64::MAX))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked first")]
fn scaled(usd: f64, factor: f64) -> Option<u64> {
    (usd.is_finite() && (0.0..=1e9).contains(&usd)).then(|| (usd * factor).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::Usage;

    #[test]
    fn a_call_costs_what_the_vendors_price_list_says() {
        let price = |usd| Price::from_usd_per_million_tokens(usd).unwrap();
        let prices = Prices { input: price(2.5), cached_input: price(1.25), output: price(10.0) };
        let usage =
            Usage { prompt_tokens: 1000, cached_tokens: 400, completion_tokens: 100, reasoning_tokens: 0 };
        // 600 * 2.5 + 400 * 1.25 + 100 * 10 millionths of a dollar.
        assert_eq!(prices.cost(&usage), Cost::from_nano_usd(3_000_000));
    }

    #[test]
    fn absurd_prices_are_refused() {
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e12] {
            assert_eq!(Price::from_usd_per_million_tokens(bad), None);
            assert_eq!(Cost::from_usd(bad), None);
        }
    }
}
