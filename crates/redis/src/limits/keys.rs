//! Where what is known of a worker and of its account is, and what is allowed there.

use std::iter;

use podium_domain::limits::{AMOUNTS, Terms};
use podium_domain::pool::Worker;

/// Ends of keys. Of those whose layout may change it is a part, so that executors of two versions can be there at once: they
/// share what is under way, and each keeps the rest by itself.
const CALLS: &str = "calls";
const STATE: &str = "state.3";
const GROUPS: &str = "groups.3";

/// The scopes of a worker. The vendor's account is the hash tag of every key, so that all keys of one decision are on one node of
/// a cluster. No two scopes have a key in common: braces are in no name, and the ends are fixed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    worker: Scope,
    account: Option<Scope>,
}

#[derive(Clone, Debug, PartialEq)]
struct Scope {
    prefix: String,
    terms: Terms,
}

impl Place {
    pub(crate) fn of(prefix: &str, worker: &Worker) -> Self {
        let vendor = &worker.vendor;
        let account = Terms::of_account(&worker.limits.account);
        Self {
            worker: Scope {
                prefix: format!("{prefix}:{{{vendor}}}:{}", worker.id),
                terms: Terms::of_worker(&worker.limits),
            },
            account: account.map(|terms| Scope { prefix: format!("{prefix}:{{{vendor}}}"), terms }),
        }
    }

    /// What tells this worker from all others.
    pub(crate) fn name(&self) -> &str {
        &self.worker.prefix
    }

    /// What tells its account from all others, if that has limits.
    pub(crate) fn account_name(&self) -> Option<&str> {
        self.account.as_ref().map(|account| account.prefix.as_str())
    }

    /// Its limits.
    pub(crate) fn terms(&self) -> Terms {
        self.worker.terms
    }

    /// Those of its account.
    pub(crate) fn account_terms(&self) -> Option<Terms> {
        self.account.as_ref().map(|account| account.terms)
    }

    /// The keys of the leases of each scope.
    pub(crate) fn calls(&self) -> impl Iterator<Item = String> {
        self.scopes().map(|scope| format!("{}:{CALLS}", scope.prefix))
    }

    /// The keys that a decision needs.
    pub(crate) fn deciding_keys(&self) -> Vec<String> {
        self.keys(&[CALLS, STATE, GROUPS, "waiting:1", "waiting:2"])
    }

    /// The keys that a settlement needs.
    pub(crate) fn settling_keys(&self) -> Vec<String> {
        self.keys(&[CALLS, STATE, GROUPS])
    }

    fn keys(&self, ends: &[&str]) -> Vec<String> {
        let keys = self
            .scopes()
            .flat_map(|Scope { prefix, .. }| ends.iter().map(move |end| format!("{prefix}:{end}")));
        keys.collect()
    }

    /// What is allowed, as the scripts are told it: of the worker, then of its account, zeros if that has no limits.
    pub(crate) fn limits(&self) -> impl Iterator<Item = f64> {
        let numbers = |Terms { calls_max, per_minute, .. }: Terms| iter::once(calls_max).chain(per_minute);
        let none = iter::repeat_n(0.0, 1 + AMOUNTS);
        let account = self.account.as_ref().map(|account| numbers(account.terms));
        numbers(self.worker.terms).chain(account.into_iter().flatten().chain(none).take(1 + AMOUNTS))
    }

    fn scopes(&self) -> impl Iterator<Item = &Scope> {
        iter::once(&self.worker).chain(&self.account)
    }
}

#[cfg(test)]
mod tests {
    use podium_domain::pool::{AccountLimits, Limits};
    use podium_testkit::a_pool;

    use super::*;

    #[test]
    fn the_vendor_is_the_hash_tag_of_all_keys_of_a_decision() {
        let worker = a_pool().workers()[1].clone();
        let place = Place::of("p", &worker);
        assert_eq!(place.calls().collect::<Vec<_>>(), ["p:{south}:careful:calls"]);
        assert_eq!(place.deciding_keys().len(), 5);
        assert_eq!(place.limits().count(), 10);
        let account = AccountLimits { in_flight_max: Some(3), ..AccountLimits::default() };
        let worker = Worker { limits: Limits { account, ..worker.limits }, ..worker };
        let place = Place::of("p", &worker);
        let keys = [place.deciding_keys(), place.settling_keys()].concat();
        assert_eq!(keys.len(), 10 + 6);
        assert!(keys.iter().all(|key| key.contains(":{south}:")), "{keys:?}");
    }
}
