//! The tiny test model and requests to it. `fixtures/make_tiny_gguf.py` describes it.

use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use podium_bundle::hardware::{GpuLayers, Hardware};
use podium_domain::conversation::{Message, Role};
use podium_domain::policy::Tier;
use podium_domain::pool::Pool;
use podium_llama::Sampling;
use podium_llama::engine::{Completion, Engine, EngineOptions, HiddenStates, LoadError, Request};
use podium_llama::grammar::{MayKeepAnswer, PlanShape};
use podium_llama::prompt::{Prompt, Template};
use tokio_util::sync::CancellationToken;

/// The tiny model's file.
pub(crate) fn tiny_weights() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny.gguf")
}

/// The pool that the shipped conductor was trained for.
pub(crate) fn demo() -> Pool {
    Pool::parse(include_str!("../../../../pools/demo.toml")).unwrap()
}

/// The tiny model's greedy output for any question.
pub(crate) const SCRIPT_REASONING: &str = "Parts: words.\n";
pub(crate) const SCRIPT_PLAN: &str = "model_id = [2]\nsubtasks = [\"the\"]\naccess_list = [[]]";

pub(crate) const CONTEXT_TOKENS: u32 = 4096;

pub(crate) fn options() -> EngineOptions {
    EngineOptions {
        name: "tiny-1".to_owned(),
        weights: tiny_weights(),
        adapter: None,
        context_tokens: CONTEXT_TOKENS,
        sequences_max: NonZeroU16::new(4).unwrap(),
        waiting_max: NonZeroUsize::new(8).unwrap(),
        threads: NonZeroUsize::new(1),
        hardware: hardware(),
        hidden_states: HiddenStates::NotReadable,
    }
}

/// The test hardware: GPUs if `PODIUM_TEST_GPU` is set.
pub(crate) fn hardware() -> Hardware {
    let has_gpu = std::env::var_os("PODIUM_TEST_GPU").is_some();
    Hardware { gpu_layers: if has_gpu { GpuLayers::All } else { GpuLayers::None }, ..Hardware::default() }
}

pub(crate) fn engine() -> Engine {
    load(options()).unwrap()
}

/// An engine with one sequence.
pub(crate) fn engine_of_one() -> Engine {
    load(EngineOptions { sequences_max: NonZeroU16::MIN, ..options() }).unwrap()
}

pub(crate) fn load(options: EngineOptions) -> Result<Engine, LoadError> {
    Engine::load(options)
}

pub(crate) fn prompt(question: &str) -> Prompt {
    Prompt::new(Template::ChatMl, &[Message::new(Role::User, question)], "")
}

/// A greedy request for up to three steps over four workers.
pub(crate) fn greedy(question: &str) -> Request {
    Request {
        prompt: prompt(question),
        tier: Tier::Ultra,
        shape: PlanShape::new(0..4, 3, MayKeepAnswer::No).unwrap(),
        sampling: Sampling { temperature: 0.0, top_p: 1.0, seed: 0 },
        reasoning_tokens_max: 32,
        plan_tokens_max: 400,
        deadline: Instant::now() + Duration::from_mins(2),
        stop: CancellationToken::new(),
    }
}

/// A request with sampling. Subtasks are short enough for the plan to fit even with one token per byte.
pub(crate) fn random(question: &str, seed: u64) -> Request {
    Request {
        shape: greedy(question).shape.with_subtask_chars_max(100).unwrap(),
        sampling: Sampling { temperature: 2.0, top_p: 1.0, seed },
        plan_tokens_max: 1500,
        ..greedy(question)
    }
}

/// A request that writes thousands of tokens, which takes about a second on an idle machine: after this beginning the tiny
/// model's greedy output repeats forever.
pub(crate) fn endless() -> Request {
    let prompt = Prompt::new(Template::ChatMl, &[Message::new(Role::User, "Go on.")], "the number");
    Request { prompt, reasoning_tokens_max: 3000, ..greedy("Go on.") }
}

pub(crate) async fn completion(engine: &Engine, request: Request) -> Completion {
    engine.handle().submit(request).unwrap().finish().await.unwrap()
}
