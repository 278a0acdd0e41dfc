//! Tool calls and their results within a conversation: which belong together, and the ids by which a worker knows them.

use std::collections::HashMap;

use super::{ConversationError, Message, Role};
use crate::content::{Part, Seal, ToolCall, ToolResult};
use crate::ids::WorkerId;

/// Most bytes of a call's id that clients send. Ids of other systems are part of the history.
pub const CALL_ID_BYTES_MAX: usize = 256;
/// Longest id that every vendor accepts.
const SENT_ID_CHARS_MAX: usize = 64;

impl Message {
    /// The tool calls of the message, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    /// The results of tools in the message, in order.
    pub fn results(&self) -> impl Iterator<Item = &ToolResult> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolResult(result) => Some(result),
            _ => None,
        })
    }

    /// Whether tools answer in it and nobody says anything.
    pub fn is_results_only(&self) -> bool {
        let is_result = |part: &Part| matches!(part, Part::ToolResult(_));
        self.text.trim().is_empty() && !self.parts.is_empty() && self.parts.iter().all(is_result)
    }
}

/// Checks that each call of an assistant's message has one result before the next assistant's message, and that each result
/// belongs to such a call, because vendors refuse anything else. Gives each result without a name the name of its tool.
pub(super) fn pair(messages: &mut [Message]) -> Result<(), ConversationError> {
    // The open calls of the last assistant's message: the names by the ids.
    let mut open: HashMap<String, String> = HashMap::new();
    for message in messages {
        if message.role == Role::Assistant {
            no_open_call(&open)?;
            for call in message.calls() {
                if call.id.is_empty() || call.id.len() > CALL_ID_BYTES_MAX {
                    return Err(ConversationError::CallId { bytes: call.id.len() });
                }
                if open.insert(call.id.clone(), call.name.clone()).is_some() {
                    return Err(ConversationError::SameCallId { id: call.id.clone() });
                }
            }
        }
        for part in &mut message.parts {
            let Part::ToolResult(result) = part else { continue };
            let unknown = || ConversationError::UnknownCall { id: shown(&result.call_id) };
            let name = open.remove(&result.call_id).ok_or_else(unknown)?;
            if result.name.is_empty() {
                result.name = name;
            }
        }
    }
    no_open_call(&open)
}

fn no_open_call(open: &HashMap<String, String>) -> Result<(), ConversationError> {
    match open.keys().min() {
        Some(id) => Err(ConversationError::NoResult { id: id.clone() }),
        None => Ok(()),
    }
}

/// As much of an id as an error repeats.
fn shown(id: &str) -> String {
    id[..id.floor_char_boundary(CALL_ID_BYTES_MAX)].to_owned()
}

/// The messages with the ids by which `worker` knows the calls: its own ids of its own calls, and otherwise those of the client. An
/// id that not every vendor accepts is replaced.
pub fn with_own_ids(mut messages: Vec<Message>, worker: &WorkerId) -> Vec<Message> {
    let mut sent: HashMap<String, String> = HashMap::new();
    let mut replaced = 0;
    for part in messages.iter_mut().flat_map(|message| &mut message.parts) {
        match part {
            Part::ToolCall(call) => {
                let id = match Seal::mark_of(call.own_id.as_ref(), worker) {
                    Some(own) => own.to_owned(),
                    None if is_sendable(&call.id) => call.id.clone(),
                    None => {
                        replaced += 1;
                        format!("podium_call_{replaced}")
                    }
                };
                sent.insert(std::mem::replace(&mut call.id, id.clone()), id);
            }
            Part::ToolResult(result) => {
                if let Some(id) = sent.get(&result.call_id) {
                    result.call_id.clone_from(id);
                }
            }
            Part::Text(_) | Part::Image(_) | Part::Pdf(_) | Part::Reasoning(_) => {}
        }
    }
    messages
}

