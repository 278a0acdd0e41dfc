//! The duties of a process do not wait for each other: the queue may be slow or silent, some runs may be unreadable, and the clock
//! may be wrong. Time is virtual.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::{FutureExt as _, StreamExt as _};
use podium_domain::ids::{RequestId, RunId, StepIndex};
use podium_domain::policy::{Effort, Policy, Tier};
use podium_domain::run::{AttemptOutcome, FailReason, Run, RunState, TaskRef};
use podium_domain::time::Timestamp;
use podium_engine::{Engine, Options, Submit, Update, Work};
use podium_memory::{MemoryQueue, QueueOptions};
use podium_ports::clock::{Clock, Skew};
use podium_ports::live::{LiveError, LiveStream, Signal, Signals};
use podium_ports::queue::{Delivery, Lane, Published, QueueError, StepQueue, TaskMessage};
use podium_ports::store::RunStore;
use podium_testkit::{Answer, Gate, TestClock, TestStore, plan_of};
use tokio_util::sync::CancellationToken;

use crate::faults::{FaultyStore, StoreFaults, SweepTurn};
use crate::house::{House, Parts, Roles, within};

/// The time after which `NatsQueue` fails without a connection.
const NO_ANSWER: Duration = Duration::from_secs(2);
const STEP: TaskRef = TaskRef::Step { round: 0, step: StepIndex::new(0) };

/// A queue that is slow to publish, or that does not answer.
pub(crate) struct SlowQueue {
    pub(crate) queue: Arc<dyn StepQueue>,
    clock: TestClock,
    /// How long a publication takes.
    pub(crate) publication_ms: AtomicU64,
    pub(crate) is_unreachable: AtomicBool,
    /// Publications never get an answer.
    are_messages_lost: AtomicBool,
    pub(crate) published: AtomicUsize,
}

impl SlowQueue {
    async fn answers(&self) -> Result<(), QueueError> {
        if self.is_unreachable.load(Ordering::SeqCst) {
            self.clock.sleep(NO_ANSWER).await;
            return Err(QueueError::Unavailable("injected by the test".into()));
        }
        Ok(())
    }
}

#[async_trait]
impl StepQueue for SlowQueue {
    async fn publish(&self, lane: &Lane, message: TaskMessage) -> Result<Published, QueueError> {
        self.published.fetch_add(1, Ordering::SeqCst);
        self.answers().await?;
        if self.are_messages_lost.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.clock.sleep(Duration::from_millis(self.publication_ms.load(Ordering::SeqCst))).await;
        self.queue.publish(lane, message).await
    }

    async fn fetch(&self, lane: &Lane, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        self.answers().await?;
        self.queue.fetch(lane, max, wait).await
    }

    async fn capacity(&self, lane: &Lane) -> Result<usize, QueueError> {
        self.answers().await?;
        self.queue.capacity(lane).await
    }

    async fn ping(&self) -> Result<(), QueueError> {
        self.answers().await
    }
}

/// An engine under virtual time, its queue and the faults of its store.
pub(crate) struct Scene {
    pub(crate) house: House,
    pub(crate) queue: Arc<SlowQueue>,
    pub(crate) faults: Arc<StoreFaults>,
    pub(crate) clock: TestClock,
}

pub(crate) async fn a_scene(options: Options) -> Scene {
    let faults: Arc<StoreFaults> = Arc::default();
    let around = |_| FaultyStore::around(Arc::new(TestStore::new()) as Arc<dyn RunStore>, &faults);
    let house = House::idle(options.clone(), around).await;
    // The real store was opened and is not used; it has its own threads.
    tokio::time::pause();
    let clock = TestClock::new();
    let queue = Arc::new(SlowQueue {
        queue: Arc::clone(&house.parts.queue),
        clock,
        publication_ms: 0.into(),
        is_unreachable: false.into(),
        are_messages_lost: false.into(),
        published: 0.into(),
    });
    let house = house.with_queue(queue.clone(), options);
    house.conductor.otherwise(plan_of(&[("quick", "Do it.", &[])]));
    Scene { house, queue, faults, clock }
}

