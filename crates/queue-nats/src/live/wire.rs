//! The wire format of signals.
//!
//! It is JSON with short names: half of a frame is text anyway, no code is generated, and operators can read it with `nats sub`.
//! Text is split so that each message stays below the server's message limit after JSON has escaped it.

use std::borrow::Cow;

use bytes::Bytes;
use podium_domain::ids::{ClaimId, StepIndex};
use podium_ports::live::{Frame, Signal};
use serde::{Deserialize, Serialize};

use crate::error::NatsError;

/// The version that this process writes, and the newest that it reads.
const VERSION: u16 = 1;
/// Most bytes of text in a message.
const TEXT_BYTES_MAX: usize = 128 << 10;
/// Most bytes that JSON needs for one byte of text: `\u0000`.
const ESCAPED_BYTES_MAX: usize = 6;
/// Bytes reserved for everything except the text.
const ENVELOPE_BYTES_MAX: usize = 512;

/// The format's version.
#[derive(Deserialize)]
struct Form {
    v: u16,
}

#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    v: u16,
    #[serde(borrow)]
    s: Wire<'a>,
}

#[derive(Serialize, Deserialize)]
enum Wire<'a> {
    #[serde(rename = "c")]
    Committed {
        v: u64,
        /// Whether this is the end.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        e: bool,
    },
    #[serde(rename = "f")]
    Frame {
        r: u16,
        s: StepIndex,
        c: ClaimId,
        o: u64,
        #[serde(borrow)]
        t: Cow<'a, str>,
    },
    #[serde(rename = "p")]
    Planning {
        r: u16,
        #[serde(borrow)]
        t: Cow<'a, str>,
    },
    #[serde(rename = "m")]
    Missed,
}

/// The messages of a signal, none longer than `message_bytes_max`, each encoded on demand.
pub(super) fn write(
    signal: &Signal,
    message_bytes_max: usize,
) -> impl Iterator<Item = Result<Bytes, NatsError>> + Send {
    let text = match signal {
        Signal::Committed { .. } | Signal::Ended { .. } | Signal::Missed => "",
        Signal::Planning { text, .. } => text,
        Signal::Frame(frame) => &frame.text,
    };
    let room = message_bytes_max.saturating_sub(ENVELOPE_BYTES_MAX) / ESCAPED_BYTES_MAX;
    pieces(text, room.clamp(1, TEXT_BYTES_MAX)).map(move |(at, piece)| {
        let t = Cow::Borrowed(piece);
        message(match signal {
            Signal::Committed { version } => Wire::Committed { v: *version, e: false },
            Signal::Ended { version } => Wire::Committed { v: *version, e: true },
            Signal::Missed => Wire::Missed,
            Signal::Planning { round, .. } => Wire::Planning { r: *round, t },
            Signal::Frame(Frame { round, step, claim, offset, .. }) => {
                Wire::Frame { r: *round, s: *step, c: *claim, o: offset + at as u64, t }
            }
        })
    })
}

/// Decodes a message; `None` for a newer version.
pub(super) fn read(body: &[u8]) -> Result<Option<Signal>, serde_json::Error> {
    if serde_json::from_slice::<Form>(body)?.v > VERSION {
        return Ok(None);
    }
    Ok(Some(match serde_json::from_slice::<Envelope<'_>>(body)?.s {
        Wire::Committed { v, e: false } => Signal::Committed { version: v },
        Wire::Committed { v, e: true } => Signal::Ended { version: v },
        Wire::Missed => Signal::Missed,
        Wire::Planning { r, t } => Signal::Planning { round: r, text: t.into_owned() },
        Wire::Frame { r, s, c, o, t } => {
            Signal::Frame(Frame { round: r, step: s, claim: c, offset: o, text: t.into_owned() })
        }
    }))
}

fn message(wire: Wire<'_>) -> Result<Bytes, NatsError> {
    let written = serde_json::to_vec(&Envelope { v: VERSION, s: wire });
    written.map(Bytes::from).map_err(|e| NatsError::Client { call: "write a signal", source: Box::new(e) })
}

