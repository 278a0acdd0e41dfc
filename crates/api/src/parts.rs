//! Messages from the parts that clients send.

use podium_domain::content::{Part, ToolResult};
use podium_domain::conversation::{CALL_ID_BYTES_MAX, Message, Role};

use crate::ApiError;
use crate::field::Field;

/// A message of these parts. Adjacent texts become lines of one text.
pub(crate) fn message_of(
    role: Role,
    parts: impl Iterator<Item = Result<Part, ApiError>>,
) -> Result<Message, ApiError> {
    let mut read: Vec<Part> = Vec::new();
    for part in parts {
        match (part?, read.last_mut()) {
            (Part::Text(more), Some(Part::Text(text))) => {
                text.push('\n');
                text.push_str(&more);
            }
            (part, _) => read.push(part),
        }
    }
    let mut read = read.into_iter().peekable();
    let first = read.next_if(|part| matches!(part, Part::Text(_)));
    let text = if let Some(Part::Text(text)) = first { text } else { String::new() };
    Ok(Message::new(role, text).with(read))
}

/// The result of a tool: the texts, images and PDFs of `content`. The name of the tool comes from its call.
pub(crate) fn tool_result(call_id: String, content: Message) -> ToolResult {
    let mut result = ToolResult::new(call_id, "", content.words());
    for part in content.parts {
        match part {
            Part::Image(image) => result.images.push(image),
            Part::Pdf(pdf) => result.pdfs.push(pdf),
            Part::Text(_) | Part::ToolCall(_) | Part::ToolResult(_) | Part::Reasoning(_) => {}
        }
    }
    result
}

/// The id of a tool call. Ids that another system made are legal.
pub(crate) fn call_id(field: &Field<'_>) -> Result<String, ApiError> {
    let id = field.string()?;
    if (1..=CALL_ID_BYTES_MAX).contains(&id.len()) {
        return Ok(id.to_owned());
    }
    Err(field.must_be(&format!("a string of 1 to {CALL_ID_BYTES_MAX} bytes")))
}
