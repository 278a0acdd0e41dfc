//! Whether the limiter has Redis, for health checks and metrics.

use std::sync::Arc;

use podium_domain::time::Timestamp;
use podium_ports::clock::Clock;
use tokio::sync::watch;

/// By what the limiter grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// By Redis: the limits hold over all processes.
    Shared,
    /// By this process' share, because Redis is unreachable.
    Local,
    /// Not at all, because Redis is unreachable.
    Holding,
}

/// A state, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// By what the limiter grants.
    pub state: State,
    /// Since when, by the limiter's clock.
    pub since: Timestamp,
}

/// Where the standing is written down.
pub(crate) struct Board {
    standing: watch::Sender<Standing>,
    clock: Arc<dyn Clock>,
}

impl Board {
    /// Nothing is known of Redis yet, so the limiter stands as it does without it.
    pub(crate) fn new(away: State, clock: Arc<dyn Clock>) -> Self {
        let standing = watch::Sender::new(Standing { state: away, since: clock.now() });
        Self { standing, clock }
    }

    pub(crate) fn read(&self) -> Standing {
        *self.standing.borrow()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.read().state == State::Shared
    }

    /// Redis serves. Returns whether that is news.
    pub(crate) fn set_shared(&self) -> bool {
        self.set(State::Shared)
    }

    /// Redis is unreachable. Returns whether that is news.
    pub(crate) fn set_away(&self, away: State) -> bool {
        self.set(away)
    }

    fn set(&self, state: State) -> bool {
        let since = self.clock.now();
        self.standing.send_if_modified(|standing| {
            let news = standing.state != state;
            if news {
                *standing = Standing { state, since };
            }
            news
        })
    }
}
