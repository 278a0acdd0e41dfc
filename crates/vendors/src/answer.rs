//! Turns the bytes of an answer into events, for every wire format: a stream of server-sent events, or one JSON body from a
//! server that does not stream. A [`Decoder`] interprets the pieces.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use podium_domain::content::{Seal, ToolCall};
use podium_domain::token_estimate::text_tokens;
use podium_domain::usage::Usage;
use podium_ports::vendor::{ChatEvent, ChatRequest, FinishReason, ToolChoice, VendorError};
use serde::de::IgnoredAny;

use crate::call_clock::CallClock;
use crate::errors::ErrorBuilder;
use crate::sse::{SseEvent, SseParser};
use crate::surrogates::{self, Seams};

/// Longest answer that is not streamed, in bytes.
const WHOLE_BYTES_MAX: usize = 16 << 20;
/// Most bytes that a decoder may buffer: tool arguments and reasoning signatures.
const GATHERED_BYTES_MAX: usize = 4 << 20;
/// Most tool calls in one answer.
const TOOL_CALLS_MAX: usize = 128;

/// Some models write this as the arguments of a tool without parameters.
const NO_ARGUMENTS: &str = "null";

/// Longest wait after the end of the text for the usage that may follow.
const TAIL_MAX: Duration = Duration::from_secs(5);

/// Data of the last event of some formats.
pub(crate) const DONE: &[u8] = b"[DONE]";

pub(crate) type Item = Result<ChatEvent, VendorError>;

/// Decodes one wire format: reads the pieces of one answer into an [`Answer`].
pub(crate) trait Decoder: fmt::Debug + Send {
    /// Reads one event of a stream. Its data is not blank.
    fn event(&mut self, event: &SseEvent, answer: &mut Answer);

    /// Reads an answer that was not streamed.
    fn whole(&mut self, json: &[u8], answer: &mut Answer);

    /// Whether `[DONE]` ends an answer for which the vendor has given no finish reason. Formats with an end event of their
    /// own ignore a `[DONE]` that a proxy sends before it.
    fn ends_with_done(&self) -> bool {
        false
    }
}

/// Whether the request offered tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// Tool calls are part of the answer.
    Tools,
    /// Tool calls are dropped: the caller could not execute them.
    NoTools,
}

impl Offered {
    pub(crate) fn by(request: &ChatRequest) -> Self {
        let offers = request.tools.as_ref().is_some_and(|tools| tools.choice != ToolChoice::None);
        if offers { Self::Tools } else { Self::NoTools }
    }
}

/// The events of an answer whose headers have arrived. Ends after the first error or after `Finished`.
pub(crate) fn events(
    vendor_request_id: Option<String>,
    body: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
    decoder: Box<dyn Decoder>,
    offered: Offered,
    errors: ErrorBuilder,
    clock: CallClock,
) -> impl Stream<Item = Item> + Send {
    let mut reader = AnswerReader::new(decoder, offered, errors);
    reader.answer.items.push_back(Ok(ChatEvent::Started { vendor_request_id }));
    let call = Call { body: body.boxed(), reader, clock };
    stream::unfold(Some(call), |call| async {
        let mut call = call?;
        let item = call.next().await;
        let is_last = matches!(item, Err(_) | Ok(ChatEvent::Finished { .. }));
        Some((item, (!is_last).then_some(call)))
    })
}

/// A call in progress.
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
            // The text is complete: do not fail because of a late usage.
            Progress::Tail => self.clock.at_most(TAIL_MAX, next).await.flatten(),
        };
        more.transpose().map_err(|source| self.reader.answer.errors.unreachable(source))
    }
}

/// How far an answer has progressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// No event yet.
    Nothing,
    /// Events, but no text yet.
    Silent,
    /// Text has begun.
    Text,
    /// The text has ended; usage may follow.
    Tail,
}

/// A tool call that is being written.
#[derive(Debug)]
struct WrittenCall {
    call: ToolCall,
    /// Bytes of its arguments that were published; `None` before it was announced.
    published: Option<usize>,
}

