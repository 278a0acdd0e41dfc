//! Runs that are offered before they are stored, and stored by whoever claims their first step.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use podium_domain::ids::{RequestId, RunId};
use podium_domain::policy::{Effort, Policy, Tier};
use podium_engine::{Options, Submit, Submitted};
use podium_memory::{MemoryQueue, QueueOptions};
use podium_ports::live::{EndSignals, LiveError, LiveStream, Offer, Offers, Signal, Signals};
use podium_ports::queue::Lane;
use podium_ports::vendor::FinishReason;
use podium_testkit::{Answer, Gate, OpenLimiter, ScriptedConductor, TestClock, plan_of};

use crate::faults::{FaultyStore, StoreFaults};
use crate::house::{House, a_queue, one, quick, request, within};

/// One whose plans need no model, and that nobody works for yet.
async fn a_house(store: &Arc<StoreFaults>) -> House {
    let house = House::idle(quick(), |inner| FaultyStore::around(inner, store)).await;
    let conductor = ScriptedConductor::new().at_once(plan_of(&[("quick", "Do it.", &[])]));
    let house = house.beside(quick(), 8, |parts| parts.conductors = one(conductor));
    house.vendor.otherwise(Answer::text("fine"));
    house
}

fn a_request() -> Submit {
    request(Policy::new(Tier::Ultra, Effort::Medium))
}

/// Takes what a house offers, for a test to pass on.
struct Taker {
    lanes: BTreeMap<Lane, Offers>,
}

impl Taker {
    async fn of(house: &House) -> Self {
        let mut lanes = BTreeMap::new();
        for lane in Lane::steps(&house.parts.pool) {
            let offers = house.parts.live.offers(&lane).await.unwrap();
            lanes.insert(lane, offers);
        }
        Self { lanes }
    }

    /// What has been offered by now.
    fn taken(&mut self) -> Vec<(Lane, Offer)> {
        let lanes = self.lanes.iter_mut();
        lanes.filter_map(|(lane, offers)| Some((lane.clone(), offers.next().now_or_never()??))).collect()
    }

    /// An executor of the house, to which all of it goes.
    fn passes_on_to(self, house: &House, options: Options) -> (House, Arc<Relay>) {
        let (inner, offers) = (Arc::clone(&house.parts.live), Mutex::new(self.lanes));
        let relay = Arc::new(Relay { inner, offers, declined: AtomicUsize::new(0) });
        (house.beside(options, 9, |parts| parts.live = Arc::clone(&relay) as Arc<dyn LiveStream>), relay)
    }
}

/// A live stream whose offers come from a test.
struct Relay {
    inner: Arc<dyn LiveStream>,
    offers: Mutex<BTreeMap<Lane, Offers>>,
    declined: AtomicUsize,
}

#[async_trait]
impl LiveStream for Relay {
    async fn publish(&self, run: RunId, signal: Signal) -> Result<(), LiveError> {
        self.inner.publish(run, signal).await
    }

    async fn subscribe(&self, run: RunId) -> Result<Signals, LiveError> {
        self.inner.subscribe(run).await
    }

    async fn offer(&self, lane: &Lane, offer: &Offer) -> Result<Option<EndSignals>, LiveError> {
        self.inner.offer(lane, offer).await
    }

    async fn offers(&self, lane: &Lane) -> Result<Offers, LiveError> {
        let offers = self.offers.lock().unwrap().remove(lane);
        Ok(offers.unwrap_or_else(|| futures::stream::pending().boxed()))
    }

    async fn decline(&self, run: RunId) -> Result<(), LiveError> {
        self.declined.fetch_add(1, Ordering::SeqCst);
        self.inner.decline(run).await
    }
}

