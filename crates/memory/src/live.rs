//! Live signals within one process.
//!
//! Each run has the text so far of every attempt that writes, and a queue for each watcher. Both change under one lock, so a subscriber
//! gets the text so far and then every later piece, each exactly once.

mod watcher;

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures::StreamExt;
use podium_domain::ids::{ClaimId, RunId, StepIndex};
use podium_domain::policy::OUTPUT_BYTES_MAX;
use podium_ports::live::{Frame, LiveError, LiveStream, Signal, Signals, Stops};
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;

use crate::live::watcher::Watcher;

/// The live stream's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveOptions {
    /// Most signals by which a slow watcher may lag before it misses some.
    pub signals_max: usize,
    /// Most unwatched runs whose text is held. Beyond it, the run that was silent longest loses its text.
    pub runs_max: usize,
    /// Most bytes of text held for all runs together. Beyond it, the run that was silent longest loses its text.
    pub text_bytes_max: usize,
}

impl Default for LiveOptions {
    fn default() -> Self {
        Self { signals_max: 1024, runs_max: 1024, text_bytes_max: 64 << 20 }
    }
}

/// Most stops by which a slow listener may lag before it misses some.
const STOPS_MAX: usize = 1024;

/// Carries signals within this process.
///
/// The text of an attempt is held until a newer attempt at the same step begins, the run ends or is suspended, the run is silent for
/// longer than others, or a bound is reached. So a late subscriber may also get the text of a step that is done; the store has its claim. An attempt is not
/// held if its beginning was missed, or if its text exceeds what any policy allows. Its later pieces still go to watchers, which see
/// the gap from the offset.
#[derive(Debug)]
pub struct MemoryLive {
    options: LiveOptions,
    hot: Mutex<Hot>,
    stops: broadcast::Sender<RunId>,
}

#[derive(Debug, Default)]
struct Hot {
    runs: HashMap<RunId, HotRun>,
    text_bytes: usize,
    ticks: u64,
}

#[derive(Debug, Default)]
struct HotRun {
    watchers: Vec<Watcher>,
    attempts: BTreeMap<(u16, StepIndex), Attempt>,
    last_tick: u64,
}

#[derive(Debug)]
struct Attempt {
    claim: ClaimId,
    text: String,
}

impl MemoryLive {
    /// A live stream without runs.
    pub fn new(options: LiveOptions) -> Self {
        Self { options, hot: Mutex::default(), stops: broadcast::Sender::new(STOPS_MAX) }
    }

    fn lock(&self) -> MutexGuard<'_, Hot> {
        self.hot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryLive {
    fn default() -> Self {
        Self::new(LiveOptions::default())
    }
}

impl Hot {
    /// The run's entry, marked as the one used last.
    fn touch(&mut self, run: RunId) -> &mut HotRun {
        self.ticks += 1;
        let entry = self.runs.entry(run).or_default();
        entry.last_tick = self.ticks;
        entry
    }

    fn hold(&mut self, run: RunId, frame: &Frame) {
        let entry = self.touch(run);
        let step = (frame.round, frame.step);
        let (before, after) = match entry.attempts.get_mut(&step) {
            Some(attempt) if attempt.claim == frame.claim => {
                let before = attempt.text.len();
                if attempt.accept(frame) {
                    (before, attempt.text.len())
                } else {
                    entry.attempts.remove(&step);
                    (before, 0)
                }
            }
            replaced if frame.offset == 0 => {
                let before = replaced.map_or(0, |attempt| attempt.text.len());
                entry.attempts.insert(step, Attempt { claim: frame.claim, text: frame.text.clone() });
                (before, frame.text.len())
            }
            // A piece from the middle of an attempt without its beginning must not replace a newer attempt.
            _ => (0, 0),
        };
        self.text_bytes = self.text_bytes - before + after;
    }

    fn drop_text(&mut self, run: RunId) {
        if let Some(entry) = self.runs.get_mut(&run) {
            self.text_bytes -= entry.text_bytes();
            entry.attempts.clear();
        }
    }