pub(crate) fn due_in(deadline: Duration) -> Policy {
    let deadline_ms = u64::try_from(deadline.as_millis()).unwrap();
    Policy { deadline_ms, ..Policy::new(Tier::Ultra, Effort::Medium) }
}

pub(crate) fn overran(run: &Run) -> Duration {
    let RunState::Failed { reason: FailReason::DeadlineExceeded { .. } } = run.state() else {
        panic!("{run:#?}")
    };
    run.ended_at().unwrap().since(run.spec().deadline_at)
}

#[tokio::test]
async fn a_run_is_accepted_at_once_while_the_queue_does_not_answer() {
    let scene = a_scene(Options::default()).await;
    scene.queue.is_unreachable.store(true, Ordering::SeqCst);
    let began = scene.clock.now();
    scene.house.ask().await;
    assert_eq!(scene.clock.now().since(began), Duration::ZERO);
}

#[tokio::test]
async fn deadlines_are_enforced_while_the_queue_does_not_answer() {
    let Scene { house, queue, clock, .. } = a_scene(Options::default()).await;
    for _ in 0..40 {
        house.ask().await;
    }
    let house = house.at_work_as(Roles::NONE);
    queue.is_unreachable.store(true, Ordering::SeqCst);
    clock.sleep(Duration::from_secs(3)).await;
    let run = house.ask_under(due_in(Duration::from_secs(1))).await;
    let run = house.ended(run).await;
    assert!(overran(&run) <= Duration::from_secs(2), "{:?}", overran(&run));
}

#[tokio::test]
async fn waiting_tasks_are_published_when_the_queue_answers_again() {
    let Scene { house, queue, clock, .. } = a_scene(Options::default()).await;
    house.vendor.otherwise(Answer::text("fine"));
    queue.is_unreachable.store(true, Ordering::SeqCst);
    let house = house.at_work();
    let mut runs = Vec::new();
    for _ in 0..40 {
        runs.push(house.ask().await);
    }
    clock.sleep(Duration::from_secs(30)).await;
    queue.is_unreachable.store(false, Ordering::SeqCst);
    let back_at = clock.now();
    for run in runs {
        assert_eq!(house.ended(run).await.answer(), Some("fine"));
    }
    let took = clock.now().since(back_at);
    assert!(took <= Duration::from_secs(6), "{took:?}");
}

/// A live stream without a connection.
struct NoLive;

#[async_trait]
impl LiveStream for NoLive {
    async fn publish(&self, _run: RunId, _signal: Signal) -> Result<(), LiveError> {
        Ok(())
    }

    async fn subscribe(&self, _run: RunId) -> Result<Signals, LiveError> {
        Err(LiveError("injected by the test".into()))
    }
}

#[tokio::test]
async fn a_caller_receives_the_end_soon_without_signals() {
    let Scene { house, queue, clock, .. } = a_scene(Options::default()).await;
    queue.is_unreachable.store(true, Ordering::SeqCst);
    let house = house.beside(Options::default(), 9, |parts| parts.live = Arc::new(NoLive));
    let house = house.at_work_as(Roles::NONE);
    let policy = due_in(Duration::from_secs(40));
    let (_, mut ending) = house.engine.ask(crate::house::request(policy)).await.unwrap();
    let run = ending.run().await.unwrap();
    let late = clock.now().since(run.spec().deadline_at);
    assert!(run.is_ended() && late <= Duration::from_secs(3), "{late:?}");
}

#[tokio::test]
async fn a_lease_expires_while_messages_are_slow() {
    let options = Options { lease: Duration::from_secs(3), ..Options::default() };
    let Scene { mut house, queue, clock, .. } = a_scene(options.clone()).await;
    house.vendor.script("quick", [Answer::hang()]);
    house = house.at_work();
    let run = house.ask().await;
    within(house.vendor.until_called(1)).await;
    house.kill().await;
    // No process takes the published tasks, as in a lane whose messages wait for longer than the grace period.
    for _ in 0..60 {
        house.ask().await;
    }
    // As long as the queue waits for a stream without a leader.
    queue.publication_ms.store(2000, Ordering::SeqCst);
    let began = clock.now();
    let second = house.beside(options.clone(), 9, |_| ()).at_work_as(Roles::NONE);
    let is_lost = |run: &Run| run.task(STEP).unwrap().attempts[0].outcome == AttemptOutcome::Lost;
    second.until(run, is_lost).await;
    let took = clock.now().since(began);
    // The second process expires no lease in the first lease's time after its start.
    assert!(took <= options.lease + 2 * options.sweep_every, "{took:?}");
}

