//! Composes a batch: first the tokens of sequences that write, then parts of prompts.
//!
//! So a writing sequence waits at most for one part of another's prompt, and a long prompt advances with every batch.

use super::decoder::{Logits, Part};

/// Tokens of a sequence that are not in the context yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lacking<'a> {
    pub(super) sequence: u16,
    /// Tokens that the context already has.
    pub(super) position: usize,
    pub(super) tokens: &'a [u32],
    pub(super) purpose: Purpose,
}

/// The role of the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The model's last output; it continues after these tokens.
    Text,
    /// A prompt; the model's output follows it.
    Prompt,
    /// A shared beginning of prompts; no output follows it.
    Prefix,
}

/// Limits of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchLimits {
    /// Most tokens.
    pub(super) tokens_max: usize,
    /// Most prompt tokens: they determine the time of a batch, for which all writing sequences wait.
    pub(super) prompt_tokens_max: usize,
}

/// Composes the next batch. Entries of the same purpose keep their order.
pub(super) fn compose<'a>(lacking: &[Lacking<'a>], limits: BatchLimits) -> Vec<Part<'a>> {
    let mut left = limits.tokens_max;
    let mut prompt_left = limits.prompt_tokens_max;
    let mut parts = Vec::with_capacity(lacking.len());
    let is_text = |lacking: &&Lacking<'_>| lacking.purpose == Purpose::Text;
    let texts = lacking.iter().filter(is_text);
    for lacking in texts.chain(lacking.iter().filter(|lacking| !is_text(lacking))) {
        let tokens_max = if lacking.purpose == Purpose::Text { left } else { left.min(prompt_left) };
        let taken = lacking.tokens.len().min(tokens_max);
        if taken == 0 {
            continue;
        }
        left -= taken;
        if lacking.purpose != Purpose::Text {
            prompt_left -= taken;
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

    /// Sequence, number of tokens and whether logits are requested, for each part.
    fn composed(lacking: &[Lacking<'static>]) -> Vec<(u16, usize, bool)> {
        let parts = compose(lacking, LIMITS);
        parts
            .iter()
            .map(|part| (part.sequence, part.tokens.len(), part.logits == Logits::AfterLast))
            .collect()
    }

    #[test]
    fn writers_precede_prompts_and_prompts_get_a_part_of_the_batch() {
        let composed = composed(&[
            lacking(0, 80, Purpose::Prompt),
            lacking(1, 1, Purpose::Text),
            lacking(2, 3, Purpose::Text),
            lacking(3, 5, Purpose::Prompt),
        ]);
        assert_eq!(composed, [(1, 1, true), (2, 3, true), (0, 30, false)]);
    }

    #[test]
    fn logits_are_requested_after_a_whole_prompt_only() {
        let composed = composed(&[
            lacking(0, 10, Purpose::Prefix),
            lacking(1, 10, Purpose::Prompt),
            lacking(2, 11, Purpose::Prompt),
        ]);
        assert_eq!(composed, [(0, 10, false), (1, 10, true), (2, 10, false)]);
    }

    #[test]
    fn a_batch_respects_its_limits() {
        let texts: Vec<_> = (0..5).map(|sequence| lacking(sequence, 30, Purpose::Text)).collect();
        assert_eq!(composed(&texts), [(0, 30, true), (1, 30, true), (2, 30, true), (3, 10, false)]);
    }
}
