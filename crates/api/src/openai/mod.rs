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
pub(crate) use responses::{COMPACTION_PARAMETERS, RESPONSE_PARAMETERS};
pub use responses::{
    ClientConversation, ConversationItems, ItemOrder, ItemPage, RegisteredInput, ResponseId, ResponseRequest,
    ResponseStream, ResponseWriter, SealError, SocketRequest, TurnKey, compacted, conversation_id,
    error_event, is_conversation_id, removed_response, unknown_conversation, with_response_names,
};
pub use run::run_body;
