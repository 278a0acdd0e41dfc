//! Tests of runs that commands take from state to state. This module has shared parts and tests of single states.

use std::time::Duration;

use uuid::Uuid;

mod charge;
mod conditions;
mod failure;
mod fallback;
mod head;
mod progress;
mod rounds;
mod suspension;
mod tool_calls;
mod walk;

use super::*;
use crate::answer::AnswerForm;
use crate::conversation::Conversation;
use crate::ids::{ClaimId, ProcessId, TenantId};
use crate::plan::{LastStep, PlanDraft, PlanError};
use crate::policy::{Effort, FALLBACKS_MAX, FailedStep, Policy, PoolRule, StepTools, Tier, WorkersAllowed};
use crate::pool::Pool;
use crate::stops::Stops;
use crate::usage::Spent;
use walk::{Written, check_is_idempotent, folded, key, walk};

const NOW: Timestamp = Timestamp::from_unix_ms(1_000);
const PROCESS: ProcessId = ProcessId::new(Uuid::nil());

fn pool() -> Pool {
    Pool::parse(
        r#"
schema = 1
name = "t"
version = "1"
[[vendors]]
id = "v"
api = "openai-chat"
base_url = "http://127.0.0.1:1/v1"
[[workers]]
id = "w"
vendor = "v"
model = "m"
description = "d"
context_tokens = 1000
output_tokens_max = 100
usd_per_million_tokens = { input = 1.0, output = 1.0 }
"#,
    )
    .unwrap()
}

/// Runs continue without failed steps, unless a test says otherwise.
fn policy(attempts_max: u32, rounds_max: u16) -> Policy {
    let failed_step = FailedStep::Continue;
    Policy { rounds_max, attempts_max, failed_step, ..Policy::new(Tier::Ultra, Effort::Medium) }
}

fn plan(access: &str, policy: &Policy) -> Plan {
    let steps = access.matches('[').count() - 1;
    let list = |element: &str| vec![element; steps].join(", ");
    let text =
        format!("model_id = [{}]\nsubtasks = [{}]\naccess_list = {access}", list("0"), list("\"do it\""));
    PlanDraft::parse(&text).unwrap().check(&pool(), policy).unwrap()
}

/// The plan as a head, as if more steps would follow.
fn head_of(access: &str, subtask: &str, policy: &Policy) -> PlanHead {
    let steps = access.matches('[').count() - 1;
    let list = |element: &str| vec![element; steps].join(", ");
    let (ids, subtasks) = (list("0"), list(&format!("\"{subtask}\"")));
    let text = format!("model_id = [{ids}]\nsubtasks = [{subtasks}]\naccess_list = {access}");
    PlanDraft::parse(&text).unwrap().head(&pool(), policy, LastStep::Included).unwrap()
}

fn accepted(policy: Policy) -> Run {
    let spec = RunSpec {
        tenant: TenantId::new("t").unwrap(),
        key: None,
        budgets: Vec::new(),
        hold: Cost::ZERO,
        request_id: None,
        request_digest: None,
        model: "podium-ultra".to_owned(),
        deadline_at: NOW.after(policy.deadline()),
        request: RunRequest::new(Conversation::question_only("why?").unwrap(), policy),
        pool: "t-1".to_owned(),
        conductor: "fixed-1".to_owned(),
        accepted_at: NOW,
    };
    let first = SequencedEvent { sequence: 1, at: NOW, event: Run::accept(spec) };
    Run::replay(RunId::new(Uuid::from_u128(1)), &[first]).unwrap()
}

/// The claim of the `number`th attempt at a task; no two tasks share claims.
fn claim_id(task: TaskRef, number: u32) -> ClaimId {
    let place = match task {
        TaskRef::Plan { round } => u128::from(round) * 1000,
        TaskRef::Step { round, step } => u128::from(round) * 1000 + 100 + u128::from(step.get()),
    };
    ClaimId::new(Uuid::from_u128(place * 100 + u128::from(number)))
}

fn result() -> StepResult {
    StepResult {
        output: "42".to_owned(),
        calls: Vec::new(),
        reasoning: Vec::new(),
        reasoning_text: String::new(),
        spent: Spent {
            usage: Usage { prompt_tokens: 1, completion_tokens: 1, ..Usage::NONE },
            cost: Cost::from_nano_usd(1),
        },
        finish: FinishReason::Stop,
        stop_sequence: None,
        first_token_ms: Some(1),
        saved: None,
    }
}

