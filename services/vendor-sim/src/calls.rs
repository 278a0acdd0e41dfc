//! The log of all calls that the simulator received. Tests count calls here.

use std::{
    collections::VecDeque,
    num::NonZero,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use podium_demo_workers::Model;

/// Most calls in the log. Older ones are removed, but still counted.
pub const CALLS_MAX: usize = 100_000;

/// One call of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// 1 for the first call since the start or the last reset.
    pub sequence: u64,
    /// The requested model.
    pub model: String,
    /// Arrival time in milliseconds since the start.
    pub at_ms: u64,
    /// End time in milliseconds since the start.
    pub ended_at_ms: Option<u64>,
    /// The outcome so far.
    pub outcome: Outcome,
    /// Whether the caller received a complete answer or a complete error.
    pub finished: bool,
    /// Whether a stream was requested.
    pub stream: bool,
    /// The name of the fault that was shown.
    pub fault: Option<String>,
    /// The beginning of the subtask, or of the question if there is none.
    pub subtask: String,
    /// SHA-256 of the last user turn, in hexadecimal.
    pub message_sha256: String,
    /// The header `traceparent`, if the caller sent one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// In progress.
    Running,
    /// Answered in full.
    Answered,
    /// Ended with a vendor's error.
    Failed,
    /// The simulator closed the connection during the answer.
    Cut,
    /// The caller disconnected, or the simulator stopped.
    Abandoned,
}

/// The log and the notifications of its changes.
#[derive(Debug)]
pub(crate) struct CallLog {
    started: Instant,
    calls: Mutex<Kept>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Kept {
    calls: VecDeque<Call>,
    received: u64,
    /// Counts resets, so that calls from before a reset do not change the log after it.
    generation: u64,
}

/// The data of an arriving call.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) model: Model,
    pub(crate) stream: bool,
    pub(crate) subtask: String,
    pub(crate) message_sha256: String,
    pub(crate) traceparent: Option<String>,
}

impl CallLog {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), calls: Mutex::default(), changed: watch::Sender::new(0) }
    }

    /// Logs a call. Dropping the entry ends it as abandoned.
    pub(crate) fn begin(self: &std::sync::Arc<Self>, arrival: Arrival) -> CallEntry {
        let at_ms = self.now_ms();
        let mut kept = self.lock();
        kept.received += 1;
        let sequence = kept.received;
        if kept.calls.len() == CALLS_MAX {
            kept.calls.pop_front();
        }
        kept.calls.push_back(Call {
            sequence,
            model: arrival.model.id().to_owned(),
            at_ms,
            ended_at_ms: None,
            outcome: Outcome::Running,
            finished: false,
            stream: arrival.stream,
            fault: None,
            subtask: arrival.subtask,
            message_sha256: arrival.message_sha256,
            traceparent: arrival.traceparent,
        });
        let generation = kept.generation;
        drop(kept);
        self.notify();
        CallEntry { log: std::sync::Arc::clone(self), sequence, generation, over: false }
    }

    /// The logged calls, oldest first.
    pub(crate) fn snapshot(&self) -> Vec<Call> {
        self.lock().calls.iter().cloned().collect()
    }

    /// Number of all calls since the start or the last reset.
    pub(crate) fn received(&self) -> u64 {
        self.lock().received
    }

    /// Clears the log.
    pub(crate) fn reset(&self) {
        let mut kept = self.lock();
        *kept = Kept { generation: kept.generation + 1, ..Kept::default() };
        drop(kept);
        self.notify();
    }

    /// Notified of every change of the log.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The next multiple of `tick_ms` since the start.
    pub(crate) fn next_tick(&self, tick_ms: NonZero<u64>) -> Instant {
        let ticks = self.now_ms() / tick_ms + 1;
        self.started + Duration::from_millis(ticks.saturating_mul(tick_ms.get()))
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn notify(&self) {
        self.changed.send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    /// A panic while the lock was held leaves a consistent log: every change is one assignment.
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call in progress.
#[derive(Debug)]
pub(crate) struct CallEntry {
    log: std::sync::Arc<CallLog>,
    sequence: u64,
    generation: u64,
    over: bool,
}

impl CallEntry {
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Logs the call's fault.
    pub(crate) fn show_fault(&self, fault: &str) {
        self.change(|call| call.fault = Some(fault.to_owned()));
    }

    /// Ends the call.
    pub(crate) fn end(mut self, outcome: Outcome) {
        self.close(outcome);
    }

    fn close(&mut self, outcome: Outcome) {
        self.over = true;
        let now = self.log.now_ms();
        self.change(|call| {
            call.outcome = outcome;
            call.finished = matches!(outcome, Outcome::Answered | Outcome::Failed);
            call.ended_at_ms = Some(now);
        });
    }

    fn change(&self, change: impl FnOnce(&mut Call)) {
        let mut kept = self.log.lock();
        let current = kept.generation == self.generation;
        let oldest = kept.calls.front().map_or(0, |call| call.sequence);
        let place = self.sequence.checked_sub(oldest).and_then(|place| usize::try_from(place).ok());
        if let (true, Some(call)) = (current, place.and_then(|place| kept.calls.get_mut(place))) {
            change(call);
        }
        drop(kept);
        self.log.notify();
    }
}

impl Drop for CallEntry {
    fn drop(&mut self) {
        if !self.over {
            self.close(Outcome::Abandoned);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Arrival, CallLog, Outcome};
    use podium_demo_workers::Model;

    fn arrival() -> Arrival {
        Arrival {
            model: Model::Echo,
            stream: false,
            subtask: "x".to_owned(),
            message_sha256: String::new(),
            traceparent: None,
        }
    }

    #[test]
    fn a_dropped_call_is_logged_as_abandoned() {
        let log = Arc::new(CallLog::new());
        drop(log.begin(arrival()));
        log.begin(arrival()).end(Outcome::Answered);
        let running = log.begin(arrival());
        let outcomes: Vec<_> =
            log.snapshot().iter().map(|call| (call.sequence, call.outcome, call.finished)).collect();
        assert_eq!(
            outcomes,
            [(1, Outcome::Abandoned, false), (2, Outcome::Answered, true), (3, Outcome::Running, false)]
        );
        drop(running);
    }

    #[test]
    fn a_call_from_before_a_reset_does_not_change_the_log() {
        let log = Arc::new(CallLog::new());
        let old = log.begin(arrival());
        log.reset();
        let new = log.begin(arrival());
        old.end(Outcome::Failed);
        assert_eq!(log.snapshot()[0].outcome, Outcome::Running);
        assert_eq!((new.sequence(), log.received()), (1, 1));
    }
}
