//! The parts of OpenAI's Chat Completions and Responses that Podium supports.
//!
//! Unknown parameters, and unsupported ones that would change the answer, are rejected by name. Parameters that change nothing
//! that a client could rely on are accepted and ignored.

mod file;
mod message;
mod parameters;
mod rating;
mod request;
mod response;
mod responses;
mod run;
mod tool_forms;
mod tools;

pub(crate) use parameters::PARAMETERS as CHAT_PARAMETERS;
pub use rating::RatingRequest;
pub use request::ChatRequest;
pub use response::{Completion, ErrorBody, Model, ModelList, unix_seconds};
pub(crate) use responses::{
    COMPACTION_PARAMETERS, CONTEXT_RULES_MAX, COUNT_PARAMETERS, HOSTED_ITEMS, RESPONSE_PARAMETERS,
};
pub use responses::{
    ClientConversation, ConversationItem, ConversationItems, ItemOrder, ItemPage, RegisteredInput,
    ResponseId, ResponseRequest, ResponseStream, ResponseWriter, SealError, SocketRequest, TurnKey,
    compacted, conversation_id, conversation_of, error_event, input_tokens, is_conversation_id,
    record_in_conversation, removed_response, unknown_conversation, with_response_names,
};
pub use run::run_body;
pub(crate) use tools::HOSTED_TOOLS;

/// The parsers of parts of requests, which tests compare with the document.
#[cfg(test)]
pub(crate) mod reading {
    use super::tools::ToolsDraft;
    use crate::ApiError;
    use crate::field::Field;

    pub(crate) fn message(field: &Field<'_>) -> Result<(), ApiError> {
        super::message::check(field)
    }

    pub(crate) fn tool(field: &Field<'_>) -> Result<(), ApiError> {
        let mut tools = ToolsDraft::default();
        super::tools::check_function(field)?;
        tools.function(field, None)?;
        tools.finish().map(drop)
    }

    pub(crate) fn tool_choice(field: &Field<'_>) -> Result<(), ApiError> {
        ToolsDraft::default().choice(field)
    }

    pub(crate) fn response_format(field: &Field<'_>) -> Result<(), ApiError> {
        super::request::response_format(field).map(drop)
    }

    pub(crate) fn item(field: &Field<'_>) -> Result<(), ApiError> {
        super::responses::reading::item(field)
    }

    pub(crate) fn response_tool(field: &Field<'_>) -> Result<(), ApiError> {
        super::responses::reading::response_tool(field)
    }

    pub(crate) fn response_tool_choice(field: &Field<'_>) -> Result<(), ApiError> {
        super::responses::reading::response_tool_choice(field)
    }

    pub(crate) fn reasoning(field: &Field<'_>) -> Result<(), ApiError> {
        super::responses::reading::reasoning(field)
    }

    pub(crate) fn text(field: &Field<'_>) -> Result<(), ApiError> {
        super::responses::reading::text(field)
    }
}
