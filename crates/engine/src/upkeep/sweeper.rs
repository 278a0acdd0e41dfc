//! The sweeper finds in the store the tasks whose message was lost, and the claims of dead processes.
//!
//! One process at a time sweeps, under a lease in the store, so the work does not grow with the number of processes. The lease only
//! saves work: two sweepers of one store share the tasks that they find.
//!
//! The sweeper only searches. Other tasks act on what it finds, so neither a slow commit nor an unreachable queue delays the next
//! search.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use podium_domain::ids::{ClaimId, RunId};
use podium_domain::run::Command;
use podium_domain::time::Timestamp;
use podium_ports::store::{ClaimRef, Due, ReadyTask, StoreError, Turn};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::commit::CommandError;
use crate::context::Context;
use crate::metrics::Found;
use crate::upkeep::load_reader::LoadReader;

/// If the store has not answered for this time, or for as long as a heartbeat may be late, it counts as unreachable for all
/// processes.
const OUTAGE: Duration = Duration::from_secs(2);
/// Interval between requests for the turn to sweep, in sweeps.
const TURN_SWEEPS: u32 = 2;
/// Length of the turn's lease, in sweeps. After the death of its holder, another process sweeps within three seconds.
const TURN_LEASE_SWEEPS: u32 = 4;
/// Later than any deadline or lease.
const END_OF_TIME: Timestamp = Timestamp::from_unix_ms(i64::MAX as u64);

/// Sweeps. Several may run on one store.
pub(crate) struct Sweeper {
    context: Context,
    /// Its name in leases.
    holder: ClaimId,
    /// Whether it is this process' turn, by the store's last answer.
    is_own_turn: bool,
    ask_at: Timestamp,
    leases: LeaseGrace,
    /// Expires leases and ends overdue runs concurrently, so that a run that the store does not write delays no other run.
    ending: JoinSet<(RunId, Taken)>,
    /// The runs of the commands in flight.
    in_hand: BTreeSet<RunId>,
    publishing: JoinSet<()>,
    loads: LoadReader,
}

/// Whether the store accepts writes, by the outcome of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// It wrote, or refused only this run.
    Yes,
    /// It was unreachable, or accepts no writes, for example because its disk is full.
    No,
}

/// Expires no lease for one lease's time after the store was unreachable or accepted no writes, because holders could not extend
/// their leases in that time.
struct LeaseGrace {
    answered_at: Timestamp,
    held_until: Timestamp,
    /// Whether the last write failed.
    takes_no_writes: bool,
    silence_max: Duration,
    lease: Duration,
}

impl LeaseGrace {
    /// A new process does not know whether the store was unreachable until now.
    fn new(now: Timestamp, sweep_every: Duration, lease: Duration) -> Self {
        let silence_max = OUTAGE.min(lease / 3) + sweep_every;
        Self { answered_at: now, held_until: now.after(lease), takes_no_writes: false, silence_max, lease }
    }

    /// Notes the outcome of a write.
    fn wrote(&mut self, now: Timestamp, taken: Taken) {
        if taken == Taken::No {
            self.held_until = now.after(self.lease);
            if !self.takes_no_writes {
                info!(
                    "the store accepts no writes; no lease expires until {} ms after it accepts writes again",
                    self.lease.as_millis()
                );
            }
        }
        self.takes_no_writes = taken == Taken::No;
    }

    /// Returns how many leases may be expired now. While the store accepts no writes, one is tried, to detect when it does again.
    fn may_run_out(&self, may: bool) -> usize {
        match (may, self.takes_no_writes) {
            (_, true) => 1,
            (true, false) => usize::MAX,
            (false, false) => 0,
        }
    }

    /// Notes an answer of the store, and returns whether leases may be expired. Between two answers there are only a pause and a
    /// search.
    fn answered(&mut self, now: Timestamp) -> bool {
        if now.since(self.answered_at) > self.silence_max {
            (self.held_until, self.takes_no_writes) = (now.after(self.lease), false);
            info!("the store was unreachable; no lease expires for {} ms", self.lease.as_millis());
        }
        self.answered_at = now;
        now >= self.held_until
    }
}

