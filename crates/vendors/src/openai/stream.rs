//! From the bytes of an answer to its events: a stream of chunks, or one whole JSON answer from a server that does not stream.

use std::collections::VecDeque;

use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use podium_domain::usage::Usage;
use podium_ports::vendor::{ChatEvent, FinishReason, VendorError};
use serde::de::IgnoredAny;

use super::error::{Faults, json_or_text};
use super::sse::{SseEvent, SseParser};
use super::wire::{AnswerBody, Chunk, UsageBody};
use crate::call_clock::CallClock;
use crate::http_vendors::WaitLimits;

/// Most bytes of an answer that is not streamed.
const WHOLE_BYTES_MAX: usize = 16 << 20;

/// What stands after the last chunk.
const DONE: &[u8] = b"[DONE]";

type Item = Result<ChatEvent, VendorError>;

/// The events of an answer whose head is there. Ends after the first error, or after `Finished`.
pub(super) fn events(
    vendor_request_id: Option<String>,
    body: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
    faults: Faults,
    clock: CallClock,
    waits: WaitLimits,
) -> impl Stream<Item = Item> + Send {
    let mut reader = AnswerReader::new(faults);
    reader.items.push_back(Ok(ChatEvent::Started { vendor_request_id }));
    let call = Call { body: body.boxed(), reader, clock, waits };
    stream::unfold(Some(call), |call| async {
        let mut call = call?;
        let item = call.next().await;
        let goes_on = matches!(item, Ok(ChatEvent::Started { .. } | ChatEvent::Delta(_)));
        Some((item, goes_on.then_some(call)))
    })
}

/// A call under way.
struct Call {
    body: BoxStream<'static, reqwest::Result<Bytes>>,
    reader: AnswerReader,
    clock: CallClock,
    waits: WaitLimits,
}

impl Call {
    async fn next(&mut self) -> Item {
        loop {
            if let Some(item) = self.reader.items.pop_front() {
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
        let wait_max = match self.reader.progress() {
            Progress::Silent => None,
            Progress::Text => Some(self.waits.gap_max),
            Progress::Tail => Some(self.waits.tail_max),
        };
        let more = self.clock.wait(wait_max, self.body.next()).await?;
        more.transpose().map_err(|source| self.reader.faults.unreachable(source))
    }
}

/// How far an answer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// No text yet.
    Silent,
    /// Text has begun.
    Text,
    /// The text has ended; a word on usage may follow.
    Tail,
}

/// Reads an answer. `items` fills as bytes come; its last one is an error or `Finished`.
#[derive(Debug)]
pub(super) struct AnswerReader {
    faults: Faults,
    format: Format,
    text_bytes: usize,
    reason: Option<FinishReason>,
    usage: Option<Usage>,
    is_over: bool,
    pub(super) items: VecDeque<Item>,
}

#[derive(Debug)]
enum Format {
    /// Nothing but blanks came so far.
    Unknown,
    Events(SseParser),
    Whole(Vec<u8>),
}

impl AnswerReader {
    pub(super) fn new(faults: Faults) -> Self {
        Self {
            faults,
            format: Format::Unknown,
            text_bytes: 0,
            reason: None,
            usage: None,
            is_over: false,
            items: VecDeque::new(),
        }
    }

    fn progress(&self) -> Progress {
        match self.reason {
            Some(_) => Progress::Tail,
            None if self.text_bytes > 0 => Progress::Text,
            None => Progress::Silent,
        }
    }

