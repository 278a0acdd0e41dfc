//! The wire format of OpenAI's Chat Completions, as far as Podium speaks it.
//!
//! Strict where silence would mislead: a parameter that would change the answer and that is not supported is refused by its
//! name, and so is a name that does not exist. Parameters that change nothing that a client could rely on are accepted.

mod extension;
mod field;
mod json;
mod parameters;
mod rating;
mod request;
mod response;
mod run;

pub use rating::RatingRequest;
pub use request::ChatRequest;
pub use response::{Completion, ErrorBody, Model, ModelList, unix_seconds};
pub use run::run_body;
