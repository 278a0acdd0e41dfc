//! Many requests in one batch: they do not affect each other, share their prompts' beginnings, and leave in any order.

use std::num::NonZeroU16;
use std::time::Instant;

use podium_domain::conversation::{Message, Role};
use podium_domain::plan::PlanDraft;
use podium_domain::policy::Tier;
use podium_llama::engine::{
    Completion, Ended, Engine, EngineOptions, LoadError, Pending, Request, SEQUENCES_MAX,
};
use podium_llama::prompt::{Prompt, Template};

use crate::support::*;

/// Submits all requests at once.
async fn together(engine: &Engine, requests: Vec<Request>) -> Vec<Completion> {
    let pending: Vec<Pending> =
        requests.into_iter().map(|request| engine.handle().submit(request).unwrap()).collect();
    let mut completions = Vec::new();
    for pending in pending {
        completions.push(pending.finish().await.unwrap());
    }
    completions
}

/// Submits the requests one after another.
async fn in_turn(engine: &Engine, requests: Vec<Request>) -> Vec<Completion> {
    let mut completions = Vec::new();
    for request in requests {
        completions.push(completion(engine, request).await);
    }
    completions
}

/// The outputs without their statistics.
fn texts(completions: &[Completion]) -> Vec<(&str, &str)> {
    completions.iter().map(|completion| (completion.reasoning.as_str(), completion.plan.as_str())).collect()
}

#[tokio::test]
async fn more_requests_than_sequences_all_get_plans() {
    let requests = || -> Vec<Request> {
        let drawn = (0..10).map(|seed| random(&"Why is this? ".repeat(1 + 3 * seed), seed as u64));
        drawn.chain([greedy("What?"), greedy("Why?")]).collect()
    };
    let completions = together(&engine(), requests()).await;
    for completion in &completions {
        assert_eq!(completion.ended, Ended::Complete);
        PlanDraft::parse(&completion.plan).unwrap();
    }
    let lengths: Vec<_> = completions.iter().map(|completion| completion.completion_tokens).collect();
    assert!(lengths.iter().any(|length| *length != lengths[0]), "all left at the same time: {lengths:?}");
    for greedy in &completions[10..] {
        assert_eq!(texts(std::slice::from_ref(greedy)), [(SCRIPT_REASONING, SCRIPT_PLAN)]);
    }
}

#[tokio::test]
async fn writers_continue_while_a_long_prompt_is_computed() {
    let engine = engine();
    let mut writing = engine.handle().submit(endless()).unwrap();
    let mut asking = engine.handle().submit(greedy(&"1".repeat(3_000))).unwrap();
    let mut written = 0;
    loop {
        tokio::select! {
            biased;
            text = writing.next_text() => match text {
                Some(_) => written += 1,
                None => break,
            },
            text = asking.next_text() => {
                text.unwrap();
                break;
            }
        }
    }
    // The prompt takes many batches, each with a token of the other request.
    assert!(written >= 20, "{written} pieces");
}

/// A prompt with a long beginning that is the same for all questions.
fn instructed(question: &str) -> Prompt {
    let of = |question: &str| {
        let text = format!("{} Question: {question}", "Split the question into parts. ".repeat(20));
        Prompt::new(Template::ChatMl, &[Message::new(Role::User, text)], "")
    };
    of(question).beginning_like(&of(""))
}

#[tokio::test]
async fn a_shared_beginning_is_computed_once() {
    let requests = |instructed: fn(&str) -> Prompt| -> Vec<Request> {
        let questions = ["What?", "Why?", "\nWho is it?", "", "12 times 12?"];
        (0..)
            .zip(questions)
            .map(|(seed, question)| Request { prompt: instructed(question), ..random("", seed) })
            .collect()
    };
    let engine = engine();
    let shared = in_turn(&engine, requests(instructed)).await;
    let (first, rest) = shared.split_first().unwrap();
    assert_eq!(first.cached_tokens, 0);
    assert!(
        rest.iter().all(|later| later.cached_tokens > 60 && later.cached_tokens < later.prompt_tokens),
        "{shared:?}"
    );

    let by_themselves = in_turn(&engine, requests(unmarked)).await;
    assert!(by_themselves.iter().all(|completion| completion.cached_tokens == 0));

    let at_once = together(&load(options()).unwrap(), requests(instructed)).await;
    assert!(at_once.iter().all(|completion| completion.ended == Ended::Complete));
    let cached = at_once.iter().filter(|completion| completion.cached_tokens > 60).count();
    assert_eq!(cached, at_once.len() - 1, "it was computed more than once: {at_once:?}");
}

