//! The known state of a run while it happens, folded from its updates.

use std::time::{Duration, Instant};

use podium_api::v1::run_event::Kind;
use podium_api::v1::watch_run_response::Update;
use podium_api::v1::{self, WatchRunResponse};

use crate::report::unix_ms;

/// Most characters of live text that are kept for drawing.
const LIVE_CHARS_MAX: usize = 400;

/// The state of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RowState {
    /// It waits for earlier steps.
    Waiting,
    /// It can begin.
    Ready,
    /// It is under way.
    Running,
    /// Done.
    Done,
    /// It failed for good.
    Failed,
}

/// The planning of a round, or a step.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Its worker.
    pub(crate) worker: String,
    /// Its subtask.
    pub(crate) subtask: String,
    /// Positions of the steps that it sees.
    pub(crate) access: Vec<u32>,
    /// Whether it sees the previous round, too.
    pub(crate) sees_earlier_round: bool,
    /// Its state.
    pub(crate) state: RowState,
    /// The number of the current or last attempt.
    pub(crate) attempt: u32,
    /// Its output.
    pub(crate) output: Option<String>,
    /// The end of its live text.
    pub(crate) live: String,
    /// Its last error.
    pub(crate) error: Option<String>,
    /// The cost of all attempts so far.
    pub(crate) cost_nano_usd: u64,
    /// The saved cost of a call, if the output came from the step cache.
    pub(crate) saved_nano_usd: Option<u64>,
    clock: Clock,
}

/// The begin and end of a row: by the server's clock if it is over, otherwise by this machine's.
#[derive(Clone, Debug, Default)]
struct Clock {
    began_ms: Option<u64>,
    ended_ms: Option<u64>,
    seen: Option<Instant>,
}

impl Row {
    fn of_step(step: &v1::PlannedStep) -> Self {
        let access = step.access.clone();
        Self { access, sees_earlier_round: step.sees_earlier_round, ..Self::new(&step.worker, &step.subtask) }
    }

    fn new(worker: &str, subtask: &str) -> Self {
        Self {
            worker: worker.to_owned(),
            subtask: subtask.to_owned(),
            access: Vec::new(),
            sees_earlier_round: false,
            state: RowState::Waiting,
            attempt: 0,
            output: None,
            live: String::new(),
            error: None,
            cost_nano_usd: 0,
            saved_nano_usd: None,
            clock: Clock::default(),
        }
    }

    /// Its duration so far; `None` before it began.
    pub(crate) fn elapsed(&self) -> Option<Duration> {
        match (self.clock.began_ms, self.clock.ended_ms) {
            (Some(began), Some(ended)) => Some(Duration::from_millis(ended.saturating_sub(began))),
            _ => self.clock.seen.map(|seen| seen.elapsed()),
        }
    }

    fn begin(&mut self, attempt: u32, at_ms: u64) {
        self.state = RowState::Running;
        self.attempt = attempt;
        self.live.clear();
        self.clock.began_ms.get_or_insert(at_ms);
        self.clock.seen.get_or_insert_with(Instant::now);
        self.clock.ended_ms = None;
    }

    fn end(&mut self, state: RowState, at_ms: u64) {
        self.state = state;
        self.live.clear();
        self.clock.ended_ms = Some(at_ms);
    }

    /// Ends an attempt that gave no output.
    fn fail(&mut self, state: RowState, error: &str, cost_nano_usd: u64, at_ms: u64) {
        self.cost_nano_usd += cost_nano_usd;
        self.error = Some(error.to_owned());
        self.end(state, at_ms);
    }

    fn write(&mut self, text: &str) {
        self.live.push_str(text);
        let excess = self.live.chars().count().saturating_sub(LIVE_CHARS_MAX);
        self.live = self.live.chars().skip(excess).collect();
    }
}

/// One workflow.
#[derive(Clone, Debug)]
pub(crate) struct RoundRows {
    /// Its planning.
    pub(crate) planning: Row,
    /// Its steps.
    pub(crate) steps: Vec<Row>,
}

/// The end of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With an answer.
    Succeeded,
    /// Without one.
    Failed(String),
    /// Cancelled.
    Cancelled,
}

