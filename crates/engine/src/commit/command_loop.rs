//! The command loop collects the commands of all tasks of the process and carries them out in batches, one commit each. The number
//! of batches in flight is bounded, and a run is in one batch at a time.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use podium_domain::ids::RunId;
use podium_domain::run::Run;
use tokio::sync::{mpsc, oneshot};

use super::batch::{BatchWriter, WriterParts};
use super::request::{Bounds, CommandError, Order, Request};
use super::waiting::{Batch, Waiting};

/// Sends commands to the loop. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Commands {
    requests: mpsc::Sender<Request>,
}

impl Commands {
    /// The handle, and the loop, which ends when the last handle is dropped.
    pub(crate) fn new(parts: WriterParts, bounds: Bounds) -> (Self, CommandLoop) {
        let (sender, requests) = mpsc::channel(bounds.waiting);
        (Self { requests: sender }, CommandLoop { writer: BatchWriter::new(parts), requests, bounds })
    }

    /// Carries out `order` and returns the run after it. When this returns, the events are durable.
    pub(crate) async fn send(&self, run: RunId, order: impl Into<Order>) -> Result<Arc<Run>, CommandError> {
        let (reply, answer) = oneshot::channel();
        let request = Request { run, order: order.into(), shortage: None, reply };
        self.requests.send(request).await.map_err(|_| CommandError::Stopped)?;
        answer.await.map_err(|_| CommandError::Stopped)?
    }
}

/// Collects requests and carries them out.
pub(crate) struct CommandLoop {
    writer: BatchWriter,
    requests: mpsc::Receiver<Request>,
    bounds: Bounds,
}

impl CommandLoop {
    pub(crate) async fn run(self) {
        let Self { writer, mut requests, bounds } = self;
        let writer = &writer;
        let (mut waiting, mut in_flight) = (Waiting::default(), FuturesUnordered::new());
        let mut is_open = true;
        loop {
            while let Some(batch) = waiting.next(bounds, writer.refused_runs(), writer.now()) {
                in_flight.push(async move {
                    let Batch { kind, runs, requests } = batch;
                    (kind, runs, writer.carry_out(requests).await)
                });
            }
            tokio::select! {
                biased;
                Some((kind, runs, again)) = in_flight.next() => waiting.release(kind, &runs, again),
                count = requests.recv_many(&mut waiting.requests, bounds.batch), if is_open && waiting.has_capacity(bounds.batch) => {
                    is_open = count > 0;
                }
                else => break,
            }
            // A batch includes all requests that have arrived when it begins.
            while waiting.has_capacity(bounds.batch)
                && let Ok(request) = requests.try_recv()
            {
                waiting.requests.push(request);
            }
        }
        writer.finish().await;
    }
}
