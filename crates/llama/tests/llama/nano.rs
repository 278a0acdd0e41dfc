//! The shipped conductor, `models/nano`, on the demo's question.

use std::collections::HashSet;
use std::num::{NonZeroU16, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use futures::future::join_all;
use podium_domain::conversation::{Message, Role};
use podium_domain::ids::RunId;
use podium_domain::plan::{LastStep, PlanDraft, PlanStream};
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::run::{PlanResult, Planned};
use podium_domain::time::Timestamp;
use podium_llama::bundle::Bundle;
use podium_llama::engine::{Completion, Ended, Engine, EngineOptions, Pending, Request};
use podium_llama::grammar::{MayKeepAnswer, PlanShape};
use podium_llama::prompt::{Prompt, Template};
use podium_llama::{LlamaConductor, LlamaOptions};
use podium_ports::conductor::{Asker, Conductor, PlanRequest};
use tokio_util::sync::CancellationToken;

use crate::support::{demo, greedy, options};

const QUESTION: &str = "Take the number of days between 3 March 2024 and 17 May 2025, multiply it by 12, \
    and write the result in words.";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/nano")
}

fn conductor() -> LlamaConductor {
    let bundle = Bundle::open(&folder()).unwrap();
    let options = LlamaOptions { threads: Some(NonZeroUsize::MIN), ..LlamaOptions::default() };
    LlamaConductor::open(&bundle, &demo(), options).unwrap()
}

fn request(question: &str) -> PlanRequest {
    PlanRequest {
        asker: Asker::nobody(RunId::least_at(Timestamp::default())),
        question: question.to_owned(),
        policy: Policy::new(Tier::Ultra, Effort::Medium),
        earlier: None,
        seed: 0,
        asked_at: Timestamp::default(),
        time_max: Duration::from_mins(2),
    }
}

async fn plan(conductor: &LlamaConductor, question: &str) -> Planned {
    let outcome = conductor.plan(&request(question), &|_| {}, &CancellationToken::new()).await.unwrap();
    let PlanResult::Plan(planned) = outcome.result else { panic!("{outcome:?}") };
    planned
}

#[tokio::test]
async fn concurrent_questions_get_the_same_plans_as_alone() {
    let conductor = conductor();
    let questions: Vec<String> = (3..15)
        .map(|number| match number % 4 {
            0 => format!("Multiply {number} by 12 and write the result in words."),
            1 => format!("What is {number} plus {}?", number * 37),
            2 => format!(
                "Take the number of days between 3 March 2024 and {number} May 2025, and add {number}."
            ),
            _ => format!("Write {} in words.", number * 101),
        })
        .collect();
    let mut alone = Vec::new();
    for question in &questions {
        alone.push(plan(&conductor, question).await);
    }
    let together = join_all(questions.iter().map(|question| plan(&conductor, question))).await;
    assert_eq!(together, alone);
    conductor.shut_down().await;
}

/// The shipped head. It reads one prompt and writes nothing.
#[tokio::test]
async fn the_mini_tier_chooses_by_reading_alone() {
    let conductor = conductor();
    for (question, worker) in [
        ("What is 17 plus 4?", "sim-arithmetic"),
        ("What is the capital of France?", "sim-facts"),
        ("Sort 3, 9, 1 in ascending order.", "sim-lists"),
        // No single skill can answer it.
        (QUESTION, "sim-generalist"),
    ] {
        let policy = Policy::new(Tier::Mini, Effort::Medium);
        let asked = PlanRequest { policy, ..request(question) };
        let outcome = conductor.plan(&asked, &|_| {}, &CancellationToken::new()).await.unwrap();
        let PlanResult::Plan(Planned { plan, .. }) = &outcome.result else { panic!("{outcome:?}") };
        assert_eq!((plan.len(), plan.steps()[0].worker.as_str()), (1, worker), "{question}");
        assert_eq!(outcome.usage.completion_tokens, 0, "{question}");
    }
    conductor.shut_down().await;
}

