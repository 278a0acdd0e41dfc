//! Parses server-sent events as the WHATWG HTML standard describes them, however the bytes are split.
//!
//! It does not interpret the events. `id` and `retry` are ignored: an answer cannot be resumed.

/// Longest line in bytes. The last events of some formats repeat the whole answer.
pub(crate) const LINE_BYTES_MAX: usize = 16 << 20;
/// Longest data of one event in bytes.
pub(crate) const EVENT_BYTES_MAX: usize = 16 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// The value of the last `event` field; empty for a plain message.
    pub(crate) name: Vec<u8>,
    /// The values of the `data` fields, joined by newlines. They may be invalid UTF-8.
    pub(crate) data: Vec<u8>,
}

/// A stream that exceeds the parser's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SseError {
    /// A line is too long.
    #[error("a line of more than {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    /// An event's data is too long.
    #[error("an event of more than {EVENT_BYTES_MAX} bytes")]
    EventTooLong,
}

/// Parses events. It must not be used after an error or after the end.
#[derive(Debug)]
pub(crate) struct SseParser {
    line: Vec<u8>,
    is_first_line: bool,
    /// A carriage return ended the last line, so a line feed right after it is skipped.
    skips_line_feed: bool,
    name: Vec<u8>,
    data: Option<Vec<u8>>,
}

impl SseParser {
    /// A parser at the beginning of a stream.
    pub(crate) fn new() -> Self {
        Self { line: Vec::new(), is_first_line: true, skips_line_feed: false, name: Vec::new(), data: None }
    }

    /// Reads the next bytes. The events that they complete are appended to `events`, also if an error follows them.
    pub(crate) fn push(&mut self, bytes: &[u8], events: &mut Vec<SseEvent>) -> Result<(), SseError> {
        let mut rest = bytes;
        while let [first, after @ ..] = rest {
            if std::mem::take(&mut self.skips_line_feed) && *first == b'\n' {
                rest = after;
                continue;
            }
            let Some(end) = rest.iter().position(|b| matches!(b, b'\r' | b'\n')) else {
                return self.extend_line(rest);
            };
            self.extend_line(&rest[..end])?;
            self.skips_line_feed = rest[end] == b'\r';
            rest = &rest[end + 1..];
            self.end_line(events)?;
        }
        Ok(())
    }

    /// Ends the stream. Returns an event without a final blank line: the standard drops it, but some servers omit the line.
    pub(crate) fn finish(mut self) -> Result<Option<SseEvent>, SseError> {
        let mut events = Vec::new();
        self.end_line(&mut events)?;
        self.dispatch(&mut events);
        Ok(events.pop())
    }

    fn extend_line(&mut self, part: &[u8]) -> Result<(), SseError> {
        if self.line.len() + part.len() > LINE_BYTES_MAX {
            return Err(SseError::LineTooLong);
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<SseEvent>) -> Result<(), SseError> {
        let mut line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_first_line) && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        if line.is_empty() {
            self.dispatch(events);
        } else {
            self.field(&line)?;
        }
        line.clear();
        self.line = line;
        Ok(())
    }

