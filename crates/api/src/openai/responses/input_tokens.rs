//! The response to a request to count the tokens of an input.

use podium_domain::answer::AnswerForm;
use podium_domain::token_estimate::{message_tokens, text_tokens};
use podium_domain::tools::ToolUse;
use serde_json::json;

use crate::NewRun;

/// The estimated tokens of the prompt of a run that is not made, as JSON: of its conversation, its tools and its schema.
pub fn input_tokens(new_run: &NewRun) -> String {
    let request = &new_run.request;
    let schema = match &request.answer {
        AnswerForm::JsonSchema(form) => form.schema.to_string().len(),
        AnswerForm::Text | AnswerForm::JsonObject | AnswerForm::Regex(_) => 0,
    };
    let tools = request.tools.as_ref().map_or(0, ToolUse::bytes);
    let tokens = message_tokens(request.conversation.messages()) + text_tokens(schema + tools);
    json!({"object": "response.input_tokens", "input_tokens": tokens}).to_string()
}
