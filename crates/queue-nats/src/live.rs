//! The live stream on core NATS.
//!
//! `<prefix>.run.<run>` carries a run's signals, which are not stored. `<prefix>.inner.<run>` carries the text of steps that
//! are not the answer: most watchers do not show it. A new subscriber sends a request on `<prefix>.ask.<run>`. Each process
//! that buffers text of the run's attempts replies with all of it, so a late watcher gets the earlier text. If such a process
//! dies, only text of unfinished attempts is lost. Text is published only while a run has watchers; see [`pace`].
//!
//! `<prefix>.end._.<run>` carries only the end of a run, for callers that wait for it without watching, as most clients do.
//! Earlier versions publish it under `<prefix>.end.<name>.<run>`, so waiters subscribe to any name.
//!
//! `<prefix>.stop.<run>` asks every process that works on a run to check in the store whether its claims are still valid.

mod end;
mod merge;
mod missed_signals;
mod outlet;
mod pace;
mod text;
mod watch;
mod wire;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::{StatusCode, Subscriber};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use podium_domain::ids::RunId;
use podium_ports::live::{EndSignals, Frame, LiveError, LiveStream, Signal, Signals, Stops};
use tokio::sync::Notify;
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::debug;

use crate::error::NatsError;
use crate::link::{ConnectionOptions, Link, ServerVersion};
use crate::subjects;
use end::EndWatch;
use missed_signals::MissedSignals;
use outlet::outlet;
use pace::{Channel, JOIN, Pace, RunChannel, Sending};
use text::TextSoFar;
use watch::Watch;

/// The client's buffer for one watch, whose task only reads it.
const SUBSCRIPTION_MESSAGES_MAX: usize = 8192;
/// Most runs whose watchers may have to be notified of missed signals.
const MISSED_RUNS_MAX: usize = 65_536;
/// Most channels for which this process tracks whether they have watchers.
const PACED_RUNS_MAX: usize = 65_536;
/// The request body of a watcher that shows only the answer.
const ANSWER_ONLY: &[u8] = b"answer";
/// The name in the subjects of ends. Earlier versions used the process's name.
const END_NAME: &str = "_";

/// Bounds and names of the live stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveOptions {
    /// Prefix of its subjects; the same in all processes of a cluster.
    pub prefix: String,
    /// Most signals that are buffered for a slow watcher before it misses some.
    pub signals_max: usize,
    /// Most bytes of text that are buffered for a slow watcher.
    pub watcher_bytes_max: usize,
    /// Most runs whose text this process buffers. Beyond it, the process drops the run that was silent longest.
    pub runs_max: usize,
    /// Most bytes of text that this process buffers for all runs together. Beyond it, it drops runs as for `runs_max`.
    pub text_bytes_max: usize,
}

impl Default for LiveOptions {
    fn default() -> Self {
        Self {
            prefix: "podium.live".to_owned(),
            signals_max: 1024,
            watcher_bytes_max: 32 << 20,
            runs_max: 1024,
            text_bytes_max: 64 << 20,
        }
    }
}

/// Transports signals through NATS.
///
/// Publishing never waits. If the client cannot accept a signal at once, the signal is dropped, and the run's watchers are
/// notified of missed signals as soon as possible. The process that publishes an attempt's text buffers it until a newer
/// attempt at the step begins in that process, or until it must drop the run to stay within its bounds. So a late watcher may
/// also receive text of finished or abandoned attempts; it reads the valid claim from the store.
pub struct NatsLive {
    shared: Arc<Shared>,
    stop: DropGuard,
}

struct Shared {
    link: Link,
    options: LiveOptions,
    text: Mutex<TextSoFar>,
    missed: Mutex<MissedSignals>,
    pace: Mutex<Pace>,
    /// Prefix of the reply subjects of probes. The run, the channel and the probe's number follow.
    probes: String,
    /// Notified when the first text starts to wait for [`JOIN`].
    joining: Notify,
    /// Notified when a signal is dropped.
    dropped: Notify,
    tasks: TaskTracker,
}

