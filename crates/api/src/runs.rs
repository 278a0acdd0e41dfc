//! A run as gRPC clients see it.

use podium_domain::answer::{AnswerForm, JsonSchema};
use podium_domain::content::{Image, Part, Pdf, PdfSource};
use podium_domain::conversation::{Message, Role};
use podium_domain::ids::StepIndex;
use podium_domain::money::Cost;
use podium_domain::plan::Step;
use podium_domain::policy::{
    BrokenAnswer, Effort, FailedStep, Policy, PoolRule, StepCaching, StepTools, Tier, WorkersAllowed,
};
use podium_domain::run::{
    Attempt, AttemptOutcome, FailReason, FinishReason, MissingStep, Round, Run, RunState, Saved, StepRef,
    StepRun, Task, TaskState,
};
use podium_domain::sampling::Sampling;
use podium_domain::time::Timestamp;
use podium_domain::tools::CallsAtOnce;
use podium_domain::usage::Usage;

use crate::link::decoded;
use crate::openai::conversation_of;
use crate::v1;

/// A point in time as a protobuf timestamp.
pub fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    let ms = at.unix_ms();
    prost_types::Timestamp {
        seconds: i64::try_from(ms / 1000).unwrap_or(i64::MAX),
        nanos: i32::try_from(ms % 1000 * 1_000_000).unwrap_or_default(),
    }
}

impl From<&Run> for v1::Run {
    fn from(run: &Run) -> Self {
        let spec = run.spec();
        let tools = spec.request.tools.as_ref();
        Self {
            run_id: run.id().to_string(),
            sequence: run.version(),
            state: v1::RunState::from(run.state()).into(),
            request_id: spec.request_id.as_ref().map(|id| id.as_str().to_owned()).unwrap_or_default(),
            model: spec.model.clone(),
            tier: v1::Tier::from(spec.request.policy.tier).into(),
            effort: v1::Effort::from(spec.request.policy.effort).into(),
            policy: Some((&spec.request.policy).into()),
            messages: spec.request.conversation.messages().iter().map(Into::into).collect(),
            conductor: spec.conductor.clone(),
            pool: spec.pool.clone(),
            rounds: (0u16..).zip(run.rounds()).map(|(number, round)| round_of(run, number, round)).collect(),
            answer: run.answer().map(ToOwned::to_owned),
            failure: match run.state() {
                RunState::Failed { reason } => Some(reason.into()),
                _ => None,
            },
            usage: Some(run.usage().into()),
            planning_usage: Some(run.planning_usage().into()),
            cost_nano_usd: run.cost().nano_usd(),
            accept_time: Some(timestamp(spec.accepted_at)),
            deadline_time: Some(timestamp(run.deadline_at())),
            results_due_time: run.is_suspended().then(|| timestamp(run.due_at())),
            end_time: run.ended_at().map(timestamp),
            answer_tokens_max: spec.request.answer_tokens_max,
            sampling: (!spec.request.sampling.is_none()).then(|| spec.request.sampling.into()),
            response_format: response_format(&spec.request.answer),
            stop: spec.request.stops.as_slice().to_vec(),
            tools: tools.iter().flat_map(|tools| &tools.tools).map(Into::into).collect(),
            tool_choice: tools.map(|tools| (&tools.choice).into()),
            parallel_tool_calls: tools.map(|tools| tools.at_once == CallsAtOnce::Several),
            tool_calls: run.tool_calls().iter().map(Into::into).collect(),
            reasoning: run.reply_reasoning().to_owned(),
            wasted_usage: Some(run.wasted_usage().into()),
            wasted_cost_nano_usd: run.wasted_cost().nano_usd(),
            fallbacks: run.fallbacks(),
            failed_steps: run.failed_steps().into_iter().map(Into::into).collect(),
            degraded: run.is_degraded(),
            refused: run.refusal().is_some(),
            saved: Some(run.saved()).filter(|saved| *saved != Saved::default()).map(Into::into),
            trace_id: run.trace_id().to_string(),
            conversation_id: conversation_of(run).unwrap_or_default(),
        }
    }
}