/// The part of an answer that was read so far. `items` fills as pieces arrive; its last one is an error or `Finished`.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) errors: ErrorBuilder,
    /// The vendor's finish reason. More events may follow it.
    pub(crate) reason: Option<FinishReason>,
    /// The stop sequence that ended the answer, if the vendor named it.
    pub(crate) stop_sequence: Option<String>,
    /// Consumed tokens, as last reported.
    pub(crate) usage: Option<Usage>,
    /// The vendor has announced the end of the answer.
    pub(crate) is_complete: bool,
    offered: Offered,
    text_bytes: usize,
    /// Bytes of reasoning.
    reasoning_bytes: usize,
    gathered_bytes: usize,
    calls: Vec<WrittenCall>,
    declined: bool,
    /// Set once lone surrogates have come. Without them texts stay unchanged.
    seams: Option<Seams>,
    is_over: bool,
    pub(crate) items: VecDeque<Item>,
}

impl Answer {
    fn new(offered: Offered, errors: ErrorBuilder) -> Self {
        Self {
            errors,
            offered,
            reason: None,
            stop_sequence: None,
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

    /// Adds text.
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

    /// Adds text in which the model refuses to answer.
    pub(crate) fn refusal(&mut self, text: String) {
        self.declined |= !text.is_empty();
        self.text(text);
    }

    /// Adds reasoning.
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

    /// Seals the reasoning since the last seal as this worker's own.
    pub(crate) fn seal(&mut self, seal: Seal) {
        if !self.is_over {
            self.items.push_back(Ok(ChatEvent::ReasoningSealed(seal)));
        }
    }

    /// Whether any text came.
    pub(crate) fn has_text(&self) -> bool {
        self.text_bytes > 0
    }

    /// Begins a tool call and returns its position. `None` if the request offered no tools: calls are dropped then.
    ///
    /// A call is announced once its name is known.
    pub(crate) fn begin_call(&mut self, id: String, name: String) -> Option<usize> {
        if self.offered == Offered::NoTools || self.is_over {
            return None;
        }
        if self.calls.len() == TOOL_CALLS_MAX {
            self.garbled(&format!("more than {TOOL_CALLS_MAX} tool calls"));
            return None;
        }
        self.calls.push(WrittenCall { call: ToolCall::new(id, name, ""), published: None });
        self.publish_calls();
        Some(self.calls.len() - 1)
    }

    /// Names a call whose name came after its beginning.
    pub(crate) fn name_call(&mut self, index: usize, name: String) {
        if let Some(written) = self.calls.get_mut(index).filter(|written| written.call.name.is_empty()) {
            written.call.name = name;
            self.publish_calls();
        }
    }

    /// Adds a piece to the arguments of a call.
    pub(crate) fn call_arguments(&mut self, index: usize, text: &str) {
        if let Some(written) = self.calls.get_mut(index) {
            written.call.arguments.push_str(text);
            self.publish_calls();
        }
    }

    /// Adds a whole tool call.
    pub(crate) fn tool_call(&mut self, call: ToolCall) {
        let ToolCall { id, name, arguments, seal, .. } = call;
        if let Some(index) = self.begin_call(id, name) {
            self.calls[index].call.seal = seal;
            self.call_arguments(index, &arguments);
        }
    }

    /// Publishes what is new of the calls. A call without a name holds back all calls after it, so that positions have no gaps.
    /// Arguments with placeholders are published at the end only.
    fn publish_calls(&mut self) {
        if self.is_over {
            return;
        }
        for (index, written) in self.calls.iter_mut().enumerate() {
            let WrittenCall { call, published } = written;
            if call.name.is_empty() {
                return;
            }
            let published = published.get_or_insert_with(|| {
                self.items.push_back(Ok(ChatEvent::ToolCallBegun { index, name: call.name.clone() }));
                0
            });
            // Blank arguments, and null, mean none.
            let may_be_none = NO_ARGUMENTS.starts_with(call.arguments.trim());
            if self.seams.is_none() && !may_be_none && *published < call.arguments.len() {
                let text = call.arguments[*published..].to_owned();
                *published = call.arguments.len();
                self.items.push_back(Ok(ChatEvent::ToolArguments { index, text }));
            }
        }
    }

    /// Counts bytes that a decoder buffers. Returns false, and fails the answer, above the limit.
    pub(crate) fn gather(&mut self, bytes: usize) -> bool {
        self.gathered_bytes += bytes;
        if self.gathered_bytes > GATHERED_BYTES_MAX {
            self.garbled(&format!("more than {GATHERED_BYTES_MAX} bytes of tool arguments and signatures"));
        }
        !self.is_over
    }

    fn succeed(&mut self, reason: FinishReason) {
        if self.is_over {
            return;
        }
        let last_surrogate = self.seams.as_mut().map(|seams| seams.text.end());
        self.text(last_surrogate.unwrap_or_default());
        let tool_calls = self.calls.len();
        let mut call_bytes = 0;
        for WrittenCall { mut call, .. } in std::mem::take(&mut self.calls) {
            if self.seams.is_some() {
                call.arguments = surrogates::joined(&call.arguments);
            }
            if call.name.is_empty() {
                return self.garbled("a tool call without a name");
            }
            call_bytes += call.arguments.len();
            // Missing arguments mean an empty object. Arguments that a limit cut off, or that are not JSON, are the caller's to judge.
            if matches!(call.arguments.trim(), "" | NO_ARGUMENTS) {
                "{}".clone_into(&mut call.arguments);
            }
            self.items.push_back(Ok(ChatEvent::ToolCall(call)));
        }
        let reason = match reason {
            FinishReason::Stop if self.declined => FinishReason::ContentFilter,
            // Some servers report `stop` with tool calls, and `tool_calls` without any.
            FinishReason::Stop if tool_calls > 0 => FinishReason::ToolCalls,
            FinishReason::ToolCalls if tool_calls == 0 => FinishReason::Stop,
            reason => reason,
        };
        self.is_over = true;
        let written_bytes = self.text_bytes + self.reasoning_bytes + call_bytes;
        let usage = self.usage.and_then(|usage| plausible(usage, written_bytes));
        if let (FinishReason::Stop, Some(stop)) = (reason, self.stop_sequence.take()) {
            self.items.push_back(Ok(ChatEvent::StopSequence(stop)));
        }
        self.items.push_back(Ok(ChatEvent::Finished { reason, usage }));
    }

    /// Fails the answer; only the first error counts.
    pub(crate) fn fail(&mut self, error: VendorError) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.items.push_back(Err(error));
        }
    }