impl NatsLive {
    /// Connects and starts to answer requests for the text that this process publishes.
    pub async fn connect(connection: &ConnectionOptions, options: LiveOptions) -> Result<Self, NatsError> {
        const CALL: &str = "subscribe to requests for text";
        if !options.prefix.split('.').all(subjects::is_name) {
            let message =
                "must be names of 1 to 32 letters, digits, `-` and `_`, with dots between".to_owned();
            return Err(NatsError::Option { option: "prefix", message });
        }
        let link = Link::connect(connection, SUBSCRIPTION_MESSAGES_MAX).await?;
        let requests = link.within(CALL, link.subscribe(CALL, format!("{}.ask.*", options.prefix))).await?;
        let probes = link.client().new_inbox();
        let answers = link.within(CALL, link.subscribe(CALL, format!("{probes}.*.*.*"))).await?;
        let shared = Arc::new(Shared {
            text: Mutex::new(TextSoFar::new(options.runs_max, options.text_bytes_max)),
            missed: Mutex::new(MissedSignals::new(MISSED_RUNS_MAX)),
            pace: Mutex::new(Pace::new(PACED_RUNS_MAX)),
            probes,
            joining: Notify::new(),
            dropped: Notify::new(),
            tasks: TaskTracker::new(),
            link,
            options,
        });
        let stop = CancellationToken::new();
        let answer = Arc::clone(&shared).answer(requests);
        shared.tasks.spawn(stop.clone().run_until_cancelled_owned(answer));
        let notify = Arc::clone(&shared).notify_missed();
        shared.tasks.spawn(stop.clone().run_until_cancelled_owned(notify));
        let read_probes = Arc::clone(&shared).read_probe_answers(answers);
        shared.tasks.spawn(stop.clone().run_until_cancelled_owned(read_probes));
        let join = Arc::clone(&shared).publish_joined();
        shared.tasks.spawn(stop.clone().run_until_cancelled_owned(join));
        Ok(Self { shared, stop: stop.drop_guard() })
    }

    /// The server's version, if a connection was ever made.
    pub fn server_version(&self) -> Option<ServerVersion> {
        self.shared.link.version()
    }

    /// Waits until the client has written all signals, at most for a call's time limit. Without a connection it returns at once.
    pub async fn flush(&self) {
        let link = &self.shared.link;
        if !link.is_connected() || link.within("flush signals", link.flush()).await.is_err() {
            debug!("the last signals may be lost");
        }
    }

    async fn watch(&self, run: RunId, only: Option<Channel>) -> Result<Signals, LiveError> {
        let shared = &self.shared;
        let opening = shared.open(run, only, self.stop.token().clone());
        let (watch, signals) = shared.link.within("subscribe to a run", opening).await?;
        shared.tasks.spawn(watch.run());
        Ok(signals)
    }