fn error(retry_at: Option<Timestamp>) -> AttemptError {
    let fall_back_to = None;
    let (message, spent) = ("no".to_owned(), Spent { cost: Cost::from_nano_usd(1), ..Spent::NONE });
    AttemptError { message, retry_at, is_rate_limit: false, fall_back_to, spent }
}

/// Carries out commands that must be allowed.
fn drive(mut run: Run, commands: &[Command]) -> Run {
    for command in commands {
        let decision = run.decide(command, NOW).unwrap_or_else(|refusal| panic!("{command:?}: {refusal}"));
        run = folded(&run, &decision.events);
    }
    run
}

fn claimed(task: TaskRef, number: u32) -> Command {
    let claim = claim_id(task, number);
    Command::Claim {
        task,
        claim: Claim {
            id: claim,
            executor: "e".to_owned(),
            process: PROCESS,
            lease_until: NOW,
            reserve: Cost::from_nano_usd(5),
        },
    }
}

fn planned(access: &str, policy: Policy) -> Run {
    let task = TaskRef::Plan { round: 0 };
    let result =
        PlanResult::Plan(Planned { plan: plan(access, &policy), reasoning: String::new(), fallback: None });
    let (claim, spent, reserve) = (claim_id(task, 1), Spent::NONE, Cost::ZERO);
    let complete = Command::CompletePlan { round: 0, claim, result, spent, reserve };
    drive(accepted(policy), &[claimed(task, 1), complete])
}

fn step(index: u16) -> TaskRef {
    TaskRef::Step { round: 0, step: StepIndex::new(index) }
}

fn done(index: u16) -> Command {
    let claim = claim_id(step(index), 1);
    Command::CompleteStep { round: 0, step: StepIndex::new(index), claim, result: result() }
}

fn failed(index: u16) -> Command {
    Command::FailAttempt { task: step(index), claim: claim_id(step(index), 1), error: error(None) }
}

#[test]
fn independent_steps_are_ready_together_and_a_join_waits() {
    let run = planned("[[], [], [0, 1]]", policy(1, 1));
    let states = |run: &Run| run.rounds()[0].steps.iter().map(|s| s.task.state.as_str()).collect::<Vec<_>>();
    assert_eq!(states(&run), ["ready", "ready", "waiting"]);
    let run = drive(run, &[claimed(step(0), 1), claimed(step(1), 1), done(1)]);
    assert_eq!(states(&run), ["running", "done", "waiting"]);
    let run = drive(run, &[done(0)]);
    assert_eq!(states(&run), ["done", "done", "ready"]);
    let run = drive(run, &[claimed(step(2), 1), done(2)]);
    assert_eq!(run.answer(), Some("42"));
}

#[test]
fn a_join_continues_without_one_failed_step_but_not_without_all() {
    let run = planned("[[], [], [0, 1]]", policy(1, 1));
    let run = drive(run, &[claimed(step(0), 1), claimed(step(1), 1), failed(0)]);
    let one = drive(run.clone(), &[done(1)]);
    assert_eq!(one.task(step(2)).unwrap().state, TaskState::Ready { not_before: NOW });
    let none = drive(run, &[failed(1)]);
    let RunState::Failed { reason } = none.state() else { panic!("{:?}", none.state()) };
    assert_eq!(reason.to_string(), "step 1 (worker `w`) failed, and the answer needs it: no");
}

#[test]
fn a_late_result_is_paid_for_but_changes_nothing() {
    let run = drive(planned("[[]]", policy(2, 1)), &[claimed(step(0), 1)]);
    let expired = Command::ExpireLease { task: step(0), claim: claim_id(step(0), 1) };
    let second = Command::CompleteStep {
        round: 0,
        step: StepIndex::new(0),
        claim: claim_id(step(0), 2),
        result: StepResult { output: "second".to_owned(), ..result() },
    };
    let run = drive(run, &[expired, claimed(step(0), 2), second, done(0)]);
    assert_eq!(run.answer(), Some("second"));
    assert_eq!(run.cost(), Cost::from_nano_usd(2), "both were paid for");
}

