//! From the bytes of an answer to its events, whatever the wire format: a stream of server-sent events, or one whole JSON
//! answer from a server that does not stream. What the pieces mean is a [`Decoder`]'s to know.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use podium_domain::content::{Seal, ToolCall};
use podium_domain::usage::Usage;
use podium_ports::vendor::{ChatEvent, ChatRequest, FinishReason, ToolChoice, VendorError};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::call_clock::CallClock;
use crate::faults::Faults;
use crate::halves::{self, Seams};
use crate::sse::{SseEvent, SseParser};

/// Most bytes of an answer that is not streamed.
const WHOLE_BYTES_MAX: usize = 16 << 20;
/// Most bytes that a decoder may gather before it tells of them: arguments of tools, marks of reasoning.
const GATHERED_BYTES_MAX: usize = 4 << 20;
/// Most calls of tools in one answer.
const TOOL_CALLS_MAX: usize = 128;

/// Bytes of text that count as one token where a vendor does not count.
const BYTES_PER_TOKEN: u64 = 4;

/// Longest wait, from the end of the text, for the word on usage that may follow.
const TAIL_MAX: Duration = Duration::from_secs(5);

/// What stands after the last chunk of some formats.
pub(crate) const DONE: &[u8] = b"[DONE]";

pub(crate) type Item = Result<ChatEvent, VendorError>;

/// Knows one wire format: reads the pieces of one answer into an [`Answer`].
pub(crate) trait Decoder: fmt::Debug + Send {
    /// Reads an event of a stream; its data is not blank.
    fn event(&mut self, event: &SseEvent, answer: &mut Answer);

    /// Reads an answer in one piece.
    fn whole(&mut self, json: &[u8], answer: &mut Answer);

    /// The answer is about to succeed: what was gathered is published now.
    fn complete(&mut self, _answer: &mut Answer) {}

    /// Whether `[DONE]` ends an answer of which the vendor has not said why it ends. Other formats end with an event of their
    /// own, and a proxy's `[DONE]` before it says nothing.
    fn ends_with_done(&self) -> bool {
        false
    }
}

/// Whether the request offered tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// Calls of tools are part of the answer.
    Tools,
    /// Calls of tools are dropped: nobody could make them.
    NoTools,
}

impl Offered {
    pub(crate) fn by(request: &ChatRequest) -> Self {
        let offers = request.tools.as_ref().is_some_and(|tools| tools.choice != ToolChoice::None);
        if offers { Self::Tools } else { Self::NoTools }
    }
}

/// The events of an answer whose head is there. Ends after the first error, or after `Finished`.
pub(crate) fn events(
    vendor_request_id: Option<String>,
    body: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
    reader: (Box<dyn Decoder>, Offered),
    faults: Faults,
    clock: CallClock,
) -> impl Stream<Item = Item> + Send {
    let mut reader = AnswerReader::new(reader.0, reader.1, faults);
    reader.answer.items.push_back(Ok(ChatEvent::Started { vendor_request_id }));
    let call = Call { body: body.boxed(), reader, clock };
    stream::unfold(Some(call), |call| async {
        let mut call = call?;
        let item = call.next().await;
        let is_last = matches!(item, Err(_) | Ok(ChatEvent::Finished { .. }));
        Some((item, (!is_last).then_some(call)))
    })
}

/// A call under way.
struct Call {
    body: BoxStream<'static, reqwest::Result<Bytes>>,
    reader: AnswerReader,
    clock: CallClock,
}

impl Call {
    async fn next(&mut self) -> Item {
        loop {
            if let Some(item) = self.reader.answer.items.pop_front() {
                return item;
            }
            match self.more().await {
                Ok(Some(bytes)) => self.reader.push(&bytes),
                Ok(None) => self.reader.end(None),
                Err(error) => self.reader.end(Some(error)),
            }
        }
    }

    async fn more(&mut self) -> Result<Option<Bytes>, VendorError> {
        let next = self.body.next();
        let more = match self.reader.progress() {
            Progress::Nothing => self.clock.first(next).await?,
            Progress::Silent => self.clock.before_text(next).await?,
            Progress::Text => self.clock.idle(next).await?,
            // The text is whole: what is late is done without.
            Progress::Tail => self.clock.at_most(TAIL_MAX, next).await.flatten(),
        };
        more.transpose().map_err(|source| self.reader.answer.faults.unreachable(source))
    }
}

