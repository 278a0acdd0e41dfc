//! The wire format of messages: the ids as JSON.
//!
//! Messages of earlier versions also contain the run's events, which are ignored.

use bytes::Bytes;
use podium_ports::queue::TaskMessage;

/// Longest message. Messages of this version are far shorter; those of earlier versions may be this long.
pub(super) const BODY_BYTES_MAX: usize = 8 << 10;

pub(super) fn write(message: &TaskMessage) -> serde_json::Result<Bytes> {
    serde_json::to_vec(message).map(Bytes::from)
}

pub(super) fn read(body: &[u8]) -> serde_json::Result<TaskMessage> {
    serde_json::from_slice(body)
}

#[cfg(test)]
mod tests {
    use podium_domain::run::TaskRef;
    use podium_ports::clock::Ids;
    use podium_testkit::{SeededIds, TestClock};

    use super::*;

    #[test]
    fn a_message_of_an_earlier_version_with_its_history_is_read() {
        let message =
            TaskMessage::new(SeededIds::new(1).run_id(TestClock::START), TaskRef::Plan { round: 0 });
        let alone = String::from_utf8(write(&message).unwrap().to_vec()).unwrap();
        let with_history = alone.replacen('{', r#"{"format":1,"events":[{"sequence":1}],"#, 1);
        for body in [alone, with_history] {
            assert_eq!(read(body.as_bytes()).unwrap(), message, "{body}");
        }
    }
}
