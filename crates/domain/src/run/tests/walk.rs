//! Applies every command and every event to every reachable state of small runs, and checks the invariants in each state.

use std::collections::{HashMap, HashSet, VecDeque};

use super::*;
use crate::content::{Part, ToolCall, ToolResult};
use crate::conversation::Role;

/// The plan that a conductor writes in the walk.
pub(super) struct Written {
    pub(super) plan: Plan,
    pub(super) heads: Vec<PlanHead>,
    /// Workers that a step may fall back to.
    pub(super) others: Vec<WorkerId>,
    /// Whether workers may decline.
    pub(super) declines: bool,
    /// Whether workers call tools, and the client sends the results.
    pub(super) calls: bool,
    /// Whether workers give one of two answers.
    pub(super) differs: bool,
}

impl From<Plan> for Written {
    fn from(plan: Plan) -> Self {
        Self { plan, heads: Vec::new(), others: Vec::new(), declines: false, calls: false, differs: false }
    }
}

/// All commands that a run may receive in its state, sensible or not, with their times.
fn commands(run: &Run, written: &Written) -> Vec<(Command, Timestamp)> {
    let spent = Spent { cost: Cost::from_nano_usd(1), ..Spent::NONE };
    let mut all = vec![Command::Cancel, Command::CheckDeadline, Command::Expire, Command::ReleaseLost];
    let known: Vec<_> = run.tasks().map(|(task, known)| (task, known.attempt_number())).collect();
    let unknown = [TaskRef::Plan { round: 9 }, TaskRef::Step { round: 0, step: StepIndex::new(9) }];
    for (task, attempts) in known.into_iter().chain(unknown.map(|task| (task, 0))) {
        // Claims that were made, and the next one.
        for number in 1..=attempts + 1 {
            let claim = claim_id(task, number);
            let (executor, reserve) = ("e".to_owned(), Cost::ZERO);
            let made = Claim { id: claim, executor, process: PROCESS, lease_until: NOW, reserve };
            all.push(Command::Claim { task, claim: made });
            all.push(Command::ExpireLease { task, claim });
            all.push(Command::HandBack { task, claim, spent });
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
                        all.push(Command::CompletePlan { round, claim, result, spent, reserve });
                    }
                }
                TaskRef::Step { round, step } => {
                    all.push(Command::CompleteStep { round, step, claim, result: result() });
                    if written.differs {
                        let result = StepResult { output: "The answer is 43.".to_owned(), ..result() };
                        all.push(Command::CompleteStep { round, step, claim, result });
                    }
                    if written.declines {
                        let finish = FinishReason::ContentFilter;
                        let result = StepResult { finish, ..result() };
                        all.push(Command::CompleteStep { round, step, claim, result });
                    }
                    if written.calls {
                        let calls = vec![ToolCall::new("c", "look", "{}")];
                        let result = StepResult { calls, output: String::new(), ..result() };
                        all.push(Command::CompleteStep { round, step, claim, result });
                    }
                    let blank = StepResult { output: " ".to_owned(), ..result() };
                    all.push(Command::CompleteStep { round, step, claim, result: blank });
                }
            }
        }
    }
    if written.calls {
        all.extend(["one", "two"].map(|output| Command::GiveResults { results: results_of(run, output) }));
        all.push(Command::GiveResults { results: Vec::new() });
    }
    for (task, worker) in
        written.others.iter().flat_map(|other| run.tasks().map(move |(task, _)| (task, other)))
    {
        if let (Some(step), Some(from)) = (task.step(), run.worker_of(task)) {
            let (from, worker, message) = (from.clone(), worker.clone(), "broken".to_owned());
            all.push(Command::FallBack { step, from, worker, message });
        }
    }
    let late = run.due_at();
    let mut timed: Vec<_> = all.iter().map(|command| (command.clone(), NOW)).collect();
    timed.push((Command::CheckDeadline, late));
    timed
}

/// The client's message with the results of the pending calls; without any, of the calls before.
fn results_of(run: &Run, output: &str) -> Vec<Message> {
    let mut calls = run.tool_calls();
    if calls.is_empty() {
        let turns =
            run.step_runs().flat_map(|(step, found)| found.turns.iter().map(move |turn| (step, turn)));
        let latest = turns.filter(|(_, turn)| turn.reply + 1 == run.reply());
        calls = latest.flat_map(|(step, turn)| turn.client_calls(run.id(), step)).collect();
    }
    let results = calls.into_iter().map(|call| Part::ToolResult(ToolResult::new(call.id, call.name, output)));
    vec![Message::new(Role::User, "").with(results)]
}

