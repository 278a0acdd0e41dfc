//! The conductor's port on the tiny model.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::time::Duration;

use podium_domain::ids::{RunId, WorkerId};
use podium_domain::policy::{Effort, Policy, ROUNDS_MAX, Tier, WorkersAllowed};
use podium_domain::pool::Pool;
use podium_domain::run::PlanResult;
use podium_domain::time::Timestamp;
use podium_llama::bundle::{Bundle, MANIFEST_FILE};
use podium_llama::{LlamaConductor, LlamaOptions, OpenError};
use podium_ports::conductor::{Asker, Conductor, ConductorError, PlanOutcome, PlanRequest};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::support::*;

const SHA256: &str = "990db97097d920aca9e580741c96bf6265b3a01076ae168f647852f06111ba72";

fn manifest(prompt: &str, sampling: &str) -> String {
    format!(
        "schema = 1\nname = \"tiny\"\nversion = \"1\"\n[weights]\nfile = \"tiny.gguf\"\nsha256 = \"{SHA256}\"\n\
         [prompt]\ntemplate = \"chatml\"\nuser = \"{{{{question}}}}\"\n{prompt}\n\
         [sampling]\ncontext_tokens = 4096\nreasoning_tokens_max = 32\n{sampling}\n"
    )
}

const DESCRIBED: &str = "workers = \"described\"";
const SLOTS: &str = "workers = \"slots\"\n[pool]\nslots = [\"c\", \"b\", \"a\"]\ntrained_on = \"p-1\"\n\
     hash = \"f8dea285a36c3d077a8f5ebeda37c7212f6dae9d17cc61a9c3c67c663213ccb6\"";
const GREEDY: &str = "temperature = 0.0\nplan_tokens_max = 400";

pub(crate) fn pool(workers: &[&str]) -> Pool {
    pool_of_model(workers, "m")
}

pub(crate) fn pool_of_model(workers: &[&str], model: &str) -> Pool {
    let vendor = "[[vendors]]\nid = \"v\"\napi = \"openai-chat\"\nbase_url = \"http://127.0.0.1:1/v1\"\n";
    let worker = |id: &&str| {
        format!(
            "[[workers]]\nid = \"{id}\"\nvendor = \"v\"\nmodel = \"{model}\"\ndescription = \"d\"\ncontext_tokens = 4096\n\
             usd_per_million_tokens = {{ input = 1.0, output = 1.0 }}\n"
        )
    };
    let workers: String = workers.iter().map(worker).collect();
    Pool::parse(&format!("schema = 1\nname = \"p\"\nversion = \"1\"\n{vendor}{workers}")).unwrap()
}

fn open(manifest: &str, pool: &Pool) -> Result<LlamaConductor, OpenError> {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join(MANIFEST_FILE), manifest).unwrap();
    std::fs::copy(tiny_weights(), directory.path().join("tiny.gguf")).unwrap();
    let options = LlamaOptions { threads: NonZeroUsize::new(1), ..LlamaOptions::default() };
    LlamaConductor::open(&Bundle::open(directory.path()).unwrap(), pool, options)
}

fn request() -> PlanRequest {
    PlanRequest {
        asker: Asker::nobody(RunId::least_at(Timestamp::default())),
        question: "What?".to_owned(),
        policy: Policy::new(Tier::Ultra, Effort::Medium),
        earlier: None,
        seed: 5,
        asked_at: Timestamp::default(),
        time_max: Duration::from_mins(2),
    }
}

async fn plan(conductor: &LlamaConductor, request: &PlanRequest) -> Result<PlanOutcome, ConductorError> {
    conductor.plan(request, &|_| {}, &CancellationToken::new()).await
}

fn workers_of(outcome: &PlanOutcome) -> Vec<&str> {
    let PlanResult::Plan(planned) = &outcome.result else { panic!("{outcome:?}") };
    planned.plan.steps().iter().map(|step| step.worker.as_str()).collect()
}