fn round_of(run: &Run, number: u16, round: &Round) -> v1::Round {
    let steps = indices().zip(round.known_steps()).zip(&round.steps);
    let planned = round.planned.as_ref();
    let calls = |step| run.calls_of(StepRef { round: number, step }).iter().map(Into::into).collect();
    v1::Round {
        number: number.into(),
        planning_state: v1::TaskState::from(&round.planning.state).into(),
        planning_attempts: attempts_of(&round.planning),
        reasoning: planned.map(|planned| planned.reasoning.clone()).unwrap_or_default(),
        fallback: planned.and_then(|planned| planned.fallback.clone()),
        steps: steps
            .map(|((index, step), done)| v1::Step { tool_calls: calls(index), ..step_of(index, step, done) })
            .collect(),
        superseded_steps: round.superseded.into(),
        abandoned: round.abandoned.as_ref().map(Into::into),
        corrects: round.corrects.as_ref().map(Into::into),
    }
}

fn step_of(index: StepIndex, step: &Step, done: &StepRun) -> v1::Step {
    let attempts = &done.task.attempts;
    v1::Step {
        planned: Some(planned_step(index, step)),
        state: v1::TaskState::from(&done.task.state).into(),
        attempts: attempts_of(&done.task),
        output: done.output.clone(),
        usage: Some(attempts.iter().map(|attempt| attempt.usage).sum::<Usage>().into()),
        cost_nano_usd: attempts.iter().map(|attempt| attempt.cost).sum::<Cost>().nano_usd(),
        finish_reason: done.finish.map_or(v1::FinishReason::Unspecified, Into::into).into(),
        stop_sequence: done.stop_sequence.clone(),
        fell_back_to: done.worker.as_ref().map(ToString::to_string),
        tool_calls: Vec::new(),
        same_as: done.same_as.map(|step| step.get().into()),
    }
}

/// Planned steps with their indices, from 0.
pub(crate) fn planned_steps(steps: &[Step]) -> Vec<v1::PlannedStep> {
    indices().zip(steps).map(|(index, step)| planned_step(index, step)).collect()
}

fn indices() -> impl Iterator<Item = StepIndex> {
    (0u16..).map(StepIndex::new)
}

fn planned_step(index: StepIndex, step: &Step) -> v1::PlannedStep {
    v1::PlannedStep {
        index: index.get().into(),
        worker: step.worker.to_string(),
        subtask: step.subtask.clone(),
        access: step.access.as_slice().iter().map(|seen| seen.get().into()).collect(),
        sees_earlier_round: step.sees_earlier_round,
        unless_agree: step.unless_agree.as_slice().iter().map(|named| named.get().into()).collect(),
    }
}

fn attempts_of(task: &Task) -> Vec<v1::Attempt> {
    (1u32..).zip(&task.attempts).map(|(number, attempt)| attempt_of(number, attempt)).collect()
}

fn attempt_of(number: u32, attempt: &Attempt) -> v1::Attempt {
    use v1::AttemptOutcome as Outcome;
    let (outcome, error) = match &attempt.outcome {
        AttemptOutcome::Running => (Outcome::Running, ""),
        AttemptOutcome::Accepted => (Outcome::Accepted, ""),
        AttemptOutcome::Failed(message) => (Outcome::Failed, message.as_str()),
        AttemptOutcome::HandedBack => (Outcome::HandedBack, ""),
        AttemptOutcome::Lost => (Outcome::Lost, ""),
        AttemptOutcome::Unused => (Outcome::Unused, ""),
    };
    v1::Attempt {
        number,
        executor: attempt.executor.clone(),
        worker: attempt.worker.as_ref().map(ToString::to_string).unwrap_or_default(),
        start_time: Some(timestamp(attempt.started_at)),
        end_time: attempt.ended_at.map(timestamp),
        outcome: outcome.into(),
        error: error.to_owned(),
        usage: Some(attempt.usage.into()),
        cost_nano_usd: attempt.cost.nano_usd(),
        first_token_ms: attempt.first_token_ms,
        saved: attempt.saved.map(Into::into),
    }
}