/// The same prompt without a marked beginning.
fn unmarked(question: &str) -> Prompt {
    let nothing = Prompt::new(Template::ChatMl, &[Message::new(Role::System, "")], "");
    instructed(question).beginning_like(&nothing)
}

#[tokio::test]
async fn prefix_eviction_does_not_change_output() {
    let engine = engine();
    // More kinds of instructions than are cached, in turn, repeatedly.
    let kind = |kind: usize, question: &str| {
        let of = |question: &str| {
            let text = format!("{} {question}", format!("Instruction {kind}. ").repeat(10 + 3 * kind));
            Prompt::new(Template::ChatMl, &[Message::new(Role::User, text)], "")
        };
        Request { prompt: of(question).beginning_like(&of("")), ..greedy("") }
    };
    for round in 0..3 {
        let requests = (0..7).map(|number| kind(number, ["What?", "Why?", "Who?"][round])).collect();
        for completion in together(&engine, requests).await {
            assert_eq!((completion.ended, completion.plan.as_str()), (Ended::Complete, SCRIPT_PLAN));
        }
    }
}

#[tokio::test]
async fn some_requests_may_leave_while_others_continue() {
    let engine = engine();
    for _ in 0..4 {
        let stopped = endless();
        let stop = stopped.stop.clone();
        let mut stopped = engine.handle().submit(stopped).unwrap();
        let mut dropped = engine.handle().submit(endless()).unwrap();
        let late = engine.handle().submit(Request { deadline: Instant::now(), ..endless() }).unwrap();
        let staying = engine.handle().submit(greedy("Why?")).unwrap();
        stopped.next_text().await.unwrap();
        dropped.next_text().await.unwrap();
        stop.cancel();
        drop(dropped);
        assert_eq!(stopped.finish().await.unwrap().ended, Ended::Stopped);
        assert_eq!(late.finish().await.unwrap().ended, Ended::Deadline);
        assert_eq!(staying.finish().await.unwrap().plan, SCRIPT_PLAN);
    }
}

#[tokio::test]
async fn mini_is_planned_before_waiting_ultra() {
    let engine = engine_of_one();
    let mut running = engine.handle().submit(endless()).unwrap();
    running.next_text().await.unwrap();
    let ultra = engine.handle().submit(endless()).unwrap();
    let mini = engine.handle().submit(Request { tier: Tier::Mini, ..greedy("What?") }).unwrap();
    drop(running);
    // If ultra were first, the mini answer would not arrive before its long output.
    let mut ultra = std::pin::pin!(ultra.finish());
    tokio::select! {
        biased;
        done = &mut ultra => panic!("ultra was first: {done:?}"),
        done = mini.finish() => assert_eq!(done.unwrap().plan, SCRIPT_PLAN),
    }
}

#[tokio::test]
async fn a_waiting_request_is_cancelled_at_once() {
    let engine = engine_of_one();
    let mut running = engine.handle().submit(endless()).unwrap();
    running.next_text().await.unwrap();
    let request = greedy("What?");
    let stop = request.stop.clone();
    let waiting = engine.handle().submit(request).unwrap();
    let late = engine.handle().submit(Request { deadline: Instant::now(), ..greedy("What?") }).unwrap();
    stop.cancel();
    assert_eq!(waiting.finish().await.unwrap().ended, Ended::Stopped);
    assert_eq!(late.finish().await.unwrap().ended, Ended::Deadline);
    // The other request is still running.
    running.next_text().await.unwrap();
}

#[test]
fn too_many_sequences_are_rejected() {
    let sequences_max = NonZeroU16::new(SEQUENCES_MAX + 1).unwrap();
    let refused = load(EngineOptions { sequences_max, ..options() });
    assert!(matches!(refused, Err(LoadError::Sequences { sequences_max: 65 })), "{refused:?}");
}
