//! What the tries at one plan have consumed so far, and what they come to when there is no plan.

use podium_domain::money::{Cost, Prices};
use podium_domain::usage::Usage;
use podium_ports::conductor::ConductorError;
use podium_ports::vendor::VendorError;

/// Statuses of a refusal that is about this question and no other: its length, most often, or its content.
const ABOUT_THE_QUESTION: [u16; 3] = [400, 413, 422];

/// Adds up tries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tally {
    prices: Prices,
    usage: Usage,
    cost: Cost,
}

impl Tally {
    pub(super) fn new(prices: Prices) -> Self {
        Self { prices, usage: Usage::default(), cost: Cost::ZERO }
    }

    pub(super) fn add(&mut self, usage: Usage) {
        self.usage += usage;
        self.cost += self.prices.cost(&usage);
    }

    pub(super) fn usage(&self) -> Usage {
        self.usage
    }

    pub(super) fn cost(&self) -> Cost {
        self.cost
    }

    /// The model wrote, but no plan.
    pub(super) fn no_plan(&self, tries: u32, message: String) -> ConductorError {
        ConductorError::NoPlan { tries, message, usage: self.usage, cost: self.cost }
    }

    /// The vendor failed. Once tokens were paid for, the outcome is `NoPlan`, the only one that accounts for them; before
    /// that, the caller may ask again later, unless it is this question that the vendor refuses.
    pub(super) fn give_up(&self, tries: u32, message: String, error: VendorError) -> ConductorError {
        let refused =
            matches!(&error, VendorError::Rejected { status, .. } if ABOUT_THE_QUESTION.contains(status));
        if refused || self.usage != Usage::default() {
            self.no_plan(tries, message)
        } else {
            ConductorError::Unavailable(Box::new(error))
        }
    }
}