fn is_sendable(id: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=SENT_ID_CHARS_MAX).contains(&id.len()) && id.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Conversation;

    fn called(ids: &[&str]) -> Message {
        let calls = ids.iter().map(|id| Part::ToolCall(ToolCall::new(*id, format!("tool-{id}"), "{}")));
        Message::new(Role::Assistant, "").with(calls)
    }

    fn results(ids: &[&str]) -> Message {
        let results = ids.iter().map(|id| Part::ToolResult(ToolResult::new(*id, "", format!("of {id}"))));
        Message::new(Role::User, "").with(results)
    }

    fn user(text: &str) -> Message {
        Message::new(Role::User, text)
    }

    #[test]
    fn a_conversation_may_end_with_tool_results() {
        let turns = vec![user("look"), called(&["a", "b"]), results(&["b"]), results(&["a"])];
        let conversation = Conversation::new(turns).unwrap();
        let named: Vec<_> = conversation.messages().iter().flat_map(Message::results).collect();
        assert_eq!(named.iter().map(|result| result.name.as_str()).collect::<Vec<_>>(), ["tool-b", "tool-a"]);
        // Ids are unique within a turn only.
        let turns = [user("look"), called(&["a"]), results(&["a"]), called(&["a"]), results(&["a"])];
        assert!(Conversation::new(turns.to_vec()).is_ok());
    }

    #[test]
    fn a_call_without_result_and_a_result_without_call_are_refused() {
        let refused = |turns: &[Message]| Conversation::new(turns.to_vec()).unwrap_err().to_string();
        let error = refused(&[user("look"), called(&["a", "b"]), results(&["b"])]);
        assert_eq!(error, "the tool call `a` has no result; a result must follow each call");
        let error = refused(&[user("look"), called(&["a"]), called(&["b"]), results(&["a", "b"])]);
        assert_eq!(error, "the tool call `a` has no result; a result must follow each call");
        let error = refused(&[user("look"), called(&["a"]), results(&["a", "c"])]);
        assert_eq!(error, "the tool result `c` belongs to no call of the assistant's message before it");
        let error = refused(&[user("look"), results(&["a"])]);
        assert_eq!(error, "the tool result `a` belongs to no call of the assistant's message before it");
        let error = refused(&[user("look"), called(&["a"]), results(&["a", "a"])]);
        assert_eq!(error, "the tool result `a` belongs to no call of the assistant's message before it");
        let error = refused(&[user("look"), called(&["a", "a"]), results(&["a"])]);
        assert_eq!(error, "two tool calls of one message have the id `a`");
        let error = refused(&[user("look"), called(&[""]), results(&[""])]);
        assert_eq!(error, "the id of a tool call has 0 bytes, it must have 1 to 256");
    }

    #[test]
    fn a_worker_gets_its_own_ids_back_and_others_get_valid_ones() {
        let me = WorkerId::new("me").unwrap();
        let own_id = Some(Seal { worker: me.clone(), mark: "toolu_1".to_owned() });
        let mine = ToolCall { own_id, ..ToolCall::new("call_9", "look", "{}") };
        let foreign = ToolCall::new("functions.look:0", "look", "{}");
        let calls = [mine, foreign].map(Part::ToolCall);
        let turns = vec![
            user("look"),
            Message::new(Role::Assistant, "").with(calls),
            results(&["functions.look:0", "call_9"]),
        ];
        let ids = |worker: &str| {
            let messages = with_own_ids(turns.clone(), &WorkerId::new(worker).unwrap());
            let calls = messages[1].calls().map(|call| call.id.clone());
            let results = messages[2].results().map(|result| result.call_id.clone());
            (calls.collect::<Vec<_>>(), results.collect::<Vec<_>>())
        };
        let owned = |ids: [&str; 2]| ids.map(str::to_owned).to_vec();
        assert_eq!(ids("me"), (owned(["toolu_1", "podium_call_1"]), owned(["podium_call_1", "toolu_1"])));
        assert_eq!(ids("other"), (owned(["call_9", "podium_call_1"]), owned(["podium_call_1", "call_9"])));
    }
}
