//! Watches a run for a client: the engine's updates as messages, with heartbeats during silence.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use podium_api::v1::watch_run_response::Update as Message;
use podium_api::v1::{self, WatchRunResponse};
use podium_api::{ApiError, AttemptNumbers};
use podium_domain::ids::{RunId, TenantId};
use podium_domain::run::TaskRef;
use podium_domain::trace::TraceId;
use podium_engine::{Engine, ToolCallPiece, Update};
use podium_ports::store::StoreError;
use prost::Message as _;
use tokio_util::sync::CancellationToken;

use crate::connections::Unread;
use crate::error_mapping;
use crate::tenant_streams::OpenStream;
use crate::use_cases;

/// Silence after which a heartbeat is sent.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);

/// A watched run.
pub(crate) struct Watched {
    /// The id of its trace.
    pub(crate) trace: TraceId,
    /// Its updates.
    pub(crate) updates: BoxStream<'static, Result<WatchRunResponse, ApiError>>,
}

struct Watch {
    updates: BoxStream<'static, Result<Update, StoreError>>,
    attempts: AttemptNumbers,
    /// The sequence number of the last event that was sent.
    sequence: u64,
    stop: CancellationToken,
    /// None without a server in front.
    unread: Option<Unread>,
    _open: Option<OpenStream>,
}

/// The updates of a run after event `after`. Ends after its final event, or with an error: when `stop` is cancelled, and when an
/// update is too long for what `unread` can still hold.
pub(crate) async fn watch(
    engine: &Engine,
    tenant: &TenantId,
    id: RunId,
    after: u64,
    stop: CancellationToken,
    unread: Option<Unread>,
    open: Option<OpenStream>,
) -> Result<Watched, ApiError> {
    let run = use_cases::load(engine, tenant, id).await?;
    let (attempts, trace) = (AttemptNumbers::of(&run), run.trace_id());
    let updates = if run.is_ended() {
        engine.history(id, after).map(|event| event.map(Update::Event)).boxed()
    } else {
        engine.watch(id, after).await.map_err(|e| error_mapping::watch_error(id, &e))?
    };
    drop(run);
    let watch = Watch { updates, attempts, sequence: after, stop, unread, _open: open };
    let messages = stream::unfold(Some(watch), |watch| async {
        let mut watch = watch?;
        match watch.next().await? {
            Ok(update) => Some((Ok(update), Some(watch))),
            Err(error) => Some((Err(error), None)),
        }
    });
    Ok(Watched { trace, updates: messages.boxed() })
}

impl Watch {
    async fn next(&mut self) -> Option<Result<WatchRunResponse, ApiError>> {
        let before = self.sequence;
        let update = tokio::select! {
            biased;
            update = tokio::time::timeout(HEARTBEAT_EVERY, self.updates.next()) => update,
            () = self.stop.cancelled() => return Some(Err(error_mapping::stopping())),
        };
        let update = match update {
            Ok(Some(Ok(update))) => self.message(update),
            Ok(Some(Err(error))) => return Some(Err(error_mapping::store_error(&error))),
            Ok(None) => return None,
            Err(_silence) => Message::Heartbeat(v1::Heartbeat { sequence: self.sequence }),
        };
        let message = WatchRunResponse { update: Some(update) };
        let is_admitted = self.unread.as_ref().is_none_or(|unread| unread.admits(message.encoded_len()));
        Some(if is_admitted { Ok(message) } else { Err(error_mapping::overloaded_watch(before)) })
    }

    fn message(&mut self, update: Update) -> Message {
        match update {
            Update::Event(event) => {
                self.sequence = event.sequence;
                Message::Event(podium_api::event(&event, &mut self.attempts))
            }
            Update::Planning { round, text } => {
                Message::PlanningText(v1::PlanningText { round: round.into(), text })
            }
            Update::Reasoning { step, claim, offset, text, is_answer: _ } => {
                Message::StepReasoning(v1::StepReasoning {
                    round: step.round.into(),
                    step: step.step.get().into(),
                    attempt: self.attempts.number(step.into(), claim),
                    offset,
                    text,
                })
            }
            Update::Frame { frame, is_answer } => {
                let task = TaskRef::Step { round: frame.round, step: frame.step };
                Message::StepText(v1::StepText {
                    round: frame.round.into(),
                    step: frame.step.get().into(),
                    attempt: self.attempts.number(task, frame.claim),
                    offset: frame.offset,
                    text: frame.text,
                    is_answer,
                })
            }
            Update::ToolCall { step, claim, index, piece, is_answer } => {
                let (id, name, arguments) = match piece {
                    ToolCallPiece::Begun { id, name } => (id.to_string(), name, String::new()),
                    ToolCallPiece::Arguments(text) => (String::new(), String::new(), text),
                };
                Message::StepToolCall(v1::StepToolCall {
                    round: step.round.into(),
                    step: step.step.get().into(),
                    attempt: self.attempts.number(step.into(), claim),
                    index: u32::try_from(index).unwrap_or(u32::MAX),
                    id,
                    name,
                    arguments,
                    is_answer,
                })
            }
            // Watchers of whole runs have the events themselves.
            Update::Progress(_) => Message::Heartbeat(v1::Heartbeat { sequence: self.sequence }),
            Update::Restarted { round, step } => {
                Message::StepRestarted(v1::StepRestarted { round: round.into(), step: step.get().into() })
            }
        }
    }
}
