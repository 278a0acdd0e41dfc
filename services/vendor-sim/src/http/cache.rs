//! Pretends a prompt cache: a long beginning that an earlier request to the same model had too counts as cached.

use std::collections::{HashMap, VecDeque};

use super::completion::TOKEN_BYTES;
use crate::models::Model;

/// Prompts remembered per model.
const PROMPTS_MAX: usize = 16;
/// Bytes remembered of each.
const PROMPT_BYTES_MAX: usize = 256 * 1024;
/// Shorter common beginnings are not cached, and longer ones in steps of so many tokens, as at the real vendor.
const TOKENS_MIN: usize = 1_024;
const TOKENS_STEP: usize = 128;

/// The prompts of late, by model.
#[derive(Debug, Default)]
pub(crate) struct PromptCache {
    prompts: HashMap<Model, VecDeque<Vec<u8>>>,
}

impl PromptCache {
    /// How many tokens of the prompt were seen before; remembers it.
    pub(super) fn cached_tokens(&mut self, model: Model, prompt: &str) -> usize {
        let bytes = &prompt.as_bytes()[..prompt.len().min(PROMPT_BYTES_MAX)];
        let known = self.prompts.entry(model).or_default();
        let common =
            |other: &Vec<u8>| other.iter().zip(bytes).take_while(|(left, right)| left == right).count();
        let longest = known.iter().map(common).max().unwrap_or(0) / TOKEN_BYTES;
        if known.len() == PROMPTS_MAX {
            known.pop_front();
        }
        known.push_back(bytes.to_vec());
        if longest < TOKENS_MIN { 0 } else { longest - longest % TOKENS_STEP }
    }
}

#[cfg(test)]
mod tests {
    use super::PromptCache;
    use crate::models::Model;

    #[test]
    fn only_long_beginnings_seen_by_the_same_model_are_cached() {
        let mut cache = PromptCache::default();
        let long = "x".repeat(4 * 1_200);
        assert_eq!(cache.cached_tokens(Model::Echo, &long), 0);
        assert_eq!(cache.cached_tokens(Model::Generalist, &long), 0);
        assert_eq!(cache.cached_tokens(Model::Echo, &format!("{long}y")), 1_152);
        assert_eq!(cache.cached_tokens(Model::Echo, "xx"), 0);
    }
}
