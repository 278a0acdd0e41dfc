//! A conductor that writes at a given speed, and workers that answer after a given time. Neither thinks.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::{StreamExt as _, stream};
use podium_domain::money::Cost;
use podium_domain::plan::PlanDraft;
use podium_domain::policy::{FailedStep, STEPS_MAX};
use podium_domain::pool::{Pool, Worker};
use podium_domain::run::{PlanResult, Planned};
use podium_domain::usage::Usage;
use podium_ports::clock::Clock;
use podium_ports::conductor::{Abilities, Conductor, ConductorError, PlanOutcome, PlanRequest, TextSink};
use podium_ports::vendor::{ChatEvent, ChatRequest, ChatStream, FinishReason, VendorError, Vendors};
use tokio_util::sync::CancellationToken;

/// Bytes of a token. English text has about four.
const BYTES_PER_TOKEN: usize = 4;

/// The shape of a run, as its question says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Course {
    /// Tokens a second.
    pub(crate) rate: u32,
    pub(crate) shape: Shape,
    pub(crate) steps: u32,
}

/// Who sees what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Each step sees the one before it.
    Chain,
    /// The last step sees all others, which see nothing.
    Fan,
}

impl Shape {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Chain => "chain",
            Self::Fan => "fan",
        }
    }

    fn access(self, step: u32, steps: u32) -> Vec<u32> {
        match self {
            Self::Chain => step.checked_sub(1).into_iter().collect(),
            Self::Fan if step + 1 == steps => (0..step).collect(),
            Self::Fan => Vec::new(),
        }
    }
}

impl fmt::Display for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.rate, self.shape.name(), self.steps)
    }
}

impl FromStr for Course {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a speed, a shape and a number of steps");
        let [rate, shape, steps] = text.split(' ').collect::<Vec<_>>()[..] else { return Err(wrong()) };
        let shape = [Shape::Chain, Shape::Fan].into_iter().find(|known| known.name() == shape);
        let number = |text: &str| text.parse().ok();
        number(rate)
            .zip(number(steps))
            .zip(shape)
            .map(|((rate, steps), shape)| Self { rate, shape, steps })
            .ok_or_else(wrong)
    }
}

/// When the first step begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// When it is written.
    ForTheStep,
    /// When the whole plan is written.
    ForThePlan,
}

/// The list that is written last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Order {
    /// As the plan format has it.
    AccessLast,
    /// As no conductor of ours writes.
    SubtasksLast,
}

/// Writes the plan that the question asks for.
pub(crate) struct SimulatedConductor {
    pub(crate) pool: Arc<Pool>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) waits: Waits,
    pub(crate) reasoning_tokens: usize,
    pub(crate) subtask_tokens: usize,
    pub(crate) order: Order,
}

impl SimulatedConductor {
    fn text(&self, course: Course) -> String {
        let words = |tokens: usize| "word".repeat(tokens);
        let list =
            |element: &dyn Fn(u32) -> String| (0..course.steps).map(element).collect::<Vec<_>>().join(", ");
        let subtasks = list(&|step| format!("\"{step} {}\"", words(self.subtask_tokens)));
        let access = list(&|step| format!("{:?}", course.shape.access(step, course.steps)));
        let [subtasks, access] = [format!("subtasks = [{subtasks}]"), format!("access_list = [{access}]")];
        let [second, third] = match self.order {
            Order::AccessLast => [subtasks, access],
            Order::SubtasksLast => [access, subtasks],
        };
        let (reasoning, ids) = (words(self.reasoning_tokens), list(&|_| "0".to_owned()));
        format!("{reasoning}\nmodel_id = [{ids}]\n{second}\n{third}\n")
    }
}

#[async_trait]
impl Conductor for SimulatedConductor {
    fn id(&self) -> &'static str {
        "simulated-1"
    }

    fn abilities(&self) -> Abilities {
        Abilities { steps_max: STEPS_MAX, rounds_max: 1, failed_step: FailedStep::Fail }
    }

    async fn plan(
        &self,
        request: &PlanRequest,
        text: TextSink<'_>,
        stop: &CancellationToken,
    ) -> Result<PlanOutcome, ConductorError> {
        let unusable = |message: String| ConductorError::Unavailable(message.into());
        let course: Course = request.question.parse().map_err(unusable)?;
        let (written, begun) = (self.text(course), Instant::now());
        let tokens = written.as_bytes().chunks(BYTES_PER_TOKEN);
        for (number, token) in (1u32..).zip(tokens) {
            let due = Duration::from_secs(1) * number / course.rate;
            tokio::select! {
                biased;
                () = stop.cancelled() => return Err(ConductorError::Stopped),
                () = self.clock.sleep(due.saturating_sub(begun.elapsed())) => {}
            }
            text(&String::from_utf8_lossy(token));
        }
        let draft = PlanDraft::parse(&written).map_err(|error| unusable(error.to_string()))?;
        let plan = draft.check(&self.pool, &request.policy).map_err(|error| unusable(error.to_string()))?;
        let planned = Planned { plan, reasoning: String::new(), fallback: None };
        Ok(PlanOutcome { result: PlanResult::Plan(planned), usage: Usage::default(), cost: Cost::ZERO })
    }

    fn pool_in_text(&self) -> Option<&Pool> {
        match self.waits {
            Waits::ForTheStep => Some(&self.pool),
            Waits::ForThePlan => None,
        }
    }
}

/// Workers that say one word after a while.
pub(crate) struct SimulatedWorkers {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) answer_after: Duration,
}

#[async_trait]
impl Vendors for SimulatedWorkers {
    async fn chat(&self, _: &Worker, _: &ChatRequest) -> Result<ChatStream, VendorError> {
        let (clock, answer_after) = (Arc::clone(&self.clock), self.answer_after);
        let usage = Usage { prompt_tokens: 100, completion_tokens: 1, ..Usage::default() };
        let events = [
            ChatEvent::Delta("done".to_owned()),
            ChatEvent::Finished { reason: FinishReason::Stop, usage: Some(usage) },
        ];
        let wait = stream::once(async move { clock.sleep(answer_after).await });
        let started = stream::iter([Ok(ChatEvent::Started { vendor_request_id: None })]);
        Ok(started.chain(wait.flat_map(move |()| stream::iter(events.clone().map(Ok)))).boxed())
    }
}