/// How far an answer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// No event yet.
    Nothing,
    /// Events, and no text yet.
    Silent,
    /// Text has begun.
    Text,
    /// The text has ended; a word on usage may follow.
    Tail,
}

/// What was read of an answer. `items` fills as pieces come; its last one is an error or `Finished`.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) faults: Faults,
    /// Why it ends, once the vendor said so. The end itself may be yet to come.
    pub(crate) reason: Option<FinishReason>,
    /// What was consumed; of several words on it the last one counts.
    pub(crate) usage: Option<Usage>,
    /// The vendor said that nothing more comes.
    pub(crate) is_complete: bool,
    offered: Offered,
    text_bytes: usize,
    /// Bytes of reasoning.
    reasoning_bytes: usize,
    gathered_bytes: usize,
    calls: Vec<ToolCall>,
    declined: bool,
    /// Once halves of characters came. Without them texts are left as they are.
    seams: Option<Seams>,
    is_over: bool,
    pub(crate) items: VecDeque<Item>,
}

impl Answer {
    fn new(offered: Offered, faults: Faults) -> Self {
        Self {
            faults,
            offered,
            reason: None,
            usage: None,
            is_complete: false,
            text_bytes: 0,
            reasoning_bytes: 0,
            gathered_bytes: 0,
            calls: Vec::new(),
            declined: false,
            seams: None,
            is_over: false,
            items: VecDeque::new(),
        }
    }

    /// More text.
    pub(crate) fn text(&mut self, text: String) {
        let text = match &mut self.seams {
            Some(seams) => seams.text.join(&text),
            None => text,
        };
        if !text.is_empty() && !self.is_over {
            self.text_bytes += text.len();
            self.items.push_back(Ok(ChatEvent::Delta(text)));
        }
    }

    /// More text, in which the model declines to answer.
    pub(crate) fn refusal(&mut self, text: String) {
        self.declined |= !text.is_empty();
        self.text(text);
    }

    /// More reasoning.
    pub(crate) fn reasoning(&mut self, text: String) {
        let text = match &mut self.seams {
            Some(seams) => seams.reasoning.join(&text),
            None => text,
        };
        if !text.is_empty() && !self.is_over {
            self.reasoning_bytes += text.len();
            self.items.push_back(Ok(ChatEvent::Reasoning(text)));
        }
    }

    /// The reasoning since the last seal is this worker's.
    pub(crate) fn seal(&mut self, seal: Seal) {
        if !self.is_over {
            self.items.push_back(Ok(ChatEvent::ReasoningSealed(seal)));
        }
    }

    /// Whether any text came.
    pub(crate) fn has_text(&self) -> bool {
        self.text_bytes > 0
    }

    /// A tool that is to be called. It is published at the end: only then is it known whether a limit cut its arguments off. A
    /// call is dropped if the request offered no tools.
    pub(crate) fn tool_call(&mut self, call: ToolCall) {
        if self.offered == Offered::NoTools {
            return;
        }
        if self.calls.len() == TOOL_CALLS_MAX {
            return self.garbled(&format!("more than {TOOL_CALLS_MAX} calls of tools"));
        }
        self.calls.push(call);
    }

    /// A decoder keeps so many bytes more. False if they are too many, which has ended the answer.
    pub(crate) fn gather(&mut self, bytes: usize) -> bool {
        self.gathered_bytes += bytes;
        if self.gathered_bytes > GATHERED_BYTES_MAX {
            self.garbled(&format!("more than {GATHERED_BYTES_MAX} bytes of arguments and marks"));
        }
        !self.is_over
    }

