//! Tokens of texts and messages, estimated from their bytes where no vendor has counted them.

use crate::content::IMAGE_TOKENS;
use crate::conversation::Message;

/// Bytes of a token. English text has about four.
const BYTES_PER_TOKEN: u64 = 4;

/// Tokens of a text of that many bytes.
pub fn text_tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(BYTES_PER_TOKEN)
}

/// Tokens of messages: their texts and their images.
pub fn message_tokens(messages: &[Message]) -> u64 {
    let bytes = messages.iter().map(Message::text_bytes).sum();
    let images = messages.iter().map(|message| message.image_count() as u64).sum::<u64>();
    text_tokens(bytes) + images * IMAGE_TOKENS
}