#[tokio::test]
async fn a_question_becomes_a_checked_plan_with_streamed_text() {
    let conductor = open(&manifest(DESCRIBED, GREEDY), &pool(&["a", "b", "c"])).unwrap();
    assert_eq!(conductor.id(), "tiny-1");
    let streamed = Mutex::new(String::new());
    let hear = |text: &str| streamed.lock().unwrap().push_str(text);
    let outcome = conductor.plan(&request(), &hear, &CancellationToken::new()).await.unwrap();
    assert_eq!(workers_of(&outcome), ["c"]);
    let PlanResult::Plan(planned) = &outcome.result else { panic!("{outcome:?}") };
    assert_eq!(
        (planned.reasoning.as_str(), planned.plan.steps()[0].subtask.as_str()),
        ("Parts: words.", "the")
    );
    assert_eq!(streamed.into_inner().unwrap(), format!("{SCRIPT_REASONING}{SCRIPT_PLAN}"));
    assert!(
        outcome.usage.prompt_tokens > 0 && outcome.usage.completion_tokens > outcome.usage.reasoning_tokens
    );
}

#[tokio::test]
async fn slots_are_the_pinned_workers_in_any_pool_order() {
    let conductor = open(&manifest(SLOTS, GREEDY), &pool(&["x", "a", "b", "c"])).unwrap();
    assert_eq!(workers_of(&plan(&conductor, &request()).await.unwrap()), ["a"]);
    assert_eq!(conductor.abilities().rounds_max, 1);
}

#[test]
fn a_pool_without_a_pinned_worker_is_rejected() {
    let refused = open(&manifest(SLOTS, GREEDY), &pool(&["a", "b"])).unwrap_err();
    assert!(matches!(refused, OpenError::Pool(_)), "{refused:?}");
    assert!(refused.to_string().contains("no worker `c`"), "{refused}");
}

#[test]
fn an_unknown_template_is_rejected() {
    let manifest = manifest(DESCRIBED, GREEDY).replace("chatml", "alpaca");
    let refused = open(&manifest, &pool(&["a"])).unwrap_err();
    assert!(matches!(refused, OpenError::Template { .. }), "{refused:?}");
}

#[tokio::test]
async fn forbidden_workers_are_not_chosen() {
    let conductor = open(&manifest(DESCRIBED, GREEDY), &pool(&["a", "b", "c"])).unwrap();
    let only = |id: &str| WorkersAllowed::Only([WorkerId::new(id).unwrap()].into());
    let mut request = request();
    request.policy.workers_allowed = only("b");
    let outcome = plan(&conductor, &request).await.unwrap();
    assert!(workers_of(&outcome).iter().all(|worker| *worker == "b"), "{outcome:?}");
    request.policy.workers_allowed = only("nobody");
    let refused = plan(&conductor, &request).await.unwrap_err();
    assert!(matches!(&refused, ConductorError::NoPlan { tries: 0, .. }), "{refused:?}");
}

#[tokio::test]
async fn an_unfinished_plan_is_retried_a_bounded_number_of_times() {
    for (temperature, tries_made) in [("0.0", 1), ("1.0", 3)] {
        let sampling = format!("temperature = {temperature}\nplan_tokens_max = 10");
        let conductor = open(&manifest(DESCRIBED, &sampling), &pool(&["a"])).unwrap();
        let refused = plan(&conductor, &request()).await.unwrap_err();
        let ConductorError::NoPlan { tries, message, usage, .. } = &refused else { panic!("{refused:?}") };
        assert_eq!(*tries, tries_made);
        assert!(message.contains("plan_tokens_max") && usage.prompt_tokens > 0, "{refused:?}");
    }
}

#[tokio::test]
async fn cancellation_and_timeout_are_distinguished() {
    let conductor = open(&manifest(DESCRIBED, GREEDY), &pool(&["a"])).unwrap();
    let stop = CancellationToken::new();
    stop.cancel();
    let stopped = conductor.plan(&request(), &|_| {}, &stop).await.unwrap_err();
    assert!(matches!(stopped, ConductorError::Stopped), "{stopped:?}");
    let late = plan(&conductor, &PlanRequest { time_max: Duration::ZERO, ..request() }).await.unwrap_err();
    assert!(matches!(late, ConductorError::Timeout { limit: Duration::ZERO }), "{late:?}");
    assert_eq!(workers_of(&plan(&conductor, &request()).await.unwrap()).len(), 1);
}

#[tokio::test]
async fn a_too_long_question_is_rejected_with_the_numbers() {
    let conductor = open(&manifest(DESCRIBED, GREEDY), &pool(&["a"])).unwrap();
    let refused =
        plan(&conductor, &PlanRequest { question: "1".repeat(5_000), ..request() }).await.unwrap_err();
    let ConductorError::QuestionTooLong { tokens, tokens_max } = refused else { panic!("{refused:?}") };
    assert!(tokens > 5_000 && tokens_max == 4096 - 32 - 400);
    assert!(!refused.is_retryable());
}

