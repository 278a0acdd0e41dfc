//! Scripted replies of a model: texts and tool calls for requests that match a pattern, for tests that need exact answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Most scripted replies of one model.
pub const REPLIES_MAX: usize = 1_000;

/// A reply and the requests that get it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptedReply {
    /// The requests that get the reply.
    pub when: When,
    /// The text; may be empty if there are calls.
    pub text: String,
    /// The tool calls, in order. The reply is for requests that offer all these tools only.
    pub calls: Vec<ScriptedCall>,
}

/// A pattern of requests. Conditions that are left out always hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct When {
    /// The author of the last message: the user, or the tools with their results.
    pub last: Option<Speaker>,
    /// A text in the last message of the user, or in one of the last results.
    pub last_contains: Option<String>,
    /// A text in any message.
    pub any_contains: Option<String>,
    /// The number of the assistant's messages so far.
    pub assistant_turns: Option<usize>,
}

/// The author of the last message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// The user.
    User,
    /// The tools.
    Tool,
}

/// A scripted tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// The name of the tool.
    pub name: String,
    /// The arguments: a text that is sent as it is, valid JSON or not, or a JSON value. Missing arguments are an empty object.
    #[serde(default)]
    pub arguments: Value,
}

impl ScriptedCall {
    pub(crate) fn arguments_text(&self) -> String {
        match &self.arguments {
            Value::Null => "{}".to_owned(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        }
    }
}

/// The parts of a request that patterns match.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) last: Speaker,
    pub(crate) last_texts: Vec<&'a str>,
    pub(crate) all_texts: Vec<&'a str>,
    pub(crate) assistant_turns: usize,
    pub(crate) tools: Vec<&'a str>,
}

impl ScriptedReply {
    pub(crate) fn is_for(&self, asked: &Asked<'_>) -> bool {
        let When { last, last_contains, any_contains, assistant_turns } = &self.when;
        let contains = |texts: &[&str], wanted: &Option<String>| {
            wanted.as_ref().is_none_or(|wanted| texts.iter().any(|text| text.contains(wanted.as_str())))
        };
        last.is_none_or(|last| last == asked.last)
            && contains(&asked.last_texts, last_contains)
            && contains(&asked.all_texts, any_contains)
            && assistant_turns.is_none_or(|turns| turns == asked.assistant_turns)
            && self.calls.iter().all(|call| asked.tools.contains(&call.name.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Asked<'static> {
        Asked {
            last: Speaker::Tool,
            last_texts: vec!["5 degrees", "noon"],
            all_texts: vec!["How warm is it?", "weather", "5 degrees", "noon"],
            assistant_turns: 1,
            tools: vec!["weather"],
        }
    }

    #[test]
    fn a_reply_is_for_requests_that_meet_all_its_conditions() {
        let matches = |json: &str| serde_json::from_str::<ScriptedReply>(json).unwrap().is_for(&asked());
        for json in [
            r#"{"text": "always"}"#,
            r#"{"when": {"last": "tool", "last_contains": "degrees"}, "text": "x"}"#,
            r#"{"when": {"any_contains": "warm", "assistant_turns": 1}, "text": "x"}"#,
            r#"{"calls": [{"name": "weather"}]}"#,
        ] {
            assert!(matches(json), "{json}");
        }
        for json in [
            r#"{"when": {"last": "user"}}"#,
            r#"{"when": {"last_contains": "warm"}}"#,
            r#"{"when": {"any_contains": "cold"}}"#,
            r#"{"when": {"assistant_turns": 0}}"#,
            r#"{"calls": [{"name": "weather"}, {"name": "clock"}]}"#,
        ] {
            assert!(!matches(json), "{json}");
        }
    }

    #[test]
    fn arguments_are_sent_as_they_are_scripted() {
        let text = |json: &str| serde_json::from_str::<ScriptedCall>(json).unwrap().arguments_text();
        assert_eq!(text(r#"{"name": "a"}"#), "{}");
        assert_eq!(text(r#"{"name": "a", "arguments": "{ broken"}"#), "{ broken");
        assert_eq!(text(r#"{"name": "a", "arguments": {"b": 1}}"#), r#"{"b":1}"#);
    }
}
