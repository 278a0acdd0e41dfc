//! Messages from the parts that clients send.

use podium_domain::content::Part;
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

/// The id of a tool call. Ids that another system made are legal.
pub(crate) fn call_id(field: &Field<'_>) -> Result<String, ApiError> {
    let id = field.string()?;
    if (1..=CALL_ID_BYTES_MAX).contains(&id.len()) {
        return Ok(id.to_owned());
    }
    Err(field.must_be(&format!("a string of 1 to {CALL_ID_BYTES_MAX} bytes")))
}