/// Its slots have another order than the pool's workers.
#[tokio::test]
async fn first_steps_are_known_before_the_text_ends() {
    let bundle = Bundle::open(&folder()).unwrap();
    let workers = demo().workers().iter().rev().map(|worker| worker.id.clone()).collect::<Vec<_>>();
    let turned = demo().arranged(&workers).unwrap();
    let options = LlamaOptions { threads: Some(NonZeroUsize::MIN), ..LlamaOptions::default() };
    let conductor = LlamaConductor::open(&bundle, &turned, options).unwrap();
    let request = request(QUESTION);
    let streamed = Mutex::new(Vec::new());
    let sink = |text: &str| streamed.lock().unwrap().push(text.to_owned());
    let outcome = conductor.plan(&request, &sink, &CancellationToken::new()).await.unwrap();
    let PlanResult::Plan(Planned { plan, .. }) = outcome.result else { panic!("{outcome:?}") };
    let (mut stream, mut draft, mut heads) = (PlanStream::new(), PlanDraft::default(), Vec::new());
    let streamed = streamed.into_inner().unwrap();
    for text in &streamed {
        stream.push(text).into_iter().for_each(|piece| draft.apply(piece));
        heads.push(draft.head(conductor.pool_in_text().unwrap(), &request.policy, LastStep::Included));
    }
    assert!(heads.iter().flatten().all(|head| plan.begins_with(head)), "{plan:?}, {heads:?}");
    let first = heads.iter().position(Option::is_some).unwrap();
    eprintln!("the first step is known after {first} of {} pieces of text", streamed.len());
    assert!(plan.len() > 1 && first * 5 < streamed.len() * 4, "{first} of {}", streamed.len());
    conductor.shut_down().await;
}

/// Plans of nano's weights without the conductor; `beginning` marks what the prompts have in common.
async fn plans(questions: &[String], beginning: Option<&str>) -> Vec<Completion> {
    let engine = Engine::load(EngineOptions {
        name: "nano-1".to_owned(),
        weights: folder().join("nano.gguf"),
        context_tokens: 1024,
        sequences_max: NonZeroU16::new(4).unwrap(),
        ..options()
    });
    let engine = engine.unwrap();
    let prompt = |text: &str| Prompt::new(Template::ChatMl, &[Message::new(Role::User, text)], "");
    let pending: Vec<_> = questions
        .iter()
        .map(|question| {
            let asked = prompt(question);
            let shape =
                PlanShape::new(0..7, 5, MayKeepAnswer::No).unwrap().with_subtasks_copied_from(question);
            let prompt = match beginning {
                Some(beginning) => asked.beginning_like(&prompt(beginning)),
                None => asked,
            };
            engine.handle().submit(Request { prompt, shape, ..greedy("") }).unwrap()
        })
        .collect();
    join_all(pending.into_iter().map(Pending::finish)).await.into_iter().collect::<Result<_, _>>().unwrap()
}

#[tokio::test]
async fn shared_beginnings_change_no_plan() {
    let beginning = "Take the number of days between 3 March 2024 and 17 May 2025, ";
    let endings = [
        "multiply it by 12",
        "add 7 to it",
        "halve it",
        "write the result in words",
        "subtract 100",
        "add 1",
    ];
    let questions: Vec<_> = endings.iter().map(|ending| format!("{beginning}{ending}.")).collect();
    let by_themselves = plans(&questions, None).await;
    let shared = plans(&questions, Some(beginning)).await;
    assert!(by_themselves.iter().all(|completion| completion.cached_tokens == 0));
    let cached = shared.iter().filter(|completion| completion.cached_tokens >= 16).count();
    assert_eq!(cached, questions.len() - 1, "{shared:?}");
    for (by_itself, shared) in by_themselves.iter().zip(&shared) {
        assert_eq!((&shared.plan, shared.ended), (&by_itself.plan, Ended::Complete));
    }
    let different: HashSet<_> = shared.iter().map(|completion| &completion.plan).collect();
    assert!(different.len() > 3, "the plans do not depend on the questions: {different:?}");
}

#[tokio::test]
async fn the_demo_question_is_split_over_the_needed_workers() {
    let conductor = conductor();
    let planned = plan(&conductor, QUESTION).await;
    let workers: Vec<_> = planned.plan.steps().iter().map(|step| step.worker.as_str()).collect();
    assert_eq!(workers, ["sim-dates", "sim-arithmetic", "sim-words"]);
    let subtasks: Vec<_> = planned.plan.steps().iter().map(|step| step.subtask.as_str()).collect();
    assert_eq!(
        subtasks,
        [
            "the number of days between 3 March 2024 and 17 May 2025",
            "multiply the result by 12",
            "write the result in words"
        ]
    );
    let seen: Vec<_> = planned.plan.steps().iter().map(|step| step.access.as_slice().len()).collect();
    assert_eq!(seen, [0, 1, 1]);
    conductor.shut_down().await;
}
