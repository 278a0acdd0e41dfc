//! Calls of one worker that are asked for together: while one question is on its way to Redis, the next calls gather by
//! themselves. Nothing waits for others to come.

use std::collections::HashMap;
use std::iter;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared as SharedFuture, WeakShared};
use tokio::time::Instant;

use crate::failure::Failure;
use crate::limits::keys::Place;
use crate::limits::leases::Lease;
use crate::limits::limiter::Shared;
use crate::limits::link::Answer;
use crate::limits::script::AskedCall;

/// Most calls that one script call decides. Redis does nothing else meanwhile.
const CALLS_MAX: usize = 64;

/// A question on its way. Whoever waits for it drives it; when all are gone it is given up. It fails if Redis is away.
type OnItsWay = SharedFuture<BoxFuture<'static, Result<(), Failure>>>;

/// A lease, and what was said to the call.
pub(crate) type Answered = (Lease, Result<Answer, Failure>);

/// The last question of each worker.
#[derive(Default)]
pub(crate) struct Gatherings {
    last: Mutex<HashMap<Arc<str>, Last>>,
}

struct Last {
    gathering: Weak<Gathering>,
    on_its_way: WeakShared<BoxFuture<'static, Result<(), Failure>>>,
}

/// The calls of one question.
struct Gathering {
    place: Arc<Place>,
    calls: Mutex<Calls>,
}

enum Calls {
    /// Others may join. Who went away left its place.
    Gathering(Vec<Option<(Lease, AskedCall)>>),
    /// Redis was asked.
    Asked,
    /// Who went away left its lease, which is then given back.
    Answered(Vec<Option<Answered>>),
}

/// The place of one call in a gathering, until it is answered or given up.
struct Seat {
    gathering: Arc<Gathering>,
    number: usize,
}

impl Gatherings {
    /// Asks for a call, together with others. Ends within [`Options::answer_max`](crate::limits::Options::answer_max). Dropped before
    /// the question is sent, the call is not asked for; afterwards it is given back when there is an answer.
    pub(crate) async fn ask(&self, shared: &Arc<Shared>, lease: Lease, call: AskedCall) -> Option<Answered> {
        let (seat, on_its_way) = self.join(shared, lease, call);
        // What concerns this call is in its seat.
        let _of_all = on_its_way.await;
        seat.take()
    }

    fn join(&self, shared: &Arc<Shared>, lease: Lease, call: AskedCall) -> (Seat, OnItsWay) {
        let place = Arc::clone(lease.place());
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut call, mut before) = (Some((lease, call)), None);
        if let Some((gathering, on_its_way)) = last.get(place.name()).and_then(Last::upgrade) {
            if let Some(number) = gathering.join(&place, &mut call) {
                return (Seat { gathering, number }, on_its_way);
            }
            before = Some(on_its_way);
        }
        let gathering = Arc::new(Gathering {
            place: Arc::clone(&place),
            calls: Mutex::new(Calls::Gathering(vec![call])),
        });
        let asking = ask_after(before, Arc::clone(shared), Arc::clone(&gathering), Instant::now());
        let on_its_way = asking.boxed().shared();
        last.retain(|_, last| last.gathering.strong_count() > 0);
        if let Some(weak) = on_its_way.downgrade() {
            last.insert(
                place.name().into(),
                Last { gathering: Arc::downgrade(&gathering), on_its_way: weak },
            );
        }
        (Seat { gathering, number: 0 }, on_its_way)
    }
}

impl Last {
    fn upgrade(&self) -> Option<(Arc<Gathering>, OnItsWay)> {
        Some((self.gathering.upgrade()?, self.on_its_way.upgrade()?))
    }
}

/// Asks Redis for all that gathered by the time that the question before was answered.
async fn ask_after(
    before: Option<OnItsWay>,
    shared: Arc<Shared>,
    gathering: Arc<Gathering>,
    since: Instant,
) -> Result<(), Failure> {
    let before = match before {
        Some(before) => before.await,
        None => Ok(()),
    };
    let (mut leases, calls) = gathering.close();
    let answers = match before {
        // If Redis was away for one, it is for the next.
        Err(failure) => Err(failure),
        Ok(()) if calls.is_empty() => return Ok(()),
        Ok(()) => {
            // Dropped from here on, they are given back.
            leases.iter_mut().flatten().for_each(Lease::asked);
            shared.link.acquire(&gathering.place, &calls, since).await
        }
    };
    let outcome = match &answers {
        Err(failure) if failure.is_away() => Err(failure.clone()),
        _ => Ok(()),
    };
    gathering.answer(leases, answers);
    outcome
}

impl Gathering {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the call in, unless the others went, are too many, or have other limits.
    fn join(&self, place: &Place, call: &mut Option<(Lease, AskedCall)>) -> Option<usize> {
        match &mut *self.lock() {
            Calls::Gathering(calls) if calls.len() < CALLS_MAX && *self.place == *place => {
                calls.push(call.take());
                Some(calls.len() - 1)
            }
            _ => None,
        }
    }

    /// Takes all that are still there; of the others, their places.
    fn close(&self) -> (Vec<Option<Lease>>, Vec<AskedCall>) {
        let Calls::Gathering(calls) = mem::replace(&mut *self.lock(), Calls::Asked) else {
            return (Vec::new(), Vec::new());
        };
        let (mut leases, mut asked) = (Vec::with_capacity(calls.len()), Vec::with_capacity(calls.len()));
        for call in calls {
            let (lease, call) = call.unzip();
            leases.push(lease);
            asked.extend(call);
        }
        (leases, asked)
    }

    fn answer(&self, leases: Vec<Option<Lease>>, answers: Result<Vec<Answer>, Failure>) {
        let mut answers: Box<dyn Iterator<Item = Result<Answer, Failure>>> = match answers {
            Ok(answers) => Box::new(answers.into_iter().map(Ok)),
            Err(failure) => Box::new(iter::repeat_with(move || Err(failure.clone()))),
        };
        let mut answered = |lease: Option<Lease>| lease.and_then(|lease| Some((lease, answers.next()?)));
        *self.lock() = Calls::Answered(leases.into_iter().map(&mut answered).collect());
    }
}

impl Seat {
    /// What was answered. It is there when the question has been.
    fn take(self) -> Option<Answered> {
        match &mut *self.gathering.lock() {
            Calls::Answered(calls) => calls.get_mut(self.number)?.take(),
            Calls::Gathering(_) | Calls::Asked => None,
        }
    }
}

impl Drop for Seat {
    /// Who goes away before the question is sent is not asked for.
    fn drop(&mut self) {
        let left = match &mut *self.gathering.lock() {
            Calls::Gathering(calls) => {
                calls.get_mut(self.number).and_then(Option::take).map(|(lease, _)| lease)
            }
            Calls::Answered(calls) => {
                calls.get_mut(self.number).and_then(Option::take).map(|(lease, _)| lease)
            }
            Calls::Asked => None,
        };
        // A lease is given back when it is dropped, which takes a lock.
        drop(left);
    }
}
