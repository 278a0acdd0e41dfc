//! The cost of calls by tenant, for the few tenants that cost most: a metric must not have a series for each tenant.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use podium_domain::ids::TenantId;
use podium_domain::money::Cost;
use podium_domain::time::Timestamp;

use super::instruments::OTHER;

const TENANT: &str = "podium.tenant";
/// Most tenants with a series of their own.
const NAMED_MAX: usize = 20;
/// Most tenants whose weight is known.
const TRACKED_MAX: usize = 1000;
/// Weights halve in this time, so that a tenant that has become expensive gets a series before it has cost as much as others ever did.
const HALF_LIFE: Duration = Duration::from_hours(1);

/// The costs by tenant. Clones share them.
///
/// A tenant gets a series when it weighs a quarter more than the lightest one that has a series. That one's series ends, and its later
/// cost belongs to all others. So each series only grows, and together they are the whole cost.
#[derive(Clone, Default)]
pub(super) struct TenantCosts {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Recent cost in nano-dollars.
    weights: HashMap<TenantId, u64>,
    /// The tenants with a series, and its value.
    named: HashMap<TenantId, u64>,
    /// The value of the series of all others.
    others: u64,
    halved_at: Timestamp,
}

impl TenantCosts {
    /// Publishes the costs as a metric.
    pub(super) fn observe(&self, meter: &Meter) {
        let costs = self.clone();
        let _ = meter
            .u64_observable_counter("podium.tenant.cost")
            .with_unit("{nanodollar}")
            .with_description(
                "Cost of calls by tenant, for the tenants that cost most; all others together are _OTHER",
            )
            .with_callback(move |observer| {
                let state = costs.lock();
                for (tenant, cost) in &state.named {
                    observer.observe(*cost, &[KeyValue::new(TENANT, tenant.to_string())]);
                }
                observer.observe(state.others, &[KeyValue::new(TENANT, OTHER)]);
            })
            .build();
    }

    /// Adds a cost.
    pub(super) fn add(&self, tenant: &TenantId, cost: Cost, at: Timestamp) {
        if !cost.is_zero() {
            self.lock().add(tenant, cost.nano_usd(), at);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, tenant: &TenantId, cost: u64, at: Timestamp) {
        if at.since(self.halved_at) >= HALF_LIFE {
            self.weights.values_mut().for_each(|weight| *weight /= 2);
            self.halved_at = at;
        }
        let weight = self.weigh(tenant, cost);
        if let Some(value) = self.named.get_mut(tenant) {
            *value += cost;
        } else if self.named.len() < NAMED_MAX || self.displaces_lighter_than(weight / 5 * 4) {
            self.named.insert(tenant.clone(), cost);
        } else {
            self.others += cost;
        }
    }

    /// Adds to the weight of a tenant and returns it. If too many tenants are tracked, the lightest one without a series is forgotten.
    fn weigh(&mut self, tenant: &TenantId, cost: u64) -> u64 {
        if self.weights.len() >= TRACKED_MAX && !self.weights.contains_key(tenant) {
            let unnamed = self.weights.iter().filter(|(tenant, _)| !self.named.contains_key(*tenant));
            if let Some(lightest) =
                unnamed.min_by_key(|(_, weight)| **weight).map(|(tenant, _)| tenant.clone())
            {
                self.weights.remove(&lightest);
            }
        }
        let weight = self.weights.entry(tenant.clone()).or_default();
        *weight += cost;
        *weight
    }

    /// Ends the series of the lightest tenant that has one, if that weighs less.
    fn displaces_lighter_than(&mut self, weight: u64) -> bool {
        let weight_of = |tenant: &TenantId| self.weights.get(tenant).copied().unwrap_or_default();
        let lightest = self.named.keys().map(|tenant| (weight_of(tenant), tenant)).min();
        let lighter = lightest.filter(|(lightest, _)| *lightest < weight).map(|(_, tenant)| tenant.clone());
        lighter.is_some_and(|tenant| self.named.remove(&tenant).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(number: usize) -> TenantId {
        TenantId::new(format!("t{number}")).unwrap()
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix_ms(10_000_000 + seconds * 1000)
    }

    fn series(costs: &TenantCosts) -> (Vec<String>, u64) {
        let state = costs.lock();
        let mut named: Vec<_> =
            state.named.iter().map(|(tenant, value)| format!("{tenant}={value}")).collect();
        named.sort_unstable();
        (named, state.others)
    }

    fn add(costs: &TenantCosts, number: usize, cost: u64, seconds: u64) {
        costs.add(&tenant(number), Cost::from_nano_usd(cost), at(seconds));
    }

    #[test]
    fn the_most_expensive_tenants_have_a_series_and_all_costs_are_counted_once() {
        let costs = TenantCosts::default();
        let mut sum = 0;
        for round in 0..50 {
            for number in 0..100 {
                let cost = 1 + (number as u64 / 80) * 1000;
                add(&costs, number, cost, round);
                sum += cost;
            }
        }
        let (named, others) = series(&costs);
        assert_eq!(named.len(), NAMED_MAX);
        let is_expensive = |line: &&String| (80..100).any(|number| line.starts_with(&format!("t{number}=")));
        assert_eq!(named.iter().filter(is_expensive).count(), NAMED_MAX, "{named:?}");
        let of_named: u64 = costs.lock().named.values().sum();
        // The series of cheap tenants, which had one at first, have ended.
        assert!(of_named + others <= sum && of_named + others > sum - 1000, "{of_named} + {others} of {sum}");
    }

    #[test]
    fn a_tenant_that_spends_as_much_takes_no_series_from_another() {
        let costs = TenantCosts::default();
        (0..NAMED_MAX).for_each(|number| add(&costs, number, 100, 0));
        add(&costs, 99, 120, 0);
        assert_eq!(series(&costs).1, 120, "it does not weigh a quarter more");
        add(&costs, 99, 10, 0);
        let (named, others) = series(&costs);
        assert_eq!((named.len(), others), (NAMED_MAX, 120));
        assert!(named.contains(&"t99=10".to_owned()), "{named:?}");
    }

    #[test]
    fn old_costs_lose_their_weight() {
        let costs = TenantCosts::default();
        (0..NAMED_MAX).for_each(|number| add(&costs, number, 100_000, 0));
        for hour in 1..=10 {
            add(&costs, 99, 1_000, hour * 3600);
        }
        assert!(series(&costs).0.iter().any(|line| line.starts_with("t99=")), "{:?}", series(&costs));
    }

    #[test]
    fn the_tracked_tenants_are_bounded() {
        let costs = TenantCosts::default();
        (0..5000).for_each(|number| add(&costs, number, 1, 0));
        assert_eq!(costs.lock().weights.len(), TRACKED_MAX);
    }
}
