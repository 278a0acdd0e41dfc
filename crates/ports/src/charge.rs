//! What a commit adds to the budgets of its run.

use podium_domain::budget::{BudgetRef, Charge};
use podium_domain::run::{Run, SequencedEvent};

use crate::stored::stored;

/// What a commit adds to each budget of its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booking {
    /// The budgets, in a fixed order: whoever writes several at once writes them in this one.
    pub budgets: Vec<BudgetRef>,
    /// Billionths of a US dollar to what was spent.
    pub spent: i64,
    /// Billionths of a US dollar to what is reserved.
    pub reserved: i64,
    /// Whether the commit must not be made if a budget has no room for it: it permits spending. Otherwise it only says what
    /// is so.
    pub needs_room: bool,
}

impl Booking {
    /// The booking of a commit from a run that weighed `before`; none if its budgets need not know of it.
    pub(crate) fn of(before: Charge, after: &Run, events: &[SequencedEvent]) -> Option<Self> {
        let budgets = &after.spec().budgets;
        let now = after.booked();
        if budgets.is_empty() || now == before {
            return None;
        }
        let difference = |after, before| stored(after).saturating_sub(stored(before));
        let mut budgets = budgets.clone();
        budgets.sort();
        budgets.dedup();
        Some(Self {
            budgets,
            spent: difference(now.spent.nano_usd(), before.spent.nano_usd()),
            reserved: difference(now.reserved.nano_usd(), before.reserved.nano_usd()),
            needs_room: now.total() > before.total() && events.iter().any(|e| e.event.permits_spending()),
        })
    }

    /// What nobody else can have because of it; negative: what others can have again.
    pub fn total(&self) -> i64 {
        self.spent.saturating_add(self.reserved)
    }
}
