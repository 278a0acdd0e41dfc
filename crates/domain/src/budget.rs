//! Budgets: how much a tenant or a key may spend in a period, and what runs charge to them.
//!
//! A run is charged to the budgets that existed when it was accepted, in the periods of that time. Its charge follows from its
//! events, so a store needs only the difference that each commit makes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::{Date, OffsetDateTime, UtcOffset};

use crate::ids::{KeyId, TenantId};
use crate::money::Cost;
use crate::time::Timestamp;

/// The tenant or the key that has a budget.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Payer {
    /// All keys of a tenant together.
    Tenant(TenantId),
    /// A single key.
    Key(KeyId),
}

/// The text does not name a payer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a payer must be `tenant:NAME` or `key:ID`")]
pub struct InvalidPayer;

impl fmt::Display for Payer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenant(tenant) => write!(f, "tenant:{tenant}"),
            Self::Key(key) => write!(f, "key:{key}"),
        }
    }
}

impl FromStr for Payer {
    type Err = InvalidPayer;

    fn from_str(text: &str) -> Result<Self, InvalidPayer> {
        match text.split_once(':').ok_or(InvalidPayer)? {
            ("tenant", name) => TenantId::new(name).map(Self::Tenant).map_err(|_| InvalidPayer),
            ("key", id) => KeyId::new(id).map(Self::Key).map_err(|_| InvalidPayer),
            _ => Err(InvalidPayer),
        }
    }
}

impl TryFrom<String> for Payer {
    type Error = InvalidPayer;

    fn try_from(text: String) -> Result<Self, InvalidPayer> {
        text.parse()
    }
}

impl From<Payer> for String {
    fn from(payer: Payer) -> Self {
        payer.to_string()
    }
}

/// The period of a budget, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    /// A calendar day.
    Day,
    /// A calendar month.
    Month,
    /// All time.
    Total,
}

impl Period {
    /// Every period.
    pub const ALL: [Self; 3] = [Self::Day, Self::Month, Self::Total];

    /// The name that stores and people use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
            Self::Total => "total",
        }
    }

    /// The period with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|period| period.as_str() == name)
    }

    /// The beginning of the period that contains `at`; the epoch for all time.
    pub fn start(self, at: Timestamp) -> Timestamp {
        let day = || {
            let seconds = i64::try_from(at.unix_ms() / 1000).ok()?;
            let date = OffsetDateTime::from_unix_timestamp(seconds).ok()?.to_offset(UtcOffset::UTC).date();
            let first = match self {
                Self::Day => date,
                Self::Month => Date::from_calendar_date(date.year(), date.month(), 1).ok()?,
                Self::Total => return None,
            };
            u64::try_from(first.midnight().assume_utc().unix_timestamp()).ok()
        };
        Timestamp::from_unix_ms(day().map_or(0, |seconds| seconds * 1000))
    }

    /// The beginning of the period after the one that contains `at`; none for all time.
    pub fn next_start(self, at: Timestamp) -> Option<Timestamp> {
        let start = self.start(at);
        match self {
            Self::Day => Some(start.after(Duration::from_hours(24))),
            // Every month has fewer than 32 days.
            Self::Month => Some(self.start(start.after(Duration::from_hours(32 * 24)))),
            Self::Total => None,
        }
    }
}

/// The amount that a run charges to each of its budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// The known cost so far.
    pub spent: Cost,
    /// The most that may still be spent: by calls that the run may still make, and by calls whose executor never reported.
    pub reserved: Cost,
}

impl Charge {
    /// The sum of both, which no other run can use.
    pub fn total(self) -> Cost {
        self.spent + self.reserved
    }
}

/// A budget in one period, which a run is charged to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BudgetRef {
    /// The owner of the budget.
    pub payer: Payer,
    /// The beginning of the period.
    pub from: Timestamp,
    /// The kind of period; a cap applies to the same kind only. `None` in runs stored by older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<Period>,
}

/// The most that a payer may spend in each period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The owner of the budget.
    pub payer: Payer,
    /// The tenant itself, or the tenant of the key.
    pub tenant: TenantId,
    /// The kind of period.
    pub period: Period,
    /// The cap; `None` if spending is only counted.
    pub cap: Option<Cost>,
}

impl Budget {
    /// The budget in the period that contains `at`.
    pub fn at(&self, at: Timestamp) -> BudgetRef {
        BudgetRef { payer: self.payer.clone(), from: self.period.start(at), period: Some(self.period) }
    }
}

/// A budget has too little left for a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error(
    "budget `{payer}` of {cap} has {spent} spent and {reserved} reserved, and the run needs up to {asked} more"
)]
pub struct Shortage {
    /// The owner of the budget.
    pub payer: Payer,
    /// The cap in the period.
    pub cap: Cost,
    /// The amount spent.
    pub spent: Cost,
    /// The amount that other runs reserve, and this one so far.
    pub reserved: Cost,
    /// The additional amount that the run needs.
    pub asked: Cost,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_begin_at_midnight_utc() {
        // 2024-02-29T23:59:59.999Z, and one millisecond later.
        let (leap, march) =
            (Timestamp::from_unix_ms(1_709_251_199_999), Timestamp::from_unix_ms(1_709_251_200_000));
        assert_eq!(Period::Day.start(leap).unix_ms(), 1_709_164_800_000);
        assert_eq!(Period::Month.start(leap).unix_ms(), 1_706_745_600_000);
        assert_eq!([Period::Day, Period::Month].map(|period| period.start(march)), [march; 2]);
        assert_eq!([Period::Day, Period::Month].map(|period| period.next_start(leap)), [Some(march); 2]);
        // 2024-03-02 and 2024-04-01.
        assert_eq!(Period::Day.next_start(march).map(Timestamp::unix_ms), Some(1_709_337_600_000));
        assert_eq!(Period::Month.next_start(march).map(Timestamp::unix_ms), Some(1_711_929_600_000));
        assert_eq!(Period::Total.next_start(march), None);
        assert_eq!(Period::Total.start(march), Timestamp::default());
        for period in Period::ALL {
            assert_eq!(Period::from_name(period.as_str()), Some(period));
            assert!(period.start(Timestamp::from_unix_ms(u64::MAX)) <= Timestamp::from_unix_ms(u64::MAX));
        }
    }

    #[test]
    fn a_payers_text_parses_back() {
        for text in ["tenant:acme", "tenant:a:b", "key:key_0123"] {
            assert_eq!(text.parse::<Payer>().unwrap().to_string(), text);
        }
        for text in ["", "acme", "tenant:", "user:x", "tenant:a b"] {
            assert_eq!(text.parse::<Payer>(), Err(InvalidPayer), "{text}");
        }
    }
}
