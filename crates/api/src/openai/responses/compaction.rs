//! Compaction: a run that summarizes a conversation, and the item that carries the summary into later requests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use podium_domain::conversation::{Message, Role};
use podium_domain::run::Run;
use serde::{Deserialize, Serialize};

use super::id::{ResponseId, compaction_id};
use super::usage::ResponseUsage;
use crate::ApiError;
use crate::field::Field;
use crate::json::text_of;
use crate::openai::unix_seconds;
use crate::podium_object::RunBody;

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

#[derive(Serialize)]
struct Body {
    id: String,
    object: &'static str,
    created_at: u64,
    output: [CompactionItem; 1],
    usage: ResponseUsage,
    podium: RunBody,
}

#[derive(Serialize)]
struct CompactionItem {
    r#type: &'static str,
    id: String,
    encrypted_content: String,
}

/// The compacted conversation as JSON; none if the run has no answer.
pub fn compacted(run: &Run) -> Option<String> {
    let content = Content { podium_summary: run.answer()?.to_owned() };
    let item = CompactionItem {
        r#type: "compaction",
        id: compaction_id(run.id()),
        encrypted_content: STANDARD.encode(text_of(&content)),
    };
    Some(text_of(&Body {
        id: ResponseId::of(run).to_string(),
        object: "response.compaction",
        created_at: unix_seconds(run.spec().accepted_at),
        output: [item],
        usage: ResponseUsage::of(run),
        podium: RunBody::of(run),
    }))
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
