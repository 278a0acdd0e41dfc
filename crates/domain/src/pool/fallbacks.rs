//! The workers with which a step may continue if its own cannot do it.

use super::{Pool, Worker};
use crate::usage::Usage;

/// The usage for comparing workers' prices: a thousand tokens in, a thousand out.
const COMPARED: Usage = Usage {
    prompt_tokens: 1_000,
    cached_tokens: 0,
    cache_write_tokens: 0,
    completion_tokens: 1_000,
    reasoning_tokens: 0,
};

impl Pool {
    /// The fallbacks of `worker`, the best first.
    ///
    /// If the pool names fallbacks, only those. Otherwise every other worker: those of other vendors first, because a vendor's
    /// failure often affects all its models, then by nearest price, because price is known of every worker and correlates with
    /// ability.
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

/// The ratio of the higher price to the lower one.
#[expect(clippy::cast_precision_loss, reason = "it only decides an order")]
fn price_ratio(one: &Worker, other: &Worker) -> f64 {
    let [one, other] =
        [one, other].map(|worker| worker.prices.latest().cost(&COMPARED).nano_usd().max(1) as f64);
    one.max(other) / one.min(other)
}
