//! Whether the limiter reaches Redis, for health checks and metrics.

use tokio::sync::watch;

/// The counts by which the limiter grants calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Redis: the limits hold over all processes.
    Shared,
    /// The share of this process, because Redis is unreachable.
    Local,
    /// It grants no calls, because Redis is unreachable.
    Holding,
}

/// The current state, which can be watched.
pub(crate) struct StateCell(watch::Sender<State>);

impl StateCell {
    pub(crate) fn new(state: State) -> Self {
        Self(watch::Sender::new(state))
    }

    pub(crate) fn get(&self) -> State {
        *self.0.borrow()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<State> {
        self.0.subscribe()
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.get() == State::Shared
    }

    /// Returns whether the state has changed.
    pub(crate) fn set(&self, state: State) -> bool {
        self.0.send_if_modified(|current| {
            let is_new = *current != state;
            *current = state;
            is_new
        })
    }
}
