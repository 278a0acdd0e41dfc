//! Batches of calls of one worker: calls that arrive while a script call for the worker is under way are decided by the next one.
//! No call waits for others to arrive.

use std::collections::HashMap;
use std::iter;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared as SharedFuture, WeakShared};
use tokio::time::Instant;

use crate::failure::Failure;
use crate::limits::keys::WorkerKeys;
use crate::limits::leases::Lease;
use crate::limits::limiter::Shared;
use crate::limits::link::Answer;
use crate::limits::script::AskedCall;

/// Most calls that one script call decides; Redis executes nothing else during the call.
const CALLS_MAX: usize = 64;

/// A batch that is being decided. Its waiting callers drive it; when all have given up, so is the batch. It fails if Redis is
/// unreachable.
type Deciding = SharedFuture<BoxFuture<'static, Result<(), Failure>>>;

/// A lease with the answer to its call.
pub(crate) type Answered = (Lease, Result<Answer, Failure>);

/// The latest batch of each worker.
#[derive(Default)]
pub(crate) struct AcquireBatches {
    last: Mutex<HashMap<Arc<str>, Last>>,
}

struct Last {
    batch: Weak<AcquireBatch>,
    deciding: WeakShared<BoxFuture<'static, Result<(), Failure>>>,
}

/// The calls that one script call decides.
struct AcquireBatch {
    keys: Arc<WorkerKeys>,
    calls: Mutex<Calls>,
}

enum Calls {
    /// More calls may join. `None` is a call that was given up.
    Open(Vec<Option<(Lease, AskedCall)>>),
    /// They were sent to Redis.
    Sent,
    /// A call that was given up left its lease, which is then released.
    Answered(Vec<Option<Answered>>),
}

/// The position of one call in a batch, until it is answered or given up.
struct Seat {
    batch: Arc<AcquireBatch>,
    number: usize,
}

impl AcquireBatches {
    /// Decides on a call in a batch with others, within [`Options::answer_max`](crate::limits::Options::answer_max). If the future is
    /// dropped before the batch is sent, the call is left out; if later, its lease is released when the answer arrives.
    pub(crate) async fn ask(&self, shared: &Arc<Shared>, lease: Lease, call: AskedCall) -> Option<Answered> {
        let (seat, deciding) = self.join(shared, lease, call);
        // The answer to this call is in its seat.
        let _of_all = deciding.await;
        seat.take()
    }

    fn join(&self, shared: &Arc<Shared>, lease: Lease, call: AskedCall) -> (Seat, Deciding) {
        let keys = Arc::clone(lease.keys());
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut call, mut before) = (Some((lease, call)), None);
        if let Some((batch, deciding)) = last.get(keys.name()).and_then(Last::upgrade) {
            if let Some(number) = batch.join(&keys, &mut call) {
                return (Seat { batch, number }, deciding);
            }
            before = Some(deciding);
        }
        let batch =
            Arc::new(AcquireBatch { keys: Arc::clone(&keys), calls: Mutex::new(Calls::Open(vec![call])) });
        let deciding = decide_after(before, Arc::clone(shared), Arc::clone(&batch), Instant::now());
        let deciding = deciding.boxed().shared();
        last.retain(|_, last| last.batch.strong_count() > 0);
        if let Some(weak) = deciding.downgrade() {
            last.insert(keys.name().into(), Last { batch: Arc::downgrade(&batch), deciding: weak });
        }
        (Seat { batch, number: 0 }, deciding)
    }
}

impl Last {
    fn upgrade(&self) -> Option<(Arc<AcquireBatch>, Deciding)> {
        Some((self.batch.upgrade()?, self.deciding.upgrade()?))
    }
}

/// Sends all calls that have joined by the time at which the batch before was answered.
async fn decide_after(
    before: Option<Deciding>,
    shared: Arc<Shared>,
    batch: Arc<AcquireBatch>,
    since: Instant,
) -> Result<(), Failure> {
    let before = match before {
        Some(before) => before.await,
        None => Ok(()),
    };
    let (mut leases, calls) = batch.close();
    let answers = match before {
        // If Redis was unreachable for one batch, it is for the next.
        Err(failure) => Err(failure),
        Ok(()) if calls.is_empty() => return Ok(()),
        Ok(()) => {
            // If they are dropped from here on, they are released.
            leases.iter_mut().flatten().for_each(Lease::asked);
            shared.link.acquire(&batch.keys, &calls, since).await
        }
    };
    let outcome = match &answers {
        Err(failure) if failure.is_unreachable() => Err(failure.clone()),
        _ => Ok(()),
    };
    batch.answer(leases, answers);
    outcome
}

impl AcquireBatch {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the call, unless the batch was sent, is full, or has other limits.
    fn join(&self, keys: &WorkerKeys, call: &mut Option<(Lease, AskedCall)>) -> Option<usize> {
        match &mut *self.lock() {
            Calls::Open(calls) if calls.len() < CALLS_MAX && *self.keys == *keys => {
                calls.push(call.take());
                Some(calls.len() - 1)
            }
            _ => None,
        }
    }

    /// Closes the batch. Returns all leases, `None` for calls that were given up, and the remaining calls.
    fn close(&self) -> (Vec<Option<Lease>>, Vec<AskedCall>) {
        let Calls::Open(calls) = mem::replace(&mut *self.lock(), Calls::Sent) else {
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
    /// The answer, once the batch was answered.
    fn take(self) -> Option<Answered> {
        match &mut *self.batch.lock() {
            Calls::Answered(calls) => calls.get_mut(self.number)?.take(),
            Calls::Open(_) | Calls::Sent => None,
        }
    }
}

impl Drop for Seat {
    /// A call that is given up before the batch is sent is left out.
    fn drop(&mut self) {
        let left = match &mut *self.batch.lock() {
            Calls::Open(calls) => calls.get_mut(self.number).and_then(Option::take).map(|(lease, _)| lease),
            Calls::Answered(calls) => {
                calls.get_mut(self.number).and_then(Option::take).map(|(lease, _)| lease)
            }
            Calls::Sent => None,
        };
        // A lease is released when it is dropped, which takes a lock.
        drop(left);
    }
}
