//! The spans of an ended run, in the names of OpenTelemetry's conventions for generative models (version 1.41).
//!
//! A run stores when everything happened, so its whole trace is made at its end, by one process:
//!
//! ```text
//! invoke_workflow MODEL            the run, from acceptance to end
//! ├── plan CONDUCTOR               an attempt at planning a round
//! └── invoke_agent WORKER          a step, from when it could begin
//!     ├── chat MODEL               an attempt: the wait for a permit and the call
//!     └── execute_tool NAME        a tool call, until the client sent its result
//! ```
//!
//! Attributes beyond the conventions are those that Phoenix, Langfuse, `SigNoz` and `OpenLIT` read. A span has content only for the
//! tenants that the settings name.

use std::time::{Duration, SystemTime};

use opentelemetry::trace::{
    SpanContext, SpanId as OtelSpanId, SpanKind, Status, TraceFlags, TraceId as OtelTraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use podium_domain::money::Cost;
use podium_domain::plan::AccessList;
use podium_domain::pool::Pool;
use podium_domain::run::{Attempt, AttemptOutcome, Round, Run, RunState, StepRef, StepRun, Task, TaskState};
use podium_domain::time::Timestamp;
use podium_domain::trace::SpanId;
use podium_domain::usage::Usage;

use crate::content::Texts;

/// The instrumentation scope of the spans.
const SCOPE: &str = "podium";
const OPERATION: &str = "gen_ai.operation.name";
/// The kind of a span for Phoenix, which does not know the operations `invoke_workflow` and `plan`.
const KIND: &str = "openinference.span.kind";
const ERROR_TYPE: &str = "error.type";
/// Most characters of a vendor's error message.
const ERROR_CHARS_MAX: usize = 500;

/// All spans of an ended run.
pub(crate) fn spans_of(run: &Run, pool: &Pool, texts: Option<Texts>) -> Vec<SpanData> {
    let trace = Trace { run, pool, texts };
    let mut spans = vec![trace.whole()];
    for (number, round) in run.rounds().iter().enumerate() {
        let number = u16::try_from(number).unwrap_or(u16::MAX);
        spans.extend(trace.planning(number, round));
        for (index, step) in round.steps.iter().enumerate() {
            let index = u16::try_from(index).unwrap_or(u16::MAX);
            let place = StepRef { round: number, step: podium_domain::ids::StepIndex::new(index) };
            spans.extend(trace.step(place, round, step));
        }
    }
    spans
}

/// A run that becomes spans.
#[derive(Clone, Copy)]
struct Trace<'a> {
    run: &'a Run,
    pool: &'a Pool,
    /// Writes content into the spans; `None` leaves it out.
    texts: Option<Texts>,
}

/// A span before it has the run's trace.
struct Span {
    id: SpanId,
    parent: Option<SpanId>,
    kind: SpanKind,
    name: String,
    begin: Timestamp,
    end: Timestamp,
    attributes: Vec<KeyValue>,
    error: Option<String>,
}

