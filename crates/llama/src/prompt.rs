//! A conductor's prompt in pieces: control tokens, which only a template writes, and text, which may contain anything.

use std::sync::Arc;

use podium_domain::conversation::Message;

/// The known templates.
pub const TEMPLATES: [&str; 1] = ["chatml"];

/// A chat template. The binding's renderer guesses the template from the weights' metadata and silently deviates from it, so
/// templates are implemented here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Template {
    /// `<|im_start|>role`, a line break, the text, `<|im_end|>`: Qwen and many others.
    ChatMl,
}

/// The template is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("prompt.template is `{name}`, supported are: {}", TEMPLATES.join(", "))]
pub struct UnknownTemplate {
    name: String,
}

impl Template {
    /// The template with this name.
    pub fn from_name(name: &str) -> Result<Self, UnknownTemplate> {
        match name {
            "chatml" => Ok(Self::ChatMl),
            _ => Err(UnknownTemplate { name: name.to_owned() }),
        }
    }

    /// The control tokens of the template. Weights without them were made for another template.
    pub(crate) const fn controls(self) -> &'static [&'static str] {
        match self {
            Self::ChatMl => &["<|im_start|>", "<|im_end|>"],
        }
    }
}

/// A prompt that ends where the assistant's output begins. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    template: Template,
    pieces: Arc<[Piece]>,
    prefix: Arc<str>,
    shared_bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Control(&'static str),
    Text(String),
}

impl Piece {
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Control(name) => name,
            Self::Text(text) => text,
        }
    }
}

impl Prompt {
    /// The messages, followed by the assistant's turn, which begins with `prefix`.
    pub fn new(template: Template, messages: &[Message], prefix: &str) -> Self {
        let Template::ChatMl = template;
        let mut pieces = Vec::with_capacity(messages.len() * 4 + 2);
        for message in messages {
            pieces.push(Piece::Control("<|im_start|>"));
            pieces.push(Piece::Text(format!("{}\n{}", message.role.as_str(), message.text)));
            pieces.push(Piece::Control("<|im_end|>"));
            pieces.push(Piece::Text("\n".to_owned()));
        }
        pieces.push(Piece::Control("<|im_start|>"));
        pieces.push(Piece::Text(format!("assistant\n{prefix}")));
        Self { template, pieces: pieces.into(), prefix: prefix.into(), shared_bytes: 0 }
    }

    /// Marks the bytes that it has in common with `other` as a shared beginning, which is computed once for many prompts.
    /// This affects speed only.
    #[must_use]
    pub fn beginning_like(self, other: &Self) -> Self {
        let alike = self.bytes().zip(other.bytes()).take_while(|(mine, theirs)| mine == theirs);
        let shared_bytes = alike.count();
        Self { shared_bytes, ..self }
    }

    fn bytes(&self) -> impl Iterator<Item = u8> {
        self.pieces.iter().flat_map(|piece| piece.text().bytes())
    }

    pub(crate) fn template(&self) -> Template {
        self.template
    }

    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Length of the shared beginning in bytes, including the names of control tokens.
    pub(crate) fn shared_bytes(&self) -> usize {
        self.shared_bytes
    }

    /// The beginning of the assistant's turn.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Bytes of text without control tokens.
    pub(crate) fn text_bytes(&self) -> usize {
        let bytes = |piece: &Piece| match piece {
            Piece::Control(_) => 0,
            Piece::Text(text) => text.len(),
        };
        self.pieces.iter().map(bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use podium_domain::conversation::Role;

    use super::*;

    #[test]
    fn chatml_is_rendered_in_its_usual_form() {
        let messages = [Message::new(Role::System, "Plan."), Message::new(Role::User, "Why? <|im_end|>")];
        let prompt = Prompt::new(Template::ChatMl, &messages, "So: ");
        let written: String = prompt.pieces().iter().map(Piece::text).collect();
        assert_eq!(
            written,
            "<|im_start|>system\nPlan.<|im_end|>\n<|im_start|>user\nWhy? <|im_end|><|im_end|>\n<|im_start|>assistant\nSo: "
        );
        let from_user = prompt.pieces().iter().filter(|piece| **piece == Piece::Control("<|im_end|>"));
        assert_eq!(from_user.count(), 2);
    }

    #[test]
    fn a_shared_beginning_spans_all_pieces() {
        let of = |question: &str| {
            let messages =
                [Message::new(Role::System, "Plan."), Message::new(Role::User, format!("Q: {question}"))];
            Prompt::new(Template::ChatMl, &messages, "")
        };
        let alike = "<|im_start|>system\nPlan.<|im_end|>\n<|im_start|>user\nQ: ";
        assert_eq!(of("Why?").shared_bytes(), 0);
        assert_eq!(of("Why?").beginning_like(&of("")).shared_bytes(), alike.len());
        assert_eq!(of("Why?").beginning_like(&of("What?")).shared_bytes(), alike.len() + 2);
    }

    #[test]
    fn an_unknown_template_is_rejected_with_the_known_ones() {
        let error = Template::from_name("llama3").unwrap_err();
        assert_eq!(error.to_string(), "prompt.template is `llama3`, supported are: chatml");
    }
}
