//! The events of a streamed response.

use podium_domain::run::{Run, RunState};
use serde::Serialize;

use super::body::{Body, Moment, ResponseWriter};
use super::custom_input::CustomInput;
use super::id::{ResponseId, late_message_id, output_call_id, output_message_id, reasoning_id, summary_id};
use super::items::{CallNames, Content, Item, ItemStatus, Phase, Summary, answer_status, message};
use super::pieces::Pieces;
use crate::call_queue::{CallPiece, CallQueue};
use crate::finish::refusal_text;
use crate::json::text_of;
use crate::openai::tool_forms::ToolKind;
use crate::{ApiError, StreamEvent, StreamEvents};

/// Writes the events of a response, with consecutive numbers from 0. The same run always has the same events, whenever and by
/// whatever process they are written.
///
/// The items follow each other: reasoning, a message, and then the calls, each of which begins once the one before it is whole. If a
/// worker writes text after its calls, the stream ends with that text, and its numbers are those of this stream only.
#[derive(Debug)]
pub struct ResponseStream {
    writer: ResponseWriter,
    id: ResponseId,
    /// The number of the next event.
    next: u64,
    /// The client has the events up to this number.
    after: Option<u64>,
    /// The reasoning that waits for the answer: if another attempt begins before that, it is not the answer's.
    reasoning: String,
    /// The number of items that have begun.
    item_count: u32,
    open: Option<OpenItem>,
    calls: CallQueue,
    /// The number of calls that have begun.
    call_count: usize,
    /// Text after the first call.
    late_text: String,
}

/// The item that is being written.
#[derive(Debug)]
struct OpenItem {
    id: String,
    output_index: u32,
    kind: ItemKind,
    pieces: Pieces,
    /// The text of the message, or the arguments of the call, so far.
    text: String,
}

#[derive(Debug)]
enum ItemKind {
    Message,
    /// Its arguments are streamed.
    Function(CallNames),
    /// The text in its arguments is streamed.
    Custom(CallNames, CustomInput),
    /// Its arguments are shown at its end.
    Search(CallNames),
}

/// An event. All have their name and their number.
#[derive(Serialize)]
struct Numbered<'a, T> {
    r#type: &'a str,
    sequence_number: u64,
    #[serde(flatten)]
    fields: T,
}

#[derive(Serialize)]
struct OfResponse<'a> {
    response: Body<'a>,
}

#[derive(Serialize)]
struct OfItem<'a> {
    output_index: u32,
    item: Item<'a>,
}

#[derive(Serialize)]
struct OfPart<'a> {
    /// Not part of OpenAI's API. OGX and its clients expect it.
    response_id: String,
    item_id: &'a str,
    output_index: u32,
    content_index: u32,
    part: Content<'a>,
}

/// A part of the summary of a reasoning item, a delta of it, or all of it.
#[derive(Clone, Copy, Serialize)]
struct OfSummary<'a> {
    item_id: &'a str,
    output_index: u32,
    summary_index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<Summary<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

/// A delta of a text, a complete text, or a complete refusal.
#[derive(Serialize)]
struct OfText<'a> {
    item_id: &'a str,
    output_index: u32,
    content_index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<[(); 0]>,
}

/// A delta of the arguments of a function, or the complete arguments.
#[derive(Serialize)]
struct OfArguments<'a> {
    item_id: &'a str,
    output_index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a str>,
    /// The text for a custom tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a str>,
}

impl<'a> OfArguments<'a> {
    const fn of(item_id: &'a str, output_index: u32) -> Self {
        Self { item_id, output_index, delta: None, name: None, arguments: None, input: None }
    }
}

/// An error, in both forms in which clients look for it.
#[derive(Serialize)]
struct OfError<'a> {
    code: &'static str,
    message: &'a str,
    param: Option<&'a str>,
    error: NestedError<'a>,
}

#[derive(Serialize)]
struct NestedError<'a> {
    r#type: &'static str,
    code: &'static str,
    message: &'a str,
    param: Option<&'a str>,
}

impl ResponseStream {
    /// The stream of a run's response, which `writer` writes, without the events up to number `after`.
    pub fn of(run: &Run, writer: ResponseWriter, after: Option<u64>) -> Self {
        Self {
            writer,
            id: ResponseId::of(run),
            next: 0,
            after,
            reasoning: String::new(),
            item_count: 0,
            open: None,
            calls: CallQueue::new(),
            call_count: 0,
            late_text: String::new(),
        }
    }

