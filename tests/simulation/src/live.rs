//! The live stream of text to watchers. It drops, delays and reorders signals, and is wiped at times.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use futures::StreamExt;
use podium_domain::ids::{ClaimId, RunId, StepIndex};
use podium_ports::live::{Frame, LiveError, LiveStream, Signal, Signals};

use crate::mutation::Mutation;
use crate::world::{Broken, Core, Link, Service};

/// Most waiting signals of a slow watcher. Beyond it, the watcher misses signals.
const SIGNALS_MAX: usize = 12;

/// The text so far of each run, and its watchers.
#[derive(Default)]
pub(crate) struct LiveState {
    runs: BTreeMap<RunId, Hot>,
    last: u64,
}

#[derive(Default)]
struct Hot {
    attempts: BTreeMap<(u16, StepIndex), (ClaimId, String)>,
    /// The last frame: its claim and its text.
    last: Option<(ClaimId, String)>,
    watchers: BTreeMap<u64, Arc<Mailbox<Signal>>>,
}

impl LiveState {
    pub(crate) fn wipe(&mut self) {
        self.runs.values_mut().for_each(|hot| hot.attempts.clear());
    }
}

impl Hot {
    /// Appends a frame to the text so far. After a gap, forgets the text.
    fn hold(&mut self, frame: &Frame) {
        let place = (frame.round, frame.step);
        let offset = usize::try_from(frame.offset).unwrap_or(usize::MAX);
        match self.attempts.get_mut(&place) {
            Some((claim, text)) if *claim == frame.claim => {
                let known = text.len().checked_sub(offset).map(|known| known.min(frame.text.len()));
                match known.and_then(|known| frame.text.get(known..)) {
                    Some(fresh) => text.push_str(fresh),
                    None => drop(self.attempts.remove(&place)),
                }
            }
            _ if offset == 0 => drop(self.attempts.insert(place, (frame.claim, frame.text.clone()))),
            _ => {}
        }
    }

    fn so_far(&self) -> impl Iterator<Item = Signal> {
        self.attempts.iter().filter(|(_, (_, text))| !text.is_empty()).map(
            |(&(round, step), (claim, text))| {
                Signal::Frame(Frame { round, step, claim: *claim, offset: 0, text: text.clone() })
            },
        )
    }
}

impl Core {
    fn deliver_signal(&mut self, run: RunId, mut signal: Signal) {
        if let Signal::Frame(frame) = &mut signal {
            let mixes = self.is_mutated(Mutation::MixFrames);
            let hot = self.live.runs.entry(run).or_default();
            let said = (frame.claim, frame.text.clone());
            if let Some((claim, text)) = hot.last.replace(said).filter(|_| mixes)
                && claim != frame.claim
            {
                frame.text = text;
            }
            hot.hold(frame);
        }
        let Some(hot) = self.live.runs.get(&run) else { return };
        let watchers: Vec<_> = hot.watchers.values().cloned().collect();
        for mailbox in watchers {
            let lost = self.rates.signal_lost;
            if self.dice.chance(lost) {
                self.count("signal lost");
                continue;
            }
            let (on_its_way, signal) = (self.signal_latency(), signal.clone());
            self.after(on_its_way, move |core| {
                core.ready.insert(mailbox.node);
                mailbox.put(signal);
            });
        }
    }

    fn signal_latency(&mut self) -> u64 {
        let late = self.rates.signal_late;
        if self.dice.chance(late) { self.dice.between(5, 1_500) } else { self.dice.below(3) }
    }
}

/// The signals that wait for a watcher.
struct Mailbox<T> {
    node: usize,
    letters: Mutex<Letters<T>>,
    /// Replaces the waiting signals if they are too many.
    too_many: Option<T>,
}

struct Letters<T> {
    waiting: VecDeque<T>,
    waker: Option<Waker>,
}

impl<T: Clone> Mailbox<T> {
    fn new(node: usize, too_many: Option<T>) -> Arc<Self> {
        let letters = Mutex::new(Letters { waiting: VecDeque::new(), waker: None });
        Arc::new(Self { node, letters, too_many })
    }

    fn put(&self, letter: T) {
        let mut letters = self.lock();
        if letters.waiting.len() >= SIGNALS_MAX {
            letters.waiting.clear();
            letters.waiting.extend(self.too_many.clone());
        } else {
            letters.waiting.push_back(letter);
        }
        if let Some(waker) = letters.waker.take() {
            waker.wake();
        }
    }

    fn take(&self, context: &Context<'_>) -> Poll<Option<T>> {
        let mut letters = self.lock();
        let letter = letters.waiting.pop_front();
        if letter.is_none() {
            letters.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(letter)
    }

    fn lock(&self) -> MutexGuard<'_, Letters<T>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A watcher's subscription, until dropped.
struct Subscription {
    link: Link,
    run: RunId,
    number: u64,
    mailbox: Arc<Mailbox<Signal>>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(hot) = self.link.world.lock().live.runs.get_mut(&self.run) {
            hot.watchers.remove(&self.number);
        }
    }
}

fn broken(broken: Broken) -> LiveError {
    LiveError(broken.into())
}

/// A node's connection to the live stream.
pub(crate) struct SimLive(pub(crate) Link);

#[async_trait]
impl LiveStream for SimLive {
    async fn publish(&self, run: RunId, signal: Signal) -> Result<(), LiveError> {
        let mut core = self.0.world.lock();
        let lost = core.rates.signal_lost;
        if core.dice.chance(lost) || core.is_cut(self.0.node, Service::Live) {
            core.count("signal lost");
            return if core.dice.chance(500) {
                Ok(())
            } else {
                Err(LiveError("the connection is cut".into()))
            };
        }
        let on_its_way = core.signal_latency();
        core.after(on_its_way, move |core| core.deliver_signal(run, signal));
        Ok(())
    }

    async fn subscribe(&self, run: RunId) -> Result<Signals, LiveError> {
        let (node, link) = (self.0.node, self.0.clone());
        let mailbox = Mailbox::new(node, Some(Signal::Missed));
        let subscribed = Arc::clone(&mailbox);
        let subscribe = move |core: &mut Core| {
            core.live.last += 1;
            let number = core.live.last;
            let hot = core.live.runs.entry(run).or_default();
            subscribed.lock().waiting.extend(hot.so_far());
            hot.watchers.insert(number, subscribed);
            number
        };
        let number = self.0.ask(Service::Live, subscribe).await.map_err(broken)?;
        let subscription = Subscription { link, run, number, mailbox };
        Ok(futures::stream::poll_fn(move |context| subscription.mailbox.take(context)).boxed())
    }
}
