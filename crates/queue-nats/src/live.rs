//! The live stream on core NATS.
//!
//! `<prefix>.run.<run>` carries a run's signals; nobody stores them. Whoever subscribes then asks on `<prefix>.ask.<run>`, and
//! each process that holds text of the run's attempts answers with it, from the beginning. So a late watcher gets the text so
//! far from whoever writes it, and a process that dies takes only text along that nobody was going to finish.
//!
//! `<prefix>.end.<offerer>.<run>` carries the end alone, with the run, for those who wait for it and watch nothing: most clients
//! do. Whoever offered the run hears of all that it offered by one subscription, and any other process asks for that run,
//! whoever offered it. Of a run that came as an offer, and that nobody has asked about, nothing else is sent. Who asks first is
//! told that something was missed, so that the store is read: what was kept quiet was true before.

mod end;
mod merge;
mod offers;
mod outlet;
mod taken;
mod text;
mod told;
mod watch;
mod wire;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::{Message, Subscriber};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use podium_domain::ids::RunId;
use podium_domain::run::Run;
use podium_ports::live::{EndSignals, LiveError, LiveStream, Offer, Offers, Signal, Signals};
use podium_ports::queue::Lane;
use tokio::sync::Notify;
use tokio::task::unconstrained;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::debug;

use crate::error::NatsError;
use crate::link::{ConnectionOptions, Link, ServerVersion};
use crate::subjects;
use end::EndWatch;
use offers::Offered;
use outlet::outlet;
use taken::Taken;
use text::TextSoFar;
use told::Told;
use watch::Watch;

/// What waits in the client for one watch, which does nothing but read it.
const SUBSCRIPTION_MESSAGES_MAX: usize = 8192;
/// Runs whose watchers may have to be told that they missed something.
const TOLD_RUNS_MAX: usize = 65_536;
/// Offered runs that are remembered. Also one that has ended is for a while: a question that came late has missed its end.
const TAKEN_RUNS_MAX: usize = 65_536;
/// Who offered a run that did not come as an offer.
const NOBODY: &str = "_";

/// The live stream's bounds and names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveOptions {
    /// What its subjects begin with; the same in all processes of a cluster.
    pub prefix: String,
    /// Most signals that a slow watcher may be behind before it misses some.
    pub signals_max: usize,
    /// Most bytes of text that a slow watcher may be behind.
    pub watcher_bytes_max: usize,
    /// Most runs whose text is held here. Beyond it, that of the run that was silent longest is dropped.
    pub runs_max: usize,
    /// Most bytes of text that are held of all runs together. Beyond it, as with `runs_max`.
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

/// Carries signals through NATS.
///
/// Publishing waits for nothing: what cannot be handed over at once is dropped, and the run's watchers are told that they
/// missed something as soon as that can be said. The text of an attempt is held by the process that publishes it, until a
/// newer attempt at the step begins there, the run falls silent for longer than others, or a bound is reached. So a late
/// watcher may also get the text of a step that is done, or of an attempt that was given up: it knows the claim from the
/// store.
pub struct NatsLive {
    shared: Arc<Shared>,
    stop: DropGuard,
}

struct Shared {
    link: Link,
    options: LiveOptions,
    text: Mutex<TextSoFar>,
    told: Mutex<Told>,
    taken: Mutex<Taken>,
    offered: Arc<Offered>,
    /// What this process is called in the subjects of the ends that it waits for: no other is called the same.
    name: String,
    /// Rung when a signal was dropped.
    dropped: Notify,
    tasks: TaskTracker,
}

impl NatsLive {
    /// Connects, and begins to answer for the text that will be published here.
    pub async fn connect(connection: &ConnectionOptions, options: LiveOptions) -> Result<Self, NatsError> {
        const CALL: &str = "subscribe to questions";
        if !options.prefix.split('.').all(subjects::is_name) {
            let message =
                "must be names of 1 to 32 letters, digits, `-` and `_`, with dots between".to_owned();
            return Err(NatsError::Option { option: "prefix", message });
        }
        let link = Link::connect(connection, SUBSCRIPTION_MESSAGES_MAX).await?;
        let questions = link.within(CALL, link.subscribe(CALL, format!("{}.ask.*", options.prefix))).await?;
        let name = link.unique_name();
        let own_ends = format!("{}.end.{name}.*", options.prefix);
        let ends = link.within(CALL, link.subscribe("subscribe to ends", own_ends)).await?;
        let shared = Arc::new(Shared {
            text: Mutex::new(TextSoFar::new(options.runs_max, options.text_bytes_max)),
            told: Mutex::new(Told::new(TOLD_RUNS_MAX)),
            taken: Mutex::new(Taken::new(TAKEN_RUNS_MAX)),
            offered: Arc::default(),
            name,
            dropped: Notify::new(),
            tasks: TaskTracker::new(),
            link,
            options,
        });
        let stop = CancellationToken::new();
        let answer = Arc::clone(&shared).answer(questions);
        shared.tasks.spawn(stop.clone().run_until_cancelled_owned(answer));
        let pass_on = Arc::clone(&shared.offered).pass_on(ends);
        shared.tasks.spawn(stop.clone().run_until_cancelled_owned(pass_on));
        let tell = Arc::clone(&shared).tell_missed();
        shared.tasks.spawn(stop.clone().run_until_cancelled_owned(tell));
        Ok(Self { shared, stop: stop.drop_guard() })
    }

