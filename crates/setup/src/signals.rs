//! The signals that ask a process to stop.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

/// Listens for the signals that ask a process to stop. From the first one on, the system no longer ends it for them.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Begins to listen. Must be called inside a tokio runtime.
    pub fn new() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// What `start` comes to, for a process that nothing depends on before: the first signal ends it there and then.
    pub async fn or_end<T>(&mut self, start: impl Future<Output = T>) -> T {
        tokio::select! {
            started = start => started,
            name = self.next() => {
                info!(signal = name, "stopping before anything has begun");
                std::process::exit(0);
            }
        }
    }

    /// Waits for the next one; its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "interrupt",
            _ = self.terminate.recv() => "terminate",
        }
    }
}
