//! Watches a run: stored events without gaps, and live text between them. The store is read whenever a signal says so, or a signal
//! may have been lost. The live stream only makes this faster.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt};
use podium_domain::call_id::CallId;
use podium_domain::ids::{ClaimId, RunId, StepIndex};
use podium_domain::run::{Progress, Run, RunEvent, SequencedEvent, StepRef};
use podium_domain::time::Timestamp;
use podium_ports::live::{Frame, LiveError, Signal, Signals};
use podium_ports::store::StoreError;
use tracing::debug;

use super::outages::{OUTAGE_MAX, outlast};
use crate::live_text::{Form, LiveReader, Piece};
use crate::parts::Parts;

/// Interval between reads of the store without a live stream, and time to the first read without a signal. With a live stream, the time
/// doubles up to a bound until something happens: a lost signal delays a watcher by at most the silence before it. After the run's
/// deadline, soon after which the run ends, the first interval applies again.
const POLL_AFTER: Duration = Duration::from_secs(1);
const POLL_AFTER_MAX: Duration = Duration::from_mins(1);
/// How long a watcher waits for its subscription before it continues without. The subscription goes on in the background.
const SUBSCRIBE_WAIT: Duration = Duration::from_millis(50);
/// Silence after which a reader of a reply is told what the run is doing. Shorter than the silence that ends in a server's own sign
/// of life.
const PROGRESS_AFTER: Duration = Duration::from_secs(7);
/// Events read at a time.
const EVENTS_PAGE: u32 = 256;

/// An update of a watched run.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// A stored event.
    Event(SequencedEvent),
    /// Text of the conductor.
    Planning {
        /// The round that it plans.
        round: u16,
        /// The text.
        text: String,
    },
    /// Text of a worker. The frames of one attempt have no gaps or overlaps. The text of a step that began before its plan was complete
    /// is held back until the plan is.
    Frame {
        /// The text and its place.
        frame: Frame,
        /// Whether it is text of the run's answer.
        is_answer: bool,
    },
    /// Reasoning of the worker of a final step, before its text and its calls, if the request asks for it. The texts of one attempt
    /// have no gaps or overlaps.
    Reasoning {
        /// The step.
        step: StepRef,
        /// The attempt.
        claim: ClaimId,
        /// Bytes of the attempt's reasoning before this text.
        offset: u64,
        /// The text.
        text: String,
        /// Whether it is the reasoning of the run's answer.
        is_answer: bool,
    },
    /// A piece of a tool call of a worker. The pieces of one attempt have no gaps or overlaps.
    ToolCall {
        /// The step.
        step: StepRef,
        /// The attempt.
        claim: ClaimId,
        /// The position of the call among those of the attempt, from 0.
        index: usize,
        /// The piece.
        piece: ToolCallPiece,
        /// Whether the call is part of the run's answer.
        is_answer: bool,
    },
    /// The progress of the run, for a watcher of a reply that has heard nothing for some seconds, if the policy shows it.
    Progress(Progress),
    /// The attempt whose text was shown ended without a result; later frames are those of another attempt.
    Restarted {
        /// The round.
        round: u16,
        /// The step.
        step: StepIndex,
    },
}

impl Update {
    /// Whether it is a part of the answer.
    const fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::Frame { is_answer: true, .. }
                | Self::Reasoning { is_answer: true, .. }
                | Self::ToolCall { is_answer: true, .. }
        )
    }
}

/// A piece of a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolCallPiece {
    /// The call begins.
    Begun {
        /// The id that clients get for the call.
        id: CallId,
        /// The name of the tool.
        name: String,
    },
    /// The next piece of its arguments.
    Arguments(String),
}

/// The updates that a watcher needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// All of them.
    Everything,
    /// The text of the reply with this number, and its end. Events arrive only when these are read, not at each commit.
    Reply(u16),
}

/// The live text of a step that the watcher has shown.
struct Shown {
    claim: ClaimId,
    /// Bytes of live text that were read.
    bytes: u64,
    /// Bytes of text that were shown.
    text_bytes: u64,
    /// Bytes of reasoning that were shown.
    reasoning_bytes: u64,
    reader: LiveReader,
}

