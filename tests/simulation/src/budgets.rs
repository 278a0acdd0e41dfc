//! The budgets of the simulated store: caps, and a sum for each budget and period.

use std::collections::BTreeMap;

use podium_domain::budget::{BudgetRef, Payer, Shortage};
use podium_domain::money::Cost;
use podium_domain::run::Booking;

use crate::mutation::Mutation;

/// Caps and sums. A payer without a cap is only counted. A period without charges has no sum.
#[derive(Default)]
pub(crate) struct BudgetState {
    pub(crate) caps: BTreeMap<Payer, Cost>,
    pub(crate) sums: BTreeMap<BudgetRef, Sum>,
}

/// Billionths of a US dollar that the runs of one budget and period have spent and reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) spent: i64,
    pub(crate) reserved: i64,
}

impl BudgetState {
    /// The first budget that the booking does not fit, if the booking permits spending.
    pub(crate) fn shortage(&self, booking: &Booking, mutation: Option<Mutation>) -> Option<Shortage> {
        if !booking.needs_capacity || mutation == Some(Mutation::ForgetCap) {
            return None;
        }
        booking.budgets.iter().find_map(|budget| {
            let cap = *self.caps.get(&budget.payer)?;
            let Sum { spent, reserved } = self.sums.get(budget).copied().unwrap_or_default();
            let cost = |nano| Cost::from_nano_usd(u64::try_from(nano).unwrap_or_default());
            let (spent, reserved, asked) = (cost(spent), cost(reserved), cost(booking.total()));
            let payer = budget.payer.clone();
            (spent + reserved + asked > cap).then_some(Shortage { payer, cap, spent, reserved, asked })
        })
    }

    /// Adds a booking to every budget that it names.
    pub(crate) fn book(&mut self, booking: &Booking) {
        for budget in &booking.budgets {
            let sum = self.sums.entry(budget.clone()).or_default();
            sum.spent = sum.spent.saturating_add(booking.spent);
            sum.reserved = sum.reserved.saturating_add(booking.reserved);
        }
    }
}
