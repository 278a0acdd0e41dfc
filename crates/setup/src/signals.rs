//! The signals that stop a process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

/// Receives the signals that stop a process. From its creation on, they no longer terminate the process by themselves.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Starts to receive signals. Must be called within a tokio runtime.
    pub fn new() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Runs `start`, during which a signal terminates the process at once: nothing depends on it yet.
    pub fn or_end<T>(&mut self, start: impl Future<Output = T>) -> impl Future<Output = T> {
        // The futures of a start-up are large.
        let start = Box::pin(start);
        async {
            tokio::select! {
                started = start => started,
                name = self.next() => {
                    info!(signal = name, "stopping during start-up");
                    std::process::exit(0);
                }
            }
        }
    }

    /// Waits for the next signal and returns its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "interrupt",
            _ = self.terminate.recv() => "terminate",
        }
    }
}