#[tokio::test]
async fn a_process_ends_at_once_while_the_queue_does_not_answer() {
    let Scene { house, queue, clock, .. } = a_scene(Options::default()).await;
    for _ in 0..40 {
        house.ask().await;
    }
    queue.is_unreachable.store(true, Ordering::SeqCst);
    let (engine, stop) = (house.engine.clone(), CancellationToken::new());
    let stopped = stop.clone();
    let began = clock.now();
    let work = async { engine.work(Work::default(), stopped).await };
    let end = async {
        // This is between two sweeps.
        clock.sleep(Duration::from_millis(10_200)).await;
        stop.cancel();
    };
    let (worked, ()) = futures::join!(work, end);
    assert_eq!(worked, Ok(()));
    let took = clock.now().since(began);
    assert!(took < Duration::from_millis(10_250), "{took:?}");
}

/// Each plan's commit makes a step ready, and the publication of its message gets no answer.
#[tokio::test]
async fn commits_are_answered_while_publications_are_not() {
    let options = Options { batch_commands_max: 1, ..Options::default() };
    let Scene { house, queue, clock, .. } = a_scene(options).await;
    let mut runs = Vec::new();
    for _ in 0..100 {
        runs.push(house.ask().await);
    }
    clock.sleep(Duration::from_millis(10)).await;
    queue.are_messages_lost.store(true, Ordering::SeqCst);
    let house = house.at_work_as(Roles::PLANNER);
    let began = clock.now();
    for run in runs {
        house.until(run, |run| run.rounds().first().is_some_and(|round| round.plan().is_some())).await;
    }
    let took = clock.now().since(began);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test]
async fn a_killed_executor_is_replaced_within_five_seconds() {
    let options = |executor: &str| Options { executor: executor.to_owned(), ..Options::default() };
    let Scene { house, clock, .. } = a_scene(options("first")).await;
    house.vendor.script("quick", [Answer::hang(), Answer::text("fine")]);
    // The ack wait of a cluster's queue.
    let ack_wait = options("").lease + options("").sweep_every;
    let queue = QueueOptions { ack_wait, ..QueueOptions::default() };
    let queue = Arc::new(MemoryQueue::new(Arc::new(clock), queue));
    let mut first = house.with_queue(queue, options("first")).at_work();
    let run = first.ask().await;
    within(first.vendor.until_called(1)).await;
    let second = first.beside(options("second"), 9, |_| ()).at_work();
    // The process has not just started.
    clock.sleep(Duration::from_millis(20_900)).await;
    first.kill().await;
    let killed_at = clock.now();
    let run = second.ended(run).await;
    let attempts = &run.task(STEP).unwrap().attempts;
    let took = attempts[1].started_at.since(killed_at);
    assert!(attempts[1].executor == "second" && took <= Duration::from_secs(5), "{took:?}: {attempts:#?}");
}

/// A store whose processes take turns to sweep.
fn taking_turns(turn: &Arc<SweepTurn>) -> Arc<StoreFaults> {
    Arc::new(StoreFaults { turn: Some(Arc::clone(turn)), ..StoreFaults::default() })
}

#[tokio::test]
async fn one_process_sweeps_and_another_takes_over_after_its_death() {
    let Scene { house, clock, .. } = a_scene(Options::default()).await;
    let turn = Arc::default();
    let [first, second] = [(); 2].map(|()| taking_turns(&turn));
    let work = |faults: &Arc<StoreFaults>, seed| {
        let wrap = |parts: &mut Parts| parts.store = FaultyStore::around(Arc::clone(&parts.store), faults);
        house.beside(Options::default(), seed, wrap).at_work_as(Roles::NONE)
    };
    let sweeps = |faults: &Arc<StoreFaults>| faults.sweeps.load(Ordering::SeqCst);
    let mut one = work(&first, 8);
    clock.sleep(Duration::from_secs(2)).await;
    let other = work(&second, 9);
    clock.sleep(Duration::from_secs(20)).await;
    assert!(sweeps(&first) >= 30 && sweeps(&second) == 0, "{} and {}", sweeps(&first), sweeps(&second));
    one.kill().await;
    let killed = sweeps(&first);
    let run = house.ask_under(due_in(Duration::from_secs(4))).await;
    let run = house.ended(run).await;
    assert!(overran(&run) <= Duration::from_secs(1), "{:?}", overran(&run));
    assert!(sweeps(&first) == killed && sweeps(&second) > 0, "{}", sweeps(&second));
    drop(other);
}

