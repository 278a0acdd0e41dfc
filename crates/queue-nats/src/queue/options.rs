//! The queue's bounds and names.

use std::time::Duration;

use crate::error::NatsError;
use crate::subjects::is_name;

/// The longest lane: a window, not a backlog.
const LANE_MESSAGES_MAX: usize = 100_000;

/// Where NATS keeps the messages of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// On its disk: they survive a restart of the server.
    #[default]
    File,
    /// In its memory: no disk can fill up, and after a restart the sweepers publish the messages again.
    Memory,
}

/// The queue's bounds and names. All processes of a cluster use the same: whoever connects last changes the streams to its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// What the streams' names begin with: 1 to 32 letters, digits, `-` and `_`. The lane follows.
    pub stream: String,
    /// What their subjects begin with: such names with dots between. No other stream may have subjects below it.
    pub prefix: String,
    /// How long a delivery may stay unanswered.
    pub ack_wait: Duration,
    /// How long a message stays when nobody works on it. The sweeper publishes a ready task's again.
    pub message_age_max: Duration,
    /// Most messages of a lane, those in flight included: about twice the slots of all processes that serve it. More than that
    /// only makes tenants wait behind what was chosen before; less than the slots leaves slots empty.
    pub lane_messages_max: usize,
    /// On how many servers of a NATS cluster each message is: 1, 3 or 5.
    pub replicas: usize,
    /// Where NATS keeps them.
    pub storage: Storage,
    /// For how long a lane's consumer may know nothing of messages that are there before it is made anew.
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
    fn options_that_no_server_would_take_are_named() {
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