/// The state that two runs must share to behave alike.
pub(super) fn key(run: &Run) -> String {
    let tasks: Vec<_> = run
        .tasks()
        .map(|(task, t)| {
            (
                task,
                t.state.clone(),
                t.attempts.iter().map(|a| (a.claim, a.outcome.clone())).collect::<Vec<_>>(),
                t.earlier,
            )
        })
        .collect();
    let workers = |r: &Round| {
        let state =
            |s: &StepRun| (s.worker.clone(), s.fallbacks, s.finish, s.turns.clone(), s.output.clone());
        r.steps.iter().map(state).collect::<Vec<_>>()
    };
    let known: Vec<_> = run
        .rounds()
        .iter()
        .map(|r| (r.known_steps(), r.superseded, r.plan().is_some(), workers(r)))
        .collect();
    format!("{:?} {tasks:?} {known:?}", run.state())
}

pub(super) fn folded(run: &Run, events: &[RunEvent]) -> Run {
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
            let mut needed = step.access.as_slice().iter().chain(step.unless_agree.as_slice());
            let needed_final = needed.all(|i| round.steps[i.as_usize()].task.state.is_final());
            assert!(!began || needed_final, "a step ran before what it needs, {}", context());
            let has_result = matches!(life.task.state, TaskState::Done | TaskState::Skipped);
            assert_eq!(life.output.is_some(), has_result, "{}", context());
            let is_skipped = life.task.state == TaskState::Skipped;
            assert_eq!(life.same_as.is_some(), is_skipped, "{}", context());
            assert!(!is_skipped || life.task.attempts.is_empty(), "a skipped step was tried, {}", context());
        }
        assert!(number + 1 == run.rounds().len() || round.steps.iter().all(|s| s.task.state.is_final()));
    }
    for (task_ref, task) in run.tasks() {
        let accepted = task.attempts.iter().filter(|a| a.outcome == AttemptOutcome::Accepted).count();
        let of_step =
            |step: StepRef| run.rounds()[usize::from(step.round)].steps[step.step.as_usize()].turns.len();
        let turns = task_ref.step().map_or(0, of_step);
        let counts = turns + usize::from(task.state == TaskState::Done);
        assert_eq!(accepted, counts, "one result counts in each turn, {}", context());
        let running = task.attempts.iter().filter(|a| a.outcome == AttemptOutcome::Running).count();
        assert_eq!(running, usize::from(matches!(task.state, TaskState::Running { .. })), "{}", context());
    }
    if run.is_ended() {
        assert!(run.tasks().all(|(_, task)| task.state.is_final()), "{}", context());
    } else {
        let open = |task: &Task| matches!(task.state, TaskState::Ready { .. } | TaskState::Running { .. });
        let has_work = run.tasks().any(|(_, task)| open(task));
        assert_eq!(has_work, !run.is_suspended(), "a run has work or is suspended, {}", context());
        assert_eq!(run.is_suspended(), !run.tool_calls().is_empty(), "{}", context());
    }
    for (step, found) in run.step_runs() {
        for (number, turn) in found.turns.iter().enumerate() {
            let is_pending = number + 1 == found.turns.len()
                && matches!(found.task.state, TaskState::Calling | TaskState::Cancelled);
            let answered: Vec<_> = turn.results.iter().flat_map(Message::results).collect();
            assert!(
                is_pending || answered.len() == turn.calls.len(),
                "each call has one result, {}",
                context()
            );
            let own = turn.client_calls(run.id(), step);
            assert!(answered.iter().all(|result| own.iter().any(|call| call.id == result.call_id)));
        }
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
        assert_eq!(
            last.abandoned.is_some(),
            needs_reason,
            "the reason why an answer stands is recorded, {}",
            context()
        );
    }
}

/// Walks every reachable state and returns all of them with every event that occurred.
pub(super) fn walk(begin: Run, written: &Written) -> (Vec<Run>, Vec<RunEvent>) {
    let attempts_max = begin.spec().request.policy.attempts_max;
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
            // Handing back is unbounded by design; the walk is not.
            let counted = |task: &Task| u32::try_from(task.latest_attempts().len()).unwrap();
            let bounded = after.tasks().all(|(_, task)| counted(task) <= attempts_max);
            if bounded && seen.insert(key(&after)) {
                queue.push_back(after);
            }
        }
        states.push(run);
    }
    (states, events.into_values().collect())
}

/// A sender that does not know whether its command was carried out repeats it. That must change nothing.
pub(super) fn check_is_idempotent(after: &Run, command: &Command, now: Timestamp) {
    if let Ok(again) = after.decide(command, now) {
        assert!(again.events.is_empty(), "{command:?} again: {:?}\nin {}", again.events, key(after));
    }
}

#[test]
fn every_reachable_state_keeps_the_invariants() {
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
