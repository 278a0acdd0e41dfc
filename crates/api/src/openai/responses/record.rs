//! The record that is stored with a run so that its response can be written again: parameters that change nothing about the run.

use std::collections::BTreeMap;

use podium_domain::ids::RunId;
use podium_domain::run::Run;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::id::ResponseId;
use crate::openai::tool_forms::ToolForms;

/// The stored record of a response. Processes of other versions read it, so a new field needs a default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "independent parameters of a request")]
pub(super) struct Record {
    /// The API that the record belongs to.
    pub(super) api: Api,
    /// Whether the run's first message is the parameter `instructions`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) has_instructions: bool,
    /// The number of messages that come from earlier responses. They stand before the input.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) earlier_messages: usize,
    /// Whether the last message is not the client's: the turn that asks the worker to continue an answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_continued: bool,
    /// The response that this one continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) previous: Option<RunId>,
    /// The number of that response in its run, if it is not the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) previous_reply: Option<u16>,
    /// The conversation that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) conversation: Option<String>,
    /// Whether the response may be read later.
    pub(super) is_stored: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) background: bool,
    /// Whether an answer with calls ends with a reasoning item.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) seals: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) metadata: BTreeMap<String, String>,
    /// `reasoning.summary`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) verbosity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) truncation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_tool_calls: Option<u32>,
    /// How the client knows its tools.
    #[serde(skip_serializing_if = "ToolForms::is_empty")]
    pub(super) tool_forms: ToolForms,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) safety_identifier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_cache_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_cache_retention: Option<String>,
    /// None for `auto` and without the parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) service_tier: Option<String>,
}

/// The API of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Api {
    /// The Responses API.
    #[default]
    Responses,
}

/// The record of a run of another API that continues a conversation, so that the conversation has its items. `earlier` is the number
/// of messages that come from the conversation.
pub fn record_in_conversation(conversation: &str, earlier: usize) -> Option<Value> {
    let record = Record {
        is_stored: true,
        conversation: Some(conversation.to_owned()),
        earlier_messages: earlier,
        ..Record::default()
    };
    serde_json::to_value(record).ok()
}

/// The conversation that a run continues.
pub fn conversation_of(run: &Run) -> Option<String> {
    Record::of(run).conversation
}

impl Record {
    /// The record of a run. If another API made the run, it is the record of a response that was not stored.
    pub(super) fn of(run: &Run) -> Self {
        let record = run.spec().request.api_record.as_ref();
        record.and_then(|record| Self::deserialize(record).ok()).unwrap_or_default()
    }

    /// The response that this one continues.
    pub(super) fn previous(&self) -> Option<ResponseId> {
        self.previous.map(|run| ResponseId::new(run, self.previous_reply.unwrap_or_default()))
    }

    pub(super) fn continues(&mut self, previous: ResponseId) {
        self.previous = Some(previous.run());
        self.previous_reply = Some(previous.reply()).filter(|reply| *reply > 0);
    }

    /// The number of messages before those of the input.
    pub(super) fn first_input(&self) -> usize {
        usize::from(self.has_instructions) + self.earlier_messages
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference over")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_keeps_its_stored_form() {
        let record =
            Record { is_stored: true, background: true, verbosity: Some("low".into()), ..Record::default() };
        let stored = json!({"api": "responses", "is_stored": true, "background": true, "verbosity": "low"});
        assert_eq!(serde_json::to_value(&record).unwrap(), stored);
        assert_eq!(serde_json::from_value::<Record>(stored).unwrap(), record);
        assert!(serde_json::from_value::<Record>(json!({"api": "messages"})).is_err());
        let later = json!({"api": "responses", "colour": "red"});
        assert_eq!(serde_json::from_value::<Record>(later).unwrap(), Record::default());
    }
}