/// A run cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The run does not exist.
    #[error("the run does not exist")]
    UnknownRun,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub(crate) struct Watcher {
    parts: Parts,
    id: RunId,
    wants: Wants,
    after: u64,
    run: Option<Run>,
    /// `None` while the live stream fails. Then the store is polled, and each poll subscribes again.
    signals: Option<Signals>,
    /// A subscription that is not complete yet.
    subscribing: Option<BoxFuture<'static, Option<Signals>>>,
    shown: HashMap<StepRef, Shown>,
    /// A round whose text is held back: before its plan is complete, it is unknown whether the text is the answer.
    withheld: Option<u16>,
    pending: VecDeque<Update>,
    poll_after: Duration,
    /// The time of the next [`Update::Progress`], unless another update comes before.
    progress_at: Timestamp,
    /// Whether commits were signalled whose events were not read.
    is_behind: bool,
    /// The events for an [`Update::Progress`], which delay no other update.
    catching_up: Option<BoxFuture<'static, Option<Vec<SequencedEvent>>>>,
    /// The longest outage of the store that delays it and does not fail it. Zero until it has read the run.
    outage_max: Duration,
}

impl Watcher {
    pub(crate) async fn new(parts: Parts, id: RunId, after: u64, wants: Wants) -> Result<Self, WatchError> {
        let (shown, pending) = (HashMap::new(), VecDeque::new());
        let (run, withheld, poll_after) = (None, None, POLL_AFTER);
        let (signals, subscribing, outage_max) = (None, None, Duration::ZERO);
        let progress_at = parts.clock.now().after(PROGRESS_AFTER);
        let mut watcher = Self {
            parts,
            id,
            wants,
            after,
            run,
            signals,
            subscribing,
            shown,
            withheld,
            pending,
            poll_after,
            progress_at,
            is_behind: false,
            catching_up: None,
            outage_max,
        };
        watcher.resubscribe().await?;
        if watcher.run.is_none() {
            return Err(WatchError::UnknownRun);
        }
        watcher.outage_max = OUTAGE_MAX;
        Ok(watcher)
    }