    fn forget(&mut self, run: RunId) {
        if let Some(entry) = self.runs.remove(&run) {
            self.text_bytes -= entry.text_bytes();
        }
    }

    /// Enforces the bounds, except on the run that is being notified. Watched runs keep their watchers, whose queues are bounded.
    fn evict(&mut self, published: RunId, options: &LiveOptions) {
        while self.runs.len() > options.runs_max || self.text_bytes > options.text_bytes_max {
            let others =
                self.runs.iter().filter(|(run, entry)| **run != published && !entry.is_only_watched());
            let Some(run) = others.min_by_key(|(_, entry)| entry.last_tick).map(|(run, _)| *run) else {
                break;
            };
            let watchers = self.runs.get_mut(&run).map(|entry| mem::take(&mut entry.watchers));
            self.forget(run);
            let left = HotRun { watchers: watchers.unwrap_or_default(), ..HotRun::default() };
            if left.is_watched() {
                self.runs.insert(run, left);
            }
        }
        if self.text_bytes > options.text_bytes_max {
            self.drop_text(published);
        }
    }
}

impl HotRun {
    fn text_bytes(&self) -> usize {
        self.attempts.values().map(|attempt| attempt.text.len()).sum()
    }

    fn is_watched(&self) -> bool {
        self.watchers.iter().any(Watcher::is_there)
    }

    /// Whether evicting it would free nothing.
    fn is_only_watched(&self) -> bool {
        self.attempts.is_empty() && self.is_watched()
    }

    fn tell(&mut self, signal: &Signal) {
        self.watchers.retain(Watcher::is_there);
        self.watchers.iter_mut().for_each(|watcher| watcher.tell(signal));
    }
}

impl Attempt {
    /// Adds a piece of this attempt. Returns false if an earlier piece is missing, or the text would be too long.
    fn accept(&mut self, frame: &Frame) -> bool {
        // The piece may be a repetition, or overlap.
        let fresh = frame.after(self.text.len() as u64);
        let Some(fresh) = fresh.filter(|fresh| self.text.len() + fresh.len() <= OUTPUT_BYTES_MAX) else {
            return false;
        };
        self.text.push_str(fresh);
        true
    }
}

#[async_trait]
impl LiveStream for MemoryLive {
    async fn publish(&self, run: RunId, signal: Signal) -> Result<(), LiveError> {
        let mut hot = self.lock();
        match &signal {
            Signal::Frame(frame) => {
                hot.hold(run, frame);
                hot.evict(run, &self.options);
            }
            // The store has all text now.
            Signal::Ended { .. } => hot.drop_text(run),
            Signal::Committed { .. } | Signal::Planning { .. } | Signal::Missed => {}
        }
        let Some(entry) = hot.runs.get_mut(&run) else { return Ok(()) };
        entry.tell(&signal);
        if entry.attempts.is_empty() && !entry.is_watched() {
            hot.forget(run);
        }
        Ok(())
    }

    async fn subscribe(&self, run: RunId) -> Result<Signals, LiveError> {
        let mut hot = self.lock();
        let entry = hot.touch(run);
        let (watcher, later) = Watcher::new(self.options.signals_max);
        entry.watchers.retain(Watcher::is_there);
        entry.watchers.push(watcher);
        let so_far = entry.attempts.iter().filter(|(_, attempt)| !attempt.text.is_empty());
        let so_far: Vec<_> = so_far
            .map(|(&(round, step), attempt)| {
                let (claim, text) = (attempt.claim, attempt.text.clone());
                Signal::Frame(Frame { round, step, claim, offset: 0, text })
            })
            .collect();
        hot.evict(run, &self.options);
        drop(hot);
        Ok(futures::stream::iter(so_far).chain(later).boxed())
    }

    async fn publish_stop(&self, run: RunId) -> Result<(), LiveError> {
        // Without listeners, sending fails, which is no error.
        let _ = self.stops.send(run);
        Ok(())
    }

    async fn stops(&self) -> Result<Stops, LiveError> {
        let stops = BroadcastStream::new(self.stops.subscribe());
        Ok(stops.filter_map(async |run| run.ok()).boxed())
    }
}

#[cfg(test)]
mod tests;
