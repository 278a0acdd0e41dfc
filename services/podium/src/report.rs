//! Runs as the command line prints them: JSON for programs, text for people.

use std::fmt::Write as _;

use podium_api::v1;
use podium_domain::money::Cost;
use prost_types::Timestamp;
use serde::Serialize;

use crate::draw::sees;

/// A run in full.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct RunReport {
    run_id: String,
    state: &'static str,
    model: String,
    conductor: String,
    pool: String,
    question: String,
    pub(crate) answer: Option<String>,
    failure: Option<FailureReport>,
    steps: Vec<StepReport>,
    reasoning: Vec<String>,
    failed_steps: Vec<FailedStepReport>,
    /// Whether the answer was built although a step that it needs gave no output.
    degraded: bool,
    /// Whether the last worker declined to answer; `answer` is then its refusal.
    pub(crate) refused: bool,
    /// The failure after which the run was planned again, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    replanned_because: Option<FailureReport>,
    /// The reason why a follow-up round gave no answer, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    abandoned: Option<String>,
    usage: UsageReport,
    planning_usage: UsageReport,
    wasted_usage: UsageReport,
    cost_usd: f64,
    wasted_usd: f64,
    fallbacks: u32,
    saved_usage: UsageReport,
    saved_usd: f64,
    duration_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct FailureReport {
    code: String,
    message: String,
}

