//! Hidden states and the mini head on the shipped conductor.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use podium_domain::conversation::{Message, Role};
use podium_domain::ids::{RunId, WorkerId};
use podium_domain::policy::{Effort, Policy, Tier, WorkersAllowed};
use podium_domain::pool::Pool;
use podium_domain::pool::slots_hash;
use podium_domain::run::PlanResult;
use podium_domain::time::Timestamp;
use podium_head::{LinearHead, Source};
use podium_llama::bundle::{Bundle, BundleError, MANIFEST_FILE, pack_in_place};
use podium_llama::engine::{Ended, Engine, EngineError, EngineOptions, HiddenStates, ReadRequest};
use podium_llama::prompt::{Prompt, Template};
use podium_llama::{LlamaConductor, LlamaOptions, OpenError, QuestionReader};
use podium_ports::conductor::{Asker, Conductor, PlanOutcome, PlanRequest};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::support::*;

pub(crate) const SUM: &str = "What is 17 plus 4?";
const WORDS: &str = "Write 5280 in words.";

pub(crate) fn nano() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/nano")
}

pub(crate) fn slots() -> Vec<WorkerId> {
    Bundle::open(&nano()).unwrap().manifest().pool.slots.clone()
}

/// An engine on nano's weights with hidden states.
fn engine() -> Engine {
    let weights = nano().join("nano.gguf");
    let hidden_states = HiddenStates::Readable;
    load(EngineOptions { weights, hidden_states, context_tokens: 1024, ..options() }).unwrap()
}

fn read(question: &str) -> ReadRequest {
    ReadRequest {
        prompt: Prompt::new(Template::ChatMl, &[Message::new(Role::User, question)], ""),
        deadline: Instant::now() + Duration::from_mins(2),
        stop: CancellationToken::new(),
    }
}

pub(crate) async fn values(engine: &Engine, question: &str) -> Vec<f32> {
    engine.handle().read(read(question)).unwrap().finish().await.unwrap().values
}

#[tokio::test]
async fn reading_does_not_depend_on_other_requests() {
    let engine = engine();
    // Long enough for several parts.
    let long = "Take the number of days between 3 March 2024 and 17 May 2025. ".repeat(12);
    let alone = values(&engine, &long).await;
    let mut writing = engine.handle().submit(long_plan()).unwrap();
    writing.next_text().await.unwrap();
    let handle = engine.handle();
    let [first, other, second] = [&*long, SUM, &*long].map(|question| handle.read(read(question)).unwrap());
    assert_eq!(first.finish().await.unwrap().values, alone);
    assert_ne!(other.finish().await.unwrap().values, alone);
    assert_eq!(second.finish().await.unwrap().values, alone);
    drop(writing);
    let sum = values(&engine, SUM).await;
    assert!(sum.len() == alone.len() && sum.iter().all(|value| value.is_finite()));
    // Tokens after the one that is read have no effect; earlier ones have.
    assert_ne!(values(&engine, "What is 17 plus 5?").await, sum);
    engine.shut_down().await;
}

/// A plan that takes a while.
fn long_plan() -> podium_llama::engine::Request {
    podium_llama::engine::Request { reasoning_tokens_max: 400, plan_tokens_max: 400, ..random("Go on.", 1) }
}

#[tokio::test]
async fn reading_can_be_cancelled_and_must_be_enabled() {
    let engine = engine();
    let stopped = read(SUM);
    stopped.stop.cancel();
    let stopped = engine.handle().read(stopped).unwrap().finish().await;
    assert!(matches!(stopped, Err(EngineError::Interrupted(Ended::Stopped))), "{stopped:?}");
    let late = engine.handle().read(ReadRequest { deadline: Instant::now(), ..read(SUM) }).unwrap();
    let late = late.finish().await;
    assert!(matches!(late, Err(EngineError::Interrupted(Ended::Deadline))), "{late:?}");
    let too_long = engine.handle().read(read(&"17 plus 4, ".repeat(1000)));
    let too_long = match too_long {
        Ok(pending) => pending.finish().await.map(drop),
        Err(error) => Err(error),
    };
    assert!(matches!(too_long, Err(EngineError::PromptTooLong { tokens_max: 1024, .. })), "{too_long:?}");
    engine.shut_down().await;
    let ended = engine.handle().read(read(SUM));
    assert!(matches!(ended, Err(EngineError::Ended)), "{ended:?}");
    let deaf = crate::support::engine();
    assert!(matches!(deaf.handle().read(read(SUM)), Err(EngineError::NotReadable)));
}

