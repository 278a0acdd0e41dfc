//! A barrier that tasks wait at until a test opens it.

use tokio::sync::watch;

/// A gate that is closed at first, and stays open once it is opened. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate {
    open: watch::Sender<bool>,
}

impl Gate {
    /// A closed gate.
    pub fn closed() -> Self {
        Self { open: watch::Sender::new(false) }
    }

    /// Lets all present and future waiters pass.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Waits until the gate is open.
    pub async fn pass(&self) {
        // It cannot fail: `self` holds the sender.
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }
}