#[tokio::test]
async fn who_claims_the_first_step_stores_the_run_with_it() {
    let store = Arc::new(StoreFaults::default());
    let house = a_house(&store).await;
    let (executor, relay) = Taker::of(&house).await.passes_on_to(&house, quick());
    let _executor = executor.at_work();
    let (_, mut ending) = house.engine.ask(a_request()).await.unwrap();
    assert!(!ending.is_secured());
    assert_eq!(within(ending.run()).await.unwrap().answer(), Some("fine"));
    assert_eq!(store.commits()[0], "accepted, claimed, plan_ready, step_ready, claimed");
    assert_eq!(relay.declined.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn where_nobody_takes_offers_a_run_is_stored_at_once() {
    let house = a_house(&Arc::default()).await;
    let (submitted, ending) = house.engine.ask(a_request()).await.unwrap();
    assert!(ending.is_secured());
    assert!(house.engine.run(submitted.run_id()).await.unwrap().is_some());
}

#[tokio::test]
async fn a_run_that_nobody_claims_is_stored_by_who_was_asked() {
    let house = a_house(&Arc::default()).await;
    let mut taker = Taker::of(&house).await;
    let (submitted, mut ending) = house.engine.ask(a_request()).await.unwrap();
    let id = submitted.run_id();
    assert!(!ending.is_secured());
    assert_eq!(taker.taken().len(), 1);
    assert_eq!(house.engine.run(id).await.unwrap(), None);
    let is_stored = async { while house.engine.run(id).await.unwrap().is_none() {} };
    within(async {
        tokio::select! {
            ended = ending.run() => panic!("nobody could have ended it: {ended:?}"),
            () = is_stored => {}
        }
    })
    .await;
    // The message is lost as well, and the sweeper tells of the step.
    let _executor = house.beside(quick(), 9, |parts| parts.queue = a_queue()).at_work();
    assert_eq!(within(ending.run()).await.unwrap().answer(), Some("fine"));
}

#[tokio::test]
async fn who_has_no_slot_declines_and_the_run_waits_for_one_in_the_queue() {
    let store = Arc::new(StoreFaults::default());
    let house = a_house(&store).await;
    let options = Options { step_slots: 1, ..quick() };
    let (executor, relay) = Taker::of(&house).await.passes_on_to(&house, options);
    let _executor = executor.at_work();
    let gate = Gate::closed();
    house.vendor.script("quick", [Answer::blank().wait(&gate).say("first").finish(FinishReason::Stop)]);
    let first = house.engine.submit(a_request()).await.unwrap().run_id();
    within(house.vendor.until_called(1)).await;
    let (_, mut ending) = house.engine.ask(a_request()).await.unwrap();
    within(async {
        while relay.declined.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    gate.open();
    assert_eq!(within(ending.run()).await.unwrap().answer(), Some("fine"));
    assert_eq!(house.ended(first).await.answer(), Some("first"));
    let commits = store.commits();
    assert!(
        commits.iter().filter(|commit| *commit == "accepted, claimed, plan_ready, step_ready").count() == 2,
        "{commits:?}"
    );
}

#[tokio::test]
async fn while_tasks_of_the_lane_wait_in_the_store_no_offer_goes_past_them() {
    let house = a_house(&Arc::default()).await;
    let options = QueueOptions { lane_messages_max: 1, ..QueueOptions::default() };
    let queue = Arc::new(MemoryQueue::new(Arc::new(TestClock::new()), options));
    let house = house.beside(quick(), 11, |parts| {
        parts.queue = queue;
        parts.limiter = Arc::new(OpenLimiter::default());
    });
    let many = Options { step_slots: 10_000, ..quick() };
    let (executor, relay) = Taker::of(&house).await.passes_on_to(&house, many);
    let executor = executor.at_work();
    let gate = Gate::closed();
    house.vendor.otherwise(Answer::blank().wait(&gate).say("fine").finish(FinishReason::Stop));
    for _ in 0..3 {
        house.engine.submit(a_request()).await.unwrap();
    }
    // Somebody else knows nothing of that. There are slots and permits for all of these, and a sweep finds the lane full.
    let other = house.beside(quick(), 10, |_| ());
    let mut endings = Vec::new();
    within(async {
        while relay.declined.load(Ordering::SeqCst) == 0 {
            endings.push(other.engine.ask(a_request()).await.unwrap().1);
            executor.parts.clock.sleep(quick().sweep_every).await;
        }
    })
    .await;
    gate.open();
    for mut ending in endings {
        assert_eq!(within(ending.run()).await.unwrap().answer(), Some("fine"));
    }
}

#[tokio::test]
async fn an_offer_that_comes_when_the_run_is_stored_already_runs_it_once() {
    let store = Arc::new(StoreFaults::default());
    let house = a_house(&store).await;
    let taker = Taker::of(&house).await;
    let (_, mut ending) = house.engine.ask(a_request()).await.unwrap();
    ending.secure().await.unwrap();
    assert!(ending.is_secured());
    let _executor = taker.passes_on_to(&house, quick()).0.at_work();
    assert_eq!(within(ending.run()).await.unwrap().answer(), Some("fine"));
    assert_eq!(store.commits()[..2], ["accepted, claimed, plan_ready, step_ready", "claimed"]);
    assert_eq!(house.vendor.calls().len(), 1);
}

#[tokio::test]
async fn an_offer_that_comes_twice_runs_once() {
    let house = a_house(&Arc::default()).await;
    let mut taker = Taker::of(&house).await;
    let (_, mut ending) = house.engine.ask(a_request()).await.unwrap();
    for (lane, offer) in taker.taken() {
        let twice = futures::stream::iter([offer.clone(), offer]).chain(futures::stream::pending());
        taker.lanes.insert(lane, twice.boxed());
    }
    let _executor = taker.passes_on_to(&house, quick()).0.at_work();
    assert_eq!(within(ending.run()).await.unwrap().answer(), Some("fine"));
    assert_eq!(house.vendor.calls().len(), 1);
}

#[tokio::test]
async fn a_request_that_can_be_repeated_is_stored_before_anybody_is_told() {
    let house = a_house(&Arc::default()).await;
    let mut taker = Taker::of(&house).await;
    let named = || Submit { request_id: Some(RequestId::new("r-1").unwrap()), ..a_request() };
    let (submitted, ending) = house.engine.ask(named()).await.unwrap();
    assert!(ending.is_secured());
    assert!(house.engine.run(submitted.run_id()).await.unwrap().is_some());
    let (again, _) = house.engine.ask(named()).await.unwrap();
    assert_eq!(again, Submitted::Existing(submitted.run_id()));
    assert!(taker.taken().is_empty());
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_made_again_and_runs_once() {
    let store = Arc::new(StoreFaults::default());
    let house = a_house(&store).await;
    let _executor = Taker::of(&house).await.passes_on_to(&house, quick()).0.at_work();
    store.answers_lost.store(1, Ordering::SeqCst);
    let (_, mut ending) = house.engine.ask(a_request()).await.unwrap();
    assert_eq!(within(ending.run()).await.unwrap().answer(), Some("fine"));
    assert_eq!(house.vendor.calls().len(), 1);
}
