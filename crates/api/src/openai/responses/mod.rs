//! The part of OpenAI's Responses API that Podium supports.
//!
//! A response is a run. Its id is the run's id in another form, and the ids of its items follow from it. So a response is read
//! from the stored run, by any process, and its stream can be written again with the same sequence numbers.

mod body;
mod compacted;
mod compaction;
mod conversation;
mod custom_input;
mod id;
mod input;
mod input_tokens;
mod items;
mod parameters;
mod pieces;
mod record;
mod registered;
mod request;
mod sealed;
mod stream;
mod tools;
mod usage;

pub use body::{ResponseWriter, removed_response};
pub use compacted::compacted;
pub use conversation::{
    ClientConversation, ConversationItem, ConversationItems, conversation_id, is_conversation_id,
    unknown_conversation,
};
pub use id::ResponseId;
pub(crate) use input::HOSTED_ITEMS;
pub use input_tokens::input_tokens;
pub use items::{ItemOrder, ItemPage};
pub(crate) use parameters::{CONTEXT_RULES_MAX, PARAMETERS as RESPONSE_PARAMETERS};
pub use record::{conversation_of, record_in_conversation};
pub use registered::{RegisteredInput, SocketRequest};
pub(crate) use request::{COMPACTION_PARAMETERS, COUNT_PARAMETERS};
pub use request::{ResponseRequest, with_response_names};
pub use sealed::{SealError, TurnKey};
pub use stream::{ResponseStream, error_event};

/// The parsers of parts of requests, which tests compare with the document.
#[cfg(test)]
pub(super) mod reading {
    use crate::ApiError;
    use crate::field::Field;
    use crate::openai::tools::ToolsDraft;

    pub(in crate::openai) fn item(field: &Field<'_>) -> Result<(), ApiError> {
        let mut tools = ToolsDraft::flat();
        super::input::item_of(field, &mut tools)?;
        tools.finish().map(drop)
    }

    pub(in crate::openai) fn response_tool(field: &Field<'_>) -> Result<(), ApiError> {
        let mut tools = ToolsDraft::flat();
        super::tools::tool(&mut tools, field)?;
        tools.finish().map(drop)
    }

    pub(in crate::openai) fn response_tool_choice(field: &Field<'_>) -> Result<(), ApiError> {
        ToolsDraft::flat().choice(field)
    }

    pub(in crate::openai) use super::request::reading::{reasoning, text};
}
