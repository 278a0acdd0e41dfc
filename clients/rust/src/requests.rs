//! Short constructors of requests.

use crate::v1::{CreateRunRequest, Message, Part, Role, ToolCall, ToolResult, part};

impl CreateRunRequest {
    /// A request with one message of the user, and defaults for everything else.
    pub fn question(text: impl Into<String>) -> Self {
        Self { messages: vec![Message::user(text)], ..Self::default() }
    }
}

impl Message {
    /// Instructions of the caller's application.
    pub fn system(text: impl Into<String>) -> Self {
        Self { role: Role::System.into(), text: text.into(), parts: Vec::new() }
    }

    /// A message of the user.
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Role::User.into(), text: text.into(), parts: Vec::new() }
    }

    /// An earlier answer, with its tool calls.
    pub fn assistant(text: impl Into<String>, calls: impl IntoIterator<Item = ToolCall>) -> Self {
        let parts = calls.into_iter().map(|call| Part { part: Some(part::Part::ToolCall(call)) });
        Self { role: Role::Assistant.into(), text: text.into(), parts: parts.collect() }
    }

    /// The results of the tool calls of the message before.
    pub fn tool_results(results: impl IntoIterator<Item = ToolResult>) -> Self {
        let parts = results.into_iter().map(|result| Part { part: Some(part::Part::ToolResult(result)) });
        Self { role: Role::User.into(), text: String::new(), parts: parts.collect() }
    }
}

impl ToolCall {
    /// The successful result of this call.
    pub fn result(&self, output: impl Into<String>) -> ToolResult {
        ToolResult { call_id: self.id.clone(), output: output.into(), ..ToolResult::default() }
    }

    /// The result of this call if the tool failed. The model reads the message.
    pub fn error(&self, message: impl Into<String>) -> ToolResult {
        ToolResult { is_error: true, ..self.result(message) }
    }
}