#[test]
fn waste_is_the_usage_of_attempts_without_accepted_result() {
    let one = |cost| Spent {
        usage: Usage { prompt_tokens: 10 * cost, ..Usage::NONE },
        cost: Cost::from_nano_usd(cost),
    };
    let claim = |number| claim_id(step(0), number);
    let fail = |number, cost| {
        let error = AttemptError { spent: one(cost), ..error(Some(NOW)) };
        Command::FailAttempt { task: step(0), claim: claim(number), error }
    };
    let hand_back =
        |number, cost| Command::HandBack { task: step(0), claim: claim(number), spent: one(cost) };
    let complete = |number, cost| {
        let (round, step, claim) = (0, StepIndex::new(0), claim(number));
        Command::CompleteStep { round, step, claim, result: StepResult { spent: one(cost), ..result() } }
    };
    let expire = |number| Command::ExpireLease { task: step(0), claim: claim(number) };
    let take = |number| claimed(step(0), number);
    let begun = [
        take(1),
        fail(1, 1),
        take(2),
        hand_back(2, 2),
        take(3),
        expire(3),
        take(4),
        expire(4),
        take(5),
        expire(5),
    ];
    let run = drive(planned("[[]]", policy(20, 1)), &begun);
    assert_eq!((run.wasted_cost(), run.cost()), (Cost::from_nano_usd(3), Cost::from_nano_usd(3)));
    // The sixth result is accepted. Later ones are recorded and wasted: a late result, and failures of lost attempts, including
    // those without cost.
    let spent = Spent { cost: Cost::ZERO, ..one(7) };
    let for_nothing = Command::HandBack { task: step(0), claim: claim(5), spent };
    let run = drive(run, &[take(6), complete(6, 100), complete(3, 4), fail(4, 5), for_nothing]);
    assert_eq!(run.cost(), Cost::from_nano_usd(112));
    assert_eq!(run.wasted_cost(), Cost::from_nano_usd(12));
    assert_eq!(run.wasted_usage().prompt_tokens, 10 * (1 + 2 + 4 + 5 + 7));
    assert_eq!(run.usage().prompt_tokens, 1_000 + run.wasted_usage().prompt_tokens);
}

#[test]
fn the_first_result_wins_whatever_its_claim() {
    let run = drive(planned("[[]]", policy(2, 1)), &[claimed(step(0), 1)]);
    let expired = Command::ExpireLease { task: step(0), claim: claim_id(step(0), 1) };
    let run = drive(run, &[expired, claimed(step(0), 2), done(0)]);
    assert_eq!(run.answer(), Some("42"), "the first claim's result came first");
}

#[test]
fn an_attempt_that_could_exceed_the_cost_cap_does_not_begin() {
    let capped = Policy { cost_max: Some(Cost::from_nano_usd(5)), ..policy(2, 1) };
    let run = planned("[[], [0]]", capped);
    let run = drive(run, &[claimed(step(0), 1), done(0), claimed(step(1), 1)]);
    let RunState::Failed { reason } = run.state() else { panic!("{:?}", run.state()) };
    assert_eq!(reason.code(), "cost_cap_reached");
    assert!(run.tasks().all(|(_, task)| task.state.is_final()));
}

/// A run whose first round has answered and whose second one is being planned.
fn in_its_second_round(policy: Policy) -> Run {
    let run = planned("[[]]", policy);
    let run = drive(run, &[claimed(step(0), 1), done(0)]);
    assert_eq!(run.current_round(), 1);
    run
}

const SECOND_PLAN: TaskRef = TaskRef::Plan { round: 1 };

/// The commands that plan the second round, as one step.
fn second_plan(access: &str, policy: &Policy) -> [Command; 2] {
    let planned = Planned { plan: plan(access, policy), reasoning: String::new(), fallback: None };
    let (result, spent) = (PlanResult::Plan(planned), Spent::NONE);
    let (claim, reserve) = (claim_id(SECOND_PLAN, 1), Cost::ZERO);
    [claimed(SECOND_PLAN, 1), Command::CompletePlan { round: 1, claim, result, spent, reserve }]
}

/// Checks that the first round's answer stands, and that the run records the reason.
fn stands(run: &Run, code: &str) {
    assert_eq!(*run.state(), RunState::Succeeded { round: 0, step: StepIndex::new(0) });
    assert_eq!(run.answer(), Some("42"));
    let reasons: Vec<_> =
        run.rounds().iter().map(|round| round.abandoned.as_ref().map(FailReason::code)).collect();
    assert_eq!(reasons, [None, Some(code)]);
    assert!(run.tasks().all(|(_, task)| task.state.is_final()));
}

