//! Models that always prefer one token, under llama.cpp. All of them still plan within the bounds.

use std::path::PathBuf;

use podium_domain::plan::PlanDraft;
use podium_llama::engine::{Completion, Ended, Engine, EngineOptions, Request};
use tempfile::TempDir;

use crate::support::*;

/// The tiny model's file, changed so that the same token is always the likeliest: the first value of every embedding
/// dominates the hidden state, and one row of the output layer selects it.
struct Rigged {
    _folder: TempDir,
    weights: PathBuf,
}

/// As 16-bit floats.
const THOUSAND: [u8; 2] = [0xD0, 0x63];
const TEN: [u8; 2] = [0x00, 0x49];

impl Rigged {
    /// Prefers the token with this spelling in the vocabulary.
    fn to_want(spelled: &str) -> Self {
        let mut bytes = std::fs::read(tiny_weights()).unwrap();
        let Layout { tokens, embeddings, output, dimensions } = Layout::of(&bytes);
        let wanted = tokens.iter().position(|token| token == spelled);
        let wanted = wanted.unwrap_or_else(|| panic!("{spelled:?} is not a token"));
        let mut set = |at: usize, number: [u8; 2]| bytes[at..at + 2].copy_from_slice(&number);
        for token in 0..tokens.len() {
            set(embeddings + 2 * token * dimensions, THOUSAND);
            set(output + 2 * token * dimensions, [0, 0]);
        }
        set(output + 2 * wanted * dimensions, TEN);
        let folder = TempDir::new().unwrap();
        let weights = folder.path().join("rigged.gguf");
        std::fs::write(&weights, bytes).unwrap();
        Self { _folder: folder, weights }
    }

    fn engine(&self) -> Engine {
        load(EngineOptions { weights: self.weights.clone(), ..options() }).unwrap()
    }
}

/// Offsets in a GGUF file with 16-bit floats.
struct Layout {
    tokens: Vec<String>,
    /// Offsets of the first embedding and of the output layer's first row.
    embeddings: usize,
    output: usize,
    dimensions: usize,
}

impl Layout {
    fn of(bytes: &[u8]) -> Self {
        let mut reader = Reader { bytes, at: 8 };
        let (tensors, pairs) = (reader.long(), reader.long());
        let mut tokens = Vec::new();
        for _ in 0..pairs {
            let (key, kind) = (reader.text(), reader.int());
            let texts = reader.value(kind);
            if key == "tokenizer.ggml.tokens" {
                tokens = texts;
            }
        }
        let mut found = Vec::new();
        for _ in 0..tensors {
            let (name, dimensions) = (reader.text(), reader.int());
            let sizes: Vec<usize> = (0..dimensions).map(|_| reader.long()).collect();
            let (kind, offset) = (reader.int(), reader.long());
            if ["token_embd.weight", "output.weight"].contains(&name.as_str()) {
                assert_eq!((kind, sizes[1]), (1, tokens.len()), "16 bits, a row for each token");
                found.push((name, sizes[0], offset));
            }
        }
        let data = reader.at.next_multiple_of(32);
        let place = |wanted: &str| found.iter().find(|(name, ..)| name == wanted).unwrap();
        let (embeddings, output) = (place("token_embd.weight"), place("output.weight"));
        Self { dimensions: embeddings.1, embeddings: data + embeddings.2, output: data + output.2, tokens }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let taken = self.bytes[self.at..self.at + N].try_into().unwrap();
        self.at += N;
        taken
    }

    fn int(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn long(&mut self) -> usize {
        usize::try_from(u64::from_le_bytes(self.take())).unwrap()
    }

    fn text(&mut self) -> String {
        let length = self.long();
        let text = String::from_utf8(self.bytes[self.at..self.at + length].to_vec()).unwrap();
        self.at += length;
        text
    }

    /// Skips a value; returns the texts in it.
    fn value(&mut self, kind: u32) -> Vec<String> {
        match kind {
            0 | 1 | 7 => self.at += 1,
            2 | 3 => self.at += 2,
            4..=6 => self.at += 4,
            8 => return vec![self.text()],
            9 => {
                let (kind, count) = (self.int(), self.long());
                return (0..count).flat_map(|_| self.value(kind)).collect();
            }
            10..=12 => self.at += 8,
            _ => panic!("values of kind {kind} are unknown"),
        }
        Vec::new()
    }
}

const REASONING_TOKENS_MAX: u32 = 200;
const PLAN_TOKENS_MAX: u32 = 700;

fn request_to_plan() -> Request {
    Request {
        shape: greedy("").shape.with_subtask_chars_max(40).unwrap(),
        reasoning_tokens_max: REASONING_TOKENS_MAX,
        plan_tokens_max: PLAN_TOKENS_MAX,
        ..greedy("What?")
    }
}

/// The output of such a model, checked to be a plan within the bounds.
async fn written(spelled: &str) -> Completion {
    let engine = Rigged::to_want(spelled).engine();
    let completion = completion(&engine, request_to_plan()).await;
    engine.shut_down().await;
    assert_eq!(completion.ended, Ended::Complete, "{spelled:?}: {completion:?}");
    PlanDraft::parse(&completion.plan).unwrap();
    assert!(completion.reasoning_tokens <= REASONING_TOKENS_MAX as usize, "{spelled:?}: {completion:?}");
    assert!(completion.completion_tokens <= (REASONING_TOKENS_MAX + PLAN_TOKENS_MAX) as usize, "{spelled:?}");
    completion
}

#[tokio::test]
async fn a_model_that_repeats_itself_still_plans() {
    for word in ["Parts", ":", "model", "[", "\"", "\\", "0", "<"] {
        let completion = written(word).await;
        assert!(
            completion.reasoning.starts_with(&word.repeat(50)),
            "{word:?}: {:.100}",
            completion.reasoning
        );
    }
}

/// As the vocabulary spells them.
#[tokio::test]
async fn a_model_that_writes_only_blanks_still_plans() {
    for (spelled, blank) in [("Ġ", " "), ("Ċ", "\n"), ("ĉ", "\t")] {
        let completion = written(spelled).await;
        assert!(completion.reasoning.starts_with(&blank.repeat(50)), "{spelled}: {:?}", completion.reasoning);
    }
}

/// Bytes that are invalid in text: one that never occurs, one without its continuation, one without its beginning.
#[tokio::test]
async fn a_model_that_writes_only_invalid_bytes_still_plans() {
    for spelled in ["þ", "Ã", "Ģ"] {
        let completion = written(spelled).await;
        assert!(completion.reasoning.contains('\u{FFFD}'), "{spelled}: {completion:?}");
        assert!(!completion.plan.contains('\u{FFFD}'), "{spelled}: {completion:?}");
    }
}

#[tokio::test]
async fn a_model_that_ends_at_once_still_plans() {
    assert_eq!(written("<|im_end|>").await.reasoning_tokens, 0);
}

#[tokio::test]
async fn a_plan_ends_at_its_token_limit_in_any_list() {
    let engine = engine();
    let whole = completion(&engine, greedy("What?")).await;
    let tokens = u32::try_from(whole.completion_tokens - whole.reasoning_tokens).unwrap();
    for plan_tokens_max in 1..tokens {
        let cut = completion(&engine, Request { plan_tokens_max, ..greedy("What?") }).await;
        assert_eq!(cut.ended, Ended::TokensMax, "{plan_tokens_max}");
        assert!(whole.plan.starts_with(&cut.plan) && cut.plan != whole.plan, "{plan_tokens_max}: {cut:?}");
    }
}
