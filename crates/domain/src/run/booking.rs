//! The amounts that a commit adds to the budgets of its run.

use super::{Run, SequencedEvent};
use crate::budget::{BudgetRef, Charge};
use crate::money::Cost;

/// The amounts that a commit adds to each budget of its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booking {
    /// The budgets, sorted. Every writer locks several budgets in this order.
    pub budgets: Vec<BudgetRef>,
    /// Billionths of a US dollar, added to the sum that was spent.
    pub spent: i64,
    /// Billionths of a US dollar, added to the sum that is reserved.
    pub reserved: i64,
    /// Whether the commit permits spending: it must not be written if a budget cannot hold it. Otherwise it records what has already
    /// happened, and is written in any case.
    pub needs_capacity: bool,
}

impl Booking {
    /// The booking of a commit that changes the run's charge from `before`; `None` if the charge or the budgets do not change.
    pub fn of(before: Charge, after: &Run, events: &[SequencedEvent]) -> Option<Self> {
        let budgets = &after.spec().budgets;
        let now = after.booked();
        if budgets.is_empty() || now == before {
            return None;
        }
        let difference =
            |after: Cost, before: Cost| after.signed_nano_usd().saturating_sub(before.signed_nano_usd());
        let mut budgets = budgets.clone();
        budgets.sort();
        budgets.dedup();
        Some(Self {
            budgets,
            spent: difference(now.spent, before.spent),
            reserved: difference(now.reserved, before.reserved),
            needs_capacity: now.total() > before.total() && events.iter().any(|e| e.event.permits_spending()),
        })
    }

    /// The amount by which the capacity of each budget shrinks; negative if it grows.
    pub fn total(&self) -> i64 {
        self.spent.saturating_add(self.reserved)
    }
}