impl From<&v1::Failure> for FailureReport {
    fn from(failure: &v1::Failure) -> Self {
        Self { code: failure.code.clone(), message: failure.message.clone() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct FailedStepReport {
    round: u32,
    step: u32,
    worker: String,
    reason: String,
}

impl From<&v1::FailedStepInfo> for FailedStepReport {
    fn from(failed: &v1::FailedStepInfo) -> Self {
        let v1::FailedStepInfo { round, step, worker, reason } = failed.clone();
        Self { round, step, worker, reason }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct StepReport {
    round: u32,
    index: u32,
    worker: String,
    subtask: String,
    access: Vec<u32>,
    sees_earlier_round: bool,
    state: &'static str,
    attempts: usize,
    errors: Vec<String>,
    /// The worker that does it instead of `worker`.
    fell_back_to: Option<String>,
    /// The earlier step whose output it took over, from 0, if it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    same_as: Option<u32>,
    output: Option<String>,
    prompt_tokens: u64,
    completion_tokens: u64,
    cost_usd: f64,
    is_from_cache: bool,
    duration_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are those of every other usage on the wire")]
struct UsageReport {
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
    reasoning_tokens: u64,
}

impl From<Option<v1::Usage>> for UsageReport {
    fn from(usage: Option<v1::Usage>) -> Self {
        let usage = usage.unwrap_or_default();
        Self {
            prompt_tokens: usage.prompt_tokens,
            cached_tokens: usage.cached_tokens,
            completion_tokens: usage.completion_tokens,
            reasoning_tokens: usage.reasoning_tokens,
        }
    }
}

impl RunReport {
    /// The report of a run.
    pub(crate) fn of(run: &v1::Run) -> Self {
        let steps =
            run.rounds.iter().flat_map(|round| round.steps.iter().map(|step| step_report(round, step)));
        let question = run.messages.iter().rev().find(|message| message.role() == v1::Role::User);
        Self {
            run_id: run.run_id.clone(),
            state: run_state(run.state()),
            model: run.model.clone(),
            conductor: run.conductor.clone(),
            pool: run.pool.clone(),
            question: question.map(|message| message.text.clone()).unwrap_or_default(),
            answer: run.answer.clone(),
            failure: run.failure.as_ref().map(Into::into),
            steps: steps.collect(),
            reasoning: run.rounds.iter().map(|round| round.reasoning.clone()).collect(),
            failed_steps: run.failed_steps.iter().map(Into::into).collect(),
            degraded: run.degraded,
            refused: run.refused,
            replanned_because: run.rounds.iter().find_map(|round| round.corrects.as_ref()).map(Into::into),
            abandoned: run.rounds.iter().find_map(abandoned),
            usage: run.usage.into(),
            planning_usage: run.planning_usage.into(),
            wasted_usage: run.wasted_usage.into(),
            cost_usd: usd(run.cost_nano_usd),
            wasted_usd: usd(run.wasted_cost_nano_usd),
            fallbacks: run.fallbacks,
            saved_usage: run.saved.and_then(|saved| saved.usage).into(),
            saved_usd: usd(run.saved.map_or(0, |saved| saved.cost_nano_usd)),
            duration_ms: span_ms(run.accept_time.as_ref(), run.end_time.as_ref()),
        }
    }

    /// Notices about the answer: the steps without output, whether the answer lacks one that it needs, and whether it or the refusal
    /// comes from a second plan.
    pub(crate) fn notices(&self) -> impl Iterator<Item = String> {
        let replanned = self.replanned_because.iter();
        let replanned = replanned.map(|failure| format!("the run was planned anew: {}", failure.message));
        let degraded = self.degraded.then(|| "the answer was built without a step that it needs".to_owned());
        let failed = self.failed_steps.iter().map(|failed| {
            let FailedStepReport { round, step, worker, reason } = failed;
            let round = if *round == 0 { String::new() } else { format!(" of round {}", round + 1) };
            format!("step {}{round} (worker {worker}) gave no output: {reason}", step + 1)
        });
        degraded.into_iter().chain(replanned).chain(failed)
    }

    /// The reason why there is no answer, for people.
    pub(crate) fn why_no_answer(&self) -> String {
        match &self.failure {
            Some(failure) => format!("run {} has no answer: {}", self.run_id, failure.message),
            None => format!("run {} has no answer: it is {}", self.run_id, self.state),
        }
    }
}

fn abandoned(round: &v1::Round) -> Option<String> {
    let failure = round.abandoned.as_ref()?;
    Some(format!(
        "round {} gave no answer, how the one before it ended stands: {}",
        round.number + 1,
        failure.message
    ))
}

fn step_report(round: &v1::Round, step: &v1::Step) -> StepReport {
    let planned = step.planned.clone().unwrap_or_default();
    let usage = step.usage.unwrap_or_default();
    let first = step.attempts.first().and_then(|attempt| attempt.start_time.as_ref());
    let last = step.attempts.last().and_then(|attempt| attempt.end_time.as_ref());
    let is_superseded = planned.index < round.superseded_steps;
    StepReport {
        round: round.number,
        index: planned.index,
        worker: planned.worker,
        subtask: planned.subtask,
        access: planned.access,
        sees_earlier_round: planned.sees_earlier_round,
        state: if is_superseded { "superseded" } else { task_state(step.state()) },
        attempts: step.attempts.len(),
        errors: step.attempts.iter().filter(|a| !a.error.is_empty()).map(|a| a.error.clone()).collect(),
        fell_back_to: step.fell_back_to.clone(),
        same_as: step.same_as,
        output: step.output.clone(),
        prompt_tokens: usage.prompt_tokens,
        completion_tokens: usage.completion_tokens,
        cost_usd: usd(step.cost_nano_usd),
        is_from_cache: step.attempts.iter().any(|attempt| attempt.saved.is_some()),
        duration_ms: span_ms(first, last),
    }
}

/// A run in full, for people.
pub(crate) fn describe(report: &RunReport) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<10} {value}");
    };
    line("run", &report.run_id);
    line("state", report.state);
    line("model", &format!("{} (conductor {}, pool {})", report.model, report.conductor, report.pool));
    line("question", &report.question);
    for step in &report.steps {
        let sees = sees(&step.access, step.sees_earlier_round.then_some("the round before"));
        let sees = if sees.is_empty() { String::new() } else { format!(", sees {}", sees.join(", ")) };
        line(
            &format!("step {}", step.index + 1),
            &format!(
                "{} by {}{sees}: {}{}, {}, {}, {}",
                step.subtask,
                step.worker,
                step.state,
                if step.is_from_cache { " from the cache" } else { "" },
                count(step.attempts, "attempt"),
                step.duration_ms.map_or_else(|| "no time yet".to_owned(), |ms| format!("{ms} ms")),
                dollars(step.cost_usd)
            ),
        );
        step.errors.iter().for_each(|error| line("", &format!("! {error}")));
        step.fell_back_to.iter().for_each(|worker| line("", &format!("> continued with {worker}")));
        step.same_as
            .iter()
            .for_each(|same| line("", &format!("> took over the answer of step {}", same + 1)));
        step.output.iter().for_each(|output| line("", &format!("= {output}")));
    }
    report.abandoned.iter().for_each(|why| line("", &format!("! {why}")));
    let tokens = (report.usage.prompt_tokens, report.usage.completion_tokens);
    line("tokens", &format!("{} in, {} out", tokens.0, tokens.1));
    line("cost", &format!("{}{}{}", dollars(report.cost_usd), wasted(report), saved(report)));
    report.duration_ms.iter().for_each(|ms| line("time", &format!("{ms} ms")));
    report.failure.iter().for_each(|failure| line("failure", &failure.message));
    report.answer.iter().for_each(|answer| line(if report.refused { "refusal" } else { "answer" }, answer));
    report.notices().for_each(|notice| line("", &format!("! {notice}")));
    text
}

/// The wasted cost, if any.
fn wasted(report: &RunReport) -> String {
    if report.wasted_usage == UsageReport::default() {
        return String::new();
    }
    format!(", of which {} wasted", dollars(report.wasted_usd))
}

/// The savings by the step cache, if any.
fn saved(report: &RunReport) -> String {
    if report.saved_usage == UsageReport::default() {
        return String::new();
    }
    format!("; the step cache saved {}", dollars(report.saved_usd))
}

/// A line of a list of runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct SummaryReport {
    run_id: String,
    state: &'static str,
    model: String,
    question: String,
    steps: u32,
    cost_usd: f64,
    wasted_usd: f64,
    saved_usd: f64,
    fallbacks: u32,
    /// This and the next two are unknown while the run is active.
    failed_steps: Option<u32>,
    degraded: Option<bool>,
    refused: Option<bool>,
    accepted_at_ms: u64,
    /// In UTC, to the second.
    #[serde(skip)]
    accepted_at: String,
    duration_ms: Option<u64>,
}

impl SummaryReport {
    /// The report of a summary.
    pub(crate) fn of(run: &v1::RunSummary) -> Self {
        Self {
            run_id: run.run_id.clone(),
            state: run_state(run.state()),
            model: run.model.clone(),
            question: run.question.clone(),
            steps: run.steps,
            cost_usd: usd(run.cost_nano_usd),
            wasted_usd: usd(run.wasted_cost_nano_usd),
            saved_usd: usd(run.saved_cost_nano_usd),
            fallbacks: run.fallbacks,
            failed_steps: run.failed_steps,
            degraded: run.degraded,
            refused: run.refused,
            accepted_at_ms: run.accept_time.as_ref().map(unix_ms).unwrap_or_default(),
            accepted_at: run
                .accept_time
                .map(|at| Timestamp { nanos: 0, ..at }.to_string())
                .unwrap_or_default(),
            duration_ms: span_ms(run.accept_time.as_ref(), run.end_time.as_ref()),
        }
    }

    /// The report as one line.
    pub(crate) fn line(&self) -> String {
        let question: String = self.question.split_whitespace().collect::<Vec<_>>().join(" ");
        let question: String = question.chars().take(60).collect();
        let Self { run_id, steps, cost_usd, model, .. } = self;
        let state = self.outcome();
        let deviations = self.deviations();
        let (at, steps, cost) = (&self.accepted_at, count(*steps, "step"), dollars(*cost_usd));
        format!("{run_id}  {at}  {state:<9}  {steps}  {cost}{deviations}  {model}  {question}")
    }

    /// The state, or a word of the same width for the defect of a successful answer, so that narrow terminals show it, too.
    fn outcome(&self) -> &'static str {
        match (self.refused, self.degraded) {
            (Some(true), _) => "refused",
            (_, Some(true)) => "degraded",
            _ => self.state,
        }
    }

    /// Deviations from the plan, if any.
    fn deviations(&self) -> String {
        let money = |usd: f64, what: &str| (usd > 0.0).then(|| format!("{} {what}", dollars(usd)));
        let times = |number: u32, what: &str| (number > 0).then(|| count(number, what));
        let parts = [
            money(self.wasted_usd, "wasted"),
            money(self.saved_usd, "saved"),
            times(self.fallbacks, "fallback"),
            times(self.failed_steps.unwrap_or_default(), "failed step"),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
    }
}

/// An amount for people, as [`Cost`] shows it.
pub(crate) fn dollars(usd: f64) -> String {
    Cost::from_usd(usd).map_or_else(|| format!("${usd:.6}"), |cost| cost.to_string())
}

/// A number of things, such as `1 step` or `2 steps`.
pub(crate) fn count(number: impl TryInto<u64>, thing: &str) -> String {
    match number.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {thing}"),
        number => format!("{number} {thing}s"),
    }
}

/// Milliseconds since the Unix epoch; 0 before it.
pub(crate) fn unix_ms(at: &Timestamp) -> u64 {
    let seconds = u64::try_from(at.seconds).unwrap_or_default();
    seconds * 1000 + u64::try_from(at.nanos).unwrap_or_default() / 1_000_000
}

fn span_ms(from: Option<&Timestamp>, to: Option<&Timestamp>) -> Option<u64> {
    Some(unix_ms(to?).saturating_sub(unix_ms(from?)))
}

fn usd(nano: u64) -> f64 {
    Cost::from_nano_usd(nano).usd()
}

fn run_state(state: v1::RunState) -> &'static str {
    match state {
        v1::RunState::Unspecified => "unknown",
        v1::RunState::Active => "active",
        v1::RunState::Suspended => "suspended",
        v1::RunState::Succeeded => "succeeded",
        v1::RunState::Failed => "failed",
        v1::RunState::Cancelled => "cancelled",
    }
}

