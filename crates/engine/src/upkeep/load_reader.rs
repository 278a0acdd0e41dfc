//! Reads the open tasks of all lanes for the metrics, in the process that sweeps.

use std::time::Duration;

use podium_domain::time::Timestamp;
use tokio::task::JoinSet;
use tracing::warn;

use crate::context::Context;

/// Interval between two reads.
const READ_EVERY: Duration = Duration::from_secs(10);
/// A read looks at every open task. The pause after it is at least this multiple of its duration, so that it takes at most a fiftieth
/// of a connection, however many tasks are open.
const PAUSE_PER_READ: u32 = 50;

/// Reads the loads of lanes from time to time.
pub(crate) struct LoadReader {
    context: Context,
    read_at: Timestamp,
    reading: JoinSet<Timestamp>,
}

impl LoadReader {
    pub(crate) fn new(context: Context) -> Self {
        Self { context, read_at: Timestamp::default(), reading: JoinSet::new() }
    }

    /// Reads them in the background if it is time to.
    pub(crate) fn read(&mut self) {
        while let Some(read) = self.reading.try_join_next() {
            self.read_at = read.unwrap_or_default();
        }
        if self.reading.is_empty() && self.context.now() >= self.read_at {
            self.reading.spawn(read(self.context.clone()));
        }
    }

    /// Notes that another process sweeps, and therefore reads them.
    pub(crate) fn rest(&mut self) {
        self.reading.abort_all();
        self.context.metrics().loads_unknown();
    }
}

/// Reads the loads and returns when to read them again.
async fn read(context: Context) -> Timestamp {
    let before = context.now();
    let loads = context.parts().store.lane_loads().await;
    let now = context.now();
    match loads {
        Ok(loads) => context.metrics().loaded(&loads, now),
        Err(error) => {
            context.metrics().loads_unknown();
            warn!(
                error = &error as &dyn std::error::Error,
                "the open tasks of lanes could not be read for the metrics"
            );
        }
    }
    now.after(READ_EVERY.max(now.since(before).saturating_mul(PAUSE_PER_READ)))
}