    /// The version of the server, if one was ever connected.
    pub fn server_version(&self) -> Option<ServerVersion> {
        self.shared.link.version()
    }

    /// Waits until all that was told is written, at most a call's time.
    pub async fn flush(&self) {
        let link = &self.shared.link;
        if link.within("flush signals", link.flush()).await.is_err() {
            debug!("what was told last may be lost");
        }
    }

    /// Ends all watches, and waits until nothing runs any more.
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

    fn lock_told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_subject(&self, run: RunId) -> String {
        format!("{}.run.{run}", self.options.prefix)
    }

    /// Where the end of a run is told.
    fn end_subject(&self, run: RunId) -> String {
        let offered = self.lock_taken().offerer(run).map(str::to_owned);
        offered.unwrap_or_else(|| self.end_subject_of(NOBODY, run))
    }

    /// Where the end of a run is told that `offerer` offered.
    fn end_subject_of(&self, offerer: &str, run: RunId) -> String {
        format!("{}.end.{offerer}.{run}", self.options.prefix)
    }

    /// Whether the client took all of it, without waiting. Of a run that nobody watches there is nothing to take.
    fn hand_over(&self, run: RunId, signal: &Signal) -> Result<bool, NatsError> {
        if self.lock_taken().is_hushed(run) {
            return Ok(true);
        }
        if !self.link.is_connected() {
            return Ok(false);
        }
        let messages = wire::write(signal, self.link.client().max_payload());
        for message in messages {
            if !self.try_publish(self.run_subject(run), message?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The same for a run's end, with the run.
    fn hand_over_end(&self, run: &Run) -> Result<bool, NatsError> {
        let told = self.hand_over(run.id(), &Signal::Ended { version: run.version() })?;
        Ok(told && self.try_publish(self.end_subject(run.id()), wire::write_end(run)?))
    }

    /// Whether the client took the message without waiting. Not even for the runtime's sake: a task that has done much would be
    /// asked to wait although there is room.
    fn try_publish(&self, subject: String, message: Bytes) -> bool {
        let sending = self.link.client().publish(subject, message);
        unconstrained(sending).now_or_never().is_some_and(|sent| sent.is_ok())
    }

    /// Notes whether something was handed over.
    fn note(&self, run: RunId, was_sent: bool) {
        if was_sent {
            self.lock_told().sent(run);
        } else if self.lock_told().dropped(run) {
            self.dropped.notify_one();
        }
    }

    /// Answers with the text so far, for as long as this process lives.
    async fn answer(self: Arc<Self>, mut questions: Subscriber) {
        while let Some(question) = questions.next().await {
            let run = question.subject.rsplit('.').next().and_then(|run| run.parse().ok());
            let (Some(run), Some(reply)) = (run, question.reply) else { continue };
            // Before the text is read: what is held from now on is also sent.
            if self.lock_taken().is_watched(run)
                && let Err(error) = self.send(&self.run_subject(run), &Signal::Missed).await
            {
                debug!(%run, error = &error as &dyn std::error::Error, "a watcher is not told what it missed");
            }
            let so_far = self.lock_text().of(run);
            for frame in so_far {
                if let Err(error) = self.send(reply.as_str(), &Signal::Frame(frame)).await {
                    debug!(%run, error = &error as &dyn std::error::Error, "a watcher does not get the text so far");
                    break;
                }
            }
        }
    }

    /// Tells watchers that they missed something, once that can be said.
    async fn tell_missed(self: Arc<Self>) {
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
                self.lock_told().lost();
            }
            let owed = self.lock_told().take_owed();
            for run in owed {
                for subject in [self.run_subject(run), self.end_subject(run)] {
                    if self.send(&subject, &Signal::Missed).await.is_err() {
                        // The connection is lost again; what is owed stays owed.
                        self.lock_told().dropped(run);
                    }
                }
            }
        }
    }

    /// Waits until the client takes it.
    async fn send(&self, subject: &str, signal: &Signal) -> Result<(), NatsError> {
        const CALL: &str = "send a signal";
        for message in wire::write(signal, self.link.client().max_payload()) {
            self.link.within(CALL, self.link.send(CALL, subject.to_owned(), message?)).await?;
        }
        Ok(())
    }

    /// The offer of a message, for whoever takes it here. What cannot be read is declined.
    async fn take(&self, message: Message) -> Option<Offer> {
        let subject = message.reply?.to_string();
        let offer = offers::read(&message.payload);
        match &offer {
            Some(offer) => self.lock_taken().take(offer.message.run, subject),
            None => self.decline(&subject).await,
        }
        offer
    }

    /// Tells whoever listens on `subject` that its offer is not worked on here.
    async fn decline(&self, subject: &str) {
        if let Err(error) = self.send(subject, &Signal::Missed).await {
            debug!(subject, error = &error as &dyn std::error::Error, "an offer was not declined");
        }
    }

    /// A watch whose subscriptions the server knows of, and its question sent.
    async fn open(&self, run: RunId, stop: CancellationToken) -> Result<(Watch, Signals), NatsError> {
        const CALL: &str = "subscribe to a run";
        self.link.connected().await?;
        let health = self.link.health();
        let seen = *health.borrow();
        let inbox = self.link.client().new_inbox();
        let live = self.link.subscribe(CALL, self.run_subject(run)).await?;
        let mut answers = self.link.subscribe(CALL, inbox.clone()).await?;
        // When this comes back, the server knows both subscriptions: what others publish from now on is not missed.
        self.link.send(CALL, inbox.clone(), Bytes::new()).await?;
        let Some(_) = answers.next().await else {
            return Err(NatsError::Client { call: CALL, source: "the client has stopped".into() });
        };
        let question = format!("{}.ask.{run}", self.options.prefix);
        self.link.send_for_reply(CALL, question, inbox, Bytes::new()).await?;
        let (outlet, signals) = outlet(self.options.signals_max, self.options.watcher_bytes_max);
        Ok((Watch { live, answers, health, seen, outlet, stop }, signals))
    }
}

#[async_trait]
impl LiveStream for NatsLive {
    async fn publish(&self, run: RunId, signal: Signal) -> Result<(), LiveError> {
        if let Signal::Frame(frame) = &signal {
            // Before it is looked whether somebody watches: who asks in between gets it with the text so far.
            self.shared.lock_text().hold(run, frame);
        }
        self.shared.note(run, self.shared.hand_over(run, &signal)?);
        Ok(())
    }

