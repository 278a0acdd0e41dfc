//! Concurrency never exceeds its bound, and does not affect other workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::task::JoinSet;

use super::{Caller, LimiterFixture, a_worker};

pub(crate) async fn a_workers_calls_never_exceed_its_bound(limiter: &LimiterFixture) {
    let worker = a_worker(0, 2);
    let _held = [limiter.must_grant(&worker).await, limiter.must_grant(&worker).await];
    limiter.must_refuse(&worker).await;
}

pub(crate) async fn both_handles_share_a_bound(limiter: &LimiterFixture) {
    let worker = a_worker(0, 2);
    let _first = limiter.must_grant(&worker).await;
    let _second = limiter.ask(&limiter.second, &worker).await.expect("there is capacity for another");
    limiter.must_refuse(&worker).await;
}

pub(crate) async fn workers_do_not_share_a_bound(limiter: &LimiterFixture) {
    let workers = [a_worker(0, 1), a_worker(1, 1), a_worker(2, 1)];
    assert_eq!(workers[1].vendor, workers[2].vendor, "not even those of one vendor");
    let mut held = Vec::new();
    for worker in &workers {
        held.push(limiter.must_grant(worker).await);
        limiter.must_refuse(worker).await;
    }
}

pub(crate) async fn the_bound_is_that_of_the_given_worker(limiter: &LimiterFixture) {
    let (narrow, wide) = (a_worker(0, 1), a_worker(0, 3));
    let mut held = vec![limiter.must_grant(&narrow).await];
    limiter.must_refuse(&narrow).await;
    held.push(limiter.must_grant(&wide).await);
    held.push(limiter.must_grant(&wide).await);
    limiter.must_refuse(&wide).await;
    limiter.must_refuse(&narrow).await;
}

pub(crate) async fn a_refusal_takes_no_capacity(limiter: &LimiterFixture) {
    let worker = a_worker(0, 1);
    let held = limiter.must_grant(&worker).await;
    for _ in 0..20 {
        limiter.must_refuse(&worker).await;
    }
    drop(held);
    let _held = limiter.wait_for_grant(&limiter.first, &worker).await;
    limiter.must_refuse(&worker).await;
}

/// The calls in flight, as the vendor counts them.
#[derive(Default)]
struct Vendor {
    now: AtomicU32,
    most: AtomicU32,
}

impl Vendor {
    /// One call, long enough that all refused callers ask again meanwhile.
    async fn call(&self, limiter: &LimiterFixture) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        limiter.clock.sleep(limiter.ask_again_max).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

pub(crate) async fn concurrent_tasks_never_exceed_the_bound(limiter: &LimiterFixture) {
    const TASKS: u32 = 64;
    const CALLS: u32 = 3;
    const BOUND: u32 = 5;
    let vendor = Arc::new(Vendor::default());
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let handle = if task % 2 == 0 { &limiter.first } else { &limiter.second };
        let caller = Caller::new(u128::from(task));
        let task = LimiterFixture {
            first: Arc::clone(handle),
            second: Arc::clone(handle),
            clock: Arc::clone(&limiter.clock),
            ask_again_max: limiter.ask_again_max,
            keep: Box::new(()),
        };
        let vendor = Arc::clone(&vendor);
        tasks.spawn(async move {
            let worker = a_worker(0, BOUND);
            for _ in 0..CALLS {
                let permit = task.wait_for_grant_as(&caller, &task.first, &worker).await;
                vendor.call(&task).await;
                drop(permit);
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("every task gets its calls");
    }
    assert_eq!(vendor.most.load(Ordering::SeqCst), BOUND, "calls at once");
}