#[tokio::test]
async fn calls_in_flight_use_no_capacity_of_their_lane() {
    const CALLS: usize = 5;
    let Scene { house, clock, .. } = a_scene(Options::default()).await;
    house.vendor.script("quick", [(); CALLS].map(|()| Answer::hang()));
    let narrow = QueueOptions { lane_messages_max: 1, ..QueueOptions::default() };
    let queue = Arc::new(MemoryQueue::new(Arc::new(clock), narrow));
    let house = house.with_queue(queue, Options::default()).at_work();
    for _ in 0..CALLS {
        house.ask().await;
    }
    within(house.vendor.until_called(CALLS)).await;
}

#[tokio::test]
async fn unreadable_runs_do_not_delay_deadlines_of_others() {
    let options = Options { sweep_tasks_max: 2, ..Options::default() };
    let Scene { house, faults, clock, .. } = a_scene(options).await;
    let mut unreadable = Vec::new();
    for _ in 0..7 {
        unreadable.push(house.ask_under(due_in(Duration::from_secs(1))).await);
    }
    faults.unreadable.lock().unwrap().extend(&unreadable);
    let run = house.ask_under(due_in(Duration::from_secs(2))).await;
    let house = house.at_work_as(Roles::NONE);
    let run = house.ended(run).await;
    assert!(overran(&run) <= Duration::from_secs(3), "{:?}", overran(&run));

    // Not every sweep loads them.
    let loads = faults.loads.load(Ordering::SeqCst);
    clock.sleep(Duration::from_secs(20)).await;
    let more = faults.loads.load(Ordering::SeqCst) - loads;
    assert!(more <= unreadable.len(), "{more}");
    faults.unreadable.lock().unwrap().clear();
    for run in unreadable {
        house.ended(run).await;
    }
}

#[tokio::test]
async fn a_message_of_an_unreadable_run_is_kept_for_others() {
    let Scene { house, queue, faults, clock } = a_scene(Options::default()).await;
    house.vendor.otherwise(Answer::text("fine"));
    let run = house.ask().await;
    faults.unreadable.lock().unwrap().insert(run);
    let house = house.at_work();
    clock.sleep(Duration::from_secs(4)).await;
    assert_eq!(queue.published.load(Ordering::SeqCst), 1, "the message is neither acked nor published again");
    faults.unreadable.lock().unwrap().clear();
    let readable_at = clock.now();
    assert_eq!(house.ended(run).await.answer(), Some("fine"));
    let took = clock.now().since(readable_at);
    assert!(took <= Duration::from_secs(6), "the message is redelivered: {took:?}");
}

#[tokio::test]
async fn a_steps_message_of_an_unreadable_run_is_kept_for_others() {
    let options = Options { run_cache_runs_max: 0, ..Options::default() };
    let Scene { house, faults, clock, .. } = a_scene(options.clone()).await;
    house.vendor.otherwise(Answer::text("fine"));
    let mut planner = house.at_work_as(Roles::PLANNER);
    let run = planner.ask().await;
    planner.until(run, |run| run.task(STEP).is_some()).await;
    planner.kill().await;
    faults.unreadable.lock().unwrap().insert(run);
    let executor = planner.beside(options, 9, |_| ()).at_work_as(Roles::EXECUTOR);
    clock.sleep(Duration::from_secs(4)).await;
    faults.unreadable.lock().unwrap().clear();
    let readable_at = clock.now();
    assert_eq!(executor.ended(run).await.answer(), Some("fine"));
    let took = clock.now().since(readable_at);
    assert!(took <= Duration::from_secs(6), "{took:?}");
}

