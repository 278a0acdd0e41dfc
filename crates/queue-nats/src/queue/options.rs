//! The queue's bounds and names.

use std::time::Duration;

use crate::error::NatsError;
use crate::subjects::is_name;

/// Most messages of a lane: it is a window, not a backlog.
const LANE_MESSAGES_MAX: usize = 100_000;

/// Where NATS stores the messages of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// On disk: they survive a restart of the server.
    #[default]
    File,
    /// In memory: no disk can fill up, and after a restart the sweepers republish the messages.
    Memory,
}

/// Bounds and names of the queue. All processes of a cluster must use the same: the last one to connect updates the streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// Prefix of the streams' names: 1 to 32 letters, digits, `-` and `_`. The lane follows.
    pub stream: String,
    /// Prefix of their subjects: such names, separated by dots. No other stream may have subjects below it.
    pub prefix: String,
    /// How long a delivery may stay unacked.
    pub ack_wait: Duration,
    /// Maximum age of a message that no process works on. The sweeper republishes messages of ready tasks.
    pub message_age_max: Duration,
    /// Most messages of a lane, for tasks that wait or are being claimed. It should be about what executors take in a tenth of a
    /// second: a longer queue only makes tenants wait behind messages that are already published.
    pub lane_messages_max: usize,
    /// Replicas of each message in a NATS cluster: 1, 3 or 5.
    pub replicas: usize,
    /// Where NATS stores the messages.
    pub storage: Storage,
    /// How long a lane's consumer may miss existing messages before it is recreated.
    pub wedged_after: Duration,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            stream: "PODIUM".to_owned(),
            prefix: "podium.work".to_owned(),
            ack_wait: Duration::from_secs(30),
            message_age_max: Duration::from_hours(4),
            lane_messages_max: 256,
            replicas: 1,
            storage: Storage::default(),
            wedged_after: Duration::from_secs(10),
        }
    }
}

impl QueueOptions {
    pub(super) fn check(&self) -> Result<(), NatsError> {
        let wrong = |option, message: &str| Err(NatsError::Option { option, message: message.to_owned() });
        if !is_name(&self.stream) {
            return wrong("stream", "must be 1 to 32 letters, digits, `-` and `_`");
        }
        if !self.prefix.split('.').all(is_name) {
            return wrong(
                "prefix",
                "must be names of 1 to 32 letters, digits, `-` and `_`, with dots between",
            );
        }
        if !(1..=LANE_MESSAGES_MAX).contains(&self.lane_messages_max) {
            return wrong("lane_messages_max", "must be 1 to 100000");
        }
        if !matches!(self.replicas, 1 | 3 | 5) {
            return wrong("replicas", "must be 1, 3 or 5");
        }
        let times = [self.ack_wait, self.message_age_max, self.wedged_after];
        if times.iter().any(|time| *time < Duration::from_millis(100)) {
            return wrong("ack_wait, message_age_max and wedged_after", "must be at least 100 ms");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_option_is_reported() {
        let ok = QueueOptions::default();
        assert!(ok.check().is_ok());
        for wrong in [
            QueueOptions { stream: "a.b".to_owned(), ..ok.clone() },
            QueueOptions { prefix: "a..b".to_owned(), ..ok.clone() },
            QueueOptions { prefix: "a.>".to_owned(), ..ok.clone() },
            QueueOptions { lane_messages_max: 0, ..ok.clone() },
            QueueOptions { lane_messages_max: LANE_MESSAGES_MAX + 1, ..ok.clone() },
            QueueOptions { replicas: 2, ..ok.clone() },
            QueueOptions { ack_wait: Duration::ZERO, ..ok.clone() },
        ] {
            assert!(matches!(wrong.check(), Err(NatsError::Option { .. })), "{wrong:?}");
        }
    }
}
