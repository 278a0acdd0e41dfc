//! The part of OpenAI's Responses API that Podium supports.
//!
//! A response is a run. Its id is the run's id in another form, and the ids of its items follow from it. So a response is read
//! from the stored run, by any process, and its stream can be written again with the same sequence numbers.

mod body;
mod compaction;
mod custom_input;
mod id;
mod input;
mod items;
mod parameters;
mod pieces;
mod record;
mod request;
mod stream;
mod tools;
mod usage;

pub use body::ResponseWriter;
pub use compaction::compacted;
pub use id::run_of_response;
pub use items::{InputItems, ItemOrder};
pub use request::{ResponseRequest, with_response_names};
pub use stream::{ResponseStream, error_event};
