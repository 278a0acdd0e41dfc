//! The events of a streamed response.

use std::collections::VecDeque;

/// A server-sent event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEvent {
    /// The name of the event, in APIs that name them.
    pub name: Option<&'static str>,
    /// The data: JSON without line breaks.
    pub data: String,
}

impl StreamEvent {
    /// An event without a name.
    pub const fn unnamed(data: String) -> Self {
        Self { name: None, data }
    }

    /// A named event.
    pub const fn named(name: &'static str, data: String) -> Self {
        Self { name: Some(name), data }
    }
}

/// Events that wait to be sent, the next one first.
pub type StreamEvents = VecDeque<StreamEvent>;