/// Splits a text into pieces with their offsets; an empty text gives one empty piece.
fn pieces(text: &str, bytes_max: usize) -> impl Iterator<Item = (usize, &str)> {
    let mut at = Some(0_usize);
    std::iter::from_fn(move || {
        let begin = at?;
        let mut end = text.len().min(begin.saturating_add(bytes_max));
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        if end == begin {
            // The limit is less than one character; send the character anyway.
            end = text[begin..].char_indices().nth(1).map_or(text.len(), |(next, _)| begin + next);
        }
        at = (end < text.len()).then_some(end);
        Some((begin, &text[begin..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: &str = "7f2c1f3e-8c0e-4d3a-9f50-3a2c1d7e9b11";

    fn signals() -> Vec<(Signal, String)> {
        let (step, claim) = (StepIndex::new(2), CLAIM.parse().unwrap());
        let frame = Frame { round: 1, step, claim, offset: 7, text: "a\"é\n".to_owned() };
        vec![
            (Signal::Committed { version: 3 }, r#"{"v":1,"s":{"c":{"v":3}}}"#.to_owned()),
            (Signal::Ended { version: 3 }, r#"{"v":1,"s":{"c":{"v":3,"e":true}}}"#.to_owned()),
            (Signal::Missed, r#"{"v":1,"s":"m"}"#.to_owned()),
            (
                Signal::Planning { round: 1, text: "Hm.".to_owned() },
                r#"{"v":1,"s":{"p":{"r":1,"t":"Hm."}}}"#.to_owned(),
            ),
            (
                Signal::Frame(frame),
                format!(r#"{{"v":1,"s":{{"f":{{"r":1,"s":2,"c":"{CLAIM}","o":7,"t":"a\"é\n"}}}}}}"#),
            ),
        ]
    }

    /// Processes of several versions communicate, so version 1 never changes.
    #[test]
    fn version_1_is_written_and_read_unchanged() {
        for (signal, form) in signals() {
            let written: Vec<_> = write(&signal, 1 << 20).map(Result::unwrap).collect();
            assert_eq!(written, [form.as_bytes()]);
            assert_eq!(read(form.as_bytes()).unwrap(), Some(signal));
        }
    }

    #[test]
    fn newer_versions_are_skipped_and_invalid_data_is_an_error() {
        assert_eq!(read(br#"{"v":2,"s":{"new":{}}}"#).unwrap(), None);
        let added = read(br#"{"v":1,"s":{"c":{"v":3,"more":1}},"more":2}"#).unwrap();
        assert_eq!(added, Some(Signal::Committed { version: 3 }));
        for nonsense in [&b""[..], b"{}", br#"{"v":1}"#, br#"{"v":1,"s":{"x":{}}}"#, b"\xff"] {
            assert!(read(nonsense).is_err());
        }
    }

    #[test]
    fn long_text_is_cut_between_characters_below_the_limit() {
        for (text, limit) in
            [("é\u{1}x".repeat(300_000), 1 << 20), ("é\u{1}".repeat(999), 2048), ("🎉".to_owned(), 0)]
        {
            let (step, claim) = (StepIndex::new(0), CLAIM.parse().unwrap());
            let frame = Frame { round: 0, step, claim, offset: 5, text: text.clone() };
            let messages: Vec<_> = write(&Signal::Frame(frame), limit).map(Result::unwrap).collect();
            assert!(limit == 0 || messages.iter().all(|message| message.len() <= limit));
            let mut joined = String::new();
            for message in messages {
                let Some(Signal::Frame(frame)) = read(&message).unwrap() else {
                    panic!("the message is a frame")
                };
                assert_eq!(frame.offset, 5 + joined.len() as u64);
                joined.push_str(&frame.text);
            }
            assert_eq!(joined, text);
        }
    }
}
