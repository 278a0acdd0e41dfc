//! Supervision detects a loop that ends unexpectedly: the process would look healthy and do nothing.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};

use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;

/// A loop of the engine ended although it was not stopped. The process must end, so that others take over its tasks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoopEnded {
    /// The loop panicked.
    #[error("the engine's {name} loop panicked: {message}")]
    Panicked {
        /// The name of the loop.
        name: &'static str,
        /// The panic's message.
        message: String,
    },
    /// The loop returned.
    #[error("the engine's {name} loop ended by itself")]
    Returned {
        /// The name of the loop.
        name: &'static str,
    },
}

/// Supervises loops. Clones share the result.
#[derive(Clone, Default)]
pub(crate) struct Supervision {
    first: Arc<OnceLock<LoopEnded>>,
    has_ended: CancellationToken,
}

impl Supervision {
    /// Runs a loop and reports its panic. The loop may return.
    pub(crate) async fn of(self, name: &'static str, work: impl Future<Output = ()>) {
        if let Err(panic) = AssertUnwindSafe(work).catch_unwind().await {
            self.note(LoopEnded::Panicked { name, message: message_of(&*panic) });
        }
    }

    /// Runs a loop that must not return before `stop`.
    pub(crate) async fn until(
        self,
        stop: CancellationToken,
        name: &'static str,
        work: impl Future<Output = ()>,
    ) {
        self.clone().of(name, work).await;
        if !stop.is_cancelled() {
            self.note(LoopEnded::Returned { name });
        }
    }

    /// Waits until a loop has ended.
    pub(crate) async fn ended(&self) -> LoopEnded {
        loop {
            self.has_ended.cancelled().await;
            if let Some(first) = self.first() {
                return first;
            }
        }
    }

    pub(crate) fn first(&self) -> Option<LoopEnded> {
        self.first.get().cloned()
    }

    fn note(&self, ended: LoopEnded) {
        let _ = self.first.set(ended);
        self.has_ended.cancel();
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}
