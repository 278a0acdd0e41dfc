//! The queue of one watcher. It takes memory only for signals that wait, because most watchers of a run wait for its end alone.

use futures::StreamExt;
use podium_ports::live::{Signal, Signals};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// The sending end of a watch.
#[derive(Debug)]
pub(super) struct Watcher {
    signals: mpsc::Sender<Signal>,
    /// Whether [`Signal::Missed`] was the last signal in the queue.
    has_missed: bool,
}

impl Watcher {
    /// A watcher that may lag by `signals_max` signals, and the stream of its signals.
    pub(super) fn new(signals_max: usize) -> (Self, Signals) {
        // One place is kept for the signal that others were missed.
        let (signals, receiver) = mpsc::channel(signals_max.max(1) + 1);
        (Self { signals, has_missed: false }, ReceiverStream::new(receiver).boxed())
    }

    /// Whether somebody still watches.
    pub(super) fn is_there(&self) -> bool {
        !self.signals.is_closed()
    }

    /// Queues a signal. If the watcher lags too far, it gets [`Signal::Missed`] after the queued ones in place of all that do not fit.
    pub(super) fn tell(&mut self, signal: &Signal) {
        let fits = self.signals.capacity() > 1;
        if !fits && self.has_missed {
            return;
        }
        self.has_missed = !fits;
        // Only this side sends, so there is a place; an error means that the watcher has left.
        drop(self.signals.try_send(if fits { signal.clone() } else { Signal::Missed }));
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn versions(signals: &mut Signals, most: usize) -> Vec<Option<u64>> {
        let next = || signals.next().now_or_never().flatten();
        let version = |signal| match signal {
            Signal::Committed { version } => Some(version),
            _ => None,
        };
        std::iter::from_fn(next).map(version).take(most).collect()
    }

    #[test]
    fn a_watcher_that_lags_gets_the_first_signals_and_a_notice() {
        let (mut watcher, mut signals) = Watcher::new(2);
        for version in 1..=9 {
            watcher.tell(&Signal::Committed { version });
        }
        assert_eq!(versions(&mut signals, 1), [Some(1)]);
        watcher.tell(&Signal::Committed { version: 10 });
        assert_eq!(versions(&mut signals, 9), [Some(2), None], "the notice is last, so it covers 10 as well");
        for version in 11..=19 {
            watcher.tell(&Signal::Committed { version });
        }
        assert_eq!(versions(&mut signals, 9), [Some(11), Some(12), None]);
    }

    #[test]
    fn a_signal_after_the_notice_is_queued_behind_it() {
        let (mut watcher, mut signals) = Watcher::new(2);
        for version in 1..=3 {
            watcher.tell(&Signal::Committed { version });
        }
        assert_eq!(versions(&mut signals, 2), [Some(1), Some(2)]);
        watcher.tell(&Signal::Committed { version: 4 });
        watcher.tell(&Signal::Committed { version: 5 });
        assert_eq!(versions(&mut signals, 9), [None, Some(4), None]);
    }

    #[test]
    fn a_watcher_that_left_is_known() {
        let (mut watcher, signals) = Watcher::new(2);
        assert!(watcher.is_there());
        drop(signals);
        assert!(!watcher.is_there());
        watcher.tell(&Signal::Missed);
    }
}
