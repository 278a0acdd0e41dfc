//! The part of Anthropic's Messages API that Podium supports.
//!
//! Unknown parameters, and unsupported ones that would change the answer, are rejected by name. Parameters that change nothing
//! that a client could rely on are accepted and ignored.

mod content;
mod error;
mod models;
mod parameters;
mod request;
mod response;
mod stream;
mod tools;

pub(crate) use error::error_type;
pub use error::{ErrorBody, status};
pub use models::{Model, ModelPage};
pub(crate) use parameters::PARAMETERS;
pub use request::{MessagesRequest, TokenCount};
pub use response::MessageWriter;
pub use stream::{MessageStream, error_event, ping};