    /// Ends all watches and waits until all tasks have stopped.
    pub async fn close(self) {
        self.stop.disarm().cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

impl Shared {
    fn lock_text(&self) -> MutexGuard<'_, TextSoFar> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_missed(&self) -> MutexGuard<'_, MissedSignals> {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subject(&self, RunChannel { run, channel }: RunChannel) -> String {
        format!("{}.{}.{run}", self.options.prefix, channel.name())
    }

    /// The subject of a run's end under `name`.
    fn end_subject(&self, name: &str, run: RunId) -> String {
        format!("{}.end.{name}.{run}", self.options.prefix)
    }

    /// Passes on a signal without waiting. False if the client did not take all of it.
    fn hand_over(&self, run: RunId, signal: &Signal) -> Result<bool, NatsError> {
        self.hand_over_for(Channel::Main.of(run), signal, None)
    }

    /// Like [`hand_over`](Self::hand_over), with a channel and a reply subject for the first message.
    fn hand_over_for(
        &self,
        at: RunChannel,
        signal: &Signal,
        mut reply: Option<String>,
    ) -> Result<bool, NatsError> {
        if !self.link.is_connected() {
            return Ok(false);
        }
        let messages = wire::write(signal, self.link.client().max_payload());
        for message in messages {
            if !self.try_publish_for(self.subject(at), reply.take(), message?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Publishes text of workers and conductors if the channel may have watchers.
    fn publish_text(&self, at: RunChannel, signal: &Signal) -> Result<(), NatsError> {
        let RunChannel { run, channel } = at;
        let sending = self.lock_pace().sending(at, Instant::now());
        let reply = match sending {
            Sending::Not => return Ok(()),
            Sending::Plain => None,
            Sending::Probe(watch) => Some(format!("{}.{run}.{}.{watch}", self.probes, channel.name())),
        };
        let was_sent = self.hand_over_for(at, signal, reply)?;
        self.note(run, was_sent);
        Ok(())
    }

    fn publish_frames(&self, at: RunChannel, frames: Vec<Frame>) -> Result<(), NatsError> {
        frames.into_iter().try_for_each(|frame| self.publish_text(at, &Signal::Frame(frame)))
    }

    /// Publishes the run's waiting text before a signal that must not overtake it.
    fn flush_text(&self, run: RunId) -> Result<(), NatsError> {
        Channel::ALL.into_iter().try_for_each(|channel| {
            let waiting = self.lock_pace().flush(channel.of(run), Instant::now());
            self.publish_frames(channel.of(run), waiting)
        })
    }

    /// Buffers a piece for late watchers, and publishes it if the channel may have watchers.
    fn publish_piece(&self, at: RunChannel, frame: &Frame) -> Result<(), NatsError> {
        // The piece is buffered before it is published: a request in between is answered with the buffered text.
        self.lock_text().hold(at.run, frame);
        let mut pace = self.lock_pace();
        let had_waiting = pace.has_waiting();
        let now = pace.add(at, frame, Instant::now());
        if pace.has_waiting() && !had_waiting {
            self.joining.notify_one();
        }
        drop(pace);
        self.publish_frames(at, now)
    }

    /// Reads from the answers to probes which channels have no watchers.
    async fn read_probe_answers(self: Arc<Self>, mut answers: Subscriber) {
        while let Some(answer) = answers.next().await {
            let mut names = answer.subject.rsplit('.');
            let watch = names.next().and_then(|watch| watch.parse().ok());
            let channel = names.next().and_then(Channel::named);
            let run = names.next().and_then(|run| run.parse().ok());
            let at = run.zip(channel).map(|(run, channel)| channel.of(run));
            if let (Some(StatusCode::NO_RESPONDERS), Some(at), Some(watch)) = (answer.status, at, watch) {
                self.lock_pace().unwatched(at, watch);
            }
        }
    }

    /// Publishes waiting text after [`JOIN`].
    async fn publish_joined(self: Arc<Self>) {
        loop {
            self.joining.notified().await;
            sleep_until(Instant::now() + JOIN).await;
            let waiting = self.lock_pace().take_waiting(Instant::now());
            for (at, frame) in waiting {
                if let Err(error) = self.publish_frames(at, vec![frame]) {
                    debug!(run = %at.run, error = &error as &dyn std::error::Error, "text was not published");
                }
            }
        }
    }

    /// Passes on a run's end without waiting, also to callers that wait only for the end.
    fn hand_over_end(&self, run: RunId, signal: &Signal) -> Result<bool, NatsError> {
        for message in wire::write(signal, self.link.client().max_payload()) {
            if !self.hand_over(run, signal)? || !self.try_publish(self.end_subject(END_NAME, run), message?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Passes a message to the client without waiting. It ignores tokio's cooperative budget: a task that has used up its
    /// budget would wait although the client has capacity.
    fn try_publish(&self, subject: String, message: Bytes) -> bool {
        self.try_publish_for(subject, None, message)
    }

    fn try_publish_for(&self, subject: String, reply: Option<String>, message: Bytes) -> bool {
        let client = self.link.client();
        let sent = match reply {
            None => unconstrained(client.publish(subject, message)).now_or_never(),
            Some(reply) => unconstrained(client.publish_with_reply(subject, reply, message)).now_or_never(),
        };
        sent.is_some_and(|sent| sent.is_ok())
    }

    /// Records whether a signal was passed on.
    fn note(&self, run: RunId, was_sent: bool) {
        if was_sent {
            self.lock_missed().sent(run);
        } else if self.lock_missed().dropped(run) {
            self.dropped.notify_one();
        }
    }

    /// Answers requests for buffered text as long as this process lives.
    async fn answer(self: Arc<Self>, mut requests: Subscriber) {
        while let Some(request) = requests.next().await {
            let run = request.subject.rsplit('.').next().and_then(|run| run.parse().ok());
            let (Some(run), Some(reply)) = (run, request.reply) else { continue };
            // The answer includes the waiting text; existing watchers get that text here.
            if let Err(error) = self.flush_text(run) {
                debug!(%run, error = &error as &dyn std::error::Error, "text was not published");
            }
            self.lock_pace().watched(Channel::Main.of(run), Instant::now());
            if request.payload != ANSWER_ONLY {
                self.lock_pace().watched(Channel::Inner.of(run), Instant::now());
            }
            let so_far = self.lock_text().of(run);
            for frame in so_far {
                if let Err(error) = self.send(reply.as_str(), &Signal::Frame(frame)).await {
                    debug!(%run, error = &error as &dyn std::error::Error, "a watcher did not receive the buffered text");
                    break;
                }
            }
        }
    }

    /// Notifies watchers of missed signals as soon as the connection allows.
    async fn notify_missed(self: Arc<Self>) {
        let mut health = self.link.health();
        let mut connections = health.borrow_and_update().connections;
        loop {
            tokio::select! {
                () = self.dropped.notified() => {}
                changed = health.changed() => if changed.is_err() { return },
            }
            let Ok(now) = health.wait_for(|health| health.is_connected).await.map(|health| *health) else {
                return;
            };
            if now.connections != connections {
                connections = now.connections;
                self.lock_missed().lost();
            }
            let due = self.lock_missed().take_due();
            for run in due {
                for subject in [self.subject(Channel::Main.of(run)), self.end_subject(END_NAME, run)] {
                    if self.send(&subject, &Signal::Missed).await.is_err() {
                        // The connection is lost again, so the notification stays due.
                        self.lock_missed().dropped(run);
                    }
                }
            }
        }
    }

    /// Sends a signal to one subject. Waits until the client accepts its messages.
    async fn send(&self, subject: &str, signal: &Signal) -> Result<(), NatsError> {
        const CALL: &str = "send a signal";
        for message in wire::write(signal, self.link.client().max_payload()) {
            self.link.within(CALL, self.link.send(CALL, subject.to_owned(), message?)).await?;
        }
        Ok(())
    }

    /// Opens a watch of one channel, or of all. Returns after the server has registered the subscriptions and the request for
    /// buffered text was sent.
    async fn open(
        &self,
        run: RunId,
        only: Option<Channel>,
        stop: CancellationToken,
    ) -> Result<(Watch, Signals), NatsError> {
        const CALL: &str = "subscribe to a run";
        self.link.connected().await?;
        let health = self.link.health();
        let seen = *health.borrow();
        let inbox = self.link.client().new_inbox();
        let subject = match only {
            Some(channel) => self.subject(channel.of(run)),
            // One subscription keeps the order between the channels.
            None => format!("{}.*.{run}", self.options.prefix),
        };
        let live = self.link.subscribe(CALL, subject).await?;
        let mut answers = self.link.subscribe(CALL, inbox.clone()).await?;
        // When this message returns, the server has registered both subscriptions, so later signals are not missed.
        self.link.send(CALL, inbox.clone(), Bytes::new()).await?;
        let Some(_) = answers.next().await else {
            return Err(NatsError::Client { call: CALL, source: "the client has stopped".into() });
        };
        let request = format!("{}.ask.{run}", self.options.prefix);
        let wanted = Bytes::from_static(if only.is_some() { ANSWER_ONLY } else { b"" });
        self.link.send_for_reply(CALL, request, inbox, wanted).await?;
        let (outlet, signals) = outlet(self.options.signals_max, self.options.watcher_bytes_max);
        Ok((Watch { live, answers, health, seen, outlet, stop }, signals))
    }
}

#[async_trait]
impl LiveStream for NatsLive {
    async fn publish(&self, run: RunId, signal: Signal) -> Result<(), LiveError> {
        let shared = &self.shared;
        let was_sent = match &signal {
            Signal::Frame(frame) => return Ok(shared.publish_piece(Channel::Main.of(run), frame)?),
            // Only watchers of the whole run show it.
            Signal::Planning { .. } => return Ok(shared.publish_text(Channel::Inner.of(run), &signal)?),
            Signal::Ended { .. } => {
                shared.flush_text(run)?;
                // A later subscriber reads the store.
                shared.lock_text().forget(run);
                shared.lock_pace().forget(run);
                shared.hand_over_end(run, &signal)?
            }
            Signal::Committed { .. } | Signal::Missed => {
                shared.flush_text(run)?;
                shared.hand_over(run, &signal)?
            }
        };
        shared.note(run, was_sent);
        Ok(())
    }

    async fn publish_inner(&self, run: RunId, frame: Frame) -> Result<(), LiveError> {
        Ok(self.shared.publish_piece(Channel::Inner.of(run), &frame)?)
    }

    async fn subscribe(&self, run: RunId) -> Result<Signals, LiveError> {
        self.watch(run, None).await
    }

    async fn subscribe_to_answer(&self, run: RunId) -> Result<Signals, LiveError> {
        self.watch(run, Some(Channel::Main)).await
    }

    async fn publish_stop(&self, run: RunId) -> Result<(), LiveError> {
        let subject = format!("{}.stop.{run}", self.shared.options.prefix);
        if !self.shared.try_publish(subject, Bytes::new()) {
            debug!(%run, "other processes were not notified to stop; their next heartbeat finds out");
        }
        Ok(())
    }

    async fn stops(&self) -> Result<Stops, LiveError> {
        const CALL: &str = "subscribe to stops";
        let (link, inbox) = (&self.shared.link, self.shared.link.client().new_inbox());
        let opening = async {
            let stops = link.subscribe(CALL, format!("{}.stop.*", self.shared.options.prefix)).await?;
            // When this message returns, the server has registered both subscriptions.
            let mut echo = link.subscribe(CALL, inbox.clone()).await?;
            link.send(CALL, inbox, Bytes::new()).await?;
            echo.next().await;
            Ok::<_, NatsError>(stops)
        };
        let stops = link.within(CALL, opening).await?;
        let runs = stops.filter_map(async |stop| stop.subject.rsplit('.').next()?.parse().ok());
        Ok(runs.take_until(self.stop.token().clone().cancelled_owned()).boxed())
    }

    async fn subscribe_to_end(&self, run: RunId) -> Result<EndSignals, LiveError> {
        let shared = &self.shared;
        let (of_any, own) = (shared.end_subject("*", run), shared.end_subject(END_NAME, run));
        let opening = EndWatch::open(&shared.link, of_any, own, self.stop.token().clone());
        Ok(shared.link.within("subscribe to a run's end", opening).await?.into_signals())
    }
}

#[cfg(test)]
mod tests;
