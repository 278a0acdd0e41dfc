//! Checks the pool: keys and prices.

use podium_domain::money::{Price, Prices};
use podium_domain::pool::{Pool, Worker};
use podium_domain::time::Timestamp;

use super::Findings;

/// Most workers that a finding names.
const NAMED_MAX: usize = 8;

/// Checks the keys and the prices of a pool at `now`. `missing` has a sentence for each secret that is not set.
pub fn check_workers(findings: &mut Findings, pool: &Pool, missing: &[String], now: Timestamp) {
    let (workers, vendors) = (pool.workers().len(), pool.vendors().len());
    findings.ok("pool", format!("{}: {workers} workers of {vendors} vendors", pool.version()));
    if missing.is_empty() {
        findings.ok("keys", "each vendor has the keys that the pool names");
    }
    for what in missing {
        findings.warning(
            "keys",
            what.clone(),
            "set the secret for the process that calls workers, then restart it",
        );
    }
    let named = |is_one: &dyn Fn(&Worker) -> bool| {
        let names: Vec<_> =
            pool.workers().iter().filter(|worker| is_one(worker)).map(|w| w.id.as_str()).collect();
        (!names.is_empty()).then(|| listed(&names))
    };
    let mut wrong = false;
    if let Some(names) = named(&|worker| !worker.prices.is_valid_at(now)) {
        wrong = true;
        findings.error(
            "prices",
            format!("no price list is valid yet of {names}: they cannot be called"),
            "give each a price list whose `from` has passed",
        );
    }
    if let Some(names) = named(&|worker| is_free(worker.prices.at(now).prices)) {
        wrong = true;
        findings.warning(
            "prices",
            format!("prompt and completion cost nothing with {names}"),
            "budgets and cost caps do not bound these calls; write their prices if they are not free",
        );
    }
    let is_undated = |worker: &Worker| worker.prices.iter().any(|list| list.from == Timestamp::default());
    if let Some(names) = named(&is_undated) {
        wrong = true;
        findings.warning(
            "prices",
            format!("the prices of {names} have no date"),
            "add `from` to each price list: then a change of prices is charged from its day on",
        );
    }
    if !wrong {
        findings.ok("prices", "each worker has prices with a date");
    }
}

fn is_free(prices: Prices) -> bool {
    prices.input == Price::default() && prices.output == Price::default()
}

/// The first names, and how many there are besides.
fn listed(names: &[&str]) -> String {
    let shown = names.iter().take(NAMED_MAX).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} others"),
    }
}