fn task_state(state: v1::TaskState) -> &'static str {
    match state {
        v1::TaskState::Unspecified => "unknown",
        v1::TaskState::Waiting => "waiting",
        v1::TaskState::Ready => "ready",
        v1::TaskState::Running => "running",
        v1::TaskState::Calling => "calling",
        v1::TaskState::Done => "done",
        v1::TaskState::Skipped => "skipped",
        v1::TaskState::Failed => "failed",
        v1::TaskState::Cancelled => "cancelled",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_a_refusal_says_that_the_run_was_planned_anew() {
        let message = "step 1 (worker `quick`) failed, and the answer needs it: no".to_owned();
        let corrects = Some(v1::Failure { code: "step_failed".to_owned(), message });
        let rounds = vec![v1::Round::default(), v1::Round { corrects, ..v1::Round::default() }];
        let run = v1::Run {
            refused: true,
            answer: Some("I only do dates.".to_owned()),
            rounds,
            ..v1::Run::default()
        };
        let notices: Vec<_> = RunReport::of(&run).notices().collect();
        let expected =
            "the run was planned anew: step 1 (worker `quick`) failed, and the answer needs it: no";
        assert_eq!(notices, [expected]);
    }

    #[test]
    fn a_line_shows_waste_savings_and_fallbacks_if_any() {
        let plain = v1::RunSummary {
            run_id: "r1".to_owned(),
            state: v1::RunState::Succeeded.into(),
            model: "podium-ultra".to_owned(),
            question: "Why is\nthe sky blue?".to_owned(),
            steps: 3,
            accept_time: Some(Timestamp { seconds: 1_795_392_000, nanos: 5 }),
            cost_nano_usd: 5_000_000,
            ..v1::RunSummary::default()
        };
        let line = |run: &v1::RunSummary| SummaryReport::of(run).line();
        assert_eq!(
            line(&plain),
            "r1  2026-11-23T00:00:00Z  succeeded  3 steps  $0.005000  podium-ultra  Why is the sky blue?"
        );
        let deviations = v1::RunSummary {
            wasted_cost_nano_usd: 1_000_000,
            saved_cost_nano_usd: 2_000_000,
            fallbacks: 1,
            ..plain
        };
        let expected = "$0.005000 ($0.001000 wasted, $0.002000 saved, 1 fallback)  podium-ultra";
        assert!(line(&deviations).contains(expected), "{}", line(&deviations));
    }

    #[test]
    fn a_line_says_in_place_of_succeeded_what_the_answer_lacks() {
        let run = |failed_steps, degraded, refused| v1::RunSummary {
            run_id: "01234567-89ab-7def-8123-456789abcdef".to_owned(),
            state: v1::RunState::Succeeded.into(),
            accept_time: Some(Timestamp { seconds: 1_795_392_000, nanos: 0 }),
            failed_steps,
            degraded,
            refused,
            ..v1::RunSummary::default()
        };
        let line = |run: &v1::RunSummary| SummaryReport::of(run).line();
        let unknown = line(&run(None, None, None));
        assert_eq!(line(&run(Some(0), Some(false), Some(false))), unknown, "nothing is lacking");
        assert!(unknown.contains("  succeeded  0 steps  $0.000000  "), "{unknown}");
        let degraded = line(&run(Some(2), Some(true), Some(false)));
        assert!(degraded.contains("  degraded   0 steps  $0.000000 (2 failed steps)  "), "{degraded}");
        assert!(line(&run(Some(0), Some(false), Some(true))).contains("  refused    0 steps  $0.000000  "));
        // It stands within the first 80 columns.
        assert!(degraded.find("degraded").is_some_and(|at| at + "degraded".len() <= 80), "{degraded}");
    }
}
