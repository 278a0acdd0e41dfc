//! Which workers a step may go on with when its own cannot do it.

use super::{Pool, Worker};
use crate::usage::Usage;

/// What workers' prices are compared by: a thousand tokens in, a thousand out.
const COMPARED: Usage = Usage {
    prompt_tokens: 1_000,
    cached_tokens: 0,
    cache_write_tokens: 0,
    completion_tokens: 1_000,
    reasoning_tokens: 0,
};

impl Pool {
    /// The workers that may stand in for `worker`, the best first.
    ///
    /// Those that the pool names for it, and no others. Where it names none: every other worker, those of other vendors first,
    /// since a vendor's trouble is seldom one model's, and among them the nearest in price, which is the one thing known of
    /// every worker that goes with what it can do.
    pub fn fallbacks_of(&self, worker: &Worker) -> Vec<&Worker> {
        if let Some(named) = &worker.fallbacks {
            return named.iter().filter_map(|id| self.worker(id)).collect();
        }
        let mut others: Vec<_> = self.workers.iter().filter(|other| other.id != worker.id).collect();
        others.sort_by(|left, right| {
            let is_near = |other: &Worker| other.vendor == worker.vendor;
            let distance = |other: &Worker| price_ratio(worker, other);
            (is_near(left).cmp(&is_near(right))).then(distance(left).total_cmp(&distance(right)))
        });
        others
    }
}

/// How many times dearer the dearer one is.
#[expect(clippy::cast_precision_loss, reason = "it only decides an order")]
fn price_ratio(one: &Worker, other: &Worker) -> f64 {
    let [one, other] =
        [one, other].map(|worker| worker.prices.latest().cost(&COMPARED).nano_usd().max(1) as f64);
    one.max(other) / one.min(other)
}
