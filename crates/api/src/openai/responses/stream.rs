//! The events of a streamed response.

use podium_domain::run::{Run, RunState};
use serde::Serialize;

use super::body::{Body, Moment, ResponseWriter};
use super::id::output_message_id;
use super::items::{Content, Item, ItemStatus, answer_status, output_message};
use super::pieces::Pieces;
use crate::finish::refusal_text;
use crate::json::text_of;
use crate::{ApiError, StreamEvent, StreamEvents};

/// Writes the events of a response, with consecutive numbers from 0. The same run always has the same events, whenever and by
/// whatever process they are written.
#[derive(Debug)]
pub struct ResponseStream {
    writer: ResponseWriter,
    item_id: String,
    /// The number of the next event.
    next: u64,
    /// The client has the events up to this number.
    after: Option<u64>,
    pieces: Pieces,
    /// The text of the answer so far.
    text: String,
    has_item: bool,
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
    item_id: &'a str,
    output_index: u32,
    content_index: u32,
    part: Content<'a>,
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
    /// The stream of a run's response, without the events up to number `after`.
    pub fn of(run: &Run, after: Option<u64>) -> Self {
        Self {
            writer: ResponseWriter::of(run),
            item_id: output_message_id(run.id()),
            next: 0,
            after,
            pieces: Pieces::default(),
            text: String::new(),
            has_item: false,
        }
    }

    /// The first events.
    pub fn open(&mut self, run: &Run, events: &mut StreamEvents) {
        for (name, moment) in
            [("response.created", Moment::Accepted), ("response.in_progress", Moment::Begun)]
        {
            self.response(name, run, moment, events);
        }
    }

    /// The events for the next text of the answer.
    pub fn text(&mut self, text: &str, events: &mut StreamEvents) {
        self.open_item(events);
        self.text.push_str(text);
        for piece in self.pieces.push(text) {
            self.delta(&piece, events);
        }
    }

    /// The events for the end of the run.
    pub fn close(&mut self, run: &Run, events: &mut StreamEvents) {
        let name = match run.state() {
            RunState::Succeeded { .. } => {
                self.close_item(run, events);
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
        let (mapping, message, param) = (error.code.mapping(), error.message.as_str(), error.param());
        let code = mapping.code;
        let nested = NestedError { r#type: mapping.kind, code, message, param };
        let fields = OfError { code, message, param, error: nested };
        let numbered = Numbered { r#type: "error", sequence_number: self.next, fields };
        StreamEvent::named("error", text_of(&numbered))
    }

    fn open_item(&mut self, events: &mut StreamEvents) {
        if std::mem::replace(&mut self.has_item, true) {
            return;
        }
        let item = Item::Message {
            id: self.item_id.clone(),
            status: ItemStatus::InProgress,
            role: "assistant",
            content: Vec::new(),
            phase: Some("final_answer"),
        };
        self.push("response.output_item.added", OfItem { output_index: 0, item }, events);
        self.part("response.content_part.added", Content::output(""), events);
    }

    fn delta(&mut self, piece: &str, events: &mut StreamEvents) {
        let id = self.item_id.clone();
        let fields = OfText { delta: Some(piece), logprobs: Some([]), ..OfText::of(&id) };
        self.push("response.output_text.delta", fields, events);
    }

    fn close_item(&mut self, run: &Run, events: &mut StreamEvents) {
        self.open_item(events);
        if let Some(last) = self.pieces.finish() {
            self.delta(&last, events);
        }
        let id = self.item_id.clone();
        // The words of a refusal were sent as text, because a worker says at the end only that it refuses.
        if let Some(said) = run.refusal() {
            let fields = OfText { refusal: Some(refusal_text(said)), ..OfText::of(&id) };
            self.push("response.refusal.done", fields, events);
        } else {
            let text = std::mem::take(&mut self.text);
            let fields = OfText { text: Some(&text), logprobs: Some([]), ..OfText::of(&id) };
            self.push("response.output_text.done", fields, events);
        }
        self.part("response.content_part.done", Content::of_answer(run), events);
        let item = output_message(run, answer_status(run), vec![Content::of_answer(run)]);
        self.push("response.output_item.done", OfItem { output_index: 0, item }, events);
    }

    fn part(&mut self, name: &'static str, part: Content<'_>, events: &mut StreamEvents) {
        let id = self.item_id.clone();
        let fields = OfPart { item_id: &id, output_index: 0, content_index: 0, part };
        self.push(name, fields, events);
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

impl<'a> OfText<'a> {
    const fn of(item_id: &'a str) -> Self {
        Self {
            item_id,
            output_index: 0,
            content_index: 0,
            delta: None,
            text: None,
            refusal: None,
            logprobs: None,
        }
    }
}
