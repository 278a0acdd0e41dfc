//! Watches a run, and resumes by itself after a lost connection.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::{self, BoxStream, Stream, StreamExt};
use tokio::time::{Instant, timeout};
use tonic::{Status, Streaming};

use crate::client::Client;
use crate::error::{CallError, Error};
use crate::live::Live;
use crate::retry::wait;
use crate::v1::run_event::Kind;
use crate::v1::watch_run_response::Update;
use crate::v1::{RunState, WatchRunRequest, WatchRunResponse};

const METHOD: &str = "WatchRun";
/// Three missing heartbeats: the connection is lost.
const SILENCE_MAX: Duration = Duration::from_secs(45);

/// The updates of a run, until it has ended.
///
/// Events have consecutive sequence numbers: a lost connection causes neither a gap nor a repetition. Live text is never
/// repeated. Live text that was written while the connection was lost may be missing; events that follow have it. After a lost
/// connection, the rest of a planning text or of a tool call that was interrupted is left out.
///
/// The stream ends after an error: one that no retry repairs, or a connection that was lost for longer than
/// [`RetryPolicy::resume_within`](crate::RetryPolicy). [`Self::sequence`] is then the place from which another watch continues.
pub struct Watch {
    updates: BoxStream<'static, Result<Update, Error>>,
    sequence: u64,
}

impl Watch {
    pub(crate) fn new(client: Client, run_id: String, after: u64) -> Self {
        let state = Connection {
            client,
            run_id,
            sequence: after,
            live: Live::default(),
            stream: None,
            failures: 0,
            heard_at: Instant::now(),
            is_final: false,
        };
        let updates = stream::unfold(Some(state), |state| async {
            let mut state = state?;
            match state.next().await {
                Ok(Some(update)) => Some((Ok(update), Some(state))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        });
        Self { updates: updates.boxed(), sequence: after }
    }

    /// The sequence number of the last event that the caller has.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The next update. None: the run has ended.
    pub async fn next(&mut self) -> Option<Result<Update, Error>> {
        StreamExt::next(self).await
    }
}

impl Stream for Watch {
    type Item = Result<Update, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = self.updates.poll_next_unpin(context);
        if let Poll::Ready(Some(Ok(Update::Event(event)))) = &item {
            self.sequence = event.sequence;
        }
        item
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

struct Connection {
    client: Client,
    run_id: String,
    /// That of the last event that the caller has.
    sequence: u64,
    live: Live,
    stream: Option<Streaming<WatchRunResponse>>,
    /// Failures since the last message.
    failures: u32,
    /// Time of the last message.
    heard_at: Instant,
    /// Whether the caller has the run's final event.
    is_final: bool,
}

impl Connection {
    async fn next(&mut self) -> Result<Option<Update>, Error> {
        loop {
            match self.message().await {
                Ok(Some(message)) => {
                    self.failures = 0;
                    self.heard_at = Instant::now();
                    if let Some(update) = message.update.and_then(|update| self.unseen(update)) {
                        return Ok(Some(update));
                    }
                }
                Ok(None) if self.is_over().await? => return Ok(None),
                Ok(None) => self.resume(Status::unavailable("the watch ended before the run")).await?,
                Err(status) => self.resume(status).await?,
            }
        }
    }

    /// Returns the next message of the stream, which is opened first if there is none.
    async fn message(&mut self) -> Result<Option<WatchRunResponse>, Status> {
        let silent = |_elapsed| Status::unavailable("the server was silent for 45 seconds");
        let stream = if let Some(stream) = &mut self.stream {
            stream
        } else {
            let request = WatchRunRequest { run_id: self.run_id.clone(), after_sequence: self.sequence };
            let mut service = self.client.service();
            let opened = timeout(SILENCE_MAX, service.watch_run(request)).await.map_err(silent)??;
            self.stream.insert(opened.into_inner())
        };
        timeout(SILENCE_MAX, stream.message()).await.map_err(silent)?
    }

    /// The update, unless the caller has it. An event that does not follow the last one ends the connection.
    fn unseen(&mut self, update: Update) -> Option<Update> {
        if let Update::Event(event) = &update {
            if event.sequence <= self.sequence {
                return None;
            }
            if event.sequence != self.sequence.saturating_add(1) {
                self.stream = None;
                return None;
            }
            self.sequence = event.sequence;
            self.is_final |=
                matches!(event.kind, Some(Kind::Succeeded(_) | Kind::Failed(_) | Kind::Cancelled(_)));
        }
        self.live.unseen(update)
    }

    /// Whether a stream that ended without an error was complete.
    async fn is_over(&self) -> Result<bool, Error> {
        if self.is_final {
            return Ok(true);
        }
        let run = self.client.get(&self.run_id).await?;
        let has_ended = matches!(run.state(), RunState::Succeeded | RunState::Failed | RunState::Cancelled);
        Ok(has_ended && run.sequence <= self.sequence)
    }

    /// Waits until the connection may be opened again. Fails if no retry can help, or if it would come too late.
    async fn resume(&mut self, status: Status) -> Result<(), Error> {
        self.stream = None;
        self.live.interrupt();
        let error = CallError::new(METHOD, status);
        self.failures = self.failures.saturating_add(1);
        let retry = self.client.retry();
        let pause = retry.pause(self.failures, &error);
        if !error.is_transient() || self.heard_at.elapsed() + pause > retry.resume_within {
            return Err(Box::new(error).into());
        }
        wait(pause).await;
        Ok(())
    }
}