    /// Fails the answer because of `what` the vendor sent.
    pub(crate) fn garbled(&mut self, what: &str) {
        self.fail(self.errors.garbled(what));
    }
}

/// Corrects a usage that cannot be right for an answer of `written_bytes`. If the vendor counted nothing, the usage is
/// unknown and the caller estimates it. If it counted the prompt only, the completion is estimated from its bytes.
fn plausible(usage: Usage, written_bytes: usize) -> Option<Usage> {
    if written_bytes == 0 || usage.completion_tokens > 0 {
        return Some(usage);
    }
    let completion_tokens = text_tokens(written_bytes);
    (usage.prompt_tokens > 0).then_some(Usage { completion_tokens, ..usage })
}

/// Reads the bytes of one answer.
#[derive(Debug)]
pub(crate) struct AnswerReader {
    decoder: Box<dyn Decoder>,
    format: Format,
    /// Whether an event has arrived, even if only a keep-alive.
    has_begun: bool,
    pub(crate) answer: Answer,
}

#[derive(Debug)]
enum Format {
    /// Only blanks have arrived so far.
    Unknown,
    Events(SseParser),
    Whole(Vec<u8>),
}

impl AnswerReader {
    pub(crate) fn new(decoder: Box<dyn Decoder>, offered: Offered, errors: ErrorBuilder) -> Self {
        Self { decoder, format: Format::Unknown, has_begun: false, answer: Answer::new(offered, errors) }
    }

