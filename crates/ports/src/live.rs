//! What happens right now, for those who watch. Nothing here is the truth: a watcher that misses something reads the store.

use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use podium_domain::ids::{ClaimId, RunId, StepIndex};
use podium_domain::run::{Run, SequencedEvent};

use crate::BoxError;
use crate::queue::{Lane, TaskMessage};

/// A piece of a step's output, as the worker writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The round.
    pub round: u16,
    /// The step.
    pub step: StepIndex,
    /// The attempt that writes: pieces of two attempts are never mixed.
    pub claim: ClaimId,
    /// Bytes of this attempt's output before this piece.
    pub offset: u64,
    /// The piece.
    pub text: String,
}

/// Something that a watcher may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The store has events up to this version.
    Committed {
        /// The run's version.
        version: u64,
    },
    /// The store has events up to this version, and the run has ended.
    Ended {
        /// The run's version.
        version: u64,
    },
    /// A worker wrote something.
    Frame(Frame),
    /// The conductor wrote something.
    Planning {
        /// The round that is planned.
        round: u16,
        /// What it wrote.
        text: String,
    },
    /// Signals were dropped because the watcher was slow: read the store.
    Missed,
}

/// Signals of a run, until dropped.
pub type Signals = BoxStream<'static, Signal>;

/// What somebody hears who waits for the end of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum EndSignal {
    /// It has ended. This is the run as it was committed, if it came along.
    Ended(Option<Arc<Run>>),
    /// The end may have been missed: read the store.
    Missed,
}

/// Signals of a run's end, until dropped.
pub type EndSignals = BoxStream<'static, EndSignal>;

/// A draft: a run that is not stored yet, offered to whoever has room for its first step. Whoever claims that creates the run
/// from these events in the same commit.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The run's only task that can be claimed.
    pub message: TaskMessage,
    /// All events of the run so far.
    pub events: Vec<SequencedEvent>,
}

/// Offers, until dropped.
pub type Offers = BoxStream<'static, Offer>;

/// Carries signals from those who work to those who watch. Losing any is allowed; slowing a worker is not.
#[async_trait]
pub trait LiveStream: Send + Sync {
    /// Tells whoever watches `run`. Never waits for a watcher.
    async fn publish(&self, run: RunId, signal: Signal) -> Result<(), LiveError>;

    /// All signals from now on, preceded by one frame for each attempt under way that holds what it wrote so far.
    async fn subscribe(&self, run: RunId) -> Result<Signals, LiveError>;

    /// Offers a draft to one of those who take the lane's [offers](Self::offers). Gives what [`Self::subscribe_to_end`] would of
    /// that run, with [`EndSignal::Missed`] as soon as it is known that nobody works on it; nothing if it is known already. Like
    /// any signal it may be lost, may be late, and may come twice.
    ///
    /// Whoever offers a run waits for its end alone: until somebody subscribes to it, wherever that is, its other signals need
    /// not be carried.
    async fn offer(&self, _lane: &Lane, _offer: &Offer) -> Result<Option<EndSignals>, LiveError> {
        Ok(None)
    }

    /// The lane's offers from now on. Each is for one of those who take them, whether that one has room or not: what is not
    /// worked on is to be [declined](Self::decline).
    async fn offers(&self, _lane: &Lane) -> Result<Offers, LiveError> {
        Ok(futures::stream::pending().boxed())
    }

    /// Tells whoever offered the run to this process that it is not worked on here.
    async fn decline(&self, _run: RunId) -> Result<(), LiveError> {
        Ok(())
    }

    /// Tells whoever watches or waits for the end of `run`, which has ended.
    async fn publish_end(&self, run: &Arc<Run>) -> Result<(), LiveError> {
        self.publish(run.id(), Signal::Ended { version: run.version() }).await
    }

    /// For somebody who waits for the end and needs nothing before it.
    async fn subscribe_to_end(&self, run: RunId) -> Result<EndSignals, LiveError> {
        let signals = self.subscribe(run).await?;
        let ends = signals.filter_map(async |signal| match signal {
            Signal::Ended { .. } => Some(EndSignal::Ended(None)),
            Signal::Missed => Some(EndSignal::Missed),
            Signal::Committed { .. } | Signal::Frame(_) | Signal::Planning { .. } => None,
        });
        Ok(ends.boxed())
    }
}

/// The live stream could not do it.
#[derive(Debug, thiserror::Error)]
#[error("the live stream failed")]
pub struct LiveError(#[source] pub BoxError);
