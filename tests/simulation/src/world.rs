//! The world: its time, its events, and the connections between nodes and services.
//!
//! Nothing really waits. Time stands still while any node has work, and jumps to the next event otherwise. A sent request takes
//! effect even if its sender dies.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use podium_domain::ids::RunId;
use podium_domain::plan::PlanDraft;
use podium_ports::BoxError;

use crate::cache::CacheState;
use crate::checker::Checker;
use crate::clients::{ClientAction, Clients};
use crate::clocks::WallClock;
use crate::dice::Dice;
use crate::limits::LimitsState;
use crate::live::LiveState;
use crate::mutation::Mutation;
use crate::queue::QueueState;
use crate::simulation::Order;
use crate::store::StoreState;
use crate::trace::{Trace, note};
use crate::troubles::Rates;

/// Longest wait of a node for an answer that does not come.
pub(crate) const PATIENCE_MS: u64 = 2_500;

/// A service that nodes call over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Service {
    Store,
    Queue,
    Live,
    Cache,
    Limiter,
}

/// The time of an event, and its number, which orders events of the same time.
type EventKey = (u64, u64);

type Effect = Box<dyn FnOnce(&mut Core) + Send>;

enum Event {
    Wake(usize, Waker),
    Do(Effect),
}

/// A task that was dropped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ended {
    ClientAction(ClientAction),
    Call(usize),
}

/// The whole state except the nodes.
pub(crate) struct Core {
    pub(crate) now_ms: u64,
    pub(crate) dice: Dice,
    pub(crate) trace: Trace,
    pub(crate) rates: Rates,
    pub(crate) mutation: Option<Mutation>,
    pub(crate) checker: Checker,
    pub(crate) store: StoreState,
    pub(crate) queue: QueueState,
    pub(crate) live: LiveState,
    pub(crate) cache: CacheState,
    pub(crate) clients: Clients,
    pub(crate) limits: LimitsState,
    /// The node of an older version, which cannot read every run.
    pub(crate) old: Option<usize>,
    /// Runs with locked rows, and the ends of the locks.
    pub(crate) locked: BTreeMap<RunId, u64>,
    /// Orders for the loop, which owns the nodes.
    pub(crate) orders: VecDeque<Order>,
    /// Nodes that may have something to do.
    pub(crate) ready: BTreeSet<usize>,
    /// The ends of the services' outages.
    pub(crate) away_until: BTreeMap<Service, u64>,
    /// The ends of the cuts between a node and a service.
    pub(crate) cut_until: BTreeMap<(usize, Service), u64>,
    /// How far each node's clock is ahead.
    pub(crate) ahead_ms: Vec<u64>,
    /// The node whose wall clock is far off.
    pub(crate) wall_clock: Option<WallClock>,
    /// The number of each event, by name.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    pub(crate) permits: u64,
    pub(crate) calls_under_way: u64,
    /// The last draft of the conductor, by question and text of the earlier round.
    pub(crate) drafts: BTreeMap<(String, Option<String>), PlanDraft>,
    /// Tasks that were dropped before their end. A dead runtime drops its tasks in an order that depends on all earlier tasks of
    /// the process, so [`Self::settle`] must sort them before anything else happens.
    pub(crate) broken_off: Vec<Ended>,
    events: BTreeMap<EventKey, Event>,
    last_event: u64,
}

pub(crate) struct Beginning {
    pub(crate) dice: Dice,
    pub(crate) trace: Trace,
    pub(crate) rates: Rates,
    pub(crate) mutation: Option<Mutation>,
    pub(crate) store: StoreState,
    pub(crate) queue: QueueState,
    pub(crate) cache: CacheState,
    pub(crate) clients: Clients,
    pub(crate) limits: LimitsState,
    pub(crate) old: Option<usize>,
    pub(crate) ahead_ms: Vec<u64>,
    pub(crate) wall_clock: Option<WallClock>,
}

impl Core {
    pub(crate) fn new(beginning: Beginning) -> Self {
        let Beginning {
            dice,
            trace,
            rates,
            mutation,
            store,
            queue,
            cache,
            clients,
            limits,
            old,
            ahead_ms,
            wall_clock,
        } = beginning;
        Self {
            now_ms: 0,
            dice,
            trace,
            rates,
            mutation,
            checker: Checker::default(),
            store,
            queue,
            live: LiveState::default(),
            cache,
            clients,
            limits,
            old,
            locked: BTreeMap::new(),
            orders: VecDeque::new(),
            ready: BTreeSet::new(),
            away_until: BTreeMap::new(),
            cut_until: BTreeMap::new(),
            ahead_ms,
            wall_clock,
            counts: BTreeMap::new(),
            permits: 0,
            calls_under_way: 0,
            drafts: BTreeMap::new(),
            broken_off: Vec::new(),
            events: BTreeMap::new(),
            last_event: 0,
        }
    }

    /// Schedules an effect `in_ms` from now.
    pub(crate) fn after(&mut self, in_ms: u64, effect: impl FnOnce(&mut Self) + Send + 'static) {
        self.schedule(self.now_ms.saturating_add(in_ms), Event::Do(Box::new(effect)));
    }