#[tokio::test]
async fn a_shared_prompt_beginning_is_computed_once() {
    let instructions = "Split the question into parts. ".repeat(8);
    let manifest = manifest(DESCRIBED, GREEDY)
        .replace("user = \"{{question}}\"", &format!("user = \"{instructions}Question: {{{{question}}}}\""));
    let conductor = open(&manifest, &pool(&["a", "b", "c"])).unwrap();
    let first = plan(&conductor, &request()).await.unwrap();
    let second = plan(&conductor, &PlanRequest { question: "Why?".to_owned(), ..request() }).await.unwrap();
    assert_eq!(first.usage.cached_tokens, 0);
    assert!(second.usage.cached_tokens > 30 && second.usage.cached_tokens < second.usage.prompt_tokens);
    assert_eq!(workers_of(&first), workers_of(&second));
}

#[tokio::test]
async fn examples_are_in_the_prompt_and_computed_once() {
    let plain = open(&manifest(DESCRIBED, GREEDY), &pool(&["a", "b", "c"])).unwrap();
    let plain = plan(&plain, &request()).await.unwrap().usage.prompt_tokens;
    let example = "[[examples]]\nquestion = \"Who was it, and when was it?\"\n\
         plan = 'model_id = [0, 1] subtasks = [\"Say who.\", \"Say when.\"] access_list = [[], [0]]'\n";
    let manifest = manifest(DESCRIBED, GREEDY).replace("{{question}}", "{{examples}} {{question}}");
    let conductor = open(&format!("{manifest}{example}"), &pool(&["a", "b", "c"])).unwrap();
    let first = plan(&conductor, &request()).await.unwrap();
    let second = plan(&conductor, &PlanRequest { question: "Why?".to_owned(), ..request() }).await.unwrap();
    assert!(first.usage.prompt_tokens > plain + 40, "{} and {plain} tokens", first.usage.prompt_tokens);
    assert!(second.usage.cached_tokens > 40, "{:?}", second.usage);
}

#[tokio::test]
async fn a_follow_up_round_may_keep_the_answer() {
    let conductor =
        open(&manifest(DESCRIBED, "temperature = 1.0\nplan_tokens_max = 2000"), &pool(&["a"])).unwrap();
    let mut request = PlanRequest {
        earlier: Some(podium_domain::prompt::Earlier {
            text: "Step 1 wrote: 42".to_owned(),
            gave_answer: true,
        }),
        ..request()
    };
    request.policy.steps_max = 1;
    let mut kept = 0;
    for seed in 0..16 {
        request.seed = seed;
        let outcome = plan(&conductor, &request).await.unwrap();
        kept += u32::from(outcome.result == PlanResult::KeepAnswer);
    }
    assert!((1..16).contains(&kept), "{kept} of 16");
}

#[tokio::test]
async fn slots_plan_a_follow_up_round_with_the_trained_text() {
    let further = SLOTS.replace("[pool]", "further = \" So far: {{earlier}}\"\n[pool]");
    let conductor = open(&manifest(&further, GREEDY), &pool(&["x", "a", "b", "c"])).unwrap();
    assert_eq!(conductor.abilities().rounds_max, ROUNDS_MAX);
    let first = plan(&conductor, &request()).await.unwrap();
    let again = PlanRequest {
        earlier: Some(podium_domain::prompt::Earlier {
            text: "Step 1 wrote: 42".to_owned(),
            gave_answer: true,
        }),
        ..request()
    };
    let second = plan(&conductor, &again).await.unwrap();
    let longer = second.usage.prompt_tokens - first.usage.prompt_tokens;
    assert!((10..40).contains(&longer), "only the bundle's own text is added: {longer} tokens");
    assert_eq!(workers_of(&second), ["a"]);
}

#[tokio::test]
async fn planning_fails_after_shutdown() {
    let conductor = open(&manifest(DESCRIBED, GREEDY), &pool(&["a"])).unwrap();
    conductor.shut_down().await;
    let failed = plan(&conductor, &request()).await.unwrap_err();
    assert!(matches!(failed, ConductorError::Unavailable(_)), "{failed:?}");
}