    fn field(&mut self, line: &[u8]) -> Result<(), SseError> {
        let colon = line.iter().position(|b| *b == b':').unwrap_or(line.len());
        let (field, value) = (&line[..colon], line.get(colon + 1..).unwrap_or_default());
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => self.add_data(value)?,
            b"event" => self.name = value.to_vec(),
            // A comment has no name before its colon; other fields are ignored.
            _ => {}
        }
        Ok(())
    }

    fn add_data(&mut self, value: &[u8]) -> Result<(), SseError> {
        let data = match &mut self.data {
            Some(data) => {
                data.push(b'\n');
                data
            }
            none => none.insert(Vec::new()),
        };
        if data.len() + value.len() > EVENT_BYTES_MAX {
            return Err(SseError::EventTooLong);
        }
        data.extend_from_slice(value);
        Ok(())
    }

    fn dispatch(&mut self, events: &mut Vec<SseEvent>) {
        let name = std::mem::take(&mut self.name);
        if let Some(data) = self.data.take() {
            events.push(SseEvent { name, data });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All events of a stream that comes in the given pieces, and how it ended.
    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<SseEvent>, Result<(), SseError>) {
        let mut parser = SseParser::new();
        let mut events = Vec::new();
        for piece in pieces {
            if let Err(error) = parser.push(piece, &mut events) {
                return (events, Err(error));
            }
        }
        match parser.finish() {
            Ok(last) => events.extend(last),
            Err(error) => return (events, Err(error)),
        }
        (events, Ok(()))
    }

    fn texts(stream: &[u8]) -> Vec<(String, String)> {
        let (events, end) = read([stream]);
        assert_eq!(end, Ok(()));
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        events.into_iter().map(|event| (text(event.name), text(event.data))).collect()
    }

    fn message(data: &str) -> (String, String) {
        (String::new(), data.to_owned())
    }

    #[test]
    fn lines_end_in_any_of_three_ways() {
        for end in ["\n", "\r", "\r\n"] {
            let stream = ["data: one", "", "data: two", "data: three", "", ""].join(end);
            assert_eq!(texts(stream.as_bytes()), [message("one"), message("two\nthree")], "{end:?}");
        }
    }

    #[test]
    fn comments_other_fields_and_a_byte_order_mark_are_ignored() {
        let stream = "\u{feff}data:a\n: keep alive\nid: 7\nretry: 10\n\n:only a comment\n\nevent: ping\n\n\
                      event: error\ndata\ndata:  b\n\n";
        assert_eq!(texts(stream.as_bytes()), [message("a"), ("error".to_owned(), "\n b".to_owned())]);
    }

    #[test]
    fn an_event_without_a_final_blank_line_is_kept() {
        assert_eq!(texts(b"data: a\n\ndata: [DONE]"), [message("a"), message("[DONE]")]);
        assert_eq!(texts(b"data: a\n\n\n\n"), [message("a")]);
        assert_eq!(texts(b""), []);
    }

    #[test]
    fn lines_and_events_are_bounded() {
        let line = [b"data: a\n\ndata: ".as_slice(), &vec![b'x'; LINE_BYTES_MAX]].concat();
        let (events, end) = read(line.chunks(1000));
        assert_eq!((events.len(), end), (1, Err(SseError::LineTooLong)));
        let half = [b"data: ".as_slice(), &vec![b'x'; EVENT_BYTES_MAX / 2], b"\n"].concat();
        assert_eq!(read([half.repeat(2).as_slice(), b"\n"]).1, Err(SseError::EventTooLong));
        assert_eq!(read([half.as_slice(), b"\n"]).1, Ok(()));
    }

    /// Parts of lines that are significant to the parser, and text with several bytes per character.
    fn piece() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            Just(b"data:".to_vec()),
            Just(b"data: ".to_vec()),
            Just(b"event: error".to_vec()),
            Just(b": ".to_vec()),
            Just(b"\n".to_vec()),
            Just(b"\r".to_vec()),
            Just(b"\r\n".to_vec()),
            Just(b"\n\n".to_vec()),
            Just(BYTE_ORDER_MARK.to_vec()),
            "[a-zé漢🙂{}\" :]{0,8}".prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>(), 0..4),
        ]
    }

    /// The same stream, cut at the given positions (in bytes, modulo the length plus one).
    fn cut<'a>(stream: &'a [u8], places: &[usize]) -> Vec<&'a [u8]> {
        let mut places: Vec<_> = places.iter().map(|place| place % (stream.len() + 1)).collect();
        places.extend([0, stream.len()]);
        places.sort_unstable();
        places.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect()
    }

    proptest! {
        #[test]
        fn events_do_not_depend_on_chunk_boundaries(
            pieces in prop::collection::vec(piece(), 0..40),
            places in prop::collection::vec(any::<usize>(), 0..40),
        ) {
            let stream = pieces.concat();
            prop_assert_eq!(read(cut(&stream, &places)), read([stream.as_slice()]));
            prop_assert_eq!(read(stream.chunks(1)), read([stream.as_slice()]));
        }

        #[test]
        fn sent_events_are_read_unchanged(datas in prop::collection::vec("[a-zé漢🙂{}\" :]{1,20}(\n[a-z]{0,5}){0,2}", 0..8)) {
            let event = |data: &String| format!("data: {}\r\n\r\n", data.replace('\n', "\r\ndata: "));
            let stream = datas.iter().map(event).collect::<Vec<_>>().concat();
            let sent: Vec<_> = datas.iter().map(|data| message(data)).collect();
            prop_assert_eq!(texts(stream.as_bytes()), sent);
        }
    }
}
