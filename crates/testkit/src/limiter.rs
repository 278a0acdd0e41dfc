//! The conformance suite of [`Limiter`]. [`limiter_suite!`](crate::limiter_suite) makes a test of each requirement.
//!
//! Tests sleep only for as long as a refusal says, on the fixture's own clock.

mod bound;
mod give_back;
mod rates;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use podium_domain::ids::{RunId, StepIndex, TenantId};
use podium_domain::policy::Tier;
use podium_domain::pool::{Limits, Worker};
use podium_domain::run::TaskRef;
use podium_ports::clock::Clock;
use podium_ports::limiter::{CallRequest, Grant, Limiter, Patience, Permit, RefusalReason, TokenEstimate};

use crate::builders::a_pool;

/// A limiter under test that has granted nothing.
pub struct LimiterFixture {
    /// A handle on it.
    pub first: Arc<dyn Limiter>,
    /// A second handle, as another process would have it. A limiter of one process returns the same one.
    pub second: Arc<dyn Limiter>,
    /// The clock that tests wait with.
    pub clock: Arc<dyn Clock>,
    /// The longest delay of a refusal: milliseconds, because a test's calls last as long.
    pub ask_again_max: Duration,
    /// Objects that must live as long as the test, such as a server.
    pub keep: Box<dyn Any + Send + Sync>,
}

/// Makes a test of each requirement. The expression is a future of a fresh [`LimiterFixture`]; the attribute is put on every test.
/// This is the only list of the requirements.
///
/// ```ignore
/// podium_testkit::limiter_suite! { #[tokio::test(start_paused = true)] async { fixture() } }
/// ```
#[macro_export]
macro_rules! limiter_suite {
    (#[$attribute:meta] $fixture:expr) => {
        $crate::limiter_suite! { @each tests [#[$attribute] $fixture] }
    };
    (@each $what:ident $arguments:tt) => {
        $crate::limiter_suite! { @$what $arguments
            a_workers_calls_never_exceed_its_bound
            both_handles_share_a_bound
            workers_do_not_share_a_bound
            the_bound_is_that_of_the_given_worker
            a_refusal_takes_no_capacity
            concurrent_tasks_never_exceed_the_bound
            a_permit_is_given_back_when_it_is_dropped
            a_permit_may_be_dropped_outside_of_any_task
            permits_that_are_dropped_at_once_are_all_given_back
            an_abandoned_call_takes_no_capacity
            a_new_limit_has_capacity_for_one_call
            requests_come_at_the_pace_of_their_limit
            tokens_come_at_the_pace_of_their_limit
            unused_tokens_are_returned
            an_account_bounds_its_workers_together
            a_reported_limit_sets_the_pace_if_none_is_configured
            a_reported_limit_lets_no_newer_call_overtake
            retry_after_blocks_all_handles
            refusals_of_one_burst_make_one_pause
            failed_calls_open_the_breaker_for_all
            quick_errors_do_not_open_the_breaker_of_a_busy_vendor
        }
    };
    (@tests [#[$attribute:meta] $fixture:expr] $($name:ident)+) => {
        $(#[$attribute] async fn $name() {
            $crate::limiter::requirements::$name($fixture.await).await;
        })+
    };
    (@requirements [] $($name:ident)+) => {
        $(#[expect(missing_docs, reason = "its name is the sentence")]
        pub async fn $name(limiter: super::LimiterFixture) {
            super::written::$name(&limiter).await;
        })+
    };
}

/// The requirements, one function each.
///
/// The functions below are private, so a requirement that is missing in the list above is an unused function.
pub mod requirements {
    limiter_suite! { @each requirements [] }
}

mod written {
    pub(super) use super::{bound::*, give_back::*, rates::*};
}

/// The longest wait for a permit that is due, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A caller that requests permits.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The tenant of its calls.
    pub tenant: TenantId,
    /// The tier of its calls.
    pub tier: Tier,
    /// Distinguishes it from other callers.
    pub run: RunId,
    /// The estimate of each call.
    pub estimate: TokenEstimate,
    /// Whether it asks again after a refusal.
    pub patience: Patience,
}

impl Caller {
    /// Caller `number` of tenant `acme` and tier `ultra`, with an estimate of zero.
    pub fn new(number: u128) -> Self {
        let tenant = TenantId::new("acme").expect("`acme` is a name");
        let run = RunId::new(uuid::Uuid::from_u128(number));
        let (estimate, patience) = (TokenEstimate::default(), Patience::Waits);
        Self { tenant, tier: Tier::Ultra, run, estimate, patience }
    }

    /// The same with this estimate.
    #[must_use]
    pub fn taking(self, input: u64, output_max: u64) -> Self {
        Self { estimate: TokenEstimate { input, output_max }, ..self }
    }

    /// A request for a permit.
    pub fn request<'a>(&'a self, worker: &'a Worker) -> CallRequest<'a> {
        CallRequest {
            worker,
            tenant: &self.tenant,
            tier: self.tier,
            run: self.run,
            task: TaskRef::Step { round: 0, step: StepIndex::new(0) },
            estimate: self.estimate,
            patience: self.patience,
        }
    }
}

/// Worker `index` of the test pool, with another bound.
fn a_worker(index: usize, in_flight_max: u32) -> Worker {
    let worker = a_pool().workers()[index].clone();
    Worker { limits: Limits { in_flight_max, ..worker.limits }, ..worker }
}

impl LimiterFixture {
    /// A permit now, or the reason and delay of the refusal.
    async fn ask_as(
        &self,
        caller: &Caller,
        limiter: &Arc<dyn Limiter>,
        worker: &Worker,
    ) -> Result<Box<dyn Permit>, (RefusalReason, Duration)> {
        match limiter.acquire(&caller.request(worker)).await.expect("the limiter answers") {
            Grant::Permit(permit) => Ok(permit),
            Grant::AskAgain { after, why } => {
                // The delay is unbounded if the vendor cannot be called at all.
                let is_bounded = matches!(why, RefusalReason::Blocked | RefusalReason::Broken)
                    || after <= self.ask_again_max;
                assert!(after > Duration::ZERO && is_bounded, "ask again after {after:?}");
                Err((why, after))
            }
        }
    }

    async fn ask(
        &self,
        limiter: &Arc<dyn Limiter>,
        worker: &Worker,
    ) -> Result<Box<dyn Permit>, (RefusalReason, Duration)> {
        self.ask_as(&Caller::new(0), limiter, worker).await
    }

    async fn must_grant(&self, worker: &Worker) -> Box<dyn Permit> {
        self.ask(&self.first, worker).await.expect("there is capacity")
    }

    async fn must_refuse(&self, worker: &Worker) {
        for limiter in [&self.first, &self.second] {
            assert!(self.ask(limiter, worker).await.is_err(), "there is no capacity");
        }
    }

    /// Asks as often as the refusals allow, until there is a permit.
    async fn wait_for_grant(&self, limiter: &Arc<dyn Limiter>, worker: &Worker) -> Box<dyn Permit> {
        self.wait_for_grant_as(&Caller::new(0), limiter, worker).await
    }

    async fn wait_for_grant_as(
        &self,
        caller: &Caller,
        limiter: &Arc<dyn Limiter>,
        worker: &Worker,
    ) -> Box<dyn Permit> {
        let begun = self.clock.now();
        loop {
            match self.ask_as(caller, limiter, worker).await {
                Ok(permit) => return permit,
                Err((_, after)) => self.clock.sleep(after).await,
            }
            assert!(self.clock.now().since(begun) < PATIENCE, "no permit came in {PATIENCE:?}");
        }
    }
}
