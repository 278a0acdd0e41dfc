//! Clients that ask without a pause: each asks its next question as soon as it has an answer.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::client::{Client, Ended};

/// The times when a run was submitted and when it had ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) asked_at: Instant,
    pub(crate) answered_at: Instant,
}

/// The runs that have ended so far, in the order of their ends.
#[derive(Clone, Default)]
pub(crate) struct Lives {
    lives: Arc<Mutex<Vec<Life>>>,
}

impl Lives {
    fn add(&self, ended: &Ended) {
        let mut lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that the list is ordered by time.
        lives.push(Life { asked_at: ended.asked_at, answered_at: Instant::now() });
    }

    pub(crate) fn so_far(&self) -> Vec<Life> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The clients that offer a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tools {
    /// None of them.
    None,
    /// A quarter of them.
    Some,
}

/// Running clients.
pub(crate) struct Load {
    clients: JoinSet<Vec<Ended>>,
    lives: Lives,
    stop: watch::Sender<bool>,
}

impl Load {
    /// Starts this number of clients, which use the gateways in turn.
    pub(crate) fn start(gateways: &[SocketAddr], clients: usize, tools: Tools) -> Self {
        let (stop, stopped) = watch::channel(false);
        let (lives, next) = (Lives::default(), Arc::new(AtomicU64::new(1)));
        let mut tasks = JoinSet::new();
        for _ in 0..clients {
            let (gateways, lives, next, stopped) =
                (gateways.to_vec(), lives.clone(), Arc::clone(&next), stopped.clone());
            tasks.spawn(async move {
                let mut all_ended = Vec::new();
                while !*stopped.borrow() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let client = Client::new(gateways.clone(), number);
                    let offers = tools == Tools::Some && number.is_multiple_of(4);
                    let ended = if offers { client.with_tool() } else { client }.ask().await;
                    lives.add(&ended);
                    all_ended.push(ended);
                }
                all_ended
            });
        }
        Self { clients: tasks, lives, stop }
    }

    pub(crate) fn lives(&self) -> &Lives {
        &self.lives
    }

    /// Stops asking. Returns all runs once they have ended.
    pub(crate) async fn stop(self) -> Vec<Ended> {
        self.stop.send_replace(true);
        self.clients.join_all().await.into_iter().flatten().collect()
    }
}