/// A bundle of nano's weights whose head has these rows for its first two slots.
struct Setup {
    folder: TempDir,
    source: Source,
    sum: Vec<f32>,
    words: Vec<f32>,
}

impl Setup {
    async fn new() -> Self {
        let reader = QuestionReader::open(&nano()).unwrap();
        let (sum, words) = (reader.read(SUM).await.unwrap(), reader.read(WORDS).await.unwrap());
        let source = reader.source().clone();
        reader.shut_down().await;
        let folder = TempDir::new().unwrap();
        std::fs::copy(nano().join("nano.gguf"), folder.path().join("nano.gguf")).unwrap();
        Self { folder, source, sum, words }
    }

    /// Writes the bundle with `sum` as the first slot's row and `words` as the second's.
    fn write(&self, source: &Source, sum: &[f32], words: &[f32]) {
        let slots = slots()[..2].to_vec();
        let hash = slots_hash(&demo(), &slots).unwrap();
        let head = LinearHead::new(slots, hash, source.clone(), [sum, words].concat()).unwrap();
        let bytes = head.to_bytes().unwrap();
        std::fs::write(self.folder.path().join("head.safetensors"), bytes).unwrap();
        let manifest = std::fs::read_to_string(nano().join(MANIFEST_FILE)).unwrap();
        let mut manifest: toml_edit::DocumentMut = manifest.parse().unwrap();
        manifest["head"]["file"] = toml_edit::value("head.safetensors");
        manifest["head"]["sha256"] = toml_edit::value("");
        std::fs::write(self.folder.path().join(MANIFEST_FILE), manifest.to_string()).unwrap();
        pack_in_place(self.folder.path(), Some(&demo())).unwrap();
    }

    fn open(&self, pool: &Pool) -> Result<LlamaConductor, OpenError> {
        let options = LlamaOptions { threads: Some(NonZeroUsize::MIN), ..LlamaOptions::default() };
        LlamaConductor::open(&Bundle::open(self.folder.path()).unwrap(), pool, options)
    }
}

pub(crate) async fn plan(
    conductor: &LlamaConductor,
    question: &str,
    policy: Policy,
) -> (String, PlanOutcome) {
    let (question, seed, time_max) = (question.to_owned(), 0, Duration::from_mins(2));
    let asked_at = Timestamp::default();
    let asker = Asker::nobody(RunId::least_at(asked_at));
    let request = PlanRequest { asker, question, policy, earlier: None, asked_at, seed, time_max };
    let outcome = conductor.plan(&request, &|_| {}, &CancellationToken::new()).await.unwrap();
    let PlanResult::Plan(planned) = &outcome.result else { panic!("{outcome:?}") };
    (planned.plan.steps()[0].worker.to_string(), outcome)
}

pub(crate) fn mini() -> Policy {
    Policy::new(Tier::Mini, Effort::Medium)
}

