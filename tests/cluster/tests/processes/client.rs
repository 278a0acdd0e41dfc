//! A careful client: it sends a request id, tries other gateways, and resumes its watch after the last event.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use podium_api::v1;
use podium_api::v1::podium_service_client::PodiumServiceClient;
use podium_api::v1::run_event::Kind;
use podium_api::v1::watch_run_response::Update;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};

use crate::texts::Texts;
use crate::workflow::{TOOL, TOOL_RESULT};

/// Longest time of a unary call: longer than a gateway waits for Postgres.
const CALL_MAX: Duration = Duration::from_secs(10);
/// Longest silence of a watch: more than two heartbeats.
const SILENCE_MAX: Duration = Duration::from_secs(40);
const PAUSE: Duration = Duration::from_millis(200);
/// Longest time for a run, and for the gateways to accept it.
const PATIENCE: Duration = Duration::from_mins(4);

/// A client with one request.
pub(crate) struct Client {
    gateways: Vec<SocketAddr>,
    number: u64,
    turns: usize,
    sequence: u64,
    texts: Texts,
    resumed: usize,
    succeeded: Option<v1::Succeeded>,
    offers_tool: bool,
    /// Whether the run waits for the results of its tool calls.
    is_suspended: bool,
    tool_turns: usize,
    faults: Vec<String>,
}

/// The outcome of a request.
pub(crate) struct Ended {
    pub(crate) number: u64,
    /// None if no gateway accepted it.
    pub(crate) run_id: Option<String>,
    pub(crate) answer: Option<String>,
    /// Faults that a client must never see.
    pub(crate) faults: Vec<String>,
    /// The number of times that it had to call a gateway again.
    pub(crate) turns: usize,
    /// The number of streams that broke in the middle of a text and were resumed at another gateway.
    pub(crate) resumed: usize,
    /// Turns of steps that ended with tool calls.
    pub(crate) tool_turns: usize,
    /// Bytes of streamed text that were compared with the outputs.
    pub(crate) compared_bytes: usize,
    /// The attempts at steps that were lost.
    pub(crate) lost_attempts: Vec<LostAttempt>,
    /// The attempts at steps that were handed back.
    pub(crate) handed_back: Vec<LostAttempt>,
    pub(crate) asked_at: Instant,
    pub(crate) answered_at: Instant,
}

/// An attempt whose call, if any, is repeated.
#[derive(Clone, Debug)]
pub(crate) struct LostAttempt {
    /// The process that made it.
    pub(crate) executor: String,
    /// The approximate time of the record.
    pub(crate) ended_at: Instant,
}

impl Client {
    pub(crate) fn new(gateways: Vec<SocketAddr>, number: u64) -> Self {
        let (turns, sequence, resumed) = (usize::try_from(number).unwrap_or_default(), 0, 0);
        let (texts, faults) = (Texts::default(), Vec::new());
        Self {
            gateways,
            number,
            turns,
            sequence,
            texts,
            resumed,
            succeeded: None,
            offers_tool: false,
            is_suspended: false,
            tool_turns: 0,
            faults,
        }
    }

    /// Offers a tool, and sends the results of its calls.
    pub(crate) fn with_tool(mut self) -> Self {
        self.offers_tool = true;
        self
    }

    /// Asks until the run ends, or until the time limit.
    pub(crate) async fn ask(mut self) -> Ended {
        let (asked_at, first_turn) = (Instant::now(), self.turns);
        let run_id = timeout(PATIENCE, self.create()).await.ok();
        let mut run = None;
        if let Some(id) = &run_id {
            run = timeout(PATIENCE, self.follow(id)).await.ok();
        }
        let answer = run.as_ref().and_then(|run| run.answer.clone());
        if let Some(by) = self.succeeded.take() {
            self.texts.answered(by, answer.as_deref());
        }
        let Self { number, mut faults, turns, resumed, tool_turns, texts, .. } = self;
        faults.extend(texts.faults);
        let (turns, compared_bytes, answered_at) = (turns - first_turn, texts.compared_bytes, Instant::now());
        let attempts = |is: fn(v1::AttemptOutcome) -> bool| {
            run.as_ref().map(|run| attempts_that(run, answered_at, is)).unwrap_or_default()
        };
        // This includes attempts that reported their usage later.
        let is_lost = |it| matches!(it, v1::AttemptOutcome::Lost | v1::AttemptOutcome::Unused);
        let (lost_attempts, handed_back) =
            (attempts(is_lost), attempts(|it| it == v1::AttemptOutcome::HandedBack));
        Ended {
            number,
            run_id,
            answer,
            faults,
            turns,
            resumed,
            tool_turns,
            compared_bytes,
            lost_attempts,
            handed_back,
            asked_at,
            answered_at,
        }
    }

    async fn create(&mut self) -> String {
        loop {
            let request = v1::CreateRunRequest {
                request_id: format!("request-{}", self.number),
                messages: vec![v1::Message {
                    role: v1::Role::User.into(),
                    text: self.number.to_string(),
                    ..Default::default()
                }],
                tools: self.offers_tool.then(tool).into_iter().collect(),
                policy: Some(v1::Policy { attempts_max: Some(10), ..v1::Policy::default() }),
                ..v1::CreateRunRequest::default()
            };
            if let Some(mut gateway) = self.connect().await
                && let Ok(Ok(response)) = timeout(CALL_MAX, gateway.create_run(request)).await
                && let Some(run) = response.into_inner().run
            {
                return run.run_id;
            }
            crate::pause(PAUSE).await;
        }
    }

