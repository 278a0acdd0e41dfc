//! Tokens of texts and messages, estimated from their bytes where no vendor has counted them.

use crate::content::Attachment;
use crate::conversation::Message;

/// Bytes of a token. English text has about four.
const BYTES_PER_TOKEN: u64 = 4;

/// Tokens of a text of that many bytes.
pub fn text_tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(BYTES_PER_TOKEN)
}

/// Tokens of messages: their texts, their images and their PDFs.
pub fn message_tokens(messages: &[Message]) -> u64 {
    let bytes = messages.iter().map(Message::text_bytes).sum();
    text_tokens(bytes) + attachment_tokens(messages)
}

/// Tokens of the images and PDFs of messages.
pub fn attachment_tokens(messages: &[Message]) -> u64 {
    messages.iter().flat_map(Message::attachments).map(Attachment::tokens).sum()
}
