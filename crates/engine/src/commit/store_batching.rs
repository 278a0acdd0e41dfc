//! Groups calls of the store: requests wait while one batch is in flight, and form the next batch.

use std::sync::Arc;

use futures::future::BoxFuture;
use podium_ports::store::{RunLog, StoreError};
use tokio::sync::{mpsc, oneshot};

use super::request::Bounds;

type Answer<A> = Result<A, StoreError>;
type Asked<Q, A> = (Q, oneshot::Sender<Answer<A>>);

/// Adds requests to the next batch. Cheap to clone.
pub(crate) struct Gathering<Q, A> {
    questions: mpsc::Sender<Asked<Q, A>>,
}

/// The waiting requests. They end when the last handle is dropped.
pub(crate) struct Questions<Q, A> {
    questions: mpsc::Receiver<Asked<Q, A>>,
    batch_max: usize,
}

/// The store failed for a whole batch.
#[derive(Debug, thiserror::Error)]
#[error("the store failed for a batch of {size}")]
struct BatchFailed {
    size: usize,
    #[source]
    source: Arc<StoreError>,
}

impl<Q, A> Gathering<Q, A> {
    pub(crate) fn new(bounds: Bounds) -> (Self, Questions<Q, A>) {
        let (sender, questions) = mpsc::channel(bounds.waiting);
        (Self { questions: sender }, Questions { questions, batch_max: bounds.batch })
    }

    /// The store's answer.
    pub(crate) async fn ask(&self, question: Q) -> Answer<A> {
        let stopped = || StoreError::Unavailable("the engine has stopped".into());
        let (reply, answer) = oneshot::channel();
        self.questions.send((question, reply)).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

impl<Q, A> Questions<Q, A> {
    /// The next batch, as soon as a request waits.
    async fn next(&mut self) -> Option<(Vec<Q>, Vec<oneshot::Sender<Answer<A>>>)> {
        let mut batch = Vec::new();
        self.questions.recv_many(&mut batch, self.batch_max).await;
        (!batch.is_empty()).then(|| batch.into_iter().unzip())
    }
}

/// One call of the store for a batch of questions, with one answer for each.
pub(crate) type BatchCall<Q, A> = for<'a> fn(&'a dyn RunLog, &'a [Q]) -> BoxFuture<'a, Answer<Vec<A>>>;

/// Answers the questions that wait, batch by batch. If the store refuses a batch, or cannot read a part of it, each question is asked
/// alone, so that one of them does not fail the others.
pub(crate) async fn serve<Q, A>(mut waiting: Questions<Q, A>, store: Arc<dyn RunLog>, ask: BatchCall<Q, A>) {
    while let Some((questions, replies)) = waiting.next().await {
        match ask(&*store, &questions).await {
            Err(StoreError::Inconsistent { .. } | StoreError::Refused(_)) if questions.len() > 1 => {
                for (question, reply) in questions.iter().zip(replies) {
                    let answer = ask(&*store, std::slice::from_ref(question)).await;
                    reply_all(vec![reply], answer);
                }
            }
            answers => reply_all(replies, answers),
        }
    }
}

fn reply_all<A>(replies: Vec<oneshot::Sender<Answer<A>>>, answers: Answer<Vec<A>>) {
    // If a caller is gone, its answer is dropped.
    match answers {
        Ok(answers) => {
            replies.into_iter().zip(answers).for_each(|(reply, answer)| drop(reply.send(Ok(answer))));
        }
        Err(error) if replies.len() == 1 => {
            replies.into_iter().zip([error]).for_each(|(reply, error)| drop(reply.send(Err(error))));
        }
        Err(error) => {
            let (size, source) = (replies.len(), Arc::new(error));
            for reply in replies {
                let failed = BatchFailed { size, source: Arc::clone(&source) };
                drop(reply.send(Err(StoreError::Unavailable(Box::new(failed)))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use podium_domain::ids::RunId;
    use podium_ports::clock::Ids as _;
    use podium_testkit::{SeededIds, TestClock};

    use super::*;

    #[tokio::test]
    async fn a_batch_is_answered_together_and_fails_together() {
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
