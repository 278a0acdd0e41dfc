//! How the limiter stands towards Redis, for whoever watches over the process.

use std::sync::Arc;

use podium_domain::time::Timestamp;
use podium_ports::clock::Clock;
use tokio::sync::watch;

use crate::options::Away;

/// By what the limiter grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// By Redis: the bounds hold over all processes.
    Shared,
    /// By this process's share, because Redis is away.
    Local,
    /// Not at all, because Redis is away.
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
    away: State,
    clock: Arc<dyn Clock>,
}

impl Board {
    /// Nothing is known of Redis yet, so it counts as away.
    pub(crate) fn new(away: Away, clock: Arc<dyn Clock>) -> Self {
        let away = match away {
            Away::Hold => State::Holding,
            Away::Local { .. } => State::Local,
        };
        let standing = watch::Sender::new(Standing { state: away, since: clock.now() });
        Self { standing, away, clock }
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

    /// Redis serves. Says whether that is news.
    pub(crate) fn set_shared(&self) -> bool {
        self.set(State::Shared)
    }

    /// Redis is away. Says whether that is news.
    pub(crate) fn set_away(&self) -> bool {
        self.set(self.away)
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
