//! Where what is known of a worker and of its account is, and what is allowed there.

use podium_domain::limits::Terms;
use podium_domain::pool::Worker;

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

    /// The leases of each scope.
    pub(crate) fn calls(&self) -> impl Iterator<Item = String> {
        self.scopes().map(|scope| format!("{}:calls", scope.prefix))
    }

    /// All keys, those of a tier among them.
    pub(crate) fn keys(&self, tier: u8) -> Vec<String> {
        let keys = self.scopes().flat_map(|Scope { prefix, .. }| {
            ["calls".to_owned(), "state".to_owned(), "groups".to_owned(), format!("waiting:{tier}")]
                .map(|key| format!("{prefix}:{key}"))
        });
        keys.collect()
    }

    /// What is allowed, as the scripts are told it.
    pub(crate) fn limits(&self) -> Vec<String> {
        let none = Terms { calls_max: 0.0, per_minute: [0.0; 4] };
        let account = self.account.as_ref().map_or(none, |account| account.terms);
        let numbers = [self.worker.terms, account].into_iter().flat_map(|Terms { calls_max, per_minute }| {
            std::iter::once(calls_max).chain(per_minute).map(|number| number.to_string())
        });
        numbers.collect()
    }

    fn scopes(&self) -> impl Iterator<Item = &Scope> {
        std::iter::once(&self.worker).chain(&self.account)
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
        assert_eq!(Place::of("p", &worker).calls().collect::<Vec<_>>(), ["p:{south}:careful:calls"]);
        let account = AccountLimits { in_flight_max: Some(3), ..AccountLimits::default() };
        let worker = Worker { limits: Limits { account, ..worker.limits }, ..worker };
        let keys = Place::of("p", &worker).keys(1);
        assert_eq!(keys.len(), 8);
        assert!(keys.iter().all(|key| key.contains(":{south}:")), "{keys:?}");
    }
}