    /// The response.
    pub const fn id(&self) -> ResponseId {
        self.id
    }

    /// The first events.
    pub fn open(&mut self, run: &Run, events: &mut StreamEvents) {
        for (name, moment) in
            [("response.created", Moment::Accepted), ("response.in_progress", Moment::Begun)]
        {
            self.response(name, run, moment, events);
        }
    }

    /// The next reasoning. Its events follow with the first text or call.
    pub fn reasoning(&mut self, text: &str) {
        self.reasoning.push_str(text);
    }

    /// The reasoning so far is void.
    pub fn restart_reasoning(&mut self) {
        self.reasoning.clear();
    }

    /// The events for the next text of the answer.
    pub fn text(&mut self, text: &str, events: &mut StreamEvents) {
        self.show_reasoning(events);
        if !self.calls.is_empty() {
            self.late_text.push_str(text);
            return;
        }
        if self.open.is_none() {
            self.open_message(&output_message_id(self.id), events);
        }
        self.write(text, events);
    }

    /// The events for the next function call of the answer.
    pub fn call_begun(&mut self, call_id: &str, name: &str, events: &mut StreamEvents) {
        self.show_reasoning(events);
        let pieces = self.calls.begin(call_id, name);
        self.show_calls(pieces, events);
    }

    /// The events for the next arguments of the call at position `index`.
    pub fn call_arguments(&mut self, index: usize, text: &str, events: &mut StreamEvents) {
        let pieces = self.calls.add(index, text);
        self.show_calls(pieces, events);
    }

    /// The events for the end of the run.
    pub fn close(&mut self, run: &Run, events: &mut StreamEvents) {
        let name = match run.state() {
            RunState::Succeeded { .. } | RunState::Suspended => {
                self.close_items(run, events);
                match answer_status(run) {
                    ItemStatus::Incomplete => "response.incomplete",
                    ItemStatus::InProgress | ItemStatus::Completed => "response.completed",
                }
            }
            // There is no event for a cancelled response; its status says it.
            RunState::Failed { .. } | RunState::Cancelled | RunState::Active => "response.failed",
        };
        self.response(name, run, Moment::Now, events);
        events.push_back(StreamEvent::unnamed("[DONE]".to_owned()));
    }

    /// The event for an error, after which nothing follows.
    pub fn error(&self, error: &ApiError) -> StreamEvent {
        numbered_error(error, self.next)
    }

    fn show_calls(&mut self, pieces: Vec<CallPiece>, events: &mut StreamEvents) {
        for piece in pieces {
            match piece {
                CallPiece::Begun { id, name } => {
                    self.close_item(ItemStatus::Completed, None, events);
                    self.open_call(&id, &name, events);
                }
                CallPiece::Arguments(text) => self.write(&text, events),
            }
        }
    }

    /// Ends the items of a run that succeeded.
    fn close_items(&mut self, run: &Run, events: &mut StreamEvents) {
        self.show_reasoning(events);
        let waiting = self.calls.finish();
        self.show_calls(waiting, events);
        if self.open.is_none() {
            self.open_message(&output_message_id(self.id), events);
        }
        self.close_item(answer_status(run), run.refusal().map(refusal_text), events);
        let late = std::mem::take(&mut self.late_text);
        if !late.is_empty() {
            self.open_message(&late_message_id(self.id), events);
            self.write(&late, events);
            self.close_item(ItemStatus::Completed, None, events);
        }
        if let Some(item) = self.writer.reasoning_item(run) {
            let output_index = self.item_count;
            self.item_count += 1;
            let added =
                Item::Reasoning { id: reasoning_id(self.id), summary: Vec::new(), encrypted_content: None };
            self.push("response.output_item.added", OfItem { output_index, item: added }, events);
            self.push("response.output_item.done", OfItem { output_index, item }, events);
        }
    }

