//! The keys and limits of a worker and of its account.

use std::iter;

use podium_domain::limits::{AMOUNTS, Terms};
use podium_domain::pool::Worker;

/// Ends of keys. Keys whose layout may change contain its version, so executors of two versions can run concurrently: they share
/// the leases, and each version has the other data for itself.
const CALLS: &str = "calls";
const STATE: &str = "state.3";
const GROUPS: &str = "groups.3";
const ALIVE: &str = "alive";

/// The scopes of a worker: the worker itself, and its account if that has limits. The vendor is the hash tag of every key, so all
/// keys of one decision are on one node of a cluster. No two scopes have a key in common: names contain no braces, and the ends
/// are fixed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WorkerKeys {
    worker: Scope,
    account: Option<Scope>,
    alive_key: String,
}

#[derive(Clone, Debug, PartialEq)]
struct Scope {
    prefix: String,
    terms: Terms,
}

impl WorkerKeys {
    pub(crate) fn of(prefix: &str, worker: &Worker) -> Self {
        let vendor = &worker.vendor;
        let account = Terms::of_account(&worker.limits.account);
        Self {
            worker: Scope {
                prefix: format!("{prefix}:{{{vendor}}}:{}", worker.id),
                terms: Terms::of_worker(&worker.limits),
            },
            account: account.map(|terms| Scope { prefix: format!("{prefix}:{{{vendor}}}"), terms }),
            alive_key: format!("{prefix}:{{{vendor}}}:{ALIVE}"),
        }
    }

    /// Identifies the worker.
    pub(crate) fn name(&self) -> &str {
        &self.worker.prefix
    }

    /// Identifies its account, if that has limits.
    pub(crate) fn account_name(&self) -> Option<&str> {
        self.account.as_ref().map(|account| account.prefix.as_str())
    }

    /// The worker's limits.
    pub(crate) fn terms(&self) -> Terms {
        self.worker.terms
    }

    /// The account's limits.
    pub(crate) fn account_terms(&self) -> Option<Terms> {
        self.account.as_ref().map(|account| account.terms)
    }

    /// The keys with the leases of each scope.
    pub(crate) fn calls(&self) -> impl Iterator<Item = String> {
        self.scopes().map(|scope| format!("{}:{CALLS}", scope.prefix))
    }

    /// The key with the living processes that hold leases of this vendor's workers.
    pub(crate) fn alive_key(&self) -> &str {
        &self.alive_key
    }

    /// The keys of the acquiring script.
    pub(crate) fn acquire_keys(&self) -> Vec<String> {
        self.keys(&[CALLS, STATE, GROUPS, "waiting:1", "waiting:2"])
    }

    /// The keys of the settling script.
    pub(crate) fn settle_keys(&self) -> Vec<String> {
        self.keys(&[CALLS, STATE, GROUPS])
    }

    fn keys(&self, ends: &[&str]) -> Vec<String> {
        let keys = self
            .scopes()
            .flat_map(|Scope { prefix, .. }| ends.iter().map(move |end| format!("{prefix}:{end}")));
        keys.chain([self.alive_key.clone()]).collect()
    }

    /// The limits as arguments of the scripts: those of the worker, then those of its account, zeros if that has none.
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
    fn all_keys_of_a_decision_have_the_vendor_as_hash_tag() {
        let worker = a_pool().workers()[1].clone();
        let keys = WorkerKeys::of("p", &worker);
        assert_eq!(keys.calls().collect::<Vec<_>>(), ["p:{south}:careful:calls"]);
        assert_eq!(keys.acquire_keys().len(), 5 + 1);
        assert_eq!(keys.limits().count(), 10);
        let account = AccountLimits { in_flight_max: Some(3), ..AccountLimits::default() };
        let worker = Worker { limits: Limits { account, ..worker.limits }, ..worker };
        let keys = WorkerKeys::of("p", &worker);
        let keys = [keys.acquire_keys(), keys.settle_keys()].concat();
        assert_eq!(keys.len(), 11 + 7);
        assert!(keys.iter().all(|key| key.contains(":{south}:")), "{keys:?}");
    }
}