impl Sweeper {
    pub(crate) fn new(context: Context) -> Self {
        let leases = LeaseGrace::new(context.now(), context.options().sweep_every, context.options().lease);
        let (holder, ask_at) = (context.parts().ids.claim_id(), context.now());
        let loads = LoadReader::new(context.clone());
        Self {
            context,
            holder,
            is_own_turn: false,
            ask_at,
            leases,
            ending: JoinSet::new(),
            in_hand: BTreeSet::new(),
            publishing: JoinSet::new(),
            loads,
        }
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            let swept = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                swept = self.next() => swept,
            };
            self.context.metrics().swept(swept.as_ref().ok().copied());
            if let Err(error) = swept {
                self.loads.rest();
                warn!(error = &error as &dyn std::error::Error, "could not sweep");
            }
        }
    }

    async fn next(&mut self) -> Result<Found, StoreError> {
        self.context.parts().clock.sleep(self.context.options().sweep_every).await;
        self.context.clock_is_right().await;
        let except = self.context.unreadable().left_out();
        // Other processes may be able to read runs that this one cannot, so it must not keep the turn.
        if except.is_empty() && !self.is_own_turn().await? {
            self.loads.rest();
            return Ok(Found::default());
        }
        let now = self.context.now();
        let options = self.context.options();
        let (again_at, limit) = (now.after(options.dispatch_grace), options.sweep_tasks_max);
        let due = self.context.parts().store.due(now, again_at, limit, &except).await;
        if let Err(StoreError::Inconsistent { .. } | StoreError::Refused(_)) = &due {
            // Another process may be able to read the due tasks: it gets the turn after this lease.
            self.is_own_turn = false;
            self.ask_at = now.after(options.sweep_every * (TURN_LEASE_SWEEPS + TURN_SWEEPS));
        }
        let mut due = due?;
        if self.is_own_turn {
            self.loads.read();
        } else {
            self.loads.rest();
        }
        self.note_ended();
        let may_run_out = self.leases.answered(self.context.now());
        due.expired.truncate(self.leases.may_run_out(may_run_out));
        self.context.publisher().note_backlogs(&due.backlogs);
        Ok(self.hand_over(due))
    }

    /// Whether this process is to sweep. If another one does, this notes the lanes with a backlog.
    async fn is_own_turn(&mut self) -> Result<bool, StoreError> {
        let (now, sweep_every) = (self.context.now(), self.context.options().sweep_every);
        if now < self.ask_at {
            return Ok(self.is_own_turn);
        }
        let span = sweep_every * TURN_LEASE_SWEEPS;
        let turn = self.context.parts().store.hold_sweep(self.holder, now, span).await?;
        self.ask_at = now.after(sweep_every * TURN_SWEEPS);
        self.is_own_turn = turn == Turn::Own;
        if let Turn::Others { backlogs } = turn {
            self.leases.answered(self.context.now());
            self.context.publisher().note_backlogs(&backlogs);
        }
        Ok(self.is_own_turn)
    }

    /// Notes the outcomes of the work from earlier sweeps.
    fn note_ended(&mut self) {
        for (run, taken) in ended(&mut self.ending) {
            self.in_hand.remove(&run);
            self.leases.wrote(self.context.now(), taken);
        }
    }

    /// Starts the work on `due`, except for runs with work in flight, and messages while others are being published. The next sweeps
    /// find those again.
    fn hand_over(&mut self, due: Due) -> Found {
        let Due { ready, mut expired, mut overdue, .. } = due;
        expired.retain(|hold| !self.in_hand.contains(&hold.run));
        overdue.retain(|run| !self.in_hand.contains(run));
        let mut found = Found { ready: 0, expired: expired.len(), overdue: overdue.len() };
        for (run, commands) in endings(&expired, &overdue) {
            self.in_hand.insert(run);
            let context = self.context.clone();
            self.ending.spawn(async move {
                let taken = end(&context, run, commands).await;
                (run, taken)
            });
        }
        ended(&mut self.publishing);
        if self.publishing.is_empty() && !ready.is_empty() {
            found.ready = ready.len();
            let context = self.context.clone();
            self.publishing.spawn(async move { publish(&context, ready).await });
        }
        found
    }

    pub(crate) async fn take_over(self) -> Result<(), StoreError> {
        let now = self.context.now();
        let due = self.context.parts().store.due(END_OF_TIME, now, u32::MAX, &[]).await?;
        if !due.expired.is_empty() || !due.ready.is_empty() {
            info!(claims = due.expired.len(), ready = due.ready.len(), "taking over unfinished work");
        }
        self.context.publisher().note_backlogs(&due.backlogs);
        let ending =
            endings(&due.expired, &[]).into_iter().map(|(run, commands)| end(&self.context, run, commands));
        futures::future::join_all(ending).await;
        self.context.publisher().publish_all(due.ready).await
    }
}

