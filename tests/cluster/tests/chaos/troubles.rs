//! What goes wrong, one thing after another, at moments that a seed decides.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use podium_local_cluster::Cluster;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::oneshot;

const PAUSE_MS: std::ops::Range<u64> = 300..1500;
/// Longer than the lease that the cluster is given.
const FROZEN: Duration = Duration::from_secs(5);
const REDIS_AWAY: Duration = Duration::from_secs(5);

/// Breaks things and mends them again.
pub(crate) struct Troubles {
    cluster: Cluster,
    dice: StdRng,
    made: BTreeMap<&'static str, usize>,
}

impl Troubles {
    pub(crate) fn new(cluster: Cluster, seed: u64) -> Self {
        Self { cluster, dice: StdRng::seed_from_u64(seed), made: BTreeMap::new() }
    }

    /// Goes on until told to stop; each kind of trouble in turn. Gives the cluster back whole.
    pub(crate) async fn run(
        mut self,
        mut stopped: oneshot::Receiver<()>,
    ) -> Result<(Cluster, BTreeMap<&'static str, usize>)> {
        for turn in 0.. {
            let pause = Duration::from_millis(self.dice.random_range(PAUSE_MS));
            tokio::select! {
                _ = &mut stopped => break,
                () = crate::pause(pause) => {}
            }
            self.make(turn).await?;
        }
        Ok((self.cluster, self.made))
    }

    async fn make(&mut self, turn: usize) -> Result<()> {
        let cluster = &mut self.cluster;
        let mut pick = |count: usize| self.dice.random_range(0..count);
        let name = match turn % 9 {
            0 | 4 => {
                let executor = pick(cluster.executors.len());
                cluster.executors[executor].start_again().await?;
                "executor killed (-9)"
            }
            1 => {
                cluster.nats.kill().await;
                cluster.nats.start_again().await?;
                "NATS killed (-9)"
            }
            2 => {
                let planner = pick(cluster.planners.len());
                cluster.planners[planner].start_again().await?;
                "planner killed (-9)"
            }
            3 => {
                cluster.nats.wipe().await?;
                "NATS wiped clean"
            }
            5 => {
                let gateway = pick(cluster.gateways.len());
                cluster.gateways[gateway].start_again().await?;
                "gateway killed (-9)"
            }
            6 => {
                cluster.postgres.restart().await?;
                "Postgres crashed"
            }
            7 => {
                let executor = pick(cluster.executors.len());
                cluster.executors[executor].freeze()?;
                crate::pause(FROZEN).await;
                cluster.executors[executor].thaw()?;
                "executor frozen past its lease"
            }
            _ => {
                cluster.redis.flush().await?;
                cluster.redis.kill().await;
                crate::pause(REDIS_AWAY).await;
                cluster.redis.start_again().await?;
                "Redis flushed and away"
            }
        };
        *self.made.entry(name).or_default() += 1;
        Ok(())
    }
}