    fn succeed(&mut self, reason: FinishReason) {
        if self.is_over {
            return;
        }
        let last_half = self.seams.as_mut().map(|seams| seams.text.end());
        self.text(last_half.unwrap_or_default());
        let mut tool_calls = 0;
        let mut call_bytes = 0;
        for mut call in std::mem::take(&mut self.calls) {
            if self.seams.is_some() {
                call.arguments = halves::joined(&call.arguments);
            }
            if call.name.is_empty() {
                return self.garbled("a call of a tool without a name");
            }
            call_bytes += call.arguments.len();
            // Arguments that are left out are none.
            if call.arguments.trim().is_empty() {
                "{}".clone_into(&mut call.arguments);
            }
            match serde_json::from_str::<Map<String, Value>>(&call.arguments) {
                Ok(_) => {
                    tool_calls += 1;
                    self.items.push_back(Ok(ChatEvent::ToolCall(call)));
                }
                // What a limit cut off is no call that anybody could make; the end says why.
                Err(_) if reason == FinishReason::Length => {}
                Err(error) => {
                    let name = call.name;
                    return self.garbled(&format!("arguments of tool `{name}` that are no object, {error}"));
                }
            }
        }
        let reason = match reason {
            FinishReason::Stop if self.declined => FinishReason::ContentFilter,
            // Servers say `stop` for it, and `tool_calls` for an answer without any.
            FinishReason::Stop if tool_calls > 0 => FinishReason::ToolCalls,
            FinishReason::ToolCalls if tool_calls == 0 => FinishReason::Stop,
            reason => reason,
        };
        self.is_over = true;
        let written_bytes = self.text_bytes + self.reasoning_bytes + call_bytes;
        let usage = self.usage.and_then(|usage| plausible(usage, written_bytes));
        self.items.push_back(Ok(ChatEvent::Finished { reason, usage }));
    }

    /// The answer failed.
    pub(crate) fn fail(&mut self, error: VendorError) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.items.push_back(Err(error));
        }
    }

    /// The answer failed, since the vendor sent `what`.
    pub(crate) fn garbled(&mut self, what: &str) {
        self.fail(self.faults.garbled(what));
    }
}

/// The usage, if it can be that of an answer of so many bytes. An answer that was written has taken tokens: where the vendor
/// counts none at all, it has not counted, and the caller estimates; where it counts the prompt only, the completion is
/// estimated.
fn plausible(usage: Usage, written_bytes: usize) -> Option<Usage> {
    if written_bytes == 0 || usage.completion_tokens > 0 {
        return Some(usage);
    }
    let completion_tokens = (written_bytes as u64).div_ceil(BYTES_PER_TOKEN);
    (usage.prompt_tokens > 0).then_some(Usage { completion_tokens, ..usage })
}

/// Reads an answer.
#[derive(Debug)]
pub(crate) struct AnswerReader {
    decoder: Box<dyn Decoder>,
    format: Format,
    /// Whether an event came, if only one that says that the vendor lives.
    has_begun: bool,
    pub(crate) answer: Answer,
}

#[derive(Debug)]
enum Format {
    /// Nothing but blanks came so far.
    Unknown,
    Events(SseParser),
    Whole(Vec<u8>),
}

impl AnswerReader {
    pub(crate) fn new(decoder: Box<dyn Decoder>, offered: Offered, faults: Faults) -> Self {
        Self { decoder, format: Format::Unknown, has_begun: false, answer: Answer::new(offered, faults) }
    }

    fn progress(&self) -> Progress {
        match (self.answer.reason, &self.format) {
            (Some(_), _) => Progress::Tail,
            (None, _) if self.answer.text_bytes > 0 => Progress::Text,
            // The pieces of a whole answer are text as well, though nobody can read them yet.
            (None, Format::Whole(_)) => Progress::Text,
            (None, Format::Events(_)) if self.has_begun => Progress::Silent,
            (None, Format::Events(_) | Format::Unknown) => Progress::Nothing,
        }
    }

