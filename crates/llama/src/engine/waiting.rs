//! The requests that wait for a sequence: mini before ultra, each in order of arrival.

use std::collections::VecDeque;
use std::time::Instant;

use podium_domain::policy::Tier;

use super::Job;

/// While ultra requests wait, at most this many mini requests precede the next one of them.
const MINI_IN_A_ROW_MAX: u32 = 3;

/// The waiting requests. Bounded by their places.
#[derive(Default)]
pub(super) struct Waiting {
    mini: VecDeque<Box<Job>>,
    ultra: VecDeque<Box<Job>>,
    /// Mini requests served in a row while ultra requests waited.
    mini_in_a_row: u32,
}

impl Waiting {
    pub(super) fn push(&mut self, job: Box<Job>) {
        match job.request.tier {
            Tier::Mini => self.mini.push_back(job),
            Tier::Ultra => self.ultra.push_back(job),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.mini.is_empty() && self.ultra.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.mini.len() + self.ultra.len()
    }

    /// Takes the next request.
    pub(super) fn next(&mut self) -> Option<Box<Job>> {
        if self.ultra.is_empty() {
            self.mini_in_a_row = 0;
            return self.mini.pop_front();
        }
        if self.mini_in_a_row < MINI_IN_A_ROW_MAX
            && let Some(job) = self.mini.pop_front()
        {
            self.mini_in_a_row += 1;
            return Some(job);
        }
        self.mini_in_a_row = 0;
        self.ultra.pop_front()
    }

    /// Answers requests that were cancelled, lost their receiver or passed their deadline.
    pub(super) fn end_interrupted(&mut self, now: Instant) {
        for lane in [&mut self.mini, &mut self.ultra] {
            if lane.iter().all(|job| job.interrupted(now).is_none()) {
                continue;
            }
            for job in std::mem::take(lane) {
                match job.interrupted(now) {
                    Some(ended) => job.refuse(Ok(ended)),
                    None => lane.push_back(job),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::slot::tests::job;

    fn waiting(tiers: &[Tier]) -> Waiting {
        let mut waiting = Waiting::default();
        for (seed, tier) in (0..).zip(tiers) {
            let mut job = job();
            job.request.tier = *tier;
            job.request.sampling.seed = seed;
            waiting.push(job);
        }
        waiting
    }

    /// The order in which requests are served, as arrival numbers.
    fn order(mut waiting: Waiting) -> Vec<u64> {
        std::iter::from_fn(|| waiting.next().map(|job| job.request.sampling.seed)).collect()
    }

    const M: Tier = Tier::Mini;
    const U: Tier = Tier::Ultra;

    #[test]
    fn mini_goes_before_ultra_and_each_in_its_order() {
        assert_eq!(order(waiting(&[U, U, M, M])), [2, 3, 0, 1]);
    }

    #[test]
    fn ultra_goes_at_least_every_fourth_time() {
        assert_eq!(order(waiting(&[U, U, M, M, M, M, M, M, M])), [2, 3, 4, 0, 5, 6, 7, 1, 8]);
    }

    #[test]
    fn cancelled_requests_are_removed_and_answered() {
        let mut waiting = waiting(&[M, U, U]);
        waiting.ultra[0].request.stop.cancel();
        let past = Instant::now();
        waiting.mini[0].request.deadline = past;
        waiting.end_interrupted(past);
        assert_eq!(order(waiting), [2]);
    }
}
