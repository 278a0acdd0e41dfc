//! Prices and costs as integers: sums of costs are exact in any order.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

/// An amount in billionths of a US dollar. Saturates at about 18 billion dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cost(u64);

impl Cost {
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// Whether it is zero.
    pub const fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// From billionths of a US dollar.
    pub const fn from_nano_usd(nano: u64) -> Self {
        Self(nano)
    }

    /// Billionths of a US dollar.
    pub const fn nano_usd(self) -> u64 {
        self.0
    }

    /// The same as a signed number, for differences and for sums in databases; larger amounts become the largest one.
    pub fn signed_nano_usd(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    /// From dollars; `None` if negative, NaN or above a billion dollars.
    pub fn from_usd(usd: f64) -> Option<Self> {
        scaled(usd, 1e9).map(Self)
    }

    /// The difference to `other`; zero if that is larger.
    #[must_use]
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The product; saturates.
    #[must_use]
    pub const fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// In dollars, for display and for wire formats that use floats.
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

/// Six decimals of a dollar, or nine below a millionth, so that a positive amount is never shown as zero.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = if (1..1000).contains(&self.0) { 9 } else { 6 };
        write!(f, "${:.decimals$}", self.usd())
    }
}

/// A price in trillionths of a US dollar per token, which equals millionths of a US dollar per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Price(u64);

impl Price {
    /// From the form that vendors publish; `None` if negative, NaN or absurdly high.
    pub fn from_usd_per_million_tokens(usd: f64) -> Option<Self> {
        scaled(usd, 1e6).map(Self)
    }

    /// In the form that vendors publish.
    #[expect(clippy::cast_precision_loss, reason = "a float of dollars is for display")]
    pub fn usd_per_million_tokens(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The cost of `tokens` in trillionths of a dollar.
    fn pico_usd(self, tokens: u64) -> u128 {
        u128::from(self.0) * u128::from(tokens)
    }
}

/// A worker's prices per token, by the class of the token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prices {
    /// Prompt tokens.
    pub input: Price,
    /// Prompt tokens read from the vendor's cache.
    pub cached_input: Price,
    /// Prompt tokens written to the vendor's cache.
    pub cache_write: Price,
    /// Completion tokens of visible text.
    pub output: Price,
    /// Completion tokens of hidden reasoning.
    pub reasoning: Price,
}

impl Prices {
    /// One price for all prompt tokens, and one for all completion tokens.
    pub const fn plain(input: Price, output: Price) -> Self {
        Self { input, cached_input: input, cache_write: input, output, reasoning: output }
    }

    /// The cost of a call, rounded up to a billionth of a dollar.
    pub fn cost(&self, usage: &crate::usage::Usage) -> Cost {
        let cached = usage.cached_tokens.min(usage.prompt_tokens);
        let written = usage.cache_write_tokens.min(usage.prompt_tokens - cached);
        let reasoning = usage.reasoning_tokens.min(usage.completion_tokens);
        rounded_up(
            self.input.pico_usd(usage.prompt_tokens - cached - written)
                + self.cached_input.pico_usd(cached)
                + self.cache_write.pico_usd(written)
                + self.output.pico_usd(usage.completion_tokens - reasoning)
                + self.reasoning.pico_usd(reasoning),
        )
    }

    /// The highest possible cost of a call: every token has its most expensive class.
    pub fn most_cost(&self, prompt_tokens: u64, completion_tokens: u64) -> Cost {
        let prompt = self.input.max(self.cached_input).max(self.cache_write);
        let completion = self.output.max(self.reasoning);
        rounded_up(prompt.pico_usd(prompt_tokens) + completion.pico_usd(completion_tokens))
    }
}

fn rounded_up(pico_usd: u128) -> Cost {
    Cost(u64::try_from(pico_usd.div_ceil(1000)).unwrap_or(u64::MAX))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked first")]
fn scaled(usd: f64, factor: f64) -> Option<u64> {
    (usd.is_finite() && (0.0..=1e9).contains(&usd)).then(|| (usd * factor).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::Usage;

    fn price(usd: f64) -> Price {
        Price::from_usd_per_million_tokens(usd).unwrap()
    }

    fn prices() -> Prices {
        Prices {
            input: price(2.5),
            cached_input: price(1.25),
            cache_write: price(3.125),
            output: price(10.0),
            reasoning: price(12.0),
        }
    }

    #[test]
    fn a_call_costs_its_price_list() {
        let usage = Usage {
            prompt_tokens: 1000,
            cached_tokens: 400,
            cache_write_tokens: 200,
            completion_tokens: 100,
            reasoning_tokens: 50,
        };
        // 400 * 2.5 + 400 * 1.25 + 200 * 3.125 + 50 * 10 + 50 * 12 millionths of a dollar.
        assert_eq!(prices().cost(&usage), Cost::from_nano_usd(3_225_000));
    }

    #[test]
    fn overlapping_token_counts_are_never_charged_twice() {
        let usage = Usage {
            prompt_tokens: 100,
            cached_tokens: 80,
            cache_write_tokens: 80,
            completion_tokens: 10,
            reasoning_tokens: 20,
        };
        // 80 * 1.25 + 20 * 3.125 + 10 * 12 millionths of a dollar.
        assert_eq!(prices().cost(&usage), Cost::from_nano_usd(282_500));
    }

    #[test]
    fn no_call_costs_more_than_its_upper_bound() {
        let most = prices().most_cost(100, 10);
        for cached_tokens in 0..=100 {
            for reasoning_tokens in 0..=10 {
                let cache_write_tokens = 100 - cached_tokens;
                let (prompt_tokens, completion_tokens) = (100, 10);
                let usage = Usage {
                    prompt_tokens,
                    cached_tokens,
                    cache_write_tokens,
                    completion_tokens,
                    reasoning_tokens,
                };
                assert!(prices().cost(&usage) <= most, "{usage:?}");
            }
        }
    }

    #[test]
    fn no_positive_amount_is_shown_as_zero() {
        let shown = |nano| Cost::from_nano_usd(nano).to_string();
        assert_eq!(shown(0), "$0.000000");
        assert_eq!(shown(1), "$0.000000001");
        assert_eq!(shown(999), "$0.000000999");
        assert_eq!(shown(1000), "$0.000001");
        assert_eq!(shown(1_234_567_890), "$1.234568");
    }

    #[test]
    fn absurd_prices_are_refused() {
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e12] {
            assert_eq!(Price::from_usd_per_million_tokens(bad), None);
            assert_eq!(Cost::from_usd(bad), None);
        }
    }
}