    /// Writes the item of the reasoning that waits.
    fn show_reasoning(&mut self, events: &mut StreamEvents) {
        let text = std::mem::take(&mut self.reasoning);
        if text.is_empty() {
            return;
        }
        let (id, output_index) = (summary_id(self.id), self.item_count);
        self.item_count += 1;
        let fields =
            OfSummary { item_id: &id, output_index, summary_index: 0, part: None, delta: None, text: None };
        let part = |text| Some(Summary::SummaryText { text });
        let item = |summary| OfItem { output_index, item: Item::summary(self.id, summary) };
        let (added, done) = (item(Vec::new()), item(vec![Summary::SummaryText { text: &text }]));
        self.push("response.output_item.added", added, events);
        self.push("response.reasoning_summary_part.added", OfSummary { part: part(""), ..fields }, events);
        let mut pieces = Pieces::default();
        for piece in pieces.push(&text).into_iter().chain(pieces.finish()) {
            let delta = OfSummary { delta: Some(&piece), ..fields };
            self.push("response.reasoning_summary_text.delta", delta, events);
        }
        self.push("response.reasoning_summary_text.done", OfSummary { text: Some(&text), ..fields }, events);
        self.push("response.reasoning_summary_part.done", OfSummary { part: part(&text), ..fields }, events);
        self.push("response.output_item.done", done, events);
    }

    fn open_message(&mut self, id: &str, events: &mut StreamEvents) {
        let output_index = self.item_count;
        let item = message(id.to_owned(), ItemStatus::InProgress, None, Vec::new());
        self.open_item(OpenItem::new(id.to_owned(), output_index, ItemKind::Message), item, events);
        let part = Content::output("");
        let response_id = self.id.to_string();
        let fields = OfPart { response_id, item_id: id, output_index, content_index: 0, part };
        self.push("response.content_part.added", fields, events);
    }

    fn open_call(&mut self, call_id: &str, name: &str, events: &mut StreamEvents) {
        let names = CallNames::of(call_id, name, self.writer.tool_forms());
        let id = output_call_id(self.id, names.kind(), self.call_count);
        self.call_count += 1;
        let kind = match names.kind() {
            ToolKind::Function => ItemKind::Function(names.clone()),
            ToolKind::Custom { .. } => ItemKind::Custom(names.clone(), CustomInput::default()),
            ToolKind::Search => ItemKind::Search(names.clone()),
        };
        let item = Item::of_call(id.clone(), ItemStatus::InProgress, names, String::new());
        self.open_item(OpenItem::new(id, self.item_count, kind), item, events);
    }

    fn open_item(&mut self, open: OpenItem, item: Item<'_>, events: &mut StreamEvents) {
        let output_index = open.output_index;
        self.item_count += 1;
        self.open = Some(open);
        self.push("response.output_item.added", OfItem { output_index, item }, events);
    }

    /// Adds text to the open item.
    fn write(&mut self, text: &str, events: &mut StreamEvents) {
        let Some(open) = &mut self.open else { return };
        let pieces = match &mut open.kind {
            ItemKind::Message | ItemKind::Function(_) => open.show(text),
            ItemKind::Custom(_, input) => {
                let text = input.push(text);
                open.show(&text)
            }
            ItemKind::Search(_) => {
                open.text.push_str(text);
                Vec::new()
            }
        };
        for piece in pieces {
            self.delta(&piece, events);
        }
    }

    fn delta(&mut self, piece: &str, events: &mut StreamEvents) {
        let Some(OpenItem { id, output_index, kind, .. }) = &self.open else { return };
        let (item_id, output_index) = (id.clone(), *output_index);
        let delta = Some(piece);
        let name = match kind {
            ItemKind::Message => {
                let fields = OfText { delta, logprobs: Some([]), ..OfText::of(&item_id, output_index) };
                self.push("response.output_text.delta", fields, events);
                return;
            }
            ItemKind::Custom(..) => "response.custom_tool_call_input.delta",
            ItemKind::Function(_) | ItemKind::Search(_) => "response.function_call_arguments.delta",
        };
        self.push(name, OfArguments { delta, ..OfArguments::of(&item_id, output_index) }, events);
    }

    /// Ends the open item. `refusal` are the words of a worker that refused to answer.
    fn close_item(&mut self, status: ItemStatus, refusal: Option<&str>, events: &mut StreamEvents) {
        for last in self.open.as_mut().map(OpenItem::finish).unwrap_or_default() {
            self.delta(&last, events);
        }
        let Some(OpenItem { id, output_index, kind, text, .. }) = self.open.take() else { return };
        let arguments = OfArguments::of(&id, output_index);
        let item = match kind {
            ItemKind::Message => {
                self.close_text(&id, output_index, &text, refusal, events);
                let phase = if self.calls.is_empty() { Phase::FinalAnswer } else { Phase::Commentary };
                message(id, status, Some(phase), vec![content_of(&text, refusal)])
            }
            ItemKind::Function(names) => {
                let name = Some(names.form.as_ref().map_or(names.offered.as_str(), |form| &form.name));
                let fields = OfArguments { name, arguments: Some(&text), ..arguments };
                self.push("response.function_call_arguments.done", fields, events);
                Item::of_call(id, status, names, text)
            }
            ItemKind::Custom(names, _) => {
                let fields = OfArguments { input: Some(&text), ..arguments };
                self.push("response.custom_tool_call_input.done", fields, events);
                Item::of_call(id, status, names, text)
            }
            ItemKind::Search(names) => Item::of_call(id, status, names, text),
        };
        self.push("response.output_item.done", OfItem { output_index, item }, events);
    }

