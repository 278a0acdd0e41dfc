//! Puts a batch together: first a token or a few for each sequence that writes, then parts of prompts.
//!
//! So nobody who writes waits for another's prompt longer than a part of it takes, and a long prompt goes on with every batch.

use super::decoder::{Logits, Part};

/// Tokens that a sequence lacks in the context.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lacking<'a> {
    pub(super) sequence: u16,
    /// How many tokens of it the context has.
    pub(super) position: usize,
    pub(super) tokens: &'a [u32],
    pub(super) purpose: Purpose,
}

/// What the tokens are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// What the model wrote last; it goes on after them.
    Text,
    /// A prompt; the model begins after it.
    Prompt,
    /// What prompts share; nothing is written after it.
    Prefix,
}

/// How large a batch may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchLimits {
    /// Tokens.
    pub(super) tokens_max: usize,
    /// Those of them that are prompts': with them the time of a batch grows, and everybody waits for it.
    pub(super) prompt_tokens_max: usize,
}

/// The next batch. Who comes first in `lacking` goes first among those of the same purpose.
pub(super) fn compose<'a>(lacking: &[Lacking<'a>], limits: BatchLimits) -> Vec<Part<'a>> {
    let mut room = limits.tokens_max;
    let mut prompt_room = limits.prompt_tokens_max;
    let mut parts = Vec::with_capacity(lacking.len());
    let is_text = |lacking: &&Lacking<'_>| lacking.purpose == Purpose::Text;
    let texts = lacking.iter().filter(is_text);
    for lacking in texts.chain(lacking.iter().filter(|lacking| !is_text(lacking))) {
        let room_for_it = if lacking.purpose == Purpose::Text { room } else { room.min(prompt_room) };
        let taken = lacking.tokens.len().min(room_for_it);
        if taken == 0 {
            continue;
        }
        room -= taken;
        if lacking.purpose != Purpose::Text {
            prompt_room -= taken;
        }
        let is_whole = taken == lacking.tokens.len();
        let logits =
            if is_whole && lacking.purpose != Purpose::Prefix { Logits::AfterLast } else { Logits::Unwanted };
        let Lacking { sequence, position, .. } = *lacking;
        parts.push(Part { sequence, position, tokens: &lacking.tokens[..taken], logits });
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BatchLimits = BatchLimits { tokens_max: 100, prompt_tokens_max: 30 };
    static TOKENS: [u32; 200] = [7; 200];

    fn lacking(sequence: u16, tokens: usize, purpose: Purpose) -> Lacking<'static> {
        Lacking { sequence, position: 0, tokens: &TOKENS[..tokens], purpose }
    }

    /// Sequence, tokens, and whether logits are wanted, of each part.
    fn composed(lacking: &[Lacking<'static>]) -> Vec<(u16, usize, bool)> {
        let parts = compose(lacking, LIMITS);
        parts
            .iter()
            .map(|part| (part.sequence, part.tokens.len(), part.logits == Logits::AfterLast))
            .collect()
    }

    #[test]
    fn who_writes_goes_before_prompts_and_prompts_get_a_part_of_the_batch() {
        let composed = composed(&[
            lacking(0, 80, Purpose::Prompt),
            lacking(1, 1, Purpose::Text),
            lacking(2, 3, Purpose::Text),
            lacking(3, 5, Purpose::Prompt),
        ]);
        assert_eq!(composed, [(1, 1, true), (2, 3, true), (0, 30, false)]);
    }

    #[test]
    fn logits_are_wanted_after_a_whole_prompt_only() {
        let composed = composed(&[
            lacking(0, 10, Purpose::Prefix),
            lacking(1, 10, Purpose::Prompt),
            lacking(2, 11, Purpose::Prompt),
        ]);
        assert_eq!(composed, [(0, 10, false), (1, 10, true), (2, 10, false)]);
    }

    #[test]
    fn a_batch_is_never_larger_than_it_may_be() {
        let texts: Vec<_> = (0..5).map(|sequence| lacking(sequence, 30, Purpose::Text)).collect();
        assert_eq!(composed(&texts), [(0, 30, true), (1, 30, true), (2, 30, true), (3, 10, false)]);
    }
}
