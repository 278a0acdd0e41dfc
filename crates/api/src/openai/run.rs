//! A run as `GET /v1/runs/{id}` returns it. OpenAI's API has no such object.

use podium_domain::ids::WorkerId;
use podium_domain::money::Cost;
use podium_domain::run::{Run, RunState};
use serde::Serialize;

use super::response::{CallBody, UsageBody, unix_seconds};
use crate::json::text_of;
use crate::podium_object::{FailureBody, RunBody};

#[derive(Serialize)]
struct Body<'a> {
    id: String,
    object: &'static str,
    /// The trace that has its spans.
    trace_id: String,
    state: &'static str,
    model: &'a str,
    created: u64,
    deadline: u64,
    /// When a suspended run fails unless it gets the results of its tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    results_due: Option<u64>,
    ended: Option<u64>,
    answer: Option<&'a str>,
    /// The tool calls of the answer; of a suspended run, those that wait for results.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<CallBody<'a>>,
    error: Option<FailureBody>,
    usage: UsageBody,
    podium: RunBody,
    steps: Vec<StepBody<'a>>,
}

#[derive(Serialize)]
struct StepBody<'a> {
    /// From 0; each follow-up round plans anew.
    round: usize,
    /// From 0, within its round.
    index: usize,
    /// The planned worker.
    worker: &'a str,
    /// The worker that the step fell back to.
    fell_back_to: Option<&'a str>,
    state: &'static str,
    subtask: &'a str,
    attempts: usize,
    cost_nano_usd: u64,
}

/// The current state of a run as JSON.
pub fn run_body(run: &Run) -> String {
    let (spec, calls) = (run.spec(), run.tool_calls());
    text_of(&Body {
        id: run.id().to_string(),
        object: "run",
        trace_id: run.trace_id().to_string(),
        state: run.state().as_str(),
        model: &spec.model,
        created: unix_seconds(spec.accepted_at),
        deadline: unix_seconds(run.deadline_at()),
        results_due: run.is_suspended().then(|| unix_seconds(run.due_at())),
        ended: run.ended_at().map(unix_seconds),
        answer: run.answer(),
        tool_calls: calls.iter().map(Into::into).collect(),
        error: failure(run.state()),
        usage: UsageBody::of(run),
        podium: RunBody::of(run),
        steps: steps(run),
    })
}

fn failure(state: &RunState) -> Option<FailureBody> {
    match state {
        RunState::Failed { reason } => Some(reason.into()),
        RunState::Active | RunState::Suspended | RunState::Succeeded { .. } | RunState::Cancelled => None,
    }
}

fn steps(run: &Run) -> Vec<StepBody<'_>> {
    let mut bodies = Vec::new();
    for (number, round) in run.rounds().iter().enumerate() {
        for (index, (step, done)) in round.known_steps().iter().zip(&round.steps).enumerate() {
            let attempts = &done.task.attempts;
            bodies.push(StepBody {
                round: number,
                index,
                worker: step.worker.as_str(),
                fell_back_to: done.worker.as_ref().map(WorkerId::as_str),
                state: done.task.state.as_str(),
                subtask: &step.subtask,
                attempts: attempts.len(),
                cost_nano_usd: attempts.iter().map(|attempt| attempt.cost).sum::<Cost>().nano_usd(),
            });
        }
    }
    bodies
}