    async fn publish_end(&self, run: &Arc<Run>) -> Result<(), LiveError> {
        // Whoever comes later reads the store.
        self.shared.lock_text().forget(run.id());
        self.shared.note(run.id(), self.shared.hand_over_end(run)?);
        Ok(())
    }

    async fn subscribe(&self, run: RunId) -> Result<Signals, LiveError> {
        let shared = &self.shared;
        let opening = shared.open(run, self.stop.token().clone());
        let (watch, signals) = shared.link.within("subscribe to a run", opening).await?;
        shared.tasks.spawn(watch.run());
        Ok(signals)
    }

    async fn subscribe_to_end(&self, run: RunId) -> Result<EndSignals, LiveError> {
        let shared = &self.shared;
        let (of_any, own) = (shared.end_subject_of("*", run), shared.end_subject_of(NOBODY, run));
        let opening = EndWatch::open(&shared.link, (of_any, own), self.stop.token().clone());
        Ok(shared.link.within("subscribe to a run's end", opening).await?.into_signals())
    }

    async fn offer(&self, lane: &Lane, offer: &Offer) -> Result<Option<EndSignals>, LiveError> {
        const CALL: &str = "offer a run";
        let (shared, run) = (&self.shared, offer.message.run);
        let Some(body) = offers::write(offer)?.filter(|_| shared.link.is_connected()) else {
            return Ok(None);
        };
        let signals = shared.offered.wait(run);
        let subject = subjects::offers(&shared.options.prefix, lane);
        let reply = shared.end_subject_of(&shared.name, run);
        shared.link.within(CALL, shared.link.send_for_reply(CALL, subject, reply, body)).await?;
        Ok(Some(signals))
    }

    async fn offers(&self, lane: &Lane) -> Result<Offers, LiveError> {
        const CALL: &str = "subscribe to offers";
        let subject = subjects::offers(&self.shared.options.prefix, lane);
        let link = &self.shared.link;
        let subscribing = async {
            let messages = link.subscribe_in(CALL, offers::GROUP, subject).await?;
            link.catch_up(CALL).await?;
            Ok::<_, NatsError>(messages)
        };
        let messages = link.within(CALL, subscribing).await?;
        let shared = Arc::clone(&self.shared);
        let offers = messages.filter_map(move |message| {
            let shared = Arc::clone(&shared);
            async move { shared.take(message).await }
        });
        Ok(offers.take_until(self.stop.token().clone().cancelled_owned()).boxed())
    }

    async fn decline(&self, run: RunId) -> Result<(), LiveError> {
        let subject = self.shared.lock_taken().offerer(run).map(str::to_owned);
        if let Some(subject) = subject {
            self.shared.decline(&subject).await;
        }
        Ok(())
    }
}
