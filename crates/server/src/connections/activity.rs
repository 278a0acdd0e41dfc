//! The activity of a connection: the requests under way, and since when it has none.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use podium_ports::server::ServerLimits;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// The state of one connection.
pub(super) struct Activity {
    state: Mutex<State>,
    /// A request began or ended.
    changed: Notify,
    /// A connection may have become one that can be closed for another. All connections share it.
    freed: Arc<Notify>,
    /// The connection must end at once.
    pub(super) close: CancellationToken,
    opened_at: Instant,
    /// A request came over HTTP/2.
    is_http2: Notify,
}

struct State {
    /// Requests whose head has arrived and whose response is not sent yet.
    open: usize,
    /// Open requests whose body has arrived.
    received: usize,
    /// When the connection was accepted, or when its last request ended.
    quiet_since: Instant,
    has_asked: bool,
}

impl Activity {
    pub(super) fn new(freed: Arc<Notify>) -> Self {
        let opened_at = Instant::now();
        let state = State { open: 0, received: 0, quiet_since: opened_at, has_asked: false };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            freed,
            close: CancellationToken::new(),
            opened_at,
            is_http2: Notify::new(),
        }
    }

    /// Counts a request until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> RequestGuard {
        let mut state = self.lock();
        state.open += 1;
        state.has_asked = true;
        RequestGuard { activity: Arc::clone(self), is_received: AtomicBool::new(false) }
    }

    /// Records that the connection speaks HTTP/2.
    pub(super) fn speaks_http2(&self) {
        self.is_http2.notify_one();
    }

    /// Whether the connection is older than that.
    pub(super) fn is_older_than(&self, age: Duration) -> bool {
        self.opened_at.elapsed() > age
    }

    /// Returns once a connection that speaks HTTP/2 has this age. Has one caller.
    pub(super) async fn is_old(&self, age: Option<Duration>) {
        match age {
            None => std::future::pending().await,
            Some(age) => {
                self.is_http2.notified().await;
                sleep_until(self.opened_at + age).await;
            }
        }
    }

    /// The time since when the connection waits for its client; none while a request is answered.
    pub(super) fn waiting_since(&self) -> Option<Instant> {
        let state = self.lock();
        (state.received == 0).then_some(state.quiet_since)
    }

    /// Returns once the client has been silent for too long.
    pub(super) async fn is_silent(&self, limits: &ServerLimits) {
        loop {
            match self.due(limits) {
                None => self.changed.notified().await,
                Some(due) if Instant::now() >= due => return,
                Some(due) => sleep_until(due).await,
            }
        }
    }

    fn due(&self, limits: &ServerLimits) -> Option<Instant> {
        let state = self.lock();
        let limit = if state.has_asked { limits.idle } else { limits.head };
        (state.open == 0).then(|| state.quiet_since + limit)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request under way. Dropping the guard ends it.
pub(crate) struct RequestGuard {
    activity: Arc<Activity>,
    is_received: AtomicBool,
}

impl RequestGuard {
    /// Records that the body has arrived. From now on the connection is not closed for another one.
    pub(super) fn received(&self) {
        if !self.is_received.swap(true, Ordering::Relaxed) {
            self.activity.lock().received += 1;
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut state = self.activity.lock();
        state.open -= 1;
        if self.is_received.load(Ordering::Relaxed) {
            state.received -= 1;
        }
        if state.open == 0 {
            state.quiet_since = Instant::now();
        }
        drop(state);
        self.activity.changed.notify_one();
        self.activity.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_request_is_silent_after_the_head_limit() {
        let (activity, begun) = (Activity::new(Arc::default()), Instant::now());
        activity.is_silent(&ServerLimits::default()).await;
        assert_eq!(begun.elapsed(), Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn the_idle_limit_starts_after_the_last_request() {
        let activity = Arc::new(Activity::new(Arc::default()));
        let request = activity.begin();
        let limits = ServerLimits::default();
        let silent = activity.is_silent(&limits);
        tokio::pin!(silent);
        let hour = Duration::from_hours(1);
        assert!(tokio::time::timeout(hour, silent.as_mut()).await.is_err());
        drop(request);
        let begun = Instant::now();
        silent.await;
        assert_eq!(begun.elapsed(), limits.idle);
    }

    #[tokio::test(start_paused = true)]
    async fn only_an_http2_connection_becomes_old() {
        let (activity, begun, age) = (Activity::new(Arc::default()), Instant::now(), Duration::from_secs(7));
        let hour = Duration::from_hours(1);
        assert!(tokio::time::timeout(hour, activity.is_old(Some(age))).await.is_err());
        activity.speaks_http2();
        activity.is_old(Some(age)).await;
        assert_eq!(begun.elapsed(), hour);
        let young = Activity::new(Arc::default());
        let begun = Instant::now();
        young.speaks_http2();
        young.is_old(Some(age)).await;
        assert_eq!(begun.elapsed(), age);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_waits_for_its_client_until_the_body_has_arrived() {
        let activity = Arc::new(Activity::new(Arc::default()));
        let request = activity.begin();
        assert!(activity.waiting_since().is_some());
        request.received();
        request.received();
        assert!(activity.waiting_since().is_none());
        drop(request);
        assert!(activity.waiting_since().is_some());
    }
}
