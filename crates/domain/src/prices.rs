//! A worker's price lists: vendors change their prices, and an attempt costs what was valid when it began.

use crate::money::Prices;
use crate::time::Timestamp;

/// Most price lists of a worker.
pub const LISTS_MAX: usize = 64;

/// Prices and the time from which they are valid, until the next list's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriceList {
    /// The beginning; the epoch for prices without a date.
    pub from: Timestamp,
    /// The prices.
    pub prices: Prices,
}

/// All price lists of a worker: at least one, by rising dates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceLists {
    first: PriceList,
    /// In order.
    later: Vec<PriceList>,
}

/// Price lists that are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PriceListsError {
    /// There is none.
    #[error("there is no price list")]
    Empty,
    /// There are more than [`LISTS_MAX`].
    #[error("there are {0} price lists, the limit is {LISTS_MAX}")]
    TooMany(usize),
    /// Two begin at the same time.
    #[error("two price lists have the same `from`")]
    SameDate,
}

impl PriceLists {
    /// The same prices at all times.
    pub const fn always(prices: Prices) -> Self {
        Self { first: PriceList { from: Timestamp::from_unix_ms(0), prices }, later: Vec::new() }
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

    /// All of them, by rising dates.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &PriceList> {
        std::iter::once(&self.first).chain(&self.later)
    }

    /// Whether a list is valid at `at`: not before the first one begins.
    pub fn is_valid_at(&self, at: Timestamp) -> bool {
        self.first.from <= at
    }

    /// The prices of an attempt that began at `at`. Before the first list begins, they are that one's: no call is made then.
    pub fn at(&self, at: Timestamp) -> &Prices {
        let valid = self.iter().rev().find(|list| list.from <= at);
        &valid.unwrap_or(&self.first).prices
    }

    /// The list that begins last: what is shown and compared where no time is given.
    pub fn latest(&self) -> &Prices {
        &self.later.last().unwrap_or(&self.first).prices
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::money::Price;

    fn list(from: u64, usd: f64) -> PriceList {
        let price = Price::from_usd_per_million_tokens(usd).unwrap();
        PriceList { from: Timestamp::from_unix_ms(from), prices: Prices::plain(price, price) }
    }

    #[test]
    fn an_attempt_is_priced_by_the_list_that_was_valid_when_it_began() {
        let lists = PriceLists::new(vec![list(200, 2.0), list(100, 1.0), list(300, 3.0)]).unwrap();
        let at = |ms| *lists.at(Timestamp::from_unix_ms(ms));
        for (ms, usd) in [(100, 1.0), (199, 1.0), (200, 2.0), (299, 2.0), (300, 3.0), (u64::MAX, 3.0)] {
            assert_eq!(at(ms), list(0, usd).prices, "{ms}");
        }
        assert!(!lists.is_valid_at(Timestamp::from_unix_ms(99)));
        assert!(lists.is_valid_at(Timestamp::from_unix_ms(100)));
        assert_eq!(*lists.latest(), list(0, 3.0).prices);
    }

    #[test]
    fn lists_that_contradict_each_other_are_refused() {
        assert_eq!(PriceLists::new(vec![]), Err(PriceListsError::Empty));
        assert_eq!(PriceLists::new(vec![list(1, 1.0), list(1, 2.0)]), Err(PriceListsError::SameDate));
        let many = (0..65).map(|from| list(from, 1.0)).collect();
        assert_eq!(PriceLists::new(many), Err(PriceListsError::TooMany(65)));
    }
}
