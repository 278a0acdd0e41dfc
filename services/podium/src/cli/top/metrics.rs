//! The calls of workers, summed over the metrics pages of several processes.

use std::collections::BTreeMap;
use std::time::Duration;

use podium_domain::money::Cost;
use podium_ports::causes::with_causes;
use reqwest::{Client, Url};

use super::super::fetch::client_for;
use crate::error::Error;

/// Most time for one page.
const PAGE_MAX: Duration = Duration::from_secs(2);
/// The names of the metrics on a page.
const CALLS: &str = "gen_ai_client_operation_duration_seconds_count";
const PERMITS: &str = "podium_permit_asked_total";
const BREAKERS: &str = "podium_breaker_open";
const COST: &str = "podium_cost_total";

/// The calls of a worker since the processes started.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Calls {
    pub(super) made: u64,
    pub(super) failed: u64,
    /// Permits that the limiter granted.
    pub(super) granted: u64,
    /// Permits that it refused, because a limit was reached.
    pub(super) refused: u64,
    pub(super) cost: Cost,
    /// Whether a process has seen its circuit breaker open.
    pub(super) is_shut: bool,
}

/// The pages to read.
pub(super) struct Pages(Vec<(Url, Client)>);

/// A line of a page.
struct Sample<'t> {
    name: &'t str,
    labels: BTreeMap<&'t str, &'t str>,
    value: f64,
}

impl Pages {
    pub(super) fn new(urls: &[String]) -> Result<Self, Error> {
        let page = |text: &String| {
            let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
            let wrong = || Error::Refused(format!("invalid --metrics `{text}`: it must be an http:// URL"));
            let url = url.ok_or_else(wrong)?;
            let client = client_for(&url)?;
            Ok((url, client))
        };
        Ok(Self(urls.iter().map(page).collect::<Result<_, Error>>()?))
    }

    /// The calls of each worker; `None` without pages. A page that cannot be read is an error, because the sums would lack it.
    pub(super) async fn read(&self) -> Option<Result<BTreeMap<String, Calls>, String>> {
        if self.0.is_empty() {
            return None;
        }
        let mut calls = BTreeMap::new();
        for (url, client) in &self.0 {
            let page = async {
                client.get(url.clone()).timeout(PAGE_MAX).send().await?.error_for_status()?.text().await
            };
            match page.await {
                Ok(page) => add(&page, &mut calls),
                Err(error) => return Some(Err(format!("{url}: {}", with_causes(&error.without_url())))),
            }
        }
        Some(Ok(calls))
    }
}

fn add(page: &str, calls: &mut BTreeMap<String, Calls>) {
    for sample in page.lines().filter_map(Sample::parse) {
        let Some(worker) = sample.labels.get("podium_worker") else { continue };
        let of = calls.entry((*worker).to_owned()).or_default();
        let outcome = sample.labels.get("podium_outcome").copied();
        let count = whole(sample.value);
        match (sample.name, outcome) {
            (CALLS, _) => {
                of.made += count;
                if sample.labels.get("error_type").is_some_and(|kind| !kind.is_empty()) {
                    of.failed += count;
                }
            }
            (PERMITS, Some("granted")) => of.granted += count,
            (PERMITS, _) => of.refused += count,
            (BREAKERS, _) => of.is_shut |= count > 0,
            (COST, _) => of.cost += Cost::from_nano_usd(count),
            _ => {}
        }
    }
}

/// A counter's value. A page has them as floats.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counters are whole and not negative"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

impl<'t> Sample<'t> {
    /// Parses `name{label="value",…} number`; `None` for comments and lines in another form.
    fn parse(line: &'t str) -> Option<Self> {
        if line.starts_with('#') {
            return None;
        }
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        // No label of these metrics has a quote or a comma in its value.
        let labels = labels.strip_suffix('}')?.split(',').filter_map(|label| label.split_once('='));
        let labels = labels.map(|(name, value)| (name, value.trim_matches('"'))).collect();
        Some(Self { name, labels, value: value.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_several_processes_are_summed_by_worker() {
        let page = r#"# TYPE podium_permit_asked counter
gen_ai_client_operation_duration_seconds_count{gen_ai_operation_name="chat",podium_worker="gpt"} 5
gen_ai_client_operation_duration_seconds_count{error_type="timeout",podium_worker="gpt"} 2
podium_permit_asked_total{podium_outcome="granted",podium_worker="gpt"} 7
podium_permit_asked_total{podium_outcome="rate",podium_worker="gpt"} 3
podium_breaker_open{podium_worker="gpt"} 1
podium_cost_total{podium_spent="output",podium_worker="gpt"} 1e+09
podium_lane_fetched_total{podium_lane="ultra.plan"} 9
"#;
        let mut calls = BTreeMap::new();
        add(page, &mut calls);
        add(page, &mut calls);
        let expected = Calls {
            made: 14,
            failed: 4,
            granted: 14,
            refused: 6,
            cost: Cost::from_nano_usd(2_000_000_000),
            is_shut: true,
        };
        assert_eq!(calls, BTreeMap::from([("gpt".to_owned(), expected)]));
    }
}
