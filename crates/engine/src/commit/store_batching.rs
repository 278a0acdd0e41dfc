//! Several callers' questions, asked of the store together: one at a time is under way, and meanwhile the next ones gather by
//! themselves.

use std::sync::Arc;

use podium_domain::budget::Shortage;
use podium_domain::ids::RunId;
use podium_domain::run::Run;
use podium_ports::store::{Commit, Created, RunStore, StoreError};
use tokio::sync::{mpsc, oneshot};

use crate::commit::Bounds;

/// Runs to be created.
pub(crate) type Creations = Gathering<Commit, Created>;
/// Runs to be created that are charged to budgets.
pub(crate) type ChargedCreations = Gathering<Commit, Result<Created, Shortage>>;
/// Runs to be loaded.
pub(crate) type Loads = Gathering<RunId, Option<Run>>;

type Answer<A> = Result<A, StoreError>;
type Asked<Q, A> = (Q, oneshot::Sender<Answer<A>>);

/// Where questions gather. Cheap to clone.
pub(crate) struct Gathering<Q, A> {
    questions: mpsc::Sender<Asked<Q, A>>,
}

/// The questions that wait. They end when the last handle is gone.
pub(crate) struct Waiting<Q, A> {
    questions: mpsc::Receiver<Asked<Q, A>>,
    batch_max: usize,
}

/// The store failed for all of a batch alike.
#[derive(Debug, thiserror::Error)]
#[error("the store failed for a batch of {size}")]
struct BatchFailed {
    size: usize,
    #[source]
    source: Arc<StoreError>,
}

impl<Q, A> Gathering<Q, A> {
    pub(crate) fn new(bounds: Bounds) -> (Self, Waiting<Q, A>) {
        let (sender, questions) = mpsc::channel(bounds.waiting);
        (Self { questions: sender }, Waiting { questions, batch_max: bounds.batch })
    }

    /// The store's answer.
    pub(crate) async fn ask(&self, question: Q) -> Answer<A> {
        let stopped = || StoreError::Unavailable("the engine has stopped".into());
        let (reply, answer) = oneshot::channel();
        self.questions.send((question, reply)).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

impl<Q, A> Waiting<Q, A> {
    /// The next batch, as soon as there is one.
    async fn next(&mut self) -> Option<(Vec<Q>, Vec<oneshot::Sender<Answer<A>>>)> {
        let mut batch = Vec::new();
        self.questions.recv_many(&mut batch, self.batch_max).await;
        (!batch.is_empty()).then(|| batch.into_iter().unzip())
    }
}

/// Creates the runs that wait. Each is durable when it is answered, or another one is there.
pub(crate) async fn create(mut waiting: Waiting<Commit, Created>, store: Arc<dyn RunStore>) {
    while let Some((commits, replies)) = waiting.next().await {
        match store.create(&commits).await {
            // One that cannot be must not keep others out.
            Err(StoreError::Inconsistent { .. } | StoreError::Refused(_)) if commits.len() > 1 => {
                for (commit, reply) in commits.iter().zip(replies) {
                    let created = store.create(std::slice::from_ref(commit)).await;
                    reply_all(vec![reply], created);
                }
            }
            created => reply_all(replies, created),
        }
    }
}

/// The same for runs that are charged to budgets.
pub(crate) async fn create_charged(
    mut waiting: Waiting<Commit, Result<Created, Shortage>>,
    store: Arc<dyn RunStore>,
) {
    while let Some((commits, replies)) = waiting.next().await {
        match store.create_charged(&commits).await {
            // One that cannot be must not keep others out.
            Err(StoreError::Inconsistent { .. } | StoreError::Refused(_)) if commits.len() > 1 => {
                for (commit, reply) in commits.iter().zip(replies) {
                    let created = store.create_charged(std::slice::from_ref(commit)).await;
                    reply_all(vec![reply], created);
                }
            }
            created => reply_all(replies, created),
        }
    }
}

/// Loads the runs that wait, each as it is after it was asked for.
pub(crate) async fn load(mut waiting: Waiting<RunId, Option<Run>>, store: Arc<dyn RunStore>) {
    while let Some((ids, replies)) = waiting.next().await {
        match store.load(&ids).await {
            // One that cannot be read must not keep others from being read.
            Err(StoreError::Inconsistent { .. } | StoreError::Refused(_)) if ids.len() > 1 => {
                for (id, reply) in ids.iter().zip(replies) {
                    let loaded = store.load(std::slice::from_ref(id)).await;
                    reply_all(vec![reply], loaded);
                }
            }
            loaded => reply_all(replies, loaded),
        }
    }
}

fn reply_all<A>(replies: Vec<oneshot::Sender<Answer<A>>>, answers: Result<Vec<A>, StoreError>) {
    match answers {
        Ok(answers) => {
            for (reply, answer) in replies.into_iter().zip(answers) {
                // Who asked may have gone.
                let _ = reply.send(Ok(answer));
            }
        }
        Err(error) if replies.len() == 1 => {
            replies.into_iter().zip([error]).for_each(|(reply, error)| drop(reply.send(Err(error))));
        }
        Err(error) => {
            let (size, source) = (replies.len(), Arc::new(error));
            for reply in replies {
                let failed = BatchFailed { size, source: Arc::clone(&source) };
                let _ = reply.send(Err(StoreError::Unavailable(Box::new(failed))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use podium_ports::clock::Ids as _;
    use podium_testkit::{SeededIds, TestClock};

    use super::*;

    #[tokio::test]
    async fn what_waits_is_answered_together_and_a_failure_is_everybodys() {
        let (gathering, mut waiting) =
            Gathering::<RunId, u8>::new(Bounds { batch: 2, batches: 1, waiting: 8 });
        let ids = SeededIds::new(1);
        let ask = || gathering.ask(ids.run_id(TestClock::START));
        let serve = async {
            let (first, replies) = waiting.next().await.unwrap();
            reply_all(replies, Ok((0..).take(first.len()).collect()));
            let (second, replies) = waiting.next().await.unwrap();
            reply_all(replies, Err(StoreError::Unavailable("gone".into())));
            (first.len(), second.len())
        };
        let (a, b, c, d, sizes) = futures::join!(ask(), ask(), ask(), ask(), serve);
        assert_eq!((a.unwrap(), b.unwrap(), sizes), (0, 1, (2, 2)));
        for failed in [c, d] {
            let failed = failed.unwrap_err();
            let StoreError::Unavailable(batch) = failed else { panic!("{failed}") };
            assert_eq!(batch.to_string(), "the store failed for a batch of 2");
        }
    }
}
