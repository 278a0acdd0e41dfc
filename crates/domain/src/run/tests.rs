//! Every reachable state of small runs gets every command and every event. Each transition is checked against the machine's
//! promises.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use uuid::Uuid;

mod charge;
mod failure;
mod fallback;
mod head;
mod rounds;

use super::*;
use crate::answer::AnswerForm;
use crate::ids::{ClaimId, TenantId};
use crate::plan::{LastStep, PlanDraft};
use crate::policy::{Effort, FALLBACKS_MAX, FailedStep, PoolRule, Tier, WorkersAllowed};
use crate::pool::Pool;
use crate::sampling::Sampling;
use crate::stops::Stops;

const NOW: Timestamp = Timestamp::from_unix_ms(1_000);

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

/// The plans and heads of the conductor in the walk.
struct Written {
    plan: Plan,
    heads: Vec<PlanHead>,
    /// The fallbacks of the planned worker.
    others: Vec<WorkerId>,
    /// Whether workers may decline.
    declines: bool,
}

impl From<Plan> for Written {
    fn from(plan: Plan) -> Self {
        Self { plan, heads: Vec::new(), others: Vec::new(), declines: false }
    }
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
        conversation: Conversation::question_only("why?").unwrap(),
        deadline_at: NOW.after(policy.deadline()),
        policy,
        answer_tokens_max: None,
        answer: AnswerForm::Text,
        stops: Stops::default(),
        sampling: Sampling::NONE,
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
        usage: Usage { prompt_tokens: 1, completion_tokens: 1, ..Usage::default() },
        cost: Cost::from_nano_usd(1),
        finish: FinishReason::Stop,
        first_token_ms: Some(1),
        saved: None,
    }
}

fn error(retry_at: Option<Timestamp>) -> AttemptError {
    let fall_back_to = None;
    let (message, usage, cost) = ("no".to_owned(), Usage::default(), Cost::from_nano_usd(1));
    AttemptError { message, retry_at, is_rate_limit: false, fall_back_to, usage, cost }
}

/// All commands on the run, sensible or not, with their times.
fn commands(run: &Run, written: &Written) -> Vec<(Command, Timestamp)> {
    let (usage, cost) = (Usage::default(), Cost::from_nano_usd(1));
    let mut all = vec![Command::Cancel, Command::CheckDeadline, Command::ReleaseLost];
    let known: Vec<_> = run.tasks().map(|(task, known)| (task, known.attempt_number())).collect();
    let unknown = [TaskRef::Plan { round: 9 }, TaskRef::Step { round: 0, step: StepIndex::new(9) }];
    for (task, attempts) in known.into_iter().chain(unknown.map(|task| (task, 0))) {
        // The claims so far, and the next one.
        for number in 1..=attempts + 1 {
            let claim = claim_id(task, number);
            let wish = Claim { id: claim, executor: "e".to_owned(), lease_until: NOW, reserve: Cost::ZERO };
            all.push(Command::Claim { task, claim: wish });
            all.push(Command::ExpireLease { task, claim });
            all.push(Command::HandBack { task, claim, usage, cost });
            all.extend([None, Some(NOW)].map(|at| Command::FailAttempt { task, claim, error: error(at) }));
            match task {
                TaskRef::Plan { round } => {
                    let plan = written.plan.clone();
                    let planned = Planned { plan, reasoning: String::new(), fallback: None };
                    let mut results = vec![PlanResult::Plan(planned.clone()), PlanResult::KeepAnswer];
                    for head in &written.heads {
                        all.push(Command::BeginSteps { round, claim, head: head.clone() });
                        let fallback = Some("no plan".to_owned());
                        results.truncate(2);
                        results.push(PlanResult::Plan(Planned { fallback, ..planned.clone() }));
                    }
                    for result in results {
                        let reserve = Cost::ZERO;
                        all.push(Command::CompletePlan { round, claim, result, usage, cost, reserve });
                    }
                }
                TaskRef::Step { round, step } => {
                    all.push(Command::CompleteStep { round, step, claim, result: result() });
                    if written.declines {
                        let finish = FinishReason::ContentFilter;
                        let result = StepResult { finish, ..result() };
                        all.push(Command::CompleteStep { round, step, claim, result });
                    }
                    let blank = StepResult { output: " ".to_owned(), ..result() };
                    all.push(Command::CompleteStep { round, step, claim, result: blank });
                }
            }
        }
    }
    for (task, worker) in
        written.others.iter().flat_map(|other| run.tasks().map(move |(task, _)| (task, other)))
    {
        if let (TaskRef::Step { round, step }, Some(from)) = (task, run.worker_of(task)) {
            let (from, worker, message) = (from.clone(), worker.clone(), "broken".to_owned());
            all.push(Command::FallBack { round, step, from, worker, message });
        }
    }
    let late = run.spec().deadline_at;
    let mut timed: Vec<_> = all.iter().map(|command| (command.clone(), NOW)).collect();
    timed.push((Command::CheckDeadline, late));
    timed
}