#[tokio::test]
async fn the_mini_head_chooses_an_allowed_worker_without_decoding() {
    let setup = Setup::new().await;
    // Each row is the hidden state of its question.
    setup.write(&setup.source, &setup.sum, &setup.words);
    let conductor = setup.open(&demo()).unwrap();
    for (question, slot) in [(SUM, 0), (WORDS, 1), (SUM, 0)] {
        let (worker, outcome) = plan(&conductor, question, mini()).await;
        assert_eq!(worker, slots()[slot].as_str(), "{question}");
        let PlanResult::Plan(planned) = &outcome.result else { panic!("{outcome:?}") };
        assert_eq!((planned.plan.len(), planned.plan.steps()[0].subtask.as_str()), (1, question));
        assert!(outcome.usage.completion_tokens == 0 && outcome.usage.prompt_tokens > 5, "{outcome:?}");
    }
    let only_words = WorkersAllowed::Only([slots()[1].clone()].into());
    let (worker, _) = plan(&conductor, SUM, Policy { workers_allowed: only_words, ..mini() }).await;
    assert_eq!(worker, slots()[1].as_str());
    let (_, written) = plan(&conductor, SUM, Policy::new(Tier::Ultra, Effort::Medium)).await;
    assert!(written.usage.completion_tokens > 0, "{written:?}");
    conductor.shut_down().await;
}

#[tokio::test]
async fn unknown_questions_fall_back_to_the_prompted_conductor() {
    let setup = Setup::new().await;
    setup.write(&setup.source, &setup.sum, &setup.sum);
    let tie = setup.open(&demo()).unwrap();
    let (_, outcome) = plan(&tie, SUM, mini()).await;
    assert!(outcome.usage.completion_tokens > 0, "{outcome:?}");
    // Both prompts are counted.
    setup.write(&setup.source, &setup.sum, &setup.words);
    let chosen = setup.open(&demo()).unwrap();
    let third = WorkersAllowed::Only([slots()[2].clone()].into());
    let (worker, outcome) = plan(&chosen, SUM, Policy { workers_allowed: third, ..mini() }).await;
    assert!(worker == slots()[2].as_str() && outcome.usage.completion_tokens > 0, "{outcome:?}");
    tie.shut_down().await;
    chosen.shut_down().await;
}

#[tokio::test]
async fn a_head_is_not_used_for_other_models() {
    let setup = Setup::new().await;
    setup.write(&setup.source, &setup.sum, &setup.words);
    let ids: Vec<_> = slots().iter().map(|id| id.as_str().to_owned()).collect();
    let other = ids.iter().map(String::as_str).collect::<Vec<_>>();
    let changed = crate::conductor::pool_of_model(&other, "another-model");
    // With slots the bundle itself would reject the pool.
    let path = setup.folder.path().join(MANIFEST_FILE);
    let mut manifest: toml_edit::DocumentMut = std::fs::read_to_string(&path).unwrap().parse().unwrap();
    manifest.remove("pool");
    manifest["prompt"]["workers"] = toml_edit::value("described");
    std::fs::write(&path, manifest.to_string()).unwrap();
    let conductor = setup.open(&changed).unwrap();
    let (_, outcome) = plan(&conductor, SUM, mini()).await;
    assert!(outcome.usage.completion_tokens > 0, "{outcome:?}");
    conductor.shut_down().await;
}

#[tokio::test]
async fn a_head_with_a_wrong_source_or_checksum_is_rejected() {
    let setup = Setup::new().await;
    let other = Source { weights_sha256: "0".repeat(64), ..setup.source.clone() };
    setup.write(&other, &setup.sum, &setup.words);
    let refused = setup.open(&demo()).unwrap_err();
    assert!(matches!(&refused, OpenError::Head { .. }), "{refused}");
    for source in [&other, &setup.source] {
        let words = format!("weights {}, adapter none, reading `{}`", source.weights_sha256, source.reading);
        assert!(refused.to_string().contains(&words), "{refused}");
    }
    let path = setup.folder.path().join("head.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let refused = Bundle::open(setup.folder.path()).unwrap_err();
    assert!(matches!(&refused, BundleError::Files { .. }), "{refused}");
    assert!(refused.to_string().contains("`head.safetensors` (head) has SHA-256"), "{refused}");
    std::fs::remove_file(&path).unwrap();
    let refused = Bundle::open(setup.folder.path()).unwrap_err();
    assert!(refused.to_string().contains("`head.safetensors` (head) cannot be read"), "{refused}");
}
