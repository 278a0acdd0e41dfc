//! The time that steps waited for their call, from the executors' histogram `podium.step.wait`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use podium_bench_measure::get;

/// The number of calls that waited at most that many milliseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    at_most: BTreeMap<u64, f64>,
}

impl Waits {
    /// Reads the metrics of executors and adds them.
    pub(crate) async fn read(executors: impl Iterator<Item = SocketAddr>) -> Result<Self> {
        let mut waits = Self::default();
        for executor in executors {
            waits.add(&String::from_utf8(get(executor, "/metrics").await?.into())?)?;
        }
        Ok(waits)
    }

    fn add(&mut self, page: &str) -> Result<()> {
        for line in page.lines().filter(|line| line.starts_with("podium_step_wait_seconds_bucket")) {
            let (_, after) = line.split_once("le=\"").context("a bucket has no bound")?;
            let (bound, _) = after.split_once('"').context("a bucket's bound has no end")?;
            let (_, count) = line.rsplit_once(' ').context("a bucket has no count")?;
            let bound_ms = if bound == "+Inf" { u64::MAX } else { to_ms(bound.parse()?) };
            *self.at_most.entry(bound_ms).or_default() += count.parse::<f64>()?;
        }
        Ok(())
    }

    /// The difference of two readings.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let since = |(bound, count): (&u64, &f64)| {
            (*bound, count - before.at_most.get(bound).copied().unwrap_or_default())
        };
        Self { at_most: self.at_most.iter().map(since).collect() }
    }

    /// The lowest bound below which this share of the calls is, in milliseconds; `None` above the last bound or without calls.
    pub(crate) fn bound_ms(&self, share: f64) -> Option<u64> {
        let all = *self.at_most.get(&u64::MAX)?;
        let found = self.at_most.iter().find(|(_, count)| all > 0.0 && **count >= share * all);
        found.map(|(bound, _)| *bound).filter(|bound| *bound < u64::MAX)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bounds are 5 ms to half an hour"
)]
fn to_ms(seconds: f64) -> u64 {
    (seconds * 1e3).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_bound_of_its_bucket() {
        let page = "podium_step_wait_seconds_bucket{podium_tier=\"ultra\",le=\"0.005\"} 60\n\
                    podium_step_wait_seconds_bucket{podium_tier=\"ultra\",le=\"0.01\"} 99\n\
                    podium_step_wait_seconds_bucket{podium_tier=\"ultra\",le=\"+Inf\"} 100\n";
        let mut waits = Waits::default();
        waits.add(page).unwrap();
        assert_eq!(
            (waits.bound_ms(0.5), waits.bound_ms(0.99), waits.bound_ms(1.0)),
            (Some(5), Some(10), None)
        );
        assert_eq!(waits.since(&waits).bound_ms(0.5), None);
    }
}