/// The results of the work that has ended. Propagates a panic.
fn ended<T: 'static>(work: &mut JoinSet<T>) -> Vec<T> {
    let mut given = Vec::new();
    while let Some(ended) = work.try_join_next() {
        match ended {
            Ok(value) => given.push(value),
            Err(error) => {
                if let Ok(panic) = error.try_into_panic() {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
    given
}

/// The commands that act on what is due, by run.
fn endings(expired: &[ClaimRef], overdue: &[RunId]) -> BTreeMap<RunId, Vec<Command>> {
    let mut commands = BTreeMap::<_, Vec<_>>::new();
    for expired in expired {
        let expire = Command::ExpireLease { task: expired.task, claim: expired.claim };
        commands.entry(expired.run).or_default().push(expire);
    }
    for run in overdue {
        commands.entry(*run).or_default().push(Command::CheckDeadline);
    }
    commands
}

async fn end(context: &Context, run: RunId, commands: Vec<Command>) -> Taken {
    let mut taken = Taken::Yes;
    let sent = commands.into_iter().map(|command| context.commands().send(run, command));
    for error in futures::future::join_all(sent).await.into_iter().filter_map(Result::err) {
        if matches!(&error, CommandError::Store(error) if matches!(**error, StoreError::Unavailable(_))) {
            taken = Taken::No;
        }
        // An unreadable run is logged once, where it is loaded.
        if !matches!(error, CommandError::Refused(_) | CommandError::Damaged) {
            warn!(%run, error = &error as &dyn std::error::Error, "could not act on what is due");
        }
    }
    taken
}

async fn publish(context: &Context, ready: Vec<ReadyTask>) {
    if let Err(error) = context.publisher().publish_all(ready).await {
        warn!(error = &error as &dyn std::error::Error, "could not publish what is due");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWEEP: Duration = Duration::from_millis(500);
    const LEASE: Duration = Duration::from_secs(4);

    #[test]
    fn no_lease_expires_right_after_the_store_was_silent() {
        let mut now = Timestamp::from_unix_ms(1_000_000);
        let mut grace = LeaseGrace::new(now, SWEEP, LEASE);
        let mut after = |span: Duration| {
            now = now.after(span);
            grace.answered(now)
        };
        assert!(!after(SWEEP), "the time before the start is unknown");
        for _ in 0..8 {
            after(SWEEP);
        }
        assert!(after(SWEEP));
        assert!(after(SWEEP + Duration::from_secs(1)), "a slow answer is no outage");
        assert!(!after(SWEEP + Duration::from_secs(2)));
        for _ in 0..7 {
            assert!(!after(SWEEP));
        }
        assert!(after(SWEEP));
    }

    #[test]
    fn no_lease_expires_right_after_the_store_took_no_writes() {
        let mut now = Timestamp::from_unix_ms(1_000_000);
        let mut grace = LeaseGrace::new(now, SWEEP, LEASE);
        let mut after = |taken: Taken| {
            now = now.after(SWEEP);
            grace.wrote(now, taken);
            let may = grace.answered(now);
            grace.may_run_out(may)
        };
        for _ in 0..8 {
            after(Taken::Yes);
        }
        assert_eq!(after(Taken::Yes), usize::MAX);
        assert_eq!([after(Taken::No), after(Taken::No)], [1, 1], "one is tried");
        for _ in 0..7 {
            assert_eq!(after(Taken::Yes), 0);
        }
        assert_eq!(after(Taken::Yes), usize::MAX);
    }
}
