//! The response to a request for a compaction: the items that stand for the conversation in later requests.

use podium_domain::run::Run;
use serde::Serialize;

use super::compaction::content_of;
use super::id::{ResponseId, compaction_id};
use super::items::{Item, messages_of_users};
use super::usage::ResponseUsage;
use crate::json::text_of;
use crate::openai::unix_seconds;
use crate::podium_object::RunBody;

#[derive(Serialize)]
struct Body<'a> {
    id: String,
    object: &'static str,
    created_at: u64,
    output: Vec<Output<'a>>,
    usage: ResponseUsage,
    podium: RunBody,
}

/// The messages of users are kept as they are, because a summary may lose what they ask for. The summary follows them.
#[derive(Serialize)]
#[serde(untagged)]
enum Output<'a> {
    Message(Item<'a>),
    Summary(CompactionItem),
}

#[derive(Serialize)]
struct CompactionItem {
    r#type: &'static str,
    id: String,
    encrypted_content: String,
}

/// The compacted conversation as JSON; none if the run has no answer.
pub fn compacted(run: &Run) -> Option<String> {
    let item = CompactionItem {
        r#type: "compaction",
        id: compaction_id(run.id()),
        encrypted_content: content_of(run.answer()?),
    };
    let id = ResponseId::of(run);
    let messages = run.spec().request.conversation.messages();
    // The last message is the task.
    let sent = messages.split_last().map(|(_, sent)| sent).unwrap_or_default();
    let kept = messages_of_users(id, sent).into_iter().map(Output::Message);
    Some(text_of(&Body {
        id: id.to_string(),
        object: "response.compaction",
        created_at: unix_seconds(run.spec().accepted_at),
        output: kept.chain([Output::Summary(item)]).collect(),
        usage: ResponseUsage::of(run),
        podium: RunBody::of(run),
    }))
}
