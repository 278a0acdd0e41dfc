//! The queue's bounds and names.

use std::time::Duration;

use super::subjects::is_name;
use crate::error::NatsError;

/// The queue's bounds and names. All processes of a cluster use the same: whoever connects last changes the stream to its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// The stream's name: 1 to 32 letters, digits, `-` and `_`.
    pub stream: String,
    /// What its subjects begin with: such names with dots between. No other stream may have subjects below it.
    pub prefix: String,
    /// How long a delivery may stay unanswered.
    pub ack_wait: Duration,
    /// How long a message stays when nobody works on it. The sweeper publishes a ready task's again.
    pub message_age_max: Duration,
    /// Most messages of all lanes together, those in flight included.
    pub messages_max: usize,
    /// Most bytes of all messages together.
    pub bytes_max: usize,
    /// Most deliveries of a lane that are unanswered at the same time, in all processes together: more than all slots.
    pub in_flight_max: usize,
    /// On how many servers of a NATS cluster each message is: 1, 3 or 5.
    pub replicas: usize,
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
            messages_max: 100_000,
            bytes_max: 64 << 20,
            in_flight_max: 10_000,
            replicas: 1,
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
        if self.messages_max == 0 || self.bytes_max == 0 || self.in_flight_max == 0 {
            return wrong("messages_max, bytes_max and in_flight_max", "must be at least 1");
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
            QueueOptions { messages_max: 0, ..ok.clone() },
            QueueOptions { replicas: 2, ..ok.clone() },
            QueueOptions { ack_wait: Duration::ZERO, ..ok.clone() },
        ] {
            assert!(matches!(wrong.check(), Err(NatsError::Option { .. })), "{wrong:?}");
        }
    }
}