    fn close_text(
        &mut self,
        item_id: &str,
        output_index: u32,
        text: &str,
        refusal: Option<&str>,
        events: &mut StreamEvents,
    ) {
        let fields = OfText::of(item_id, output_index);
        // The words of a refusal were sent as text, because a worker says at the end only that it refuses.
        if refusal.is_some() {
            self.push("response.refusal.done", OfText { refusal, ..fields }, events);
        } else {
            let fields = OfText { text: Some(text), logprobs: Some([]), ..fields };
            self.push("response.output_text.done", fields, events);
        }
        let (response_id, part) = (self.id.to_string(), content_of(text, refusal));
        let fields = OfPart { response_id, item_id, output_index, content_index: 0, part };
        self.push("response.content_part.done", fields, events);
    }

    fn response(&mut self, name: &'static str, run: &Run, moment: Moment, events: &mut StreamEvents) {
        let sequence_number = self.take_number();
        if self.is_sent(sequence_number) {
            return;
        }
        let fields = OfResponse { response: self.writer.body(run, moment) };
        let numbered = Numbered { r#type: name, sequence_number, fields };
        events.push_back(StreamEvent::named(name, text_of(&numbered)));
    }

    fn push(&mut self, name: &'static str, fields: impl Serialize, events: &mut StreamEvents) {
        let sequence_number = self.take_number();
        if self.is_sent(sequence_number) {
            return;
        }
        let numbered = Numbered { r#type: name, sequence_number, fields };
        events.push_back(StreamEvent::named(name, text_of(&numbered)));
    }

    fn take_number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    fn is_sent(&self, number: u64) -> bool {
        self.after.is_some_and(|after| number <= after)
    }
}

impl OpenItem {
    fn new(id: String, output_index: u32, kind: ItemKind) -> Self {
        Self { id, output_index, kind, pieces: Pieces::default(), text: String::new() }
    }

    /// Adds text that the client sees. Returns the pieces that it completes.
    fn show(&mut self, text: &str) -> Vec<String> {
        self.text.push_str(text);
        self.pieces.push(text)
    }

    /// The pieces that still wait, once the item is complete.
    fn finish(&mut self) -> Vec<String> {
        let mut pieces = match &mut self.kind {
            ItemKind::Custom(_, input) => {
                let rest = input.finish();
                self.show(&rest)
            }
            ItemKind::Message | ItemKind::Function(_) | ItemKind::Search(_) => Vec::new(),
        };
        pieces.extend(self.pieces.finish());
        pieces
    }
}

/// The content of a message: its text, or the words of a worker that refused to answer.
fn content_of<'a>(text: &'a str, refusal: Option<&'a str>) -> Content<'a> {
    match refusal {
        Some(refusal) => Content::Refusal { refusal },
        None => Content::output(text),
    }
}

/// An event with a response of which no run exists.
pub(super) fn response_event(name: &'static str, sequence_number: u64, response: Body<'_>) -> StreamEvent {
    let fields = OfResponse { response };
    StreamEvent::named(name, text_of(&Numbered { r#type: name, sequence_number, fields }))
}

/// The event for an error before any other event.
pub fn error_event(error: &ApiError) -> StreamEvent {
    numbered_error(error, 0)
}

fn numbered_error(error: &ApiError, sequence_number: u64) -> StreamEvent {
    let (mapping, message, param) = (error.code.mapping(), error.message.as_str(), error.param());
    let code = mapping.code;
    let nested = NestedError { r#type: mapping.kind, code, message, param };
    let fields = OfError { code, message, param, error: nested };
    StreamEvent::named("error", text_of(&Numbered { r#type: "error", sequence_number, fields }))
}

impl<'a> OfText<'a> {
    const fn of(item_id: &'a str, output_index: u32) -> Self {
        Self {
            item_id,
            output_index,
            content_index: 0,
            delta: None,
            text: None,
            refusal: None,
            logprobs: None,
        }
    }
}
