//! Simulates a prompt cache: a long beginning that an earlier request to the same model had counts as cached.

use std::collections::{HashMap, VecDeque};

use super::completion::TOKEN_BYTES;
use podium_demo_workers::Model;

/// Prompts stored per model.
const PROMPTS_MAX: usize = 16;
/// Bytes stored of each.
const PROMPT_BYTES_MAX: usize = 256 * 1024;
/// Shorter common beginnings are not cached; longer ones count in multiples of the step, as at the real vendor.
const TOKENS_MIN: usize = 1_024;
const TOKENS_STEP: usize = 128;

/// Recent prompts by model.
#[derive(Debug, Default)]
pub(crate) struct PromptCache {
    prompts: HashMap<Model, VecDeque<Vec<u8>>>,
}

impl PromptCache {
    /// Number of the prompt's tokens that are cached. Stores the prompt.
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
    use podium_demo_workers::Model;

    #[test]
    fn only_long_beginnings_of_the_same_model_are_cached() {
        let mut cache = PromptCache::default();
        let long = "x".repeat(4 * 1_200);
        assert_eq!(cache.cached_tokens(Model::Echo, &long), 0);
        assert_eq!(cache.cached_tokens(Model::Generalist, &long), 0);
        assert_eq!(cache.cached_tokens(Model::Echo, &format!("{long}y")), 1_152);
        assert_eq!(cache.cached_tokens(Model::Echo, "xx"), 0);
    }
}