/// The part of the state that decides how a run behaves.
fn key(run: &Run) -> String {
    let tasks: Vec<_> = run
        .tasks()
        .map(|(task, t)| {
            (
                task,
                t.state.clone(),
                t.attempts.iter().map(|a| (a.claim, a.outcome.clone())).collect::<Vec<_>>(),
            )
        })
        .collect();
    let workers =
        |r: &Round| r.steps.iter().map(|s| (s.worker.clone(), s.fallbacks, s.finish)).collect::<Vec<_>>();
    let known: Vec<_> = run
        .rounds()
        .iter()
        .map(|r| (r.known_steps(), r.superseded, r.plan().is_some(), workers(r)))
        .collect();
    format!("{:?} {tasks:?} {known:?}", run.state())
}

fn folded(run: &Run, events: &[RunEvent]) -> Run {
    let mut after = run.clone();
    for event in events {
        let before = after.clone();
        let event = SequencedEvent { sequence: after.version() + 1, at: NOW, event: event.clone() };
        after.apply(&event).unwrap_or_else(|e| panic!("{e}\nin {}", key(run)));
        for (task, known) in after.tasks().filter(|(task, _)| !event.event.may_change(*task)) {
            let state = before.task(task).map(|task| &task.state);
            assert_eq!(state, Some(&known.state), "{event:?} changes {task}, in {}", key(run));
        }
    }
    after
}

fn check_promises(run: &Run, command: &Command) {
    let context = || format!("after {command:?}: {}", key(run));
    for (number, round) in run.rounds().iter().enumerate() {
        assert_eq!(round.known_steps().len(), round.steps.len(), "{}", context());
        for (index, step) in (0u16..).map(StepIndex::new).zip(round.known_steps()) {
            let life = &round.steps[index.as_usize()];
            if round.is_superseded(index) {
                assert!(life.task.state.is_final(), "{}", context());
            }
            assert!(!step.access.as_slice().iter().any(|seen| round.is_superseded(*seen)), "{}", context());
            let began = !matches!(life.task.state, TaskState::Waiting | TaskState::Cancelled)
                && !life.task.attempts.is_empty();
            let seen_final =
                step.access.as_slice().iter().all(|i| round.steps[i.as_usize()].task.state.is_final());
            assert!(!began || seen_final, "a step ran before its inputs, {}", context());
            assert_eq!(life.output.is_some(), life.task.state == TaskState::Done, "{}", context());
        }
        assert!(number + 1 == run.rounds().len() || round.steps.iter().all(|s| s.task.state.is_final()));
    }
    for (_, task) in run.tasks() {
        let accepted = task.attempts.iter().filter(|a| a.outcome == AttemptOutcome::Accepted).count();
        assert_eq!(accepted, usize::from(task.state == TaskState::Done), "one result counts, {}", context());
        let running = task.attempts.iter().filter(|a| a.outcome == AttemptOutcome::Running).count();
        assert_eq!(running, usize::from(matches!(task.state, TaskState::Running { .. })), "{}", context());
    }
    if run.is_ended() {
        assert!(run.tasks().all(|(_, task)| task.state.is_final()), "{}", context());
    } else {
        let open = |task: &Task| matches!(task.state, TaskState::Ready { .. } | TaskState::Running { .. });
        assert!(run.tasks().any(|(_, task)| open(task)), "an active run has something to do, {}", context());
    }
    if let RunState::Succeeded { round, .. } = run.state() {
        assert!(
            run.answer().is_some_and(|answer| !answer.trim().is_empty()),
            "never an empty answer, {}",
            context()
        );
        let last = run.rounds().last().unwrap();
        let is_kept = last.planning.state == TaskState::Done && last.plan().is_none();
        let needs_reason = *round < run.current_round() && !is_kept;
        assert_eq!(last.abandoned.is_some(), needs_reason, "the reason is recorded, {}", context());
    }
}

/// Visits every reachable state and returns all of them, with every event that occurred.
fn walk(begin: Run, written: &Written) -> (Vec<Run>, Vec<RunEvent>) {
    let attempts_max = begin.spec().policy.attempts_max;
    let mut seen = HashSet::from([key(&begin)]);
    let mut events = HashMap::new();
    let (mut queue, mut states) = (VecDeque::from([begin]), Vec::new());
    while let Some(run) = queue.pop_front() {
        for (command, now) in commands(&run, written) {
            let Ok(decision) = run.decide(&command, now) else {
                continue;
            };
            let after = folded(&run, &decision.events);
            check_promises(&after, &command);
            check_is_idempotent(&after, &command, now);
            for event in decision.events {
                events.entry(format!("{event:?}")).or_insert(event);
            }
            // Handing back is unbounded by design; the walk is bounded.
            let bounded = after.tasks().all(|(_, task)| task.attempt_number() <= attempts_max);
            if bounded && seen.insert(key(&after)) {
                queue.push_back(after);
            }
        }
        states.push(run);
    }
    (states, events.into_values().collect())
}

