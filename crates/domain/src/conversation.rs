//! What the client asked: its messages, bounded, and the question that they amount to.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::content::Part;

/// Who said a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions of the client's application.
    System,
    /// The person who asks.
    User,
    /// An earlier answer.
    Assistant,
}

impl Role {
    /// The name that wire formats use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who said it.
    pub role: Role,
    /// What was said, or the beginning of it.
    pub text: String,
    /// What came after the text, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

impl Message {
    /// A message of `role`.
    pub fn new(role: Role, text: impl Into<String>) -> Self {
        Self { role, text: text.into(), parts: Vec::new() }
    }

    /// The same message, followed by `parts`.
    #[must_use]
    pub fn with(mut self, parts: impl IntoIterator<Item = Part>) -> Self {
        self.parts.extend(parts);
        self
    }

    /// All words of it, without what is none.
    pub fn words(&self) -> Cow<'_, str> {
        let mut words = Cow::Borrowed(self.text.as_str());
        for part in &self.parts {
            if let Part::Text(text) = part {
                words += text.as_str();
            }
        }
        words
    }

    /// Its size, for limits.
    pub fn bytes(&self) -> usize {
        self.text.len() + self.parts.iter().map(Part::bytes).sum::<usize>()
    }
}

/// Most messages of a conversation.
pub const MESSAGES_MAX: usize = 1_000;
/// Most parts of one message.
pub const PARTS_MAX: usize = 256;
/// Most bytes of all messages together.
pub const CONVERSATION_BYTES_MAX: usize = 1 << 20;

/// A client's messages: at least one, the last one the user's and not blank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Message>", into = "Vec<Message>")]
pub struct Conversation(Vec<Message>);

/// Why messages are no conversation that can be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConversationError {
    /// No message at all.
    #[error("messages must not be empty")]
    Empty,
    /// More than [`MESSAGES_MAX`].
    #[error("messages has {count} entries, the limit is {MESSAGES_MAX}")]
    TooMany {
        /// How many there were.
        count: usize,
    },
    /// A message with more than [`PARTS_MAX`].
    #[error("a message has {count} parts, the limit is {PARTS_MAX}")]
    TooManyParts {
        /// How many there were.
        count: usize,
    },
    /// More than [`CONVERSATION_BYTES_MAX`].
    #[error("messages hold {bytes} bytes, the limit is {CONVERSATION_BYTES_MAX}")]
    TooLong {
        /// How many there were.
        bytes: usize,
    },
    /// The last message is not a question.
    #[error("messages must end with a message of role `user` that is not blank")]
    NoQuestion,
}

impl Conversation {
    /// Checks the bounds.
    pub fn new(messages: Vec<Message>) -> Result<Self, ConversationError> {
        if messages.len() > MESSAGES_MAX {
            return Err(ConversationError::TooMany { count: messages.len() });
        }
        if let Some(count) = messages.iter().map(|m| m.parts.len()).find(|count| *count > PARTS_MAX) {
            return Err(ConversationError::TooManyParts { count });
        }
        let bytes = messages.iter().map(Message::bytes).sum();
        if bytes > CONVERSATION_BYTES_MAX {
            return Err(ConversationError::TooLong { bytes });
        }
        match messages.last() {
            None => Err(ConversationError::Empty),
            Some(last) if last.role == Role::User && !last.words().trim().is_empty() => Ok(Self(messages)),
            Some(_) => Err(ConversationError::NoQuestion),
        }
    }

    /// A single question.
    pub fn question_only(question: impl Into<String>) -> Result<Self, ConversationError> {
        Self::new(vec![Message::new(Role::User, question)])
    }

    /// All messages, in order.
    pub fn messages(&self) -> &[Message] {
        &self.0
    }

