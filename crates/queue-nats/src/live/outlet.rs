//! The sending end of a watch, bounded in signals and bytes. A slow watcher misses signals and is notified of that.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use podium_ports::live::{Signal, Signals};
use tokio::sync::mpsc;

pub(super) struct Outlet {
    signals: mpsc::Sender<Signal>,
    bytes: Arc<AtomicUsize>,
    bytes_max: usize,
    has_missed: bool,
}

/// Creates an outlet and the stream of its signals.
pub(super) fn outlet(signals_max: usize, bytes_max: usize) -> (Outlet, Signals) {
    let (sender, receiver) = mpsc::channel(signals_max.max(1));
    let bytes = Arc::new(AtomicUsize::new(0));
    let taken = Arc::clone(&bytes);
    let signals = futures::stream::unfold(receiver, async |mut receiver| {
        let signal = receiver.recv().await?;
        Some((signal, receiver))
    });
    let signals = signals.inspect(move |signal| {
        taken.fetch_sub(size(signal), Ordering::Relaxed);
    });
    (Outlet { signals: sender, bytes, bytes_max, has_missed: false }, signals.boxed())
}

impl Outlet {
    /// Passes on a signal or drops it. After a drop the watcher's next signal is [`Signal::Missed`].
    pub(super) fn push(&mut self, signal: Signal) {
        if self.has_missed {
            return;
        }
        let size = size(&signal);
        // Only this side adds, so the sum cannot exceed the bound in between.
        let fits = self.bytes.load(Ordering::Relaxed).saturating_add(size) <= self.bytes_max;
        self.bytes.fetch_add(size, Ordering::Relaxed);
        if !fits || self.signals.try_send(signal).is_err() {
            self.bytes.fetch_sub(size, Ordering::Relaxed);
            self.has_missed = true;
        }
    }

    /// Records that signals were lost on their way to this process.
    pub(super) const fn miss(&mut self) {
        self.has_missed = true;
    }

    /// If signals were missed, waits until the watcher is notified; otherwise until the watcher is gone. False if it is gone.
    pub(super) async fn attend(&mut self) -> bool {
        if !self.has_missed {
            self.signals.closed().await;
            return false;
        }
        let is_notified = self.signals.send(Signal::Missed).await.is_ok();
        self.has_missed = false;
        is_notified
    }
}

fn size(signal: &Signal) -> usize {
    match signal {
        Signal::Frame(frame) => frame.text.len(),
        Signal::Planning { text, .. } => text.len(),
        Signal::Committed { .. } | Signal::Ended { .. } | Signal::Missed => 0,
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn planning(bytes: usize) -> Signal {
        Signal::Planning { round: 0, text: "x".repeat(bytes) }
    }

    #[tokio::test]
    async fn a_full_outlet_drops_signals_and_marks_the_gap() {
        for (signals_max, bytes_max) in [(2, 1000), (1000, 10)] {
            let (mut outlet, mut signals) = outlet(signals_max, bytes_max);
            for _ in 0..4 {
                outlet.push(planning(5));
            }
            assert!(outlet.has_missed);
            assert_eq!(signals.next().await, Some(planning(5)));
            outlet.push(planning(1));
            assert_eq!(signals.next().await, Some(planning(5)));
            assert!(outlet.attend().await);
            outlet.push(planning(9));
            assert_eq!(signals.next().await, Some(Signal::Missed));
            assert_eq!(signals.next().await, Some(planning(9)), "the capacity is free again");
            assert_eq!(signals.next().now_or_never(), None);
        }
    }

    #[tokio::test]
    async fn an_outlet_ends_with_its_watcher() {
        let (mut outlet, signals) = outlet(1, 10);
        drop(signals);
        assert!(!outlet.attend().await);
        outlet.miss();
        assert!(!outlet.attend().await);
    }
}