/// A clock that follows the test's time and also has a wall clock.
struct Skewed {
    clock: TestClock,
    ahead_ms: AtomicI64,
}

#[async_trait]
impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn sleep(&self, span: Duration) {
        self.clock.sleep(span).await;
    }

    fn skew(&self) -> Option<Skew> {
        Some(Skew { ahead_ms: self.ahead_ms.load(Ordering::SeqCst), max: Duration::from_secs(30) })
    }
}

async fn is_ready(engine: &Engine) -> Result<(), String> {
    engine.ready().await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_process_with_a_wrong_wall_clock_takes_no_work() {
    let Scene { house, clock, .. } = a_scene(Options::default()).await;
    house.vendor.otherwise(Answer::text("fine"));
    let skewed = Arc::new(Skewed { clock, ahead_ms: AtomicI64::new(-30_001) });
    let of_skewed = skewed.clone();
    let off = house.beside(Options::default(), 8, |parts| parts.clock = of_skewed).at_work();
    let run: RunId = off.ask().await;
    clock.sleep(Duration::from_secs(20)).await;
    assert_eq!(off.engine.run(run).await.unwrap().unwrap().version(), 1, "no process has claimed it");
    let says = is_ready(&off.engine).await.unwrap_err();
    assert_eq!(says, "the wall clock is 30001 ms behind the database's; at most 30000 ms are allowed");
    skewed.ahead_ms.store(30_000, Ordering::SeqCst);
    assert_eq!(off.ended(run).await.answer(), Some("fine"));
    assert_eq!(is_ready(&off.engine).await, Ok(()));
}

#[tokio::test]
async fn a_process_that_only_accepts_is_ready_without_the_queue() {
    for (roles, outcome) in [(Roles::NONE, Ok(())), (Roles::ALL, Err("the queue does not answer".to_owned()))]
    {
        let Scene { house, queue, clock, .. } = a_scene(Options::default()).await;
        let house = house.at_work_as(roles);
        clock.sleep(Duration::from_secs(1)).await;
        queue.is_unreachable.store(true, Ordering::SeqCst);
        let began = clock.now();
        assert_eq!(is_ready(&house.engine).await, outcome);
        assert!(clock.now().since(began) < Duration::from_secs(1));
        let says = house.engine.readiness().await.to_string();
        assert!(says.contains("\nstore: up\nqueue: down, the queue does not answer"), "{says}");
        tokio::time::resume();
    }
}

#[tokio::test]
async fn the_number_of_concurrent_history_reads_is_bounded() {
    let Scene { house, faults, .. } = a_scene(Options::default()).await;
    house.vendor.script("quick", [Answer::text("fine")]);
    let run = house.ask_under(due_in(Duration::from_mins(20))).await;
    let house = house.at_work();
    house.ended(run).await;
    let (gate, before) = (Gate::closed(), faults.reads.load(Ordering::SeqCst));
    *faults.reads_wait.lock().unwrap() = Some(gate.clone());
    let mut reading = tokio::task::JoinSet::new();
    for _ in 0..40 {
        reading.spawn(house.engine.history(run, 0).count());
    }
    // This is enough time for each of them to reach the store, if it could.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(faults.reads.load(Ordering::SeqCst) - before, 4);
    gate.open();
    let events = house.engine.history(run, 0).count().await;
    let read = within(reading.join_all()).await;
    assert!(events > 4 && read == [events; 40], "{read:?}");
}

/// A live stream whose server does not answer until the test opens it.
struct Unanswered {
    live: Arc<dyn LiveStream>,
    gate: Gate,
}

#[async_trait]
impl LiveStream for Unanswered {
    async fn publish(&self, run: RunId, signal: Signal) -> Result<(), LiveError> {
        self.live.publish(run, signal).await
    }

    async fn subscribe(&self, run: RunId) -> Result<Signals, LiveError> {
        self.gate.pass().await;
        self.live.subscribe(run).await
    }
}

#[tokio::test]
async fn a_watcher_does_not_wait_for_a_silent_live_stream() {
    let Scene { house, clock, .. } = a_scene(Options::default()).await;
    let (worker, live) = (Gate::closed(), Gate::closed());
    house.vendor.script("quick", [Answer::text("first ").wait(&worker).say("second")]);
    let run = house.ask_under(due_in(Duration::from_mins(20))).await;
    let house = house.at_work();
    within(house.vendor.until_called(1)).await;
    let gateway = house.beside(Options::default(), 8, |parts| {
        parts.live = Arc::new(Unanswered { live: Arc::clone(&parts.live), gate: live.clone() });
    });
    let began = clock.now();
    let mut updates = gateway.engine.watch(run, 0).await.unwrap();
    assert!(matches!(updates.next().await, Some(Ok(Update::Event(_)))));
    assert!(clock.now().since(began) < Duration::from_millis(100));
    // When it answers, the watcher sees the earlier and the later text.
    live.open();
    let mut text = String::new();
    while text != "first " {
        if let Update::Frame { frame, .. } = within(updates.next()).await.unwrap().unwrap() {
            text += &frame.text;
        }
    }
    worker.open();
    while within(updates.next()).await.is_some() {}
    assert_eq!(house.ended(run).await.answer(), Some("first second"));
}

/// An ended run is answered only from the store.
#[tokio::test]
async fn a_repeated_request_does_not_wait_for_the_live_stream() {
    let Scene { house, clock, .. } = a_scene(Options::default()).await;
    let (worker, live) = (Gate::closed(), Gate::closed());
    house.vendor.script("quick", [Answer::text("").wait(&worker).say("fine")]);
    let house = house.at_work();
    let gateway = house.beside(Options::default(), 8, |parts| {
        parts.live = Arc::new(Unanswered { live: Arc::clone(&parts.live), gate: live.clone() });
    });
    let request = Submit {
        request_id: Some(RequestId::new("once").unwrap()),
        ..crate::house::request(due_in(Duration::from_mins(20)))
    };
    let began = clock.now();
    let (submitted, mut ending) = within(gateway.engine.ask(request.clone())).await.unwrap();
    assert_eq!(clock.now(), began);
    // When the live stream answers, the caller receives the end at once.
    within(house.vendor.until_called(1)).await;
    live.open();
    assert!(ending.run().now_or_never().is_none());
    clock.sleep(Duration::from_millis(300)).await;
    assert!(ending.run().now_or_never().is_none());
    worker.open();
    let opened_at = clock.now();
    assert_eq!(within(ending.run()).await.unwrap().answer(), Some("fine"));
    assert!(clock.now().since(opened_at) < Duration::from_millis(100));

    let gateway = house.beside(Options::default(), 9, |parts| {
        parts.live = Arc::new(Unanswered { live: Arc::clone(&parts.live), gate: Gate::closed() });
    });
    let began = clock.now();
    let (repeated, mut ending) = within(gateway.engine.ask(request)).await.unwrap();
    assert_eq!(repeated.run_id(), submitted.run_id());
    assert_eq!(within(ending.run()).await.unwrap().answer(), Some("fine"));
    assert_eq!(clock.now(), began);
}

/// The worker is silent for a long time: the run has no commit, and its watchers receive nothing.
#[tokio::test]
async fn watchers_of_a_silent_run_rarely_read_the_store() {
    let Scene { house, faults, clock, .. } = a_scene(Options::default()).await;
    let gate = Gate::closed();
    house.vendor.script("quick", [Answer::text("").wait(&gate).say("fine")]);
    let run = house.ask_under(due_in(Duration::from_mins(20))).await;
    let house = house.at_work();
    within(house.vendor.until_called(1)).await;
    let mut updates = house.engine.watch(run, 0).await.unwrap();
    let mut watching = tokio::task::JoinSet::new();
    watching.spawn(async move { while updates.next().await.is_some() {} });
    clock.sleep(Duration::from_secs(1)).await;
    let before = faults.reads.load(Ordering::SeqCst);
    clock.sleep(Duration::from_mins(5)).await;
    let reads = faults.reads.load(Ordering::SeqCst) - before;
    assert!((7..=12).contains(&reads), "{reads}");
    gate.open();
    assert_eq!(house.ended(run).await.answer(), Some("fine"));
    within(watching.join_next()).await.unwrap().unwrap();
}