    fn progress(&self) -> Progress {
        match (self.answer.reason, &self.format) {
            (Some(_), _) => Progress::Tail,
            (None, _) if self.answer.text_bytes > 0 || !self.answer.calls.is_empty() => Progress::Text,
            // The bytes of a JSON body count as text, though nothing can be decoded yet.
            (None, Format::Whole(_)) => Progress::Text,
            (None, Format::Events(_)) if self.has_begun => Progress::Silent,
            (None, Format::Events(_) | Format::Unknown) => Progress::Nothing,
        }
    }

    /// Reads more bytes. Bytes after the last item are ignored.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.answer.is_over {
            return;
        }
        let mut bytes = bytes;
        if matches!(self.format, Format::Unknown) {
            // The content type is not used: servers lie about it. No line of an event stream begins with a brace or a bracket.
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
                self.answer.garbled(&format!("a body of more than {WHOLE_BYTES_MAX} bytes"));
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

    /// Ends the answer because the bytes ended, with or without an error. An answer that is already complete ignores the error.
    pub(crate) fn end(&mut self, trouble: Option<VendorError>) {
        if self.answer.is_over {
            return;
        }
        match std::mem::replace(&mut self.format, Format::Unknown) {
            Format::Whole(whole) if trouble.is_some() || is_truncated(&whole) => {
                self.answer.items.push_back(Ok(ChatEvent::Unread(whole.len())));
            }
            Format::Whole(whole) => {
                let replaced = self.replaced(&whole);
                self.decoder.whole(replaced.as_deref().unwrap_or(&whole), &mut self.answer);
            }
            Format::Events(parser) => match parser.finish() {
                // A stream cut in the middle of a chunk is reported as ended early below.
                Ok(Some(last)) if !is_truncated_event(&last) => self.event(&last),
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
                self.answer.garbled(&format!(
                    "an answer that ended after {bytes} bytes of text without a finish reason"
                ));
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
        match self.replaced(&event.data) {
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

    /// The same JSON with placeholders, if it contains lone surrogates.
    fn replaced(&mut self, json: &[u8]) -> Option<Vec<u8>> {
        let replaced = surrogates::with_placeholders(json);
        if replaced.is_some() {
            self.answer.seams.get_or_insert_default();
        }
        replaced
    }

    fn complete(&mut self, reason: FinishReason) {
        if !self.answer.is_over {
            self.answer.reason = Some(reason);
            self.answer.succeed(reason);
        }
    }
}

/// Whether the data of an event without a final blank line is truncated.
fn is_truncated_event(event: &SseEvent) -> bool {
    let is_whole = event.name == b"error" || event.data.trim_ascii() == DONE;
    !is_whole && serde_json::from_slice::<IgnoredAny>(&event.data).is_err()
}

/// Whether a JSON body is truncated.
fn is_truncated(whole: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(whole).is_err_and(|error| error.is_eof())
}

#[cfg(test)]
mod tests {
    use podium_domain::ids::VendorId;
    use podium_domain::pool::{AccountLimits, Limits, Rates, Waits};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_finishes_without_late_usage() {
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
        let errors = ErrorBuilder::new(vendor, []);
        let worker = podium_testkit::a_worker("openai-chat", "");
        let decoder = crate::format::of(worker.api).decoder(&worker, &ChatRequest::new(Vec::new(), 1));
        let body = sent.chain(stream::pending());
        let answer = events(None, body, decoder, Offered::NoTools, errors, clock);
        let items: Vec<_> = answer.collect().await;
        let finished = ChatEvent::Finished { reason: FinishReason::Stop, usage: None };
        assert_eq!(items.last().unwrap().as_ref().unwrap(), &finished);
        assert_eq!(began.elapsed(), TAIL_MAX);
    }
}
