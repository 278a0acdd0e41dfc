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

/// The parsers of parts of requests, which tests compare with the document.
#[cfg(test)]
pub(crate) mod reading {
    use super::tools::ToolsDraft;
    use crate::ApiError;
    use crate::field::Field;

    pub(crate) fn message(field: &Field<'_>) -> Result<(), ApiError> {
        super::content::message(field).map(drop)
    }

    pub(crate) fn tool(field: &Field<'_>) -> Result<(), ApiError> {
        super::tools::tool(field).map(drop)
    }

    pub(crate) fn tool_choice(field: &Field<'_>) -> Result<(), ApiError> {
        ToolsDraft::default().choice(field)
    }

    pub(crate) fn thinking(field: &Field<'_>) -> Result<(), ApiError> {
        super::request::thinking(field).map(drop)
    }

    pub(crate) fn output(field: &Field<'_>) -> Result<(), ApiError> {
        super::request::check_output(field)
    }
}