impl From<&FailReason> for v1::Failure {
    fn from(reason: &FailReason) -> Self {
        Self { code: reason.code().to_owned(), message: reason.to_string() }
    }
}

impl From<&Message> for v1::Message {
    fn from(message: &Message) -> Self {
        let role = match message.role {
            Role::System => v1::Role::System,
            Role::User => v1::Role::User,
            Role::Assistant => v1::Role::Assistant,
        };
        Self {
            role: role.into(),
            text: message.text.clone(),
            parts: message.parts.iter().filter_map(part).collect(),
        }
    }
}

/// A part that a client sent.
fn part(part: &Part) -> Option<v1::Part> {
    let part = match part {
        Part::Text(text) => v1::part::Part::Text(text.clone()),
        Part::Image(image) => v1::part::Part::Image(v1::Image { image: Some(image_of(image)) }),
        Part::Pdf(pdf) => v1::part::Part::File(file_of(pdf)),
        Part::ToolCall(call) => v1::part::Part::ToolCall(call.into()),
        Part::ToolResult(result) => v1::part::Part::ToolResult(v1::ToolResult {
            call_id: result.call_id.clone(),
            output: result.output.clone(),
            images: result.images.iter().map(|image| v1::Image { image: Some(image_of(image)) }).collect(),
            files: result.pdfs.iter().map(file_of).collect(),
            is_error: result.is_error,
        }),
        // Restored from an earlier run; clients do not send it.
        Part::Reasoning(_) => return None,
    };
    Some(v1::Part { part: Some(part) })
}

fn image_of(image: &Image) -> v1::image::Image {
    match image {
        Image::Url(url) => v1::image::Image::Url(url.clone()),
        Image::Data { media_type, base64 } => v1::image::Image::Data(v1::ImageData {
            media_type: media_type.as_str().to_owned(),
            data: decoded(base64).unwrap_or_default(),
        }),
    }
}

fn file_of(Pdf { name, source }: &Pdf) -> v1::File {
    let source = match source {
        PdfSource::Url(url) => v1::file::Source::Url(url.clone()),
        PdfSource::Data(base64) => v1::file::Source::Data(v1::FileData {
            media_type: Pdf::MEDIA_TYPE.to_owned(),
            data: decoded(base64).unwrap_or_default(),
        }),
    };
    v1::File { name: name.clone().unwrap_or_default(), source: Some(source) }
}

fn response_format(answer: &AnswerForm) -> Option<v1::ResponseFormat> {
    use v1::response_format::Format;
    let format = match answer {
        AnswerForm::Text | AnswerForm::Regex(_) => return None,
        AnswerForm::JsonObject => Format::JsonObject(v1::JsonObject {}),
        AnswerForm::JsonSchema(JsonSchema { name, schema, strict }) => Format::JsonSchema(v1::JsonSchema {
            name: name.clone(),
            schema: schema.to_string(),
            strict: *strict,
        }),
    };
    Some(v1::ResponseFormat { format: Some(format) })
}

impl From<&Policy> for v1::Policy {
    fn from(policy: &Policy) -> Self {
        Self {
            steps_max: Some(policy.steps_max.into()),
            rounds_max: Some(policy.rounds_max.into()),
            attempts_max: Some(policy.attempts_max),
            deadline_ms: Some(policy.deadline_ms),
            cost_max_nano_usd: policy.cost_max.map(Cost::nano_usd),
            output_bytes_max: Some(policy.output_bytes_max as u64),
            fallback: v1::Fallback::from(policy.fallback).into(),
            broken_answer: v1::BrokenAnswer::from(policy.broken_answer).into(),
            failed_step: v1::FailedStep::from(policy.failed_step).into(),
            step_cache: v1::StepCaching::from(policy.step_cache).into(),
            tools: v1::StepTools::from(policy.tools).into(),
            turns_max: Some(policy.turns_max.into()),
            suspended_ms_max: Some(policy.suspended_ms_max),
            show_steps: Some(policy.shows_steps),
            workers_allowed: match &policy.workers_allowed {
                WorkersAllowed::All => Vec::new(),
                WorkersAllowed::Only(ids) => ids.iter().map(ToString::to_string).collect(),
            },
        }
    }
}

