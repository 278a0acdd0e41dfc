//! Live events for watchers. None of them is authoritative: a watcher that misses one reads the store.

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use podium_domain::ids::{ClaimId, RunId, StepIndex};

use crate::BoxError;

/// A piece of a step's output, published as the worker writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The round of the step.
    pub round: u16,
    /// The step that is computed.
    pub step: StepIndex,
    /// The attempt that writes; pieces of different attempts are never joined.
    pub claim: ClaimId,
    /// Bytes of this attempt's output before this piece.
    pub offset: u64,
    /// The text of this piece.
    pub text: String,
}

impl Frame {
    /// The part of this piece that follows the first `known` bytes of the attempt's output; empty if all of it is known. `None` if an
    /// earlier piece is missing.
    pub fn after(&self, known: u64) -> Option<&str> {
        let known = usize::try_from(known.checked_sub(self.offset)?).ok()?;
        self.text.get(known.min(self.text.len())..)
    }
}

/// An event for watchers of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The store has events up to this version.
    Committed {
        /// The run's version.
        version: u64,
    },
    /// The store has events up to this version, and the run has ended or is suspended.
    Ended {
        /// The run's version.
        version: u64,
    },
    /// A worker wrote a piece of output.
    Frame(Frame),
    /// The conductor wrote a piece of its plan.
    Planning {
        /// The round that is being planned.
        round: u16,
        /// The text of this piece.
        text: String,
    },
    /// Signals were dropped because the watcher was slow; it must read the store.
    Missed,
}

/// The signals of a run; dropping the stream ends the subscription.
pub type Signals = BoxStream<'static, Signal>;

/// Items mean "read the store again": the run has ended or is suspended, or that may have been missed. Dropping the stream ends the
/// subscription.
pub type EndSignals = BoxStream<'static, ()>;

/// Runs whose claims may be lost; dropping the stream ends the subscription.
pub type Stops = BoxStream<'static, RunId>;

/// Carries signals from engine loops to watchers. Any signal may be lost, and publishing never slows a worker down.
#[async_trait]
pub trait LiveStream: Send + Sync {
    /// Notifies all watchers of `run`. Never waits for a watcher.
    async fn publish(&self, run: RunId, signal: Signal) -> Result<(), LiveError>;

    /// As [`Self::publish`], for a piece of a step that is not the answer. Only watchers of the whole run need it.
    async fn publish_inner(&self, run: RunId, frame: Frame) -> Result<(), LiveError> {
        self.publish(run, Signal::Frame(frame)).await
    }

    /// As [`Self::subscribe`], for a caller that shows only the answer: it may miss [inner](Self::publish_inner) pieces.
    async fn subscribe_to_answer(&self, run: RunId) -> Result<Signals, LiveError> {
        self.subscribe(run).await
    }

    /// All signals from now on. First comes one frame for each running attempt with its output so far.
    async fn subscribe(&self, run: RunId) -> Result<Signals, LiveError>;

    /// Asks every process that works on `run` to check in the store whether its claims are still valid. It may be lost, like any
    /// signal.
    async fn publish_stop(&self, _run: RunId) -> Result<(), LiveError> {
        Ok(())
    }

    /// The runs given to [`publish_stop`](Self::publish_stop) by any process.
    async fn stops(&self) -> Result<Stops, LiveError> {
        Ok(futures::stream::pending().boxed())
    }

    /// Subscribes to the end and the suspensions of `run`, for a caller that needs no other signal.
    async fn subscribe_to_end(&self, run: RunId) -> Result<EndSignals, LiveError> {
        let signals = self.subscribe(run).await?;
        let ends = signals.filter_map(async |signal| match signal {
            Signal::Ended { .. } | Signal::Missed => Some(()),
            Signal::Committed { .. } | Signal::Frame(_) | Signal::Planning { .. } => None,
        });
        Ok(ends.boxed())
    }
}

/// The live stream failed or did not answer.
#[derive(Debug, thiserror::Error)]
#[error("the live stream failed")]
pub struct LiveError(#[source] pub BoxError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_cut_after_the_known_bytes_unless_one_is_missing() {
        let claim = "00000000-0000-4000-8000-000000000000".parse().unwrap();
        let text = "müde".to_owned();
        let frame = Frame { round: 0, step: StepIndex::new(0), claim, offset: 10, text };
        assert_eq!(
            [10, 11, 13, 15, 99].map(|known| frame.after(known)),
            ["müde", "üde", "de", "", ""].map(Some)
        );
        assert_eq!([0, 9, 12].map(|known| frame.after(known)), [None; 3]);
    }
}