    pub(crate) fn into_stream(self) -> BoxStream<'static, Result<Update, StoreError>> {
        stream::unfold(Some(self), |watcher| async {
            let mut watcher = watcher?;
            match watcher.next().await {
                Ok(Some(update)) => Some((Ok(update), Some(watcher))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed()
    }

    async fn next(&mut self) -> Result<Option<Update>, StoreError> {
        loop {
            if let Some(update) = self.pending.pop_front() {
                if update.is_answer() {
                    self.progress_at = self.parts.clock.now().after(PROGRESS_AFTER);
                }
                return Ok(Some(update));
            }
            if self.is_over() {
                return Ok(None);
            }
            if self.withheld.is_some_and(|round| self.is_planned(round)) {
                self.withheld = None;
                self.resubscribe().await?;
                continue;
            }
            let (pause, quiet) = (self.pause(), self.progress_at.since(self.parts.clock.now()));
            let reports = self.shows_progress();
            tokio::select! {
                biased;
                signals = finish(&mut self.subscribing) => {
                    self.signals = signals;
                    self.read_events().await?;
                }
                signal = next_of(&mut self.signals) => self.heed(signal).await?,
                events = finish(&mut self.catching_up) => self.catch_up(events)?,
                () = self.parts.clock.sleep(quiet), if reports => self.report(),
                () = self.parts.clock.sleep(pause) => self.poll().await?,
            }
        }
    }

    /// Whether nothing follows that the watcher needs.
    fn is_over(&self) -> bool {
        self.run.as_ref().is_some_and(|run| match self.wants {
            Wants::Everything => run.is_ended(),
            Wants::Reply(reply) => run.has_replied(reply),
        })
    }

    /// Whether the watcher is told what the run is doing.
    fn shows_progress(&self) -> bool {
        let is_shown = self.run.as_ref().is_some_and(|run| run.spec().request.policy.shows_steps);
        is_shown && self.wants != Wants::Everything
    }

    /// Tells what the run is doing, once the events that are behind it are read.
    fn report(&mut self) {
        self.progress_at = self.parts.clock.now().after(PROGRESS_AFTER);
        if !self.is_behind {
            self.pending.extend(self.run.as_ref().map(|run| Update::Progress(run.progress())));
        } else if self.catching_up.is_none() {
            let (store, id, version) = (self.parts.store.clone(), self.id, self.version());
            let read = async move { store.events(id, version, EVENTS_PAGE).await.ok() };
            self.catching_up = Some(read.boxed());
        }
    }

    /// Folds the events that were read for a report. If the read failed, or another one was faster, the next report tries again.
    fn catch_up(&mut self, events: Option<Vec<SequencedEvent>>) -> Result<(), StoreError> {
        let Some(events) = events else { return Ok(()) };
        let continues = events.first().is_none_or(|first| first.sequence == self.version() + 1);
        if continues {
            self.is_behind = events.len() == EVENTS_PAGE as usize;
            self.take(events)?;
            if !self.is_over() {
                self.report();
            }
        }
        Ok(())
    }

    /// How long to wait for a signal.
    fn pause(&self) -> Duration {
        let deadline =
            self.run.as_ref().map_or(Duration::MAX, |run| run.due_at().since(self.parts.clock.now()));
        self.poll_after.min(deadline.saturating_add(POLL_AFTER))
    }

    async fn poll(&mut self) -> Result<(), StoreError> {
        let version = self.version();
        match self.signals {
            Some(_) => {
                self.poll_after = POLL_AFTER_MAX.min(self.poll_after * 2);
                self.read_events().await?;
            }
            None if self.subscribing.is_some() => self.read_events().await?,
            None => self.resubscribe().await?,
        }
        if self.version() > version || self.signals.is_none() {
            self.poll_after = POLL_AFTER;
        }
        self.must_exist().await
    }

    async fn heed(&mut self, signal: Option<Signal>) -> Result<(), StoreError> {
        match signal {
            // Events are read at the first frame of the answer and at the end only.
            Some(Signal::Committed { version })
                if self.wants != Wants::Everything && self.withheld.is_none() =>
            {
                self.is_behind |= version > self.version();
                Ok(())
            }
            Some(Signal::Committed { version } | Signal::Ended { version }) if version > self.version() => {
                self.poll_after = POLL_AFTER;
                self.read_events().await
            }
            Some(Signal::Committed { .. } | Signal::Ended { .. }) => Ok(()),
            Some(Signal::Frame(frame)) => self.see(frame).await,
            Some(Signal::Planning { round, text }) => {
                self.pending.push_back(Update::Planning { round, text });
                Ok(())
            }
            Some(Signal::Missed) => self.resubscribe().await,
            None => {
                self.signals = None;
                self.read_events().await
            }
        }
    }

    fn version(&self) -> u64 {
        self.run.as_ref().map_or(0, Run::version)
    }

    async fn read_events(&mut self) -> Result<(), StoreError> {
        loop {
            let events = self.stored_events(self.version(), EVENTS_PAGE).await?;
            let is_last = events.len() < EVENTS_PAGE as usize;
            self.take(events)?;
            if is_last || (self.is_over() && self.wants != Wants::Everything) {
                self.is_behind = false;
                return Ok(());
            }
        }
    }

    /// Folds the next events, and passes them on.
    fn take(&mut self, events: Vec<SequencedEvent>) -> Result<(), StoreError> {
        for event in events {
            // Events after the end, such as an unused result, are not shown to live watchers either.
            let has_ended = self.is_over();
            if has_ended && self.wants != Wants::Everything {
                // Later events would show the run as it was after the reply.
                return Ok(());
            }
            self.fold(&event)?;
            if event.sequence > self.after && !has_ended {
                self.pending.push_back(Update::Event(event));
            }
        }
        Ok(())
    }

    fn stored_events(
        &self,
        after: u64,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<SequencedEvent>, StoreError>> + Send + use<> {
        let (parts, id, outage_max) = (self.parts.clone(), self.id, self.outage_max);
        async move { outlast(&*parts.clock, id, outage_max, || parts.store.events(id, after, limit)).await }
    }

    /// Fails if the run was removed: it is past its deadline, this watcher has not seen its end, and it has no events.
    async fn must_exist(&mut self) -> Result<(), StoreError> {
        let is_due = |run: &Run| !run.is_ended() && self.parts.clock.now() >= run.due_at();
        if !self.run.as_ref().is_some_and(is_due) || !self.stored_events(0, 1).await?.is_empty() {
            return Ok(());
        }
        Err(StoreError::Removed { run: self.id })
    }

    fn fold(&mut self, event: &SequencedEvent) -> Result<(), StoreError> {
        if let RunEvent::StepCalled { round, step, .. } = &event.event {
            // The next turn is no new try of this one.
            self.shown.remove(&StepRef { round: *round, step: *step });
        }
        let illegal = |error| StoreError::illegal(self.id, error);
        if let Some(run) = &mut self.run {
            return run.apply(event).map_err(illegal);
        }
        self.run = Some(Run::replay(self.id, std::slice::from_ref(event)).map_err(illegal)?);
        Ok(())
    }

    /// Subscribes again and then reads the store, so that no commit in between is missed. A live stream that does not answer at once
    /// delays no watcher.
    async fn resubscribe(&mut self) -> Result<(), StoreError> {
        let subscribing = subscribe(self.parts.clone(), self.id, self.wants);
        (self.signals, self.subscribing) = (None, Some(subscribing.boxed()));
        self.signals = tokio::select! {
            biased;
            signals = finish(&mut self.subscribing) => signals,
            () = self.parts.clock.sleep(SUBSCRIBE_WAIT) => None,
        };
        self.read_events().await
    }

    async fn see(&mut self, frame: Frame) -> Result<(), StoreError> {
        let step = StepRef { round: frame.round, step: frame.step };
        if !self.holds(step, frame.claim) {
            self.read_events().await?;
        }
        // The text is from a lost claim, or from a step whose output is already in the events.
        if !self.holds(step, frame.claim) {
            return Ok(());
        }
        if !self.is_planned(frame.round) {
            self.withheld = Some(frame.round);
            return Ok(());
        }
        let shown =
            self.shown.get(&step).filter(|shown| shown.claim == frame.claim).map_or(0, |shown| shown.bytes);
        let Some(text) = frame.after(shown) else {
            debug!(run = %self.id, "a frame was lost");
            return self.resubscribe().await;
        };
        if !text.is_empty() {
            self.show(step, frame.claim, text);
        }
        Ok(())
    }

    /// Passes the next live text of an attempt on.
    fn show(&mut self, step: StepRef, claim: ClaimId, live: &str) {
        let (is_answer, form) = (self.is_answer(step), self.form(step));
        let fresh =
            Shown { claim, bytes: 0, text_bytes: 0, reasoning_bytes: 0, reader: LiveReader::new(form) };
        let shown = match self.shown.entry(step) {
            Entry::Occupied(mut before) if before.get().claim != claim => {
                before.insert(fresh);
                self.pending.push_back(Update::Restarted { round: step.round, step: step.step });
                before.into_mut()
            }
            entry => entry.or_insert(fresh),
        };
        shown.bytes += live.len() as u64;
        for piece in shown.reader.read(live) {
            let (index, piece) = match piece {
                Piece::Text(text) => {
                    let offset = shown.text_bytes;
                    shown.text_bytes += text.len() as u64;
                    let frame = Frame { round: step.round, step: step.step, claim, offset, text };
                    self.pending.push_back(Update::Frame { frame, is_answer });
                    continue;
                }
                Piece::Reasoning(text) => {
                    let offset = shown.reasoning_bytes;
                    shown.reasoning_bytes += text.len() as u64;
                    self.pending.push_back(Update::Reasoning { step, claim, offset, text, is_answer });
                    continue;
                }
                Piece::CallBegun { index, name } => {
                    let id = CallId::new(self.id, step, claim, index);
                    (index, ToolCallPiece::Begun { id, name })
                }
                Piece::Arguments { index, text } => (index, ToolCallPiece::Arguments(text)),
            };
            self.pending.push_back(Update::ToolCall { step, claim, index, piece, is_answer });
        }
    }

    /// The form of the live text of a step whose round is planned.
    fn form(&self, step: StepRef) -> Form {
        self.run.as_ref().map_or(Form::Plain, |run| Form::of(run, step))
    }

    fn holds(&self, step: StepRef, claim: ClaimId) -> bool {
        self.run.as_ref().and_then(|run| run.task(step.into())).is_some_and(|task| task.is_held_by(claim))
    }

    fn is_planned(&self, round: u16) -> bool {
        self.run.as_ref().and_then(|run| run.rounds().get(usize::from(round))?.plan()).is_some()
    }

    fn is_answer(&self, StepRef { round, step }: StepRef) -> bool {
        let Some(run) = &self.run else { return false };
        round + 1 >= run.spec().request.policy.rounds_max && run.is_final_step(round, step)
    }
}

/// Signals of the run; `None` if the live stream fails.
async fn subscribe(parts: Parts, id: RunId, wants: Wants) -> Option<Signals> {
    let subscribed = match wants {
        Wants::Everything => parts.live.subscribe(id).await,
        Wants::Reply(_) => parts.live.subscribe_to_answer(id).await,
    };
    or_without(id, subscribed)
}

/// Waits for a pending subscription; never returns without one.
pub(crate) async fn finish<S>(subscribing: &mut Option<BoxFuture<'static, Option<S>>>) -> Option<S> {
    let Some(work) = subscribing else { return std::future::pending().await };
    let signals = work.await;
    *subscribing = None;
    signals
}

/// The signals, unless the live stream failed.
pub(crate) fn or_without<S>(id: RunId, subscribed: Result<S, LiveError>) -> Option<S> {
    subscribed.inspect_err(|error| debug!(run = %id, %error, "watching without live signals")).ok()
}

/// The next signal, or `None` at the end of the signals. Without signals it never returns.
pub(crate) async fn next_of<T>(signals: &mut Option<BoxStream<'static, T>>) -> Option<T> {
    match signals {
        Some(signals) => signals.next().await,
        None => std::future::pending().await,
    }
}
