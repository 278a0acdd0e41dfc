//! What every [`Limiter`] must do. [`limiter_suite!`](crate::limiter_suite) makes a test of each requirement.
//!
//! Nothing here sleeps but for as long as a refusal says, on the fixture's own clock.

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
use podium_ports::limiter::{CallWish, Grant, Limiter, Patience, Permit, TokenEstimate, Why};

use crate::builders::a_pool;

/// A limiter under test. It has granted nothing.
pub struct LimiterFixture {
    /// A handle on it.
    pub first: Arc<dyn Limiter>,
    /// Another one, as a second process would have it. A limiter of one process gives itself.
    pub second: Arc<dyn Limiter>,
    /// The clock to wait by.
    pub clock: Arc<dyn Clock>,
    /// Longest time after which it may tell to ask again: milliseconds, for so long last the calls of a test.
    pub ask_again_max: Duration,
    /// What must live as long as the test, such as a server.
    pub keep: Box<dyn Any + Send + Sync>,
}

/// Makes a test of each requirement. The expression is a future of a fresh [`LimiterFixture`]; the attribute goes on every test.
/// The list of requirements is here and nowhere else.
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
            a_worker_has_no_more_calls_than_it_may
            both_handles_share_a_bound
            workers_do_not_share_a_bound
            the_bound_is_the_one_that_the_worker_comes_with
            a_refusal_takes_no_room
            concurrent_tasks_never_pass_the_bound
            a_permit_is_given_back_when_it_is_dropped
            a_permit_may_be_dropped_outside_of_any_task
            permits_that_are_dropped_at_once_are_all_given_back
            a_call_that_is_given_up_takes_no_room
            a_new_limit_has_capacity_for_one_call
            requests_come_at_the_pace_of_their_limit
            tokens_come_at_the_pace_of_their_limit
            what_a_call_did_not_take_is_given_back
            an_account_bounds_its_workers_together
            a_reported_limit_is_the_pace_where_none_is_configured
            a_reported_limit_lets_no_newer_call_of_its_account_go_first
            retry_after_blocks_all_handles
            refusals_of_one_burst_are_one_pause
            failed_calls_open_the_breaker_for_all
            quick_errors_do_not_shut_a_vendor_with_calls_under_way
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
/// Those written below are private, so that one which is missing in the list above is an unused function.
pub mod requirements {
    limiter_suite! { @each requirements [] }
}

mod written {
    pub(super) use super::{bound::*, give_back::*, rates::*};
}

/// How long a permit that is due may take to come, on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(20);

/// Somebody who asks for calls.
#[derive(Clone, Debug)]
pub struct Caller {
    /// For whom.
    pub tenant: TenantId,
    /// For which tier.
    pub tier: Tier,
    /// Tells it from other callers.
    pub run: RunId,
    /// What each of its calls may take.
    pub estimate: TokenEstimate,
    /// Whether it comes back when it is refused.
    pub patience: Patience,
}

impl Caller {
    /// Number `number`, of tenant `acme`, for `ultra`, whose calls may take nothing.
    pub fn new(number: u128) -> Self {
        let tenant = TenantId::new("acme").expect("`acme` is a name");
        let run = RunId::new(uuid::Uuid::from_u128(number));
        let (estimate, patience) = (TokenEstimate::default(), Patience::Waits);
        Self { tenant, tier: Tier::Ultra, run, estimate, patience }
    }

    /// The same with calls that may take so much.
    #[must_use]
    pub fn taking(self, input: u64, output_max: u64) -> Self {
        Self { estimate: TokenEstimate { input, output_max }, ..self }
    }

    /// A call that it would make.
    pub fn wish<'a>(&'a self, worker: &'a Worker) -> CallWish<'a> {
        CallWish {
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

/// Worker number `index` of the test pool, with a bound of the test's.
fn a_worker(index: usize, in_flight_max: u32) -> Worker {
    let worker = a_pool().workers()[index].clone();
    Worker { limits: Limits { in_flight_max, ..worker.limits }, ..worker }
}

impl LimiterFixture {
    /// A permit now, or why not and when to ask again.
    async fn ask_as(
        &self,
        caller: &Caller,
        limiter: &Arc<dyn Limiter>,
        worker: &Worker,
    ) -> Result<Box<dyn Permit>, (Why, Duration)> {
        match limiter.acquire(&caller.wish(worker)).await.expect("the limiter answers") {
            Grant::Permit(permit) => Ok(permit),
            Grant::AskAgain { after, why } => {
                // Of a vendor that cannot be called at all, there is nothing to ask for so soon.
                let is_bounded = matches!(why, Why::Blocked | Why::Broken) || after <= self.ask_again_max;
                assert!(after > Duration::ZERO && is_bounded, "ask again after {after:?}");
                Err((why, after))
            }
        }
    }

    async fn ask(
        &self,
        limiter: &Arc<dyn Limiter>,
        worker: &Worker,
    ) -> Result<Box<dyn Permit>, (Why, Duration)> {
        self.ask_as(&Caller::new(0), limiter, worker).await
    }

    async fn must_grant(&self, worker: &Worker) -> Box<dyn Permit> {
        self.ask(&self.first, worker).await.expect("there is room")
    }

    async fn must_refuse(&self, worker: &Worker) {
        for limiter in [&self.first, &self.second] {
            assert!(self.ask(limiter, worker).await.is_err(), "there is no room");
        }
    }

    /// Asks as often as it is told to, until there is a permit.
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
