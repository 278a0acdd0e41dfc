//! What happens right now, for those who watch. Nothing here is the truth: a watcher that misses something reads the store.

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use podium_domain::ids::{ClaimId, RunId, StepIndex};

use crate::BoxError;

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

/// Reasons to read the store again while waiting for a run's end, until dropped: the run has ended, or its end may have been missed.
pub type EndSignals = BoxStream<'static, ()>;

/// Runs whose claims may no longer hold, until dropped.
pub type Stops = BoxStream<'static, RunId>;

/// Carries signals from those who work to those who watch. Losing any is allowed; slowing a worker is not.
#[async_trait]
pub trait LiveStream: Send + Sync {
    /// Tells whoever watches `run`. Never waits for a watcher.
    async fn publish(&self, run: RunId, signal: Signal) -> Result<(), LiveError>;

    /// All signals from now on, preceded by one frame for each attempt under way that holds what it wrote so far.
    async fn subscribe(&self, run: RunId) -> Result<Signals, LiveError>;

    /// Tells every process that works on `run` to ask the store whether its claims still hold. It may be lost, like any signal.
    async fn publish_stop(&self, _run: RunId) -> Result<(), LiveError> {
        Ok(())
    }

    /// The runs of which any process [tells](Self::publish_stop) that, until dropped.
    async fn stops(&self) -> Result<Stops, LiveError> {
        Ok(futures::stream::pending().boxed())
    }

    /// For a caller that waits for the end of `run` and needs nothing before it.
    async fn subscribe_to_end(&self, run: RunId) -> Result<EndSignals, LiveError> {
        let signals = self.subscribe(run).await?;
        let ends = signals.filter_map(async |signal| match signal {
            Signal::Ended { .. } | Signal::Missed => Some(()),
            Signal::Committed { .. } | Signal::Frame(_) | Signal::Planning { .. } => None,
        });
        Ok(ends.boxed())
    }
}

/// The live stream could not do it.
#[derive(Debug, thiserror::Error)]
#[error("the live stream failed")]
pub struct LiveError(#[source] pub BoxError);
