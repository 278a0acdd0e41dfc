//! The meters of this process, which decide while Redis is unreachable.
//!
//! Calls that Redis grants are counted here as well. So a process that loses Redis knows at once what its calls use, which limits a
//! vendor reported, and from which vendors it must back off.

use std::collections::HashMap;
use std::sync::Arc;

use podium_domain::limits::{Ask, Drawn, Granted, Meter, Refusal, Settled, Share, Terms, TokenEstimate};

use crate::limits::keys::WorkerKeys;

/// Calls of this process that are in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    /// Calls of the worker.
    pub(crate) worker: f64,
    /// Calls of all workers of its account.
    pub(crate) account: f64,
}

/// A call that these meters have counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    granted: Granted,
    reserved: Drawn,
    share: Share,
}

/// One meter for each worker and each account with limits.
#[derive(Debug, Default)]
pub(crate) struct Meters(HashMap<Arc<str>, Meter>);

impl Meters {
    /// Grants a call if this process' share has capacity for it.
    pub(crate) fn ask(
        &mut self,
        keys: &WorkerKeys,
        now: f64,
        in_flight: InFlight,
        share: Share,
        ask: &Ask<'_>,
        estimate: TokenEstimate,
    ) -> Result<Counted, Refusal> {
        self.with(keys, in_flight, share, |scopes| {
            let reserved = scopes[0].0.expects(estimate);
            let granted = Meter::ask(now, scopes, &Ask { takes: reserved, ..*ask })?;
            Ok(Counted { granted, reserved, share })
        })
    }

    /// Counts a call that Redis granted.
    pub(crate) fn note(
        &mut self,
        keys: &WorkerKeys,
        now: f64,
        in_flight: InFlight,
        share: Share,
        ask: &Ask<'_>,
    ) -> Counted {
        self.with(keys, in_flight, share, |scopes| {
            let granted = Meter::note(now, scopes, ask);
            Counted { granted, reserved: ask.takes, share }
        })
    }

    /// Settles a call that was counted.
    pub(crate) fn settle(
        &mut self,
        keys: &WorkerKeys,
        now: f64,
        in_flight: InFlight,
        counted: Counted,
        settled: &Settled,
    ) {
        let Counted { granted, reserved, share } = counted;
        let settled = Settled { reserved: Some(reserved), granted: Some(granted), ..*settled };
        self.with(keys, in_flight, share, |scopes| {
            let mut scopes = scopes.iter_mut();
            if let Some((worker, terms)) = scopes.next() {
                worker.settle_worker(now, terms, &settled);
            }
            for (account, terms) in scopes {
                account.settle_account(now, terms, &settled);
            }
        });
    }

    fn with<T>(
        &mut self,
        keys: &WorkerKeys,
        in_flight: InFlight,
        share: Share,
        work: impl FnOnce(&mut [(&mut Meter, Terms)]) -> T,
    ) -> T {
        // Other processes may have just used up the limit.
        let mut take = |name: &str, calls| {
            let mut meter = self.0.remove(name).unwrap_or_else(Meter::used_up);
            meter.set_in_flight(calls);
            meter
        };
        let mut worker = take(keys.name(), in_flight.worker);
        let account = keys.account_name().zip(keys.account_terms());
        let mut account = account.map(|(name, terms)| (name, terms, take(name, in_flight.account)));
        let mut scopes = vec![(&mut worker, keys.terms().share(share))];
        scopes.extend(account.as_mut().map(|(_, terms, meter)| (meter, terms.share(share))));
        let done = work(&mut scopes);
        self.0.insert(keys.name().into(), worker);
        if let Some((name, _, meter)) = account {
            self.0.insert(name.into(), meter);
        }
        done
    }
}