impl Trace<'_> {
    fn data(self, span: Span) -> SpanData {
        let Span { id, parent, kind, name, begin, end, attributes, error } = span;
        let trace = OtelTraceId::from_bytes(self.run.trace_id().to_bytes());
        let client = self.run.spec().request.trace.filter(|_| parent.is_none());
        let parent = parent.or_else(|| client.map(|client| client.span));
        let id = OtelSpanId::from_bytes(id.to_bytes());
        SpanData {
            span_context: SpanContext::new(trace, id, TraceFlags::SAMPLED, false, TraceState::default()),
            parent_span_id: parent.map_or(OtelSpanId::INVALID, |id| OtelSpanId::from_bytes(id.to_bytes())),
            parent_span_is_remote: client.is_some(),
            span_kind: kind,
            name: name.into(),
            start_time: time(begin),
            end_time: time(end.max(begin)),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: error.map_or(Status::Unset, Status::error),
            instrumentation_scope: InstrumentationScope::builder(SCOPE).build(),
        }
    }

    fn ended_at(self) -> Timestamp {
        self.run.ended_at().unwrap_or_else(|| self.run.changed_at())
    }

    fn whole(self) -> SpanData {
        let spec = self.run.spec();
        let mut attributes = vec![
            KeyValue::new(OPERATION, "invoke_workflow"),
            KeyValue::new("gen_ai.workflow.name", spec.model.clone()),
            KeyValue::new(KIND, "CHAIN"),
            KeyValue::new("user.id", spec.tenant.as_str().to_owned()),
            KeyValue::new("podium.run.id", self.run.id().to_string()),
            KeyValue::new("podium.run.state", self.run.state().as_str()),
            KeyValue::new("podium.conductor", spec.conductor.clone()),
            KeyValue::new("podium.pool", spec.pool.clone()),
            KeyValue::new("podium.cost_usd", usd(self.run.cost())),
            KeyValue::new("podium.wasted_cost_usd", usd(self.run.wasted_cost())),
        ];
        attributes.extend(self.texts.map(|texts| texts.of_run(self.run)).into_iter().flatten());
        let error = match self.run.state() {
            RunState::Failed { reason } => {
                attributes.push(KeyValue::new(ERROR_TYPE, reason.code()));
                Some(reason.code().to_owned())
            }
            _ => None,
        };
        self.data(Span {
            id: self.run.id().into(),
            parent: None,
            kind: SpanKind::Internal,
            name: format!("invoke_workflow {}", spec.model),
            begin: spec.accepted_at,
            end: self.ended_at(),
            attributes,
            error,
        })
    }

    /// The attempts at planning a round.
    fn planning(self, number: u16, round: &Round) -> impl Iterator<Item = SpanData> {
        let conductor = &self.run.spec().conductor;
        round.planning.attempts.iter().map(move |attempt| {
            let end = attempt.ended_at.unwrap_or_else(|| self.ended_at());
            let (outcome, error) = outcome(attempt);
            let mut attributes = vec![
                KeyValue::new(OPERATION, "plan"),
                KeyValue::new("gen_ai.agent.name", conductor.clone()),
                KeyValue::new(KIND, "CHAIN"),
                KeyValue::new("podium.round", i64::from(number)),
                KeyValue::new("podium.process", attempt.executor.clone()),
                KeyValue::new("podium.outcome", outcome),
                // Not as `gen_ai.usage`: tools would count the tokens of the plan as a worker's.
                KeyValue::new("podium.plan.input_tokens", number_of(attempt.usage.prompt_tokens)),
                KeyValue::new("podium.plan.output_tokens", number_of(attempt.usage.completion_tokens)),
                KeyValue::new("podium.cost_usd", usd(attempt.cost)),
            ];
            let seconds = end.since(attempt.started_at).as_secs_f64();
            if attempt.usage.completion_tokens > 0 && seconds > 0.0 {
                let per_second = approximate(attempt.usage.completion_tokens) / seconds;
                attributes.push(KeyValue::new("podium.plan.output_tokens_per_second", per_second));
            }
            attributes.extend(error.is_some().then(|| KeyValue::new(ERROR_TYPE, outcome)));
            attributes.extend(self.texts.map(|texts| texts.of_plan(round, attempt)).into_iter().flatten());
            self.data(Span {
                id: attempt.claim.into(),
                parent: Some(self.run.id().into()),
                kind: SpanKind::Internal,
                name: format!("plan {conductor}"),
                begin: attempt.started_at,
                end,
                attributes,
                error,
            })
        })
    }

    /// A step with its attempts and tool calls; nothing if it was never begun.
    fn step(self, place: StepRef, round: &Round, step: &StepRun) -> Vec<SpanData> {
        let (Some(first), Some(last)) = (step.task.attempts.first(), step.task.attempts.last()) else {
            return Vec::new();
        };
        let end = last.ended_at.unwrap_or_else(|| self.ended_at());
        let worker = self.run.worker_of(place.into()).map_or("?", |worker| worker.as_str()).to_owned();
        let mut attributes = vec![
            KeyValue::new(OPERATION, "invoke_agent"),
            KeyValue::new("gen_ai.agent.name", worker.clone()),
            KeyValue::new("podium.round", i64::from(place.round)),
            KeyValue::new("podium.step", i64::from(place.step.get())),
            KeyValue::new("podium.outcome", step.task.state.as_str()),
            KeyValue::new("podium.fallbacks", i64::from(step.fallbacks)),
        ];
        let error = (step.task.state == TaskState::Failed).then(|| "step_failed".to_owned());
        attributes.extend(error.is_some().then(|| KeyValue::new(ERROR_TYPE, "step_failed")));
        attributes.extend(self.texts.map(|texts| texts.of_step(self.run, place, step)).into_iter().flatten());
        let id = self.run.span_of_step(place);
        let mut spans = vec![self.data(Span {
            id,
            parent: Some(self.run.id().into()),
            kind: SpanKind::Internal,
            name: format!("invoke_agent {worker}"),
            begin: self.ready_at(place, round, &step.task).min(first.started_at),
            end,
            attributes,
            error,
        })];
        spans.extend(step.task.attempts.iter().enumerate().map(|(number, attempt)| {
            let number = i64::try_from(number + 1).unwrap_or(i64::MAX);
            let texts = self.texts.map(|texts| texts.of_attempt(self.run, place, step, attempt));
            let mut span = self.attempt(id, number, attempt);
            span.attributes.extend(texts.into_iter().flatten());
            span
        }));
        spans.extend(self.tool_calls(place, id, step));
        spans
    }

    /// When a step could begin: after the plan, and after the steps that it needs. The wait in the queue is the time from then to its
    /// first attempt. A step that began before its plan was complete has no earlier time.
    fn ready_at(self, place: StepRef, round: &Round, task: &Task) -> Timestamp {
        let first = task.attempts.first().map_or_else(|| self.ended_at(), |attempt| attempt.started_at);
        let accepted_end = |task: &Task| {
            // The last one: earlier turns of the step have accepted attempts, too.
            let accepted = task.attempts.iter().rfind(|attempt| attempt.outcome == AttemptOutcome::Accepted);
            accepted.and_then(|attempt| attempt.ended_at)
        };
        let step = self.run.step(place.round, place.step);
        let needed = step.into_iter().flat_map(|step| [&step.access, &step.unless_agree]);
        let seen =
            needed.flat_map(AccessList::as_slice).filter_map(|seen| round.steps.get(usize::from(seen.get())));
        let ends = seen.map(|step| accepted_end(&step.task)).chain([accepted_end(&round.planning)]);
        ends.flatten().filter(|end| *end <= first).max().unwrap_or(first)
    }

    fn attempt(self, step: SpanId, number: i64, attempt: &Attempt) -> SpanData {
        let (outcome, error) = outcome(attempt);
        let worker = attempt.worker.as_ref();
        let known = worker.and_then(|worker| self.pool.worker_or_retired(worker));
        let model = known.map(|worker| worker.model.clone());
        let mut attributes = vec![
            KeyValue::new(OPERATION, "chat"),
            KeyValue::new("podium.attempt", number),
            KeyValue::new("podium.process", attempt.executor.clone()),
            KeyValue::new("podium.outcome", outcome),
        ];
        attributes.extend(worker.map(|worker| KeyValue::new("podium.worker", worker.as_str().to_owned())));
        if let Some(known) = known {
            let provider = known.api.provider().unwrap_or(known.vendor.as_str()).to_owned();
            attributes.push(KeyValue::new("gen_ai.provider.name", provider));
            attributes.push(KeyValue::new("gen_ai.request.model", known.model.clone()));
        }
        if attempt.saved.is_some() {
            attributes.push(KeyValue::new("podium.cached", true));
        } else {
            attributes.extend(usage(attempt.usage, attempt.cost));
        }
        if let Some(ms) = attempt.first_token_ms {
            let seconds = Duration::from_millis(ms).as_secs_f64();
            attributes.push(KeyValue::new("gen_ai.server.ttft", seconds));
        }
        attributes.extend(error.is_some().then(|| KeyValue::new(ERROR_TYPE, outcome)));
        self.data(Span {
            id: attempt.claim.into(),
            parent: Some(step),
            kind: SpanKind::Client,
            name: model.map_or_else(|| "chat".to_owned(), |model| format!("chat {model}")),
            begin: attempt.started_at,
            end: attempt.ended_at.unwrap_or_else(|| self.ended_at()),
            attributes,
            error,
        })
    }

    /// The tool calls of a step's turns. Each lasts from the end of the turn to the step's next attempt, or to the end of the run.
    fn tool_calls(self, place: StepRef, step_span: SpanId, step: &StepRun) -> Vec<SpanData> {
        let attempts = &step.task.attempts;
        let mut spans = Vec::new();
        for turn in &step.turns {
            let Some(at) = attempts.iter().position(|attempt| attempt.claim == turn.claim) else { continue };
            let begin = attempts[at].ended_at.unwrap_or(attempts[at].started_at);
            let end = attempts.get(at + 1).map_or_else(|| self.ended_at(), |next| next.started_at);
            let by_client = turn.client_calls(self.run.id(), place);
            let calls = turn.calls.iter().zip(&by_client);
            spans.extend((1..).zip(calls).map(|(number, (call, by_client))| {
                let mut attributes = vec![
                    KeyValue::new(OPERATION, "execute_tool"),
                    KeyValue::new("gen_ai.tool.name", call.name.clone()),
                    KeyValue::new("gen_ai.tool.call.id", call.id.clone()),
                    KeyValue::new("gen_ai.tool.type", "function"),
                ];
                let texts = self.texts.map(|texts| texts.of_call(turn, call, &by_client.id));
                attributes.extend(texts.into_iter().flatten());
                self.data(Span {
                    id: SpanId::from(turn.claim).derived(number),
                    parent: Some(step_span),
                    kind: SpanKind::Internal,
                    name: format!("execute_tool {}", call.name),
                    begin,
                    end,
                    attributes,
                    error: None,
                })
            }));
        }
        spans
    }
}

