//! Capacity that is no longer used is returned.

use std::thread;

use futures::FutureExt;

use super::{Caller, LimiterFixture, a_worker};

pub(crate) async fn a_permit_is_given_back_when_it_is_dropped(limiter: &LimiterFixture) {
    let worker = a_worker(0, 2);
    let mut held = vec![limiter.must_grant(&worker).await, limiter.must_grant(&worker).await];
    for round in 0..6 {
        limiter.must_refuse(&worker).await;
        drop(held.remove(0));
        let handle = if round % 2 == 0 { &limiter.second } else { &limiter.first };
        held.push(limiter.wait_for_grant(handle, &worker).await);
    }
    limiter.must_refuse(&worker).await;
}

pub(crate) async fn a_permit_may_be_dropped_outside_of_any_task(limiter: &LimiterFixture) {
    let worker = a_worker(0, 1);
    let permit = limiter.must_grant(&worker).await;
    limiter.must_refuse(&worker).await;
    thread::spawn(move || drop(permit)).join().expect("dropping needs no runtime");
    limiter.wait_for_grant(&limiter.second, &worker).await;
}

pub(crate) async fn permits_that_are_dropped_at_once_are_all_given_back(limiter: &LimiterFixture) {
    let worker = a_worker(0, 16);
    for _ in 0..3 {
        let mut held = Vec::new();
        for _ in 0..16 {
            held.push(limiter.wait_for_grant(&limiter.first, &worker).await);
        }
        limiter.must_refuse(&worker).await;
    }
}

pub(crate) async fn an_abandoned_call_takes_no_capacity(limiter: &LimiterFixture) {
    let (caller, worker) = (Caller::new(0), a_worker(0, 2));
    for _ in 0..8 {
        drop(limiter.first.acquire(&caller.request(&worker)).now_or_never());
    }
    let _first = limiter.wait_for_grant(&limiter.first, &worker).await;
    let _second = limiter.wait_for_grant(&limiter.second, &worker).await;
    limiter.must_refuse(&worker).await;
}