/// A caller that does not know whether a command succeeded repeats it; this must change nothing.
fn check_is_idempotent(after: &Run, command: &Command, now: Timestamp) {
    if let Ok(again) = after.decide(command, now) {
        assert!(again.events.is_empty(), "{command:?} again: {:?}\nin {}", again.events, key(after));
    }
}

#[test]
fn every_reachable_state_keeps_its_promises() {
    let from_the_start = [("[[]]", 2, 1), ("[[], [0]]", 1, 1), ("[[]]", 1, 2)];
    let from_the_start = from_the_start.map(|(access, attempts_max, rounds_max)| {
        let policy = policy(attempts_max, rounds_max);
        (accepted(policy.clone()), plan(access, &policy), rounds_max)
    });
    let with_a_plan = [("[[], [], [0, 1]]", 1), ("[[], [0]]", 2)];
    let with_a_plan = with_a_plan.map(|(access, attempts_max)| {
        let policy = policy(attempts_max, 1);
        (planned(access, policy.clone()), plan(access, &policy), 1)
    });
    for (begin, plan, rounds_max) in from_the_start.into_iter().chain(with_a_plan) {
        let (states, events) = walk(begin, &Written::from(plan.clone()));
        let names: HashSet<_> = events.iter().map(RunEvent::name).collect();
        eprintln!("{} states, {} events", states.len(), events.len());
        let (mut legal, mut illegal) = (0u32, 0u32);
        for run in &states {
            for event in &events {
                let event = SequencedEvent { sequence: run.version() + 1, at: NOW, event: event.clone() };
                match run.clone().apply(&event) {
                    Ok(()) => legal += 1,
                    Err(_) => illegal += 1,
                }
            }
        }
        assert!(states.len() > 20 && legal > 0 && illegal > legal, "{plan:?}: {} states", states.len());
        for name in
            ["claimed", "step_done", "result_unused", "task_failed", "cancelled", "succeeded", "failed"]
        {
            assert!(names.contains(name), "{plan:?}: `{name}` never happened");
        }
        assert_eq!(names.contains("round_opened"), rounds_max > 1);
        assert_eq!(names.contains("answer_kept"), rounds_max > 1);
    }
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
            lease_until: NOW,
            reserve: Cost::from_nano_usd(5),
        },
    }
}

fn planned(access: &str, policy: Policy) -> Run {
    let task = TaskRef::Plan { round: 0 };
    let result =
        PlanResult::Plan(Planned { plan: plan(access, &policy), reasoning: String::new(), fallback: None });
    let (usage, cost) = (Usage::default(), Cost::ZERO);
    let complete = Command::CompletePlan {
        round: 0,
        claim: claim_id(task, 1),
        result,
        usage,
        cost,
        reserve: Cost::ZERO,
    };
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
    let one = |cost| (Usage { prompt_tokens: 10 * cost, ..Usage::default() }, Cost::from_nano_usd(cost));
    let claim = |number| claim_id(step(0), number);
    let fail = |number, cost| {
        let (message, retry_at, (usage, cost)) = ("no".to_owned(), Some(NOW), one(cost));
        let error = AttemptError { message, retry_at, is_rate_limit: false, fall_back_to: None, usage, cost };
        Command::FailAttempt { task: step(0), claim: claim(number), error }
    };
    let hand_back = |number, cost| {
        let (usage, cost) = one(cost);
        Command::HandBack { task: step(0), claim: claim(number), usage, cost }
    };
    let complete = |number, cost| {
        let (usage, cost) = one(cost);
        let (round, step, claim) = (0, StepIndex::new(0), claim(number));
        Command::CompleteStep { round, step, claim, result: StepResult { usage, cost, ..result() } }
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
    let for_nothing = Command::HandBack { task: step(0), claim: claim(5), usage: one(7).0, cost: Cost::ZERO };
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
    let (result, usage, cost) = (PlanResult::Plan(planned), Usage::default(), Cost::ZERO);
    let (claim, reserve) = (claim_id(SECOND_PLAN, 1), Cost::ZERO);
    [claimed(SECOND_PLAN, 1), Command::CompletePlan { round: 1, claim, result, usage, cost, reserve }]
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
    let hand_back = |number| {
        let (usage, cost) = (Usage::default(), Cost::ZERO);
        Command::HandBack { task: step(0), claim: claim_id(step(0), number), usage, cost }
    };
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
    // Nor against those whose lease expires.
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

/// Earlier versions stored the cost of a second call in an event of its own.
#[test]
fn the_cost_of_a_stored_second_call_is_added_to_its_attempt() {
    let policy = Policy { attempts_max: 2, ..Policy::new(Tier::Mini, Effort::Medium) };
    let wish = |number| {
        let (id, executor) = (claim_id(step(0), number), "e".to_owned());
        let claim = Claim { id, executor, lease_until: NOW, reserve: Cost::from_nano_usd(140) };
        Command::Claim { task: step(0), claim }
    };
    let run = drive(planned("[[]]", policy), &[wish(1)]);
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
    let run = drive(run, &[failed_with(1, Some(NOW), None), wish(2)]);
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