/// The outcome of an attempt, and its error message, which may quote the vendor.
fn outcome(attempt: &Attempt) -> (&'static str, Option<String>) {
    match &attempt.outcome {
        AttemptOutcome::Running => ("running", None),
        AttemptOutcome::Accepted => ("accepted", None),
        AttemptOutcome::Failed(message) => ("failed", Some(message.chars().take(ERROR_CHARS_MAX).collect())),
        AttemptOutcome::HandedBack => ("handed_back", None),
        AttemptOutcome::Lost => ("lost", Some("the lease of the attempt expired".to_owned())),
        AttemptOutcome::Unused => ("unused", None),
    }
}

fn usage(usage: Usage, cost: Cost) -> [KeyValue; 8] {
    [
        KeyValue::new("gen_ai.usage.input_tokens", number_of(usage.prompt_tokens)),
        KeyValue::new("gen_ai.usage.output_tokens", number_of(usage.completion_tokens)),
        KeyValue::new("gen_ai.usage.total_tokens", number_of(usage.total_tokens())),
        KeyValue::new("gen_ai.usage.cache_read.input_tokens", number_of(usage.cached_tokens)),
        KeyValue::new("gen_ai.usage.cache_creation.input_tokens", number_of(usage.cache_write_tokens)),
        KeyValue::new("gen_ai.usage.reasoning.output_tokens", number_of(usage.reasoning_tokens)),
        KeyValue::new("gen_ai.usage.cost", usd(cost)),
        KeyValue::new("podium.cost_nano_usd", number_of(cost.nano_usd())),
    ]
}

fn time(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(at.unix_ms())
}

fn number_of(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A cost in dollars, for people and sums that need not be exact.
fn usd(cost: Cost) -> f64 {
    approximate(cost.nano_usd()) / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2 to the power of 52")]
fn approximate(count: u64) -> f64 {
    count as f64
}