impl From<Sampling> for v1::Sampling {
    fn from(Sampling { temperature, top_p, seed }: Sampling) -> Self {
        Self { temperature, top_p, seed }
    }
}

impl From<Usage> for v1::Usage {
    fn from(usage: Usage) -> Self {
        Self {
            prompt_tokens: usage.prompt_tokens,
            cached_tokens: usage.cached_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            completion_tokens: usage.completion_tokens,
            reasoning_tokens: usage.reasoning_tokens,
        }
    }
}

impl From<Tier> for v1::Tier {
    fn from(tier: Tier) -> Self {
        match tier {
            Tier::Mini => Self::Mini,
            Tier::Ultra => Self::Ultra,
        }
    }
}

impl From<PoolRule> for v1::Fallback {
    fn from(rule: PoolRule) -> Self {
        match rule {
            PoolRule::None => Self::None,
            PoolRule::Pool => Self::Pool,
        }
    }
}

impl From<BrokenAnswer> for v1::BrokenAnswer {
    fn from(broken: BrokenAnswer) -> Self {
        match broken {
            BrokenAnswer::Elsewhere => Self::Elsewhere,
            BrokenAnswer::Again => Self::Again,
        }
    }
}

impl From<FailedStep> for v1::FailedStep {
    fn from(choice: FailedStep) -> Self {
        match choice {
            FailedStep::Replan => Self::Replan,
            FailedStep::Continue => Self::Continue,
            FailedStep::Fail => Self::Fail,
        }
    }
}

impl From<MissingStep> for v1::FailedStepInfo {
    fn from(MissingStep { round, step, worker, reason }: MissingStep) -> Self {
        Self { round: round.into(), step: step.get().into(), worker: worker.to_string(), reason }
    }
}

impl From<StepCaching> for v1::StepCaching {
    fn from(caching: StepCaching) -> Self {
        match caching {
            StepCaching::Off => Self::Off,
            StepCaching::Exact => Self::Exact,
        }
    }
}

impl From<StepTools> for v1::StepTools {
    fn from(tools: StepTools) -> Self {
        match tools {
            StepTools::All => Self::All,
            StepTools::Last => Self::Last,
        }
    }
}

impl From<Saved> for v1::Saved {
    fn from(Saved { usage, cost }: Saved) -> Self {
        Self { usage: Some(usage.into()), cost_nano_usd: cost.nano_usd() }
    }
}

impl From<Effort> for v1::Effort {
    fn from(effort: Effort) -> Self {
        match effort {
            Effort::None => Self::None,
            Effort::Minimal => Self::Minimal,
            Effort::Low => Self::Low,
            Effort::Medium => Self::Medium,
            Effort::High => Self::High,
            Effort::XHigh => Self::Xhigh,
            Effort::Max => Self::Max,
        }
    }
}

impl From<&RunState> for v1::RunState {
    fn from(state: &RunState) -> Self {
        match state {
            RunState::Active => Self::Active,
            RunState::Suspended => Self::Suspended,
            RunState::Succeeded { .. } => Self::Succeeded,
            RunState::Failed { .. } => Self::Failed,
            RunState::Cancelled => Self::Cancelled,
        }
    }
}

impl From<&TaskState> for v1::TaskState {
    fn from(state: &TaskState) -> Self {
        match state {
            TaskState::Waiting => Self::Waiting,
            TaskState::Ready { .. } => Self::Ready,
            TaskState::Running { .. } => Self::Running,
            TaskState::Calling => Self::Calling,
            TaskState::Done => Self::Done,
            TaskState::Skipped => Self::Skipped,
            TaskState::Failed => Self::Failed,
            TaskState::Cancelled => Self::Cancelled,
        }
    }
}

impl From<FinishReason> for v1::FinishReason {
    fn from(reason: FinishReason) -> Self {
        match reason {
            FinishReason::Stop => Self::Stop,
            FinishReason::Length => Self::Length,
            FinishReason::ContentFilter => Self::ContentFilter,
            FinishReason::ToolCalls => Self::ToolCalls,
        }
    }
}