    /// Reads more bytes. What comes after the last item is not looked at.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.answer.is_over {
            return;
        }
        let mut bytes = bytes;
        if matches!(self.format, Format::Unknown) {
            // The content type is not asked: servers lie about it. No line of a stream of events begins with a brace or a bracket.
            bytes = bytes.trim_ascii_start();
            self.format = match bytes {
                [] => return,
                [b'{' | b'[', ..] => Format::Whole(Vec::new()),
                _ => Format::Events(SseParser::new()),
            };
        }
        match &mut self.format {
            Format::Unknown => {}
            Format::Whole(whole) if whole.len() + bytes.len() > WHOLE_BYTES_MAX => {
                self.answer.items.push_back(Ok(ChatEvent::Unread(whole.len())));
                self.answer.garbled(&format!("an answer of more than {WHOLE_BYTES_MAX} bytes"));
            }
            Format::Whole(whole) => whole.extend_from_slice(bytes),
            Format::Events(parser) => {
                let mut events = Vec::new();
                let result = parser.push(bytes, &mut events);
                self.has_begun |= !events.is_empty();
                for event in &events {
                    self.event(event);
                }
                if let Err(error) = result {
                    self.answer.garbled(&error.to_string());
                }
            }
        }
    }

    /// The bytes are over, by `trouble` or because there are no more. An answer that is complete has no trouble.
    pub(crate) fn end(&mut self, trouble: Option<VendorError>) {
        if self.answer.is_over {
            return;
        }
        match std::mem::replace(&mut self.format, Format::Unknown) {
            Format::Whole(whole) if trouble.is_some() || is_half(&whole) => {
                self.answer.items.push_back(Ok(ChatEvent::Unread(whole.len())));
            }
            Format::Whole(whole) => {
                let mended = self.mended(&whole);
                self.decoder.whole(mended.as_deref().unwrap_or(&whole), &mut self.answer);
            }
            Format::Events(parser) => match parser.finish() {
                // A stream that broke off in the middle of a chunk ended early, which is said below.
                Ok(Some(last)) if !is_cut_off(&last) => self.event(&last),
                Ok(_) => {}
                Err(error) => self.answer.garbled(&error.to_string()),
            },
            Format::Unknown => {}
        }
        match (self.answer.reason, trouble) {
            (Some(reason), _) => self.complete(reason),
            (None, Some(trouble)) => self.answer.fail(trouble),
            (None, None) => {
                let bytes = self.answer.text_bytes;
                self.answer.garbled(&format!("an answer that ended early, after {bytes} bytes of text"));
            }
        }
    }

    fn event(&mut self, event: &SseEvent) {
        let data = event.data.trim_ascii();
        if self.answer.is_over || data.is_empty() {
            return;
        }
        if data == DONE {
            let assumed = self.decoder.ends_with_done().then_some(FinishReason::Stop);
            if let Some(reason) = self.answer.reason.or(assumed) {
                self.complete(reason);
            }
            return;
        }
        match self.mended(&event.data) {
            Some(data) => {
                let event = SseEvent { name: event.name.clone(), data };
                self.decoder.event(&event, &mut self.answer);
            }
            None => self.decoder.event(event, &mut self.answer),
        }
        if self.answer.is_complete {
            self.complete(self.answer.reason.unwrap_or(FinishReason::Stop));
        }
    }

    /// The same JSON with stand-ins, if it holds halves of characters.
    fn mended(&mut self, json: &[u8]) -> Option<Vec<u8>> {
        let mended = halves::with_stand_ins(json);
        if mended.is_some() {
            self.answer.seams.get_or_insert_default();
        }
        mended
    }

    fn complete(&mut self, reason: FinishReason) {
        if !self.answer.is_over {
            self.answer.reason = Some(reason);
            self.decoder.complete(&mut self.answer);
            self.answer.succeed(reason);
        }
    }
}

/// Whether an event that no blank line ended is only the beginning of one.
fn is_cut_off(event: &SseEvent) -> bool {
    let is_whole = event.name == b"error" || event.data.trim_ascii() == DONE;
    !is_whole && serde_json::from_slice::<IgnoredAny>(&event.data).is_err()
}

/// Whether an answer in one piece is only the beginning of one.
fn is_half(whole: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(whole).is_err_and(|error| error.is_eof())
}

#[cfg(test)]
mod tests {
    use podium_domain::ids::VendorId;
    use podium_domain::pool::{AccountLimits, Limits, Rates, Waits};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_word_on_usage_that_does_not_come_is_done_without() {
        let vendor = VendorId::new("v").unwrap();
        let day = Waits { connect_ms_max: 1, first_byte_ms_max: Waits::MS_MAX, idle_ms_max: Waits::MS_MAX };
        let limits = Limits {
            in_flight_max: 1,
            call_ms_max: Waits::MS_MAX,
            waits: day,
            rates: Rates::default(),
            account: AccountLimits::default(),
        };
        let end = br#"data: {"choices":[{"index":0,"delta":{"content":"why"},"finish_reason":"stop"}]}"#;
        let sent = stream::iter([Ok(Bytes::from([end.as_slice(), b"\n\n"].concat()))]);
        let clock = CallClock::start(vendor.clone(), &limits);
        let began = tokio::time::Instant::now();
        let faults = Faults::new(vendor, []);
        let reader = (crate::openai_chat::decoder(), Offered::NoTools);
        let answer = events(None, sent.chain(stream::pending()), reader, faults, clock);
        let items: Vec<_> = answer.collect().await;
        let finished = ChatEvent::Finished { reason: FinishReason::Stop, usage: None };
        assert_eq!(items.last().unwrap().as_ref().unwrap(), &finished);
        assert_eq!(began.elapsed(), TAIL_MAX);
    }
}
