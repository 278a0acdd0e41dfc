//! The tokens that calls use.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

use crate::money::Cost;

/// The tokens of one call, or of several added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// All prompt tokens, cached ones included.
    pub prompt_tokens: u64,
    /// Prompt tokens read from the vendor's cache.
    pub cached_tokens: u64,
    /// Prompt tokens written to the vendor's cache, at their own price; not among [`Self::cached_tokens`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
    /// All completion tokens, reasoning included.
    pub completion_tokens: u64,
    /// Completion tokens of hidden reasoning.
    pub reasoning_tokens: u64,
}

/// Tokens and their cost. Zero tokens may have a cost, and a free worker's tokens have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// The tokens.
    pub usage: Usage,
    /// Their cost.
    pub cost: Cost,
}

impl Spent {
    /// No tokens and no cost.
    pub const NONE: Self = Self { usage: Usage::NONE, cost: Cost::ZERO };
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(tokens: &u64) -> bool {
    *tokens == 0
}

impl Usage {
    /// No tokens.
    pub const NONE: Self = Self {
        prompt_tokens: 0,
        cached_tokens: 0,
        cache_write_tokens: 0,
        completion_tokens: 0,
        reasoning_tokens: 0,
    };

    /// The sum of prompt and completion tokens.
    pub fn total_tokens(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            prompt_tokens: self.prompt_tokens.saturating_add(other.prompt_tokens),
            cached_tokens: self.cached_tokens.saturating_add(other.cached_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(other.cache_write_tokens),
            completion_tokens: self.completion_tokens.saturating_add(other.completion_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_add(other.reasoning_tokens),
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(usages: I) -> Self {
        usages.fold(Self::default(), Add::add)
    }
}