    /// Schedules an order `in_ms` from now.
    pub(crate) fn order_after(&mut self, in_ms: u64, order: Order) {
        self.after(in_ms, move |core| core.orders.push_back(order));
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(crate) fn is_mutated(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// The time of the next event.
    pub(crate) fn next_event_ms(&self) -> Option<u64> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    /// Runs the next event if its time has come.
    pub(crate) fn happen(&mut self) -> bool {
        let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= self.now_ms) else {
            return false;
        };
        match entry.remove() {
            Event::Wake(node, waker) => {
                self.ready.insert(node);
                waker.wake();
            }
            Event::Do(effect) => effect(self),
        }
        true
    }

    /// Handles the dropped tasks, in a fixed order.
    pub(crate) fn settle(&mut self) {
        let mut ended = std::mem::take(&mut self.broken_off);
        ended.sort_unstable();
        for ended in ended {
            note!(self, "broken off: {ended:?}");
            if let Ended::ClientAction(action) = ended {
                self.reconnect(action);
            }
        }
    }

    fn schedule(&mut self, at: u64, event: Event) -> EventKey {
        self.last_event += 1;
        let key = (at, self.last_event);
        self.events.insert(key, event);
        key
    }

    pub(crate) fn is_away(&self, service: Service) -> bool {
        self.away_until.get(&service).is_some_and(|until| self.now_ms < *until)
    }

    pub(crate) fn is_cut(&self, node: usize, service: Service) -> bool {
        self.cut_until.get(&(node, service)).is_some_and(|until| self.now_ms < *until)
    }

    /// The latency of a message.
    pub(crate) fn latency(&mut self) -> u64 {
        let slow = self.rates.slow;
        if self.dice.chance(slow) { self.dice.between(20, 900) } else { self.dice.below(3) }
    }

    /// Sends a request. The request or its answer may be lost.
    fn send<T: Send + 'static>(
        &mut self,
        node: usize,
        service: Service,
        effect: impl FnOnce(&mut Self) -> T + Send + 'static,
        slot: Arc<Slot<Result<T, Broken>>>,
    ) {
        let patience = self.dice.between(1, PATIENCE_MS);
        let lost = self.rates.request_lost;
        if self.is_cut(node, service) || self.dice.chance(lost) {
            self.count("request lost");
            return self.deliver(patience, node, slot, Err(Broken::LATE));
        }
        let there = self.latency();
        self.after(there, move |core| {
            let back = core.latency();
            let refused = core.rates.refused;
            if core.is_away(service) || core.dice.chance(refused) {
                core.count("refused");
                return core.deliver(back, node, slot, Err(Broken::AWAY));
            }
            let answer = effect(core);
            let lost = core.rates.answer_lost;
            if core.is_cut(node, service) || core.dice.chance(lost) {
                core.count("answer lost");
                note!(core, "node {node}: the answer of {service:?} is lost");
                return core.deliver(patience, node, slot, Err(Broken::CUT));
            }
            core.deliver(back, node, slot, Ok(answer));
        });
    }

    /// Fills a slot `in_ms` from now and wakes the task that waits for it.
    pub(crate) fn deliver<T: Send + 'static>(
        &mut self,
        in_ms: u64,
        node: usize,
        slot: Arc<Slot<T>>,
        value: T,
    ) {
        self.after(in_ms, move |core| {
            core.ready.insert(node);
            slot.fill(value);
        });
    }
}

/// A handle of the world. Cheap to clone.
#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<Core>>);

impl World {
    pub(crate) fn new(core: Core) -> Self {
        Self(Arc::new(Mutex::new(core)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The core, if no node is left.
    pub(crate) fn into_core(self) -> Option<Core> {
        let mutex = Arc::into_inner(self.0)?;
        Some(mutex.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A request without an answer. Its outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken(&'static str);

impl Broken {
    pub(crate) const AWAY: Self = Self("the service is unreachable");
    pub(crate) const LATE: Self = Self("no answer came in time");
    const CUT: Self = Self("the connection broke");
}

impl From<Broken> for BoxError {
    fn from(broken: Broken) -> Self {
        broken.0.into()
    }
}

/// A node's side of all connections. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) world: World,
    pub(crate) node: usize,
}

impl Link {
    /// Calls a service; `effect` is the effect of the request there.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        service: Service,
        effect: impl FnOnce(&mut Core) -> T + Send + 'static,
    ) -> Result<T, Broken> {
        let slot = Slot::new();
        self.world.lock().send(self.node, service, effect, Arc::clone(&slot));
        Filled(slot).await
    }

    /// Waits in the world's time.
    pub(crate) fn pause(&self, ms: u64) -> Pause {
        let until_ms = self.world.lock().now_ms.saturating_add(ms);
        Pause { link: self.clone(), until_ms, key: None }
    }
}

/// A slot for one value that arrives later.
pub(crate) struct Slot<T>(Mutex<SlotState<T>>);

struct SlotState<T> {
    value: Option<T>,
    waker: Option<Waker>,
    is_given_up: bool,
}

impl<T> Slot<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(SlotState { value: None, waker: None, is_given_up: false })))
    }

    /// Whether the waiting task is gone.
    pub(crate) fn is_given_up(&self) -> bool {
        self.lock().is_given_up
    }

    fn fill(&self, value: T) {
        let mut state = self.lock();
        if state.is_given_up || state.value.is_some() {
            return;
        }
        state.value = Some(value);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, SlotState<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for a slot's value.
pub(crate) struct Filled<T>(pub(crate) Arc<Slot<T>>);

impl<T> Future for Filled<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut state = self.0.lock();
        if let Some(value) = state.value.take() {
            return Poll::Ready(value);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Filled<T> {
    fn drop(&mut self) {
        self.0.lock().is_given_up = true;
    }
}

/// Waits until a time of the world.
pub(crate) struct Pause {
    link: Link,
    until_ms: u64,
    key: Option<EventKey>,
}

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let world = self.link.world.clone();
        let mut core = world.lock();
        if core.now_ms >= self.until_ms {
            return Poll::Ready(());
        }
        let wake = Event::Wake(self.link.node, context.waker().clone());
        match self.key {
            Some(key) => drop(core.events.insert(key, wake)),
            None => self.key = Some(core.schedule(self.until_ms, wake)),
        }
        Poll::Pending
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.link.world.lock().events.remove(&key);
        }
    }
}