    /// Waits for the end of the run.
    async fn follow(&mut self, run_id: &str) -> v1::Run {
        loop {
            self.texts.begin_watch();
            if self.watch(run_id).await.is_none() {
                self.resumed += usize::from(self.texts.are_under_way());
            } else if let Some(run) = self.read(run_id).await
                && run.end_time.is_some()
            {
                return run;
            }
            crate::pause(PAUSE).await;
        }
    }

    /// Resumes the watch after the last event. `None` if the stream breaks.
    async fn watch(&mut self, run_id: &str) -> Option<()> {
        self.give_results(run_id).await?;
        let mut gateway = self.connect().await?;
        let request = v1::WatchRunRequest { run_id: run_id.to_owned(), after_sequence: self.sequence };
        let mut updates = timeout(CALL_MAX, gateway.watch_run(request)).await.ok()?.ok()?.into_inner();
        while let Some(update) = timeout(SILENCE_MAX, updates.message()).await.ok()?.ok()? {
            match update.update {
                Some(Update::Event(event)) => {
                    self.see(event);
                    self.give_results(run_id).await?;
                }
                Some(Update::StepText(text)) => self.texts.text(&text),
                Some(Update::StepRestarted(restarted)) => self.texts.restarted(restarted),
                _ => {}
            }
        }
        Some(())
    }

    /// Checks that events have no gap, over all watches.
    fn see(&mut self, event: v1::RunEvent) {
        if event.sequence != self.sequence + 1 {
            self.faults.push(format!("event {} after {}", event.sequence, self.sequence));
        }
        self.sequence = event.sequence;
        match event.kind {
            Some(Kind::StepDone(done)) => self.texts.done(&done),
            Some(Kind::StepCalled(called)) => {
                self.tool_turns += 1;
                self.texts.called(&called);
            }
            Some(Kind::Suspended(_)) => self.is_suspended = true,
            Some(Kind::ResultsGiven(_)) => self.is_suspended = false,
            Some(Kind::Succeeded(succeeded)) => self.succeeded = Some(succeeded),
            _ => {}
        }
    }

    /// Sends the results of the calls that a suspended run waits for. `None` if no gateway confirms them.
    async fn give_results(&mut self, run_id: &str) -> Option<()> {
        if !self.is_suspended {
            return Some(());
        }
        let run = self.read(run_id).await?;
        if run.state() != v1::RunState::Suspended {
            // An earlier request gave the results, and its answer was lost.
            self.is_suspended = false;
            return Some(());
        }
        let result = |call: v1::ToolCall| v1::ToolResult {
            call_id: call.id,
            output: TOOL_RESULT.to_owned(),
            ..v1::ToolResult::default()
        };
        let results = run.tool_calls.into_iter().map(result).collect();
        let request = v1::SubmitToolResultsRequest { run_id: run_id.to_owned(), results };
        let mut gateway = self.connect().await?;
        timeout(CALL_MAX, gateway.submit_tool_results(request)).await.ok()?.ok()?;
        self.is_suspended = false;
        Some(())
    }

    async fn read(&mut self, run_id: &str) -> Option<v1::Run> {
        let request = v1::GetRunRequest { run_id: run_id.to_owned() };
        let mut gateway = self.connect().await?;
        timeout(CALL_MAX, gateway.get_run(request)).await.ok()?.ok()?.into_inner().run
    }

    /// Connects to a gateway, each time another one.
    async fn connect(&mut self) -> Option<PodiumServiceClient<Channel>> {
        self.turns += 1;
        connect(self.gateways[self.turns % self.gateways.len()]).await
    }
}

fn tool() -> v1::Tool {
    v1::Tool { name: TOOL.to_owned(), parameters: "{}".to_owned(), ..v1::Tool::default() }
}

/// Connects to a gateway.
pub(crate) async fn connect(address: SocketAddr) -> Option<PodiumServiceClient<Channel>> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).ok()?;
    let channel = endpoint.connect_timeout(CALL_MAX).connect().await.ok()?;
    Some(PodiumServiceClient::new(channel))
}

/// The attempts at steps with this outcome, in a run that has just ended.
fn attempts_that(run: &v1::Run, now: Instant, is: fn(v1::AttemptOutcome) -> bool) -> Vec<LostAttempt> {
    let ms = |at: Option<prost_types::Timestamp>| {
        at.map_or(0, |at| {
            u64::try_from(at.seconds * 1_000 + i64::from(at.nanos) / 1_000_000).unwrap_or_default()
        })
    };
    let steps = run.rounds.iter().flat_map(|round| &round.steps);
    let attempts = steps.flat_map(|step| &step.attempts).filter(|attempt| is(attempt.outcome()));
    attempts
        .map(|attempt| {
            let ago = Duration::from_millis(ms(run.end_time).saturating_sub(ms(attempt.end_time)));
            LostAttempt { executor: attempt.executor.clone(), ended_at: now.checked_sub(ago).unwrap_or(now) }
        })
        .collect()
}