/// The state that is drawn.
#[derive(Clone, Debug)]
pub(crate) struct Board {
    /// The question.
    pub(crate) question: String,
    /// The workflows so far.
    pub(crate) rounds: Vec<RoundRows>,
    /// The end of the run, if it has ended.
    pub(crate) end: Option<End>,
    conductor: String,
    sequence: u64,
    accepted_ms: u64,
    now_ms: u64,
}

impl Board {
    /// A board before the first event.
    pub(crate) fn new(question: String) -> Self {
        let (conductor, rounds) = (String::new(), Vec::new());
        Self { question, rounds, end: None, conductor, sequence: 0, accepted_ms: 0, now_ms: 0 }
    }

    /// The sequence number of the last event.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Time from acceptance to the last event.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_millis(self.now_ms.saturating_sub(self.accepted_ms))
    }

    /// The cost of all steps and plans so far.
    pub(crate) fn cost_nano_usd(&self) -> u64 {
        self.rows().map(|row| row.cost_nano_usd).sum()
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rounds.iter().flat_map(|round| std::iter::once(&round.planning).chain(&round.steps))
    }

    /// The row of a task, if it exists.
    pub(crate) fn row(&self, round: u32, step: Option<u32>) -> Option<&Row> {
        let round = self.rounds.get(round as usize)?;
        match step {
            None => Some(&round.planning),
            Some(step) => round.steps.get(step as usize),
        }
    }

    fn row_mut(&mut self, round: u32, step: Option<u32>) -> Option<&mut Row> {
        let round = self.rounds.get_mut(round as usize)?;
        match step {
            None => Some(&mut round.planning),
            Some(step) => round.steps.get_mut(step as usize),
        }
    }

    fn task_row(&mut self, task: Option<&v1::Task>) -> Option<&mut Row> {
        let task = task?;
        self.row_mut(task.round, task.step)
    }

    /// Folds an update in. Unknown updates are ignored: a newer server may send more than this program knows.
    pub(crate) fn apply(&mut self, update: &WatchRunResponse) {
        match &update.update {
            Some(Update::Event(event)) => {
                self.sequence = event.sequence;
                self.now_ms = event.time.as_ref().map_or(self.now_ms, unix_ms);
                if let Some(kind) = &event.kind {
                    self.apply_event(kind);
                }
            }
            Some(Update::PlanningText(text)) => {
                if let Some(row) = self.row_mut(text.round, None) {
                    row.write(&text.text);
                }
            }
            Some(Update::StepText(text)) => {
                if let Some(row) = self.row_mut(text.round, Some(text.step)) {
                    row.write(&text.text);
                }
            }
            Some(Update::StepRestarted(restarted)) => {
                if let Some(row) = self.row_mut(restarted.round, Some(restarted.step)) {
                    row.live.clear();
                }
            }
            Some(Update::StepReasoning(_) | Update::StepToolCall(_) | Update::Heartbeat(_)) | None => {}
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for every event")]
    fn apply_event(&mut self, kind: &Kind) {
        let now = self.now_ms;
        match kind {
            Kind::Accepted(accepted) => {
                self.accepted_ms = now;
                self.conductor.clone_from(&accepted.conductor);
                self.open_round();
            }
            Kind::RoundOpened(_) => self.open_round(),
            Kind::StepsPlanned(planned) => self.add_steps(planned.round, &planned.steps),
            Kind::StepsSuperseded(superseded) => self.supersede(*superseded),
            Kind::PlanReady(plan) => self.plan_ready(plan),
            Kind::AnswerKept(kept) => {
                if let Some(row) = self.row_mut(kept.round, None) {
                    row.end(RowState::Done, now);
                    row.cost_nano_usd += kept.cost_nano_usd;
                    row.output = Some("the answer is kept".to_owned());
                }
            }
            Kind::StepReady(ready) => {
                if let Some(row) = self.row_mut(ready.round, Some(ready.step)) {
                    row.state = RowState::Ready;
                }
            }
            Kind::AttemptStarted(started) => {
                if let Some(row) = self.task_row(started.task.as_ref()) {
                    row.begin(started.attempt, now);
                }
            }
            Kind::StepDone(done) => {
                if let Some(row) = self.row_mut(done.round, Some(done.step)) {
                    row.end(RowState::Done, now);
                    row.cost_nano_usd += done.cost_nano_usd;
                    row.saved_nano_usd = done.saved.as_ref().map(|saved| saved.cost_nano_usd);
                    row.output = Some(done.output.clone());
                }
            }
            Kind::StepSkipped(skipped) => {
                let output =
                    self.row(skipped.round, Some(skipped.same_as)).and_then(|row| row.output.clone());
                if let Some(row) = self.row_mut(skipped.round, Some(skipped.step)) {
                    row.end(RowState::Done, now);
                    row.output = output;
                }
            }
            Kind::StepCalled(called) => {
                if let Some(row) = self.row_mut(called.round, Some(called.step)) {
                    row.state = RowState::Waiting;
                    row.cost_nano_usd += called.cost_nano_usd;
                }
            }
            Kind::ResultsGiven(_) | Kind::Suspended(_) => {}
            Kind::FellBack(back) => {
                if let Some(row) = self.row_mut(back.round, Some(back.step)) {
                    row.worker.clone_from(&back.worker);
                }
            }
            Kind::RoundAbandoned(abandoned) => self.abandon(abandoned),
            Kind::Succeeded(_) => self.end = Some(End::Succeeded),
            Kind::Failed(failed) => {
                let message = failed.failure.as_ref().map(|failure| failure.message.clone());
                self.end = Some(End::Failed(message.unwrap_or_default()));
            }
            Kind::Cancelled(_) => self.end = Some(End::Cancelled),
            Kind::AttemptFailed(failed) => {
                if let Some(row) = self.task_row(failed.task.as_ref()) {
                    row.fail(RowState::Ready, &failed.error, failed.cost_nano_usd, now);
                }
            }
            Kind::AttemptLost(lost) => {
                if let Some(row) = self.task_row(lost.task.as_ref()) {
                    row.fail(RowState::Ready, "its process stopped responding", 0, now);
                }
            }
            Kind::TaskFailed(failed) => {
                if let Some(row) = self.task_row(failed.task.as_ref()) {
                    row.fail(RowState::Failed, &failed.error, failed.cost_nano_usd, now);
                }
            }
            Kind::ResultUnused(unused) => {
                if let Some(row) = self.task_row(unused.task.as_ref()) {
                    row.cost_nano_usd += unused.cost_nano_usd;
                }
            }
        }
    }

    fn open_round(&mut self) {
        let planning = Row::new(&self.conductor, "plan");
        self.rounds.push(RoundRows { planning, steps: Vec::new() });
    }

    fn plan_ready(&mut self, plan: &v1::PlanReady) {
        let now = self.now_ms;
        let Some(round) = self.rounds.get_mut(plan.round as usize) else { return };
        round.planning.end(RowState::Done, now);
        round.planning.cost_nano_usd += plan.cost_nano_usd;
        round.planning.error.clone_from(&plan.fallback);
        round.planning.output = Some(match plan.steps.len() {
            1 => "1 step".to_owned(),
            steps => format!("{steps} steps"),
        });
        self.add_steps(plan.round, &plan.steps);
    }

    /// Adds the missing steps.
    fn add_steps(&mut self, round: u32, steps: &[v1::PlannedStep]) {
        let Some(round) = self.rounds.get_mut(round as usize) else { return };
        let fresh = steps.iter().skip(round.steps.len());
        round.steps.extend(fresh.map(Row::of_step));
    }

    /// Rows that have not ended by then never end.
    fn abandon(&mut self, abandoned: &v1::RoundAbandoned) {
        let now = self.now_ms;
        let Some(round) = self.rounds.get_mut(abandoned.round as usize) else { return };
        for row in std::iter::once(&mut round.planning).chain(&mut round.steps) {
            if !matches!(row.state, RowState::Done | RowState::Failed) {
                row.error = abandoned.failure.as_ref().map(|failure| failure.message.clone());
                row.end(RowState::Failed, now);
            }
        }
    }

    fn supersede(&mut self, superseded: v1::StepsSuperseded) {
        let now = self.now_ms;
        let Some(round) = self.rounds.get_mut(superseded.round as usize) else { return };
        for row in round.steps.iter_mut().take(superseded.steps as usize) {
            if !matches!(row.state, RowState::Done | RowState::Failed) {
                row.end(RowState::Failed, now);
            }
            row.error = Some("superseded: the plan continued without it".to_owned());
        }
    }
}