    /// The text that a plan is made for and that every worker sees as the whole task.
    ///
    /// A lone question is itself. With earlier turns it is the transcript, so that "and in French?" keeps its sense.
    pub fn question(&self) -> String {
        let turns: Vec<_> = self.0.iter().filter(|m| m.role != Role::System).collect();
        match turns.as_slice() {
            [only] => only.words().into_owned(),
            [earlier @ .., last] => {
                let mut text = String::from("Conversation so far:\n");
                for message in earlier {
                    text.push_str(message.role.as_str());
                    text.push_str(": ");
                    text.push_str(&message.words());
                    text.push('\n');
                }
                text.push_str("\nThe request now:\n");
                text.push_str(&last.words());
                text
            }
            [] => String::new(),
        }
    }

    /// The application's own instructions, if it gave any.
    pub fn instructions(&self) -> Option<String> {
        let parts: Vec<_> = self.0.iter().filter(|m| m.role == Role::System).map(Message::words).collect();
        (!parts.is_empty()).then(|| parts.join("\n\n"))
    }
}

impl TryFrom<Vec<Message>> for Conversation {
    type Error = ConversationError;

    fn try_from(messages: Vec<Message>) -> Result<Self, ConversationError> {
        Self::new(messages)
    }
}

impl From<Conversation> for Vec<Message> {
    fn from(conversation: Conversation) -> Self {
        conversation.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::{Image, MediaType};

    #[test]
    fn a_conversation_ends_with_a_question() {
        assert_eq!(Conversation::new(vec![]), Err(ConversationError::Empty));
        let answered = vec![Message::new(Role::User, "hi"), Message::new(Role::Assistant, "hello")];
        assert_eq!(Conversation::new(answered), Err(ConversationError::NoQuestion));
        assert_eq!(Conversation::question_only("  "), Err(ConversationError::NoQuestion));
    }

    #[test]
    fn words_are_gathered_from_between_the_pictures_and_everything_counts() {
        let picture = || Part::Image(Image::Url("https://example.org/1.png".to_owned()));
        let message = Message::new(Role::User, "Is this ").with([picture(), Part::Text("a cat?".to_owned())]);
        assert_eq!(message.bytes(), 8 + 25 + 6);
        assert_eq!(Conversation::new(vec![message]).unwrap().question(), "Is this a cat?");
        let silent = Message::new(Role::User, " ").with([picture()]);
        assert_eq!(Conversation::new(vec![silent]), Err(ConversationError::NoQuestion));
        let many = Message::new(Role::User, "?").with(std::iter::repeat_n(picture(), PARTS_MAX + 1));
        assert_eq!(Conversation::new(vec![many]), Err(ConversationError::TooManyParts { count: 257 }));
        let base64 = "x".repeat(CONVERSATION_BYTES_MAX);
        let big = Part::Image(Image::Data { media_type: MediaType::Png, base64 });
        let refused = Conversation::new(vec![Message::new(Role::User, "?").with([big])]);
        assert!(matches!(refused, Err(ConversationError::TooLong { .. })), "{refused:?}");
    }

    #[test]
    fn a_message_of_text_alone_has_the_stored_form_that_it_always_had() {
        let stored = r#"{"role":"user","text":"why?"}"#;
        let message = Message::new(Role::User, "why?");
        assert_eq!(serde_json::to_string(&message).unwrap(), stored);
        assert_eq!(serde_json::from_str::<Message>(stored).unwrap(), message);
    }

    #[test]
    fn earlier_turns_are_part_of_the_question() {
        let conversation = Conversation::new(vec![
            Message::new(Role::System, "be brief"),
            Message::new(Role::User, "say hello"),
            Message::new(Role::Assistant, "hello"),
            Message::new(Role::User, "and in French?"),
        ])
        .unwrap();
        let question = conversation.question();
        assert!(question.contains("assistant: hello") && question.ends_with("and in French?"), "{question}");
        assert_eq!(conversation.instructions().as_deref(), Some("be brief"));
        assert_eq!(Conversation::question_only("why?").unwrap().question(), "why?");
    }
}
