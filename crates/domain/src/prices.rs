//! A worker's price lists. Vendors change their prices, and an attempt is charged by the list that was valid when it began.

use crate::money::{Cost, Prices};
use crate::time::Timestamp;
use crate::usage::Usage;

/// Most price lists of a worker.
pub const LISTS_MAX: usize = 64;

/// Prices that are valid from a time until the next list begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriceList {
    /// The beginning; the epoch for prices without a date.
    pub from: Timestamp,
    /// The prices; those of short prompts if `long_prompt` is set.
    pub prices: Prices,
    /// The prices of calls with a long prompt, if they differ.
    pub long_prompt: Option<LongPrompt>,
}

/// Prices of calls with a long prompt; they apply to prompt and completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongPrompt {
    /// A prompt is long if it has more tokens than this.
    pub above_tokens: u64,
    /// The prices of such a call.
    pub prices: Prices,
}

impl PriceList {
    /// One price for each class of token, for prompts of any length.
    pub const fn new(from: Timestamp, prices: Prices) -> Self {
        Self { from, prices, long_prompt: None }
    }

    /// The cost of one call, rounded up to a billionth of a dollar. Not for a sum of calls, because each call's prompt has its own
    /// length class.
    pub fn cost(&self, usage: &Usage) -> Cost {
        let long = self.long_prompt.filter(|long| usage.prompt_tokens > long.above_tokens);
        long.map_or(self.prices, |long| long.prices).cost(usage)
    }

    /// The highest possible cost of one call with a prompt of at most `prompt_tokens`.
    pub fn most_cost(&self, prompt_tokens: u64, completion_tokens: u64) -> Cost {
        let long = self.long_prompt.filter(|long| prompt_tokens > long.above_tokens);
        let short_tokens = long.map_or(prompt_tokens, |long| long.above_tokens);
        let short = self.prices.most_cost(short_tokens, completion_tokens);
        long.map_or(short, |long| short.max(long.prices.most_cost(prompt_tokens, completion_tokens)))
    }
}

/// All price lists of a worker: at least one, sorted by date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceLists {
    first: PriceList,
    /// Sorted by date.
    later: Vec<PriceList>,
}

/// Price lists are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PriceListsError {
    /// The list is empty.
    #[error("there is no price list")]
    Empty,
    /// There are more than [`LISTS_MAX`].
    #[error("there are {0} price lists, the limit is {LISTS_MAX}")]
    TooMany(usize),
    /// Two lists begin at the same time.
    #[error("two price lists have the same `from`")]
    SameDate,
}

impl PriceLists {
    /// One price list without a date.
    pub const fn always(prices: Prices) -> Self {
        Self { first: PriceList::new(Timestamp::from_unix_ms(0), prices), later: Vec::new() }
    }

    /// Price lists in any order.
    pub fn new(mut lists: Vec<PriceList>) -> Result<Self, PriceListsError> {
        if lists.len() > LISTS_MAX {
            return Err(PriceListsError::TooMany(lists.len()));
        }
        lists.sort_by_key(|list| list.from);
        if lists.windows(2).any(|pair| pair[0].from == pair[1].from) {
            return Err(PriceListsError::SameDate);
        }
        let mut lists = lists.into_iter();
        let first = lists.next().ok_or(PriceListsError::Empty)?;
        Ok(Self { first, later: lists.collect() })
    }

    /// All lists, sorted by date.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &PriceList> {
        std::iter::once(&self.first).chain(&self.later)
    }

    /// Whether a list is valid at `at`; false before the first one begins.
    pub fn is_valid_at(&self, at: Timestamp) -> bool {
        self.first.from <= at
    }

    /// The prices of an attempt that began at `at`; those of the first list if it begins later, when no call is made.
    pub fn at(&self, at: Timestamp) -> &PriceList {
        let valid = self.iter().rev().find(|list| list.from <= at);
        valid.unwrap_or(&self.first)
    }

    /// The list that begins last, for display and comparison without a time.
    pub fn latest(&self) -> &PriceList {
        self.later.last().unwrap_or(&self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::money::Price;

    fn list(from: u64, usd: f64) -> PriceList {
        let price = Price::from_usd_per_million_tokens(usd).unwrap();
        PriceList::new(Timestamp::from_unix_ms(from), Prices::plain(price, price))
    }

    #[test]
    fn an_attempt_is_priced_by_the_list_valid_at_its_beginning() {
        let lists = PriceLists::new(vec![list(200, 2.0), list(100, 1.0), list(300, 3.0)]).unwrap();
        let at = |ms| lists.at(Timestamp::from_unix_ms(ms)).prices;
        for (ms, usd) in [(100, 1.0), (199, 1.0), (200, 2.0), (299, 2.0), (300, 3.0), (u64::MAX, 3.0)] {
            assert_eq!(at(ms), list(0, usd).prices, "{ms}");
        }
        assert!(!lists.is_valid_at(Timestamp::from_unix_ms(99)));
        assert!(lists.is_valid_at(Timestamp::from_unix_ms(100)));
        assert_eq!(lists.latest().prices, list(0, 3.0).prices);
    }

    #[test]
    fn a_long_prompt_changes_the_price_of_the_whole_call() {
        let short = list(0, 1.0);
        let long_prompt = Some(LongPrompt { above_tokens: 1_000, prices: list(0, 2.0).prices });
        let tiered = PriceList { long_prompt, ..short };
        let usage = |prompt_tokens| Usage { prompt_tokens, completion_tokens: 100, ..Usage::default() };
        let micro_usd = |cost: Cost| cost.nano_usd() / 1_000;
        assert_eq!(micro_usd(tiered.cost(&usage(1_000))), 1_100);
        assert_eq!(micro_usd(tiered.cost(&usage(1_001))), 2_202);
        assert_eq!(micro_usd(short.cost(&usage(1_001))), 1_101);
    }

    #[test]
    fn no_call_costs_more_than_the_upper_bound_of_its_prompt() {
        for long_usd in [0.5, 2.0] {
            let long_prompt = Some(LongPrompt { above_tokens: 1_000, prices: list(0, long_usd).prices });
            let tiered = PriceList { long_prompt, ..list(0, 1.0) };
            for most in [0, 999, 1_000, 1_001, 1_900, 2_100, 5_000] {
                for prompt_tokens in
                    [0, 500, 1_000, 1_001, 2_000, 5_000].into_iter().filter(|tokens| *tokens <= most)
                {
                    let usage = Usage { prompt_tokens, completion_tokens: 10, ..Usage::default() };
                    assert!(tiered.cost(&usage) <= tiered.most_cost(most, 10), "{prompt_tokens} of {most}");
                }
            }
        }
    }

    #[test]
    fn lists_that_contradict_each_other_are_refused() {
        assert_eq!(PriceLists::new(vec![]), Err(PriceListsError::Empty));
        assert_eq!(PriceLists::new(vec![list(1, 1.0), list(1, 2.0)]), Err(PriceListsError::SameDate));
        let many = (0..65).map(|from| list(from, 1.0)).collect();
        assert_eq!(PriceLists::new(many), Err(PriceListsError::TooMany(65)));
    }
}