#[test]
fn attempts_that_are_handed_back_do_not_count() {
    let hand_back =
        |number| Command::HandBack { task: step(0), claim: claim_id(step(0), number), spent: Spent::NONE };
    let fail = |number| {
        let claim = claim_id(step(0), number);
        Command::FailAttempt { task: step(0), claim, error: error(Some(NOW)) }
    };
    let take = |number| claimed(step(0), number);
    let begun = [take(1), hand_back(1), take(2), fail(2), take(3), hand_back(3), take(4)];
    let run = drive(planned("[[]]", policy(2, 1)), &begun);
    let attempts = &run.task(step(0)).unwrap().attempts;
    let outcomes: Vec<_> = attempts.iter().map(|attempt| attempt.outcome.clone()).collect();
    let failed = AttemptOutcome::Failed("no".to_owned());
    let back = AttemptOutcome::HandedBack;
    assert_eq!(outcomes, [back.clone(), failed, back, AttemptOutcome::Running]);
    let failed = drive(run.clone(), &[fail(4)]);
    assert!(failed.is_ended(), "two attempts count: {:?}", failed.state());
    // They do not count if their lease expires either.
    let lost = Command::ExpireLease { task: step(0), claim: claim_id(step(0), 4) };
    assert!(drive(run, &[lost]).is_ended());
    let begun =
        [take(1), hand_back(1), take(2), Command::ExpireLease { task: step(0), claim: claim_id(step(0), 2) }];
    assert!(!drive(planned("[[]]", policy(2, 1)), &begun).is_ended());
}

#[test]
fn a_task_cannot_be_claimed_before_its_time() {
    let run = drive(planned("[[]]", policy(2, 1)), &[claimed(step(0), 1)]);
    let later = NOW.after(Duration::from_secs(9));
    let (task, claim) = (step(0), claim_id(step(0), 1));
    let run = drive(run, &[Command::FailAttempt { task, claim, error: error(Some(later)) }]);
    assert_eq!(run.decide(&claimed(step(0), 2), NOW), Err(Refusal::NotBefore(later)));
    assert!(run.decide(&claimed(step(0), 2), later).is_ok());
}

#[test]
fn events_are_read_from_json_unchanged() {
    let policy = policy(1, 2);
    let (_, events) = walk(accepted(policy.clone()), &plan("[[]]", &policy).into());
    for event in events {
        let json = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<RunEvent>(&json).unwrap(), event, "{json}");
    }
}

#[test]
fn a_log_with_a_gap_or_without_a_beginning_is_refused() {
    let run = accepted(policy(1, 1));
    let cancelled = |sequence| SequencedEvent { sequence, at: NOW, event: RunEvent::Cancelled };
    assert!(run.clone().apply(&cancelled(3)).is_err());
    assert!(run.clone().apply(&cancelled(2)).is_ok());
    assert!(Run::replay(run.id(), &[cancelled(1)]).is_err());
    assert!(Run::replay(run.id(), &[]).is_err());
}

/// Fails the attempt `number`, with `other` as the fallback.
fn failed_with(number: u32, retry_at: Option<Timestamp>, other: Option<&str>) -> Command {
    let fall_back_to = other.map(|id| WorkerId::new(id).unwrap());
    let claim = claim_id(step(0), number);
    Command::FailAttempt { task: step(0), claim, error: AttemptError { fall_back_to, ..error(retry_at) } }
}

/// Earlier versions stored the cost of a second call in a separate event.
#[test]
fn the_cost_of_a_stored_second_call_is_added_to_its_attempt() {
    let policy = Policy { attempts_max: 2, ..Policy::new(Tier::Mini, Effort::Medium) };
    let claim = |number| {
        let (id, executor) = (claim_id(step(0), number), "e".to_owned());
        let reserve = Cost::from_nano_usd(140);
        let claim = Claim { id, executor, process: PROCESS, lease_until: NOW, reserve };
        Command::Claim { task: step(0), claim }
    };
    let run = drive(planned("[[]]", policy), &[claim(1)]);
    let usage = Usage { prompt_tokens: 7, ..Usage::default() };
    let (worker, winner) = (WorkerId::new("x").unwrap(), "second".to_owned());
    let hedge = OtherCall { worker, winner, usage, cost: Cost::from_nano_usd(30) };
    let hedged = |number| RunEvent::Hedged {
        round: 0,
        step: StepIndex::new(0),
        claim: claim_id(step(0), number),
        hedge: hedge.clone(),
    };
    let run = folded(&run, &[hedged(1)]);
    let run = drive(run, &[failed_with(1, Some(NOW), None), claim(2)]);
    let attempt = &run.task(step(0)).unwrap().attempts[0];
    assert_eq!((attempt.cost.nano_usd(), attempt.usage.prompt_tokens), (31, 7));
    let run = folded(&run, &[hedged(2)]);
    let result = Command::CompleteStep {
        round: 0,
        step: StepIndex::new(0),
        claim: claim_id(step(0), 2),
        result: result(),
    };
    let run = drive(run, &[result]);
    assert_eq!((run.answer(), run.cost().nano_usd(), run.usage().prompt_tokens), (Some("42"), 62, 15));
}