    /// Reads more bytes. What comes after the last item is not looked at.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.is_over {
            return;
        }
        let mut bytes = bytes;
        if matches!(self.format, Format::Unknown) {
            // The content type is not asked: servers lie about it. No line of a stream of events begins with a brace.
            bytes = bytes.trim_ascii_start();
            self.format = match bytes {
                [] => return,
                [b'{', ..] => Format::Whole(Vec::new()),
                _ => Format::Events(SseParser::new()),
            };
        }
        match &mut self.format {
            Format::Unknown => {}
            Format::Whole(whole) if whole.len() + bytes.len() > WHOLE_BYTES_MAX => {
                self.fail_garbled(&format!("an answer of more than {WHOLE_BYTES_MAX} bytes"));
            }
            Format::Whole(whole) => whole.extend_from_slice(bytes),
            Format::Events(parser) => {
                let mut events = Vec::new();
                let result = parser.push(bytes, &mut events);
                for event in &events {
                    self.event(event);
                }
                if let Err(error) = result {
                    self.fail_garbled(&error.to_string());
                }
            }
        }
    }

    /// The bytes are over, by `trouble` or because there are no more. An answer that is complete has no trouble.
    pub(super) fn end(&mut self, trouble: Option<VendorError>) {
        if self.is_over {
            return;
        }
        match std::mem::replace(&mut self.format, Format::Unknown) {
            Format::Whole(whole) if trouble.is_none() => self.whole(&whole),
            Format::Events(parser) => match parser.finish() {
                // A stream that broke off in the middle of a chunk ended early, which is said below.
                Ok(Some(last)) if !is_cut_off(&last) => self.event(&last),
                Ok(_) => {}
                Err(error) => self.fail_garbled(&error.to_string()),
            },
            Format::Unknown | Format::Whole(_) => {}
        }
        match (self.reason, trouble) {
            (Some(reason), _) => self.succeed(reason),
            (None, Some(trouble)) => self.fail(trouble),
            (None, None) => {
                self.fail_garbled(&format!(
                    "an answer that ended early, after {} bytes of text",
                    self.text_bytes
                ));
            }
        }
    }

    fn event(&mut self, event: &SseEvent) {
        let data = event.data.trim_ascii();
        if self.is_over || data.is_empty() {
            return;
        }
        if data == DONE {
            return self.succeed(self.reason.unwrap_or(FinishReason::Stop));
        }
        if event.name == b"error" {
            return self.fail(self.faults.in_stream(&json_or_text(data)));
        }
        match serde_json::from_slice(data) {
            Ok(chunk) => self.chunk(chunk),
            Err(error) => self.fail_garbled(&format!("a chunk, {error}")),
        }
    }

    fn whole(&mut self, json: &[u8]) {
        match serde_json::from_slice::<Chunk>(json) {
            Ok(chunk) => {
                let has_answer = !chunk.choices.is_empty();
                self.chunk(chunk);
                if has_answer {
                    self.reason.get_or_insert(FinishReason::Stop);
                }
            }
            Err(error) => self.fail_garbled(&format!("an answer in one piece, {error}")),
        }
    }

    fn chunk(&mut self, chunk: Chunk) {
        if let Some(error) = chunk.error {
            return self.fail(self.faults.in_stream(&error));
        }
        if chunk.object.as_deref() == Some("error") {
            return self.fail_garbled("an error without a description");
        }
        if let Some(usage) = chunk.usage.or(chunk.x_groq.and_then(|groq| groq.usage)) {
            self.usage = Some(usage_of(&usage));
        }
        for choice in chunk.choices.into_iter().filter(|choice| choice.index.unwrap_or(0) == 0) {
            if let Some(answer) = choice.delta.or(choice.message) {
                self.text(answer);
            }
            match choice.finish_reason.as_deref() {
                None | Some("") => {}
                Some(word) => match finish_reason(word) {
                    Some(reason) => self.reason = Some(reason),
                    None => return self.fail(self.faults.gave_up(word)),
                },
            }
        }
    }

    fn text(&mut self, answer: AnswerBody) {
        for text in [answer.content.0, answer.refusal.0] {
            if !text.is_empty() {
                self.text_bytes += text.len();
                self.items.push_back(Ok(ChatEvent::Delta(text)));
            }
        }
    }

    fn succeed(&mut self, reason: FinishReason) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.items.push_back(Ok(ChatEvent::Finished { reason, usage: self.usage }));
        }
    }

    fn fail(&mut self, error: VendorError) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.items.push_back(Err(error));
        }
    }

    fn fail_garbled(&mut self, what: &str) {
        self.fail(self.faults.garbled(what));
    }
}

/// Whether an event that no blank line ended is only the beginning of one.
fn is_cut_off(event: &SseEvent) -> bool {
    let is_whole = event.name == b"error" || event.data.trim_ascii() == DONE;
    !is_whole && serde_json::from_slice::<IgnoredAny>(&event.data).is_err()
}

/// What a word for the end of an answer means; none for the words of a server that gave up in the middle.
fn finish_reason(word: &str) -> Option<FinishReason> {
    match word {
        "length" | "max_tokens" | "model_length" => Some(FinishReason::Length),
        "content_filter" | "safety" => Some(FinishReason::ContentFilter),
        "error" | "abort" | "insufficient_system_resource" => None,
        // `stop` by all its names. No tools were offered, so that a call of one is only another odd way to end.
        _ => Some(FinishReason::Stop),
    }
}

/// Cached tokens are part of the prompt's, reasoning tokens part of the completion's, whatever the server thinks.
fn usage_of(body: &UsageBody) -> Usage {
    let cached = body.prompt_tokens_details.as_ref().map_or(0, |details| details.cached_tokens.0);
    let reasoning = body.completion_tokens_details.as_ref().map_or(0, |details| details.reasoning_tokens.0);
    let reasoning = reasoning.max(body.reasoning_tokens.0);
    let (prompt, mut completion) = (body.prompt_tokens.0, body.completion_tokens.0);
    // xAI leaves reasoning out of the completion; its total tells.
    let counts_apart = prompt.saturating_add(completion).saturating_add(reasoning) == body.total_tokens.0;
    if counts_apart {
        completion = completion.saturating_add(reasoning);
    }
    Usage {
        prompt_tokens: prompt,
        cached_tokens: cached.max(body.prompt_cache_hit_tokens.0).max(body.cached_tokens.0).min(prompt),
        completion_tokens: completion,
        reasoning_tokens: reasoning.min(completion),
    }
}
