//! Messages as they travel: the ids, and perhaps the run's events so far.

use bytes::Bytes;
use podium_domain::run::SequencedEvent;
use podium_ports::queue::TaskMessage;
use podium_ports::stored::FORMAT;
use serde::{Deserialize, Serialize};

/// Longest message. Without a history it is far shorter; one that would make it longer the reader gets from the store.
pub(super) const BODY_BYTES_MAX: usize = 8 << 10;

#[derive(Serialize)]
struct Body<'a> {
    #[serde(flatten)]
    message: &'a TaskMessage,
    #[serde(flatten)]
    history: Option<History<'a>>,
}

#[derive(Serialize)]
struct History<'a> {
    format: i16,
    events: &'a [SequencedEvent],
}

#[derive(Deserialize)]
struct HistoryRead {
    format: i16,
    events: Vec<SequencedEvent>,
}

pub(super) fn write(message: &TaskMessage, history: &[SequencedEvent]) -> serde_json::Result<Bytes> {
    let alone = || serde_json::to_vec(&Body { message, history: None });
    let written = match history {
        [] => alone()?,
        events => {
            let history = Some(History { format: FORMAT, events });
            let whole = serde_json::to_vec(&Body { message, history })?;
            if whole.len() <= BODY_BYTES_MAX { whole } else { alone()? }
        }
    };
    Ok(Bytes::from(written))
}

pub(super) fn read(body: &[u8]) -> serde_json::Result<TaskMessage> {
    serde_json::from_slice(body)
}

/// The events that came along; none if they are of another form.
pub(super) fn read_history(body: &[u8]) -> Vec<SequencedEvent> {
    match serde_json::from_slice::<HistoryRead>(body) {
        Ok(HistoryRead { format: FORMAT, events }) => events,
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use podium_domain::conversation::Conversation;
    use podium_domain::run::{Run, TaskRef};
    use podium_ports::clock::Ids;
    use podium_testkit::{SeededIds, TestClock, a_spec};

    use super::*;

    fn history(question: &str) -> Vec<SequencedEvent> {
        let mut spec = a_spec();
        spec.conversation = Conversation::question_only(question).unwrap();
        vec![SequencedEvent { sequence: 1, at: TestClock::START, event: Run::accept(spec) }]
    }

    fn a_message() -> TaskMessage {
        TaskMessage::new(SeededIds::new(1).run_id(TestClock::START), TaskRef::Plan { round: 0 })
    }

    #[test]
    fn a_short_history_goes_along_and_a_long_one_does_not() {
        let message = a_message();
        let (short, long) = (history("why?"), history(&"y".repeat(BODY_BYTES_MAX)));
        for (sent, comes) in [(&short, short.as_slice()), (&long, &[]), (&Vec::new(), &[])] {
            let body = write(&message, sent).unwrap();
            assert_eq!(read(&body).unwrap(), message);
            assert_eq!(read_history(&body), comes);
        }
    }

    #[test]
    fn a_history_in_another_form_is_passed_over() {
        let message = a_message();
        let body = String::from_utf8(write(&message, &history("why?")).unwrap().to_vec()).unwrap();
        let newer = body.replace("\"format\":1", "\"format\":2");
        assert_ne!(newer, body);
        assert_eq!(read(newer.as_bytes()).unwrap(), message);
        assert_eq!(read_history(newer.as_bytes()), []);
    }
}
