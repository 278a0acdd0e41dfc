//! Connections on threads of their own, behind one queue.
//!
//! A caller sends a function and waits for its result. No statement blocks a thread of the async runtime, and a transaction of many
//! statements is passed to another thread and back once.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use podium_ports::store::StoreError;
use rusqlite::Connection;
use tokio::sync::{oneshot, watch};

/// Most calls that wait for a connection.
const WAITING_MAX: usize = 65_536;

type Work = Box<dyn FnOnce(&mut Connection) + Send>;

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
enum Unserved {
    #[error("the database is closed")]
    Closed,
    #[error("{WAITING_MAX} calls already wait for the database")]
    Full,
    #[error("a call of the database panicked; its transaction was rolled back")]
    Panicked,
}

impl From<Unserved> for StoreError {
    fn from(unserved: Unserved) -> Self {
        Self::Unavailable(Box::new(unserved))
    }
}

#[derive(Default)]
struct Waiting {
    work: VecDeque<Work>,
    is_closed: bool,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, work: Work) -> Result<(), Unserved> {
        let mut waiting = self.lock();
        if waiting.is_closed {
            return Err(Unserved::Closed);
        }
        if waiting.work.len() >= WAITING_MAX {
            return Err(Unserved::Full);
        }
        waiting.work.push_back(work);
        drop(waiting);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for work. `None` once the queue is closed and empty.
    fn pop(&self) -> Option<Work> {
        let mut waiting = self.lock();
        loop {
            if let Some(work) = waiting.work.pop_front() {
                return Some(work);
            }
            if waiting.is_closed {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Does work until the queue is closed and empty. A panic is the error of its caller only: what unwinds rolls back its
    /// transaction, and the connection stays usable.
    fn serve(&self, mut connection: Connection) {
        while let Some(work) = self.pop() {
            // The panic hook has reported it, and the caller gets an error.
            drop(catch_unwind(AssertUnwindSafe(|| work(&mut connection))));
        }
    }
}

/// The threads of one queue. When it is dropped they finish the work that waits, close their connections and end.
pub(crate) struct Connections {
    queue: Arc<Queue>,
    /// Each thread holds a receiver until its connection is closed.
    threads: watch::Sender<()>,
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("threads", &self.threads.receiver_count()).finish_non_exhaustive()
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl Connections {
    /// Starts a thread for each connection.
    pub(crate) fn start(name: &str, connections: Vec<Connection>) -> io::Result<Self> {
        let started = Self { queue: Arc::default(), threads: watch::Sender::new(()) };
        for connection in connections {
            let (queue, is_open) = (Arc::clone(&started.queue), started.threads.subscribe());
            thread::Builder::new().name(name.to_owned()).spawn(move || {
                queue.serve(connection);
                drop(is_open);
            })?;
        }
        Ok(started)
    }

    /// Runs `work` on a connection. If the caller leaves before it begins, it does not run; after that, it runs to its end.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.queue.push(Box::new(move |connection| {
            if !answer.is_closed() {
                // A caller that has left needs no result.
                drop(answer.send(work(connection)));
            }
        }))?;
        answered.await.unwrap_or_else(|_| Err(Unserved::Panicked.into()))
    }

    /// Refuses new calls, and waits until those before are done and the connections are closed.
    pub(crate) async fn close(&self) {
        self.queue.close();
        self.threads.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::pin::pin;
    use std::sync::mpsc;

    use super::*;
    use crate::row::execute;

    fn one() -> Connections {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE numbers (number INTEGER)").unwrap();
        Connections::start("test", vec![connection]).unwrap()
    }

    fn insert(connection: &Connection) -> Result<usize, StoreError> {
        execute(connection, "INSERT INTO numbers VALUES (1)", [])
    }

    async fn count(connections: &Connections) -> u32 {
        let count = "SELECT count(*) FROM numbers";
        connections
            .call(move |connection| Ok(connection.query_one(count, [], |row| row.get(0)).unwrap()))
            .await
            .unwrap()
    }

    fn error<T: fmt::Debug>(result: Result<T, StoreError>) -> String {
        result.unwrap_err().source().unwrap().to_string()
    }

    #[tokio::test]
    async fn a_panic_rolls_back_and_is_the_error_of_its_caller_only() {
        let connections = one();
        let panicked = connections.call(|connection| -> Result<(), StoreError> {
            let transaction = connection.transaction().unwrap();
            insert(&transaction)?;
            panic!("on purpose");
        });
        assert_eq!(error(panicked.await), "a call of the database panicked; its transaction was rolled back");
        assert_eq!(count(&connections).await, 0);
    }

    #[tokio::test]
    async fn calls_before_the_close_are_done_and_later_ones_are_refused() {
        let connections = one();
        let (first, ()) =
            tokio::join!(biased; connections.call(|connection| insert(connection)), connections.close());
        first.unwrap();
        assert_eq!(error(connections.call(|connection| insert(connection)).await), "the database is closed");
    }

    #[tokio::test]
    async fn a_call_whose_caller_left_before_it_began_does_not_run() {
        let connections = one();
        let (begin, may_begin) = mpsc::channel();
        let mut first = pin!(connections.call(move |_| {
            may_begin.recv().unwrap();
            Ok(())
        }));
        tokio::select! { biased; _ = &mut first => unreachable!("it waits"), () = async {} => {} }
        tokio::select! { biased; _ = connections.call(|c| insert(c)) => unreachable!("it waits"), () = async {} => {} }
        begin.send(()).unwrap();
        first.await.unwrap();
        assert_eq!(count(&connections).await, 0);
    }

    #[test]
    fn a_full_queue_refuses_calls() {
        let queue = Queue::default();
        for _ in 0..WAITING_MAX {
            queue.push(Box::new(|_| ())).unwrap();
        }
        assert!(matches!(queue.push(Box::new(|_| ())), Err(Unserved::Full)));
    }
}
