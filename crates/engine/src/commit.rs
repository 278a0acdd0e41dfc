//! Where commands become events: what waits gathers in one loop, which has it carried out in batches, a commit each. A fixed
//! number of batches may be under way at once. A run is in one batch at a time.

mod apart;
mod batch;
mod decide;
pub(crate) mod run_cache;
pub(crate) mod store_batching;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use podium_domain::budget::Shortage;
use podium_domain::ids::RunId;
use podium_domain::pool::Pool;
use podium_domain::run::{Command, Refusal, Run, TaskRef, TaskState};
use podium_domain::time::Timestamp;
use podium_ports::queue::Lane;
use podium_ports::store::StoreError;
use tokio::sync::{mpsc, oneshot};

pub(crate) use self::batch::Sides;
use self::batch::Writer;
pub(crate) use self::decide::rehearse;
use self::waiting::{Batch, Waiting};

/// Times that a batch is decided anew because another process committed first, before its callers are told.
const CONFLICTS_MAX: u32 = 16;
/// Longest time for which a message is put back for its task's next attempt. What waits longer is published when it is due.
const PUT_BACK_MAX: Duration = Duration::from_secs(2);
/// Why a command came to nothing.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommandError {
    /// There is no such run.
    #[error("there is no such run")]
    UnknownRun,
    /// The run does not allow it.
    #[error("the run does not allow it")]
    Refused(#[source] Refusal),
    /// Other processes kept committing to the run first.
    #[error("other processes committed to the run {CONFLICTS_MAX} times in a row")]
    Contended,
    /// The store failed. The command may have been carried out: repeating it is safe.
    #[error("the store failed")]
    Store(#[source] Arc<StoreError>),
    /// What the store holds of the run cannot be read.
    #[error("the run cannot be read")]
    Damaged,
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
}

type Reply = oneshot::Sender<Result<Arc<Run>, CommandError>>;

struct Request {
    run: RunId,
    command: Arc<Command>,
    /// Decided right after it, for the same commit. It is left out if the run does not allow it.
    then: Option<Command>,
    /// The message that its sender holds unanswered.
    message: Option<InHand>,
    /// A budget had no room for what it permitted: the run is to end instead.
    shortage: Option<Shortage>,
    reply: Reply,
}

/// A message that is unanswered: until it is acked, the queue refuses a second one of its task in its lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InHand {
    /// The task that it is about.
    pub(crate) task: TaskRef,
    /// Where it came from.
    pub(crate) lane: Lane,
}

impl InHand {
    /// For how long to put the message back after a commit made its task ready again in its lane; nothing if the task is to get a
    /// message of its own, or none. A longer wait would keep a place in the lane's window for nothing.
    pub(crate) fn put_back_for(&self, run: &Run, pool: &Pool, now: Timestamp) -> Option<Duration> {
        let TaskState::Ready { not_before } = run.task(self.task)?.state else { return None };
        let delay = not_before.since(now);
        (delay <= PUT_BACK_MAX && Lane::of(run, self.task, pool) == self.lane).then_some(delay)
    }
}

/// Sends commands to the loop. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Commands {
    requests: mpsc::Sender<Request>,
}

impl Commands {
    /// The handle and the loop behind it, which ends when the last handle is gone.
    pub(crate) fn new(sides: Sides, bounds: Bounds) -> (Self, CommandLoop) {
        let (requests, waiting) = mpsc::channel(bounds.waiting);
        (Self { requests }, CommandLoop { writer: Writer::new(sides), requests: waiting, bounds })
    }

    /// Carries out `command` and returns the run as it is afterwards. The events are durable by then.
    pub(crate) async fn send(&self, run: RunId, command: Command) -> Result<Arc<Run>, CommandError> {
        self.send_both(run, (Arc::new(command), None), None).await
    }

    /// As [`Self::send`], with a further command in the same commit. Whether that one was allowed is seen from the run.
    ///
    /// A sender that holds a message of the run passes it along. If the message's task is ready again by the commit, no new message
    /// is published where [`InHand::put_back_for`] gives a time: the sender has to put its own one back.
    pub(crate) async fn send_both(
        &self,
        run: RunId,
        (command, then): (Arc<Command>, Option<Command>),
        message: Option<InHand>,
    ) -> Result<Arc<Run>, CommandError> {
        let (reply, answer) = oneshot::channel();
        let request = Request { run, command, then, message, shortage: None, reply };
        self.requests.send(request).await.map_err(|_| CommandError::Stopped)?;
        answer.await.map_err(|_| CommandError::Stopped)?
    }
}

/// How much the loop takes on.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// Most requests in a batch.
    pub(crate) batch: usize,
    /// Most batches under way.
    pub(crate) batches: usize,
    /// Most requests that wait beside them.
    pub(crate) waiting: usize,
}

/// Gathers requests and has them carried out, until the last handle is gone.
pub(crate) struct CommandLoop {
    writer: Writer,
    requests: mpsc::Receiver<Request>,
    bounds: Bounds,
}

impl CommandLoop {
    pub(crate) async fn run(self) {
        let Self { writer, mut requests, bounds } = self;
        let writer = &writer;
        let (mut waiting, mut under_way) = (Waiting::default(), FuturesUnordered::new());
        let mut is_open = true;
        loop {
            while let Some(batch) = waiting.next(bounds, writer.apart(), writer.now()) {
                under_way.push(async move {
                    let Batch { kind, runs, requests } = batch;
                    (kind, runs, writer.carry_out(requests).await)
                });
            }
            tokio::select! {
                biased;
                Some((kind, runs, again)) = under_way.next() => waiting.release(kind, &runs, again),
                count = requests.recv_many(&mut waiting.requests, bounds.batch), if is_open && waiting.has_room(bounds.batch) => {
                    is_open = count > 0;
                }
                else => break,
            }
            // A batch takes all that has come by the time it begins.
            while waiting.has_room(bounds.batch)
                && let Ok(request) = requests.try_recv()
            {
                waiting.requests.push(request);
            }
        }
        writer.finish().await;
    }
}
