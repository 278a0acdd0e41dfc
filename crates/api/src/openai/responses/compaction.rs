//! Compaction: the task of summarizing a conversation, and the item that carries the summary into later requests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use podium_domain::conversation::{Message, Role};
use serde::{Deserialize, Serialize};

use crate::ApiError;
use crate::field::Field;
use crate::json::text_of;

/// The request that ends a conversation to be summarized.
const TASK: &str = "Summarize the conversation so far, so that it can be continued from your summary alone. \
Keep the user's goals and constraints, decisions, names, numbers, paths and code that are still needed, and what remains to be done. \
Write the summary only.";
/// The line before a summary in the conversation that continues it.
const TITLE: &str = "Summary of the conversation so far:";

/// The message that asks for a summary.
pub(super) fn task() -> Message {
    Message::new(Role::User, TASK)
}

/// The content of a compaction item. Other systems' content has another form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    podium_summary: String,
}

/// The message that stands for a compaction item. It is the assistant's: a summary repeats what users and tools wrote, so it must
/// not count as an instruction.
pub(super) fn message_of(content: &Field<'_>) -> Result<Message, ApiError> {
    let decoded = STANDARD.decode(content.string()?).ok();
    let read = decoded.and_then(|json| serde_json::from_slice::<Content>(&json).ok());
    let read = read.ok_or_else(|| content.must_be("the content of a compaction item that Podium made"))?;
    Ok(Message::new(Role::Assistant, format!("{TITLE}\n{}", read.podium_summary)))
}

/// The content of the item with this summary.
pub(super) fn content_of(summary: &str) -> String {
    STANDARD.encode(text_of(&Content { podium_summary: summary.to_owned() }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_summary_returns_as_a_message_of_the_assistant() {
        let content = STANDARD.encode(text_of(&Content { podium_summary: "we launch on Tuesday".into() }));
        let message = message_of(&Field::new("x", &json!(content))).unwrap();
        assert_eq!(
            message,
            Message::new(Role::Assistant, "Summary of the conversation so far:\nwe launch on Tuesday")
        );
        for other in ["", "not base64!", &STANDARD.encode("{}"), &STANDARD.encode("{\"a\":1}")] {
            assert_eq!(message_of(&Field::new("x", &json!(other))).unwrap_err().param(), Some("x"));
        }
    }
}
