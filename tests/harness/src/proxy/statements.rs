//! Parses the statements of a Postgres client, as far as needed to recognise writes: the messages of protocol version 3.

use std::collections::HashMap;

/// The text that makes a statement a write. Podium's inserts accept runs and append their events.
const WRITES: &[u8] = b"INSERT INTO";
/// The codes of requests that come before a connection begins: encryption by TLS or by GSSAPI.
const ENCRYPTION_REQUESTS: [u32; 2] = [80_877_103, 80_877_104];
/// Bytes of a message's length, which includes itself.
const LENGTH_BYTES: usize = 4;

/// The bytes of one client, and its prepared statements.
#[derive(Debug, Default)]
pub(super) struct Statements {
    /// An incomplete message.
    rest: Vec<u8>,
    /// Whether the first message, which has no kind, is complete.
    has_begun: bool,
    /// Prepared statements by name, and whether they write.
    prepared: HashMap<Vec<u8>, bool>,
}

impl Statements {
    /// Adds the next bytes. Returns whether a message that they complete executes a write.
    pub(super) fn hold_a_write(&mut self, bytes: &[u8]) -> bool {
        self.rest.extend_from_slice(bytes);
        let mut writes = false;
        while let Some((kind, body)) = self.next_message() {
            writes |= self.read(kind, &body);
        }
        writes
    }

    /// The next complete message: its kind, 0 if it has none, and its body.
    fn next_message(&mut self) -> Option<(u8, Vec<u8>)> {
        let kind_bytes = usize::from(self.has_begun);
        let length = self.rest.get(kind_bytes..kind_bytes + LENGTH_BYTES)?;
        let length = u32::from_be_bytes(length.try_into().ok()?) as usize;
        // A shorter length is invalid, so no later message can be found; the bytes stay.
        let body = self.rest.get(kind_bytes..kind_bytes + length)?.get(LENGTH_BYTES..)?.to_vec();
        let kind = if self.has_begun { self.rest[0] } else { 0 };
        self.rest.drain(..kind_bytes + length);
        Some((kind, body))
    }

    fn read(&mut self, kind: u8, body: &[u8]) -> bool {
        let mut parts = body.split(|byte| *byte == 0);
        let mut part = || parts.next().unwrap_or_default();
        match kind {
            0 => {
                let code = body.first_chunk().map(|code| u32::from_be_bytes(*code));
                self.has_begun = code.is_none_or(|code| !ENCRYPTION_REQUESTS.contains(&code));
                false
            }
            // Parse: the statement's name, and its text.
            b'P' => {
                let (name, text) = (part(), part());
                self.prepared.insert(name.to_vec(), writes(text));
                false
            }
            // Bind: the portal's name, and the statement's. Its execution follows.
            b'B' => {
                let (_portal, name) = (part(), part());
                self.prepared.get(name).copied().unwrap_or_default()
            }
            // A query without preparation.
            b'Q' => writes(part()),
            _ => false,
        }
    }
}

fn writes(statement: &[u8]) -> bool {
    statement.windows(WRITES.len()).any(|window| window == WRITES)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn message(kind: &[u8], body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(LENGTH_BYTES + body.len()).unwrap();
        [kind, &length.to_be_bytes(), body].concat()
    }

    pub(crate) fn startup() -> Vec<u8> {
        message(b"", &[&[0, 3, 0, 0], &b"user\0postgres\0\0"[..]].concat())
    }

    pub(crate) fn parse(name: &str, text: &str) -> Vec<u8> {
        message(b"P", format!("{name}\0{text}\0\0\0").as_bytes())
    }

    pub(crate) fn bind(name: &str) -> Vec<u8> {
        message(b"B", format!("\0{name}\0\0\0\0\0\0\0").as_bytes())
    }

    #[test]
    fn a_write_is_recognised_when_executed_in_any_fragments() {
        let before = [
            message(b"", &80_877_103_u32.to_be_bytes()),
            startup(),
            parse("read", "SELECT 'x'"),
            parse("write", "WITH a AS (INSERT INTO b VALUES (1))"),
            bind("read"),
        ]
        .concat();
        let write = bind("write");
        let mut at_once = Statements::default();
        assert!(!at_once.hold_a_write(&before));
        assert!(at_once.hold_a_write(&write));
        assert!(!at_once.hold_a_write(&bind("read")));
        assert!(at_once.hold_a_write(&message(b"Q", b"INSERT INTO b VALUES (1)\0")));

        let mut by_bytes = Statements::default();
        let all = [before, write].concat();
        let seen = all.iter().map(|byte| by_bytes.hold_a_write(&[*byte]));
        let last = seen.enumerate().filter_map(|(at, writes)| writes.then_some(at)).collect::<Vec<_>>();
        assert_eq!(last, [all.len() - 1]);
    }
}
