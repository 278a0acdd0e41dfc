//! The sweeper: whatever was lost between a commit and its message, or with a dead process, is found in the store here.

use std::time::Duration;

use podium_domain::ids::RunId;
use podium_domain::run::Command;
use podium_domain::time::Timestamp;
use podium_ports::store::{Hold, ReadyTask, StoreError};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::commands::CommandError;
use crate::engine::Engine;
use crate::metrics::Found;

/// When no sweep has succeeded for so long, or for as long as a heartbeat may be late, the store was away, and with it every
/// heartbeat.
const OUTAGE: Duration = Duration::from_secs(2);
/// Later than any deadline or lease.
const END_OF_TIME: Timestamp = Timestamp::from_unix_ms(i64::MAX as u64);

/// Sweeps. Any number may run on one store.
pub(crate) struct Sweeper {
    engine: Engine,
    swept_at: Timestamp,
    hold_leases_until: Timestamp,
}

impl Sweeper {
    pub(crate) fn new(engine: Engine) -> Self {
        let now = engine.now();
        // Nobody knows what was before: a process may be started when the store is back, or have waited for it.
        let hold_leases_until = now.after(engine.options().lease);
        Self { engine, swept_at: now, hold_leases_until }
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.engine.parts().clock.sleep(self.engine.options().sweep_every) => {}
            }
            let swept = self.sweep().await;
            self.engine.metrics().swept(swept.as_ref().ok().copied());
            if let Err(error) = swept {
                warn!(error = &error as &dyn std::error::Error, "could not sweep");
            }
        }
    }

    async fn sweep(&mut self) -> Result<Found, StoreError> {
        let now = self.engine.now();
        let options = self.engine.options();
        let again_at = now.after(options.dispatch_grace);
        let due = self.engine.parts().store.due(now, again_at, options.sweep_tasks_max).await?;
        // Grace rule: holders could not extend their leases while the store was away. They get one lease's time to.
        if now.since(self.swept_at) > OUTAGE.min(options.lease / 3) + options.sweep_every {
            self.hold_leases_until = now.after(options.lease);
            info!("the store was away: leases are held for {} ms", options.lease.as_millis());
        }
        self.swept_at = now;
        self.engine.dispatch().note_backlogs(&due.backlogs);
        let expired = if now < self.hold_leases_until { &[] } else { due.expired.as_slice() };
        let found = Found { ready: due.ready.len(), expired: expired.len(), overdue: due.overdue.len() };
        self.act_on(due.ready, expired, &due.overdue).await?;
        Ok(found)
    }

    pub(crate) async fn take_over(self) -> Result<(), StoreError> {
        let now = self.engine.now();
        let due = self.engine.parts().store.due(END_OF_TIME, now, u32::MAX).await?;
        if !due.expired.is_empty() || !due.ready.is_empty() {
            info!(claims = due.expired.len(), ready = due.ready.len(), "taking over unfinished work");
        }
        self.engine.dispatch().note_backlogs(&due.backlogs);
        self.act_on(due.ready, &due.expired, &[]).await
    }

    async fn act_on(
        &self,
        ready: Vec<ReadyTask>,
        expired: &[Hold],
        overdue: &[RunId],
    ) -> Result<(), StoreError> {
        let commands = self.engine.commands();
        let expire = expired.iter().map(|hold| {
            let command = Command::ExpireLease { task: hold.task, claim: hold.claim };
            commands.send(hold.run, command)
        });
        let fail = overdue.iter().map(|run| commands.send(*run, Command::CheckDeadline));
        let outcomes =
            futures::future::join(futures::future::join_all(expire), futures::future::join_all(fail)).await;
        for error in outcomes.0.into_iter().chain(outcomes.1).filter_map(Result::err) {
            if !matches!(error, CommandError::Refused(_)) {
                warn!(error = &error as &dyn std::error::Error, "could not act on what is due");
            }
        }
        self.engine.dispatch().tell_all(ready).await
    }
}
