//! A commit whose caller leaves, at whatever point, is in the store as a whole or not at all.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use podium_ports::store::{Appended, RunLog};
use podium_store_sqlite::{Options, Store};
use podium_testkit::{Driven, SeededIds, a_plan};

/// Polls a future until it waits for the `waits`-th time, and drops it then.
async fn abandon<F: Future>(future: F, waits: u32) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), waits);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left <= 1 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

#[tokio::test]
async fn an_abandoned_commit_is_written_as_a_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("podium.db"), Options::default()).await.unwrap();
    let ids = SeededIds::new(1);
    for waits in 1.. {
        let [mut run, mut other] = [(); 2].map(|()| Driven::accepted(&ids));
        run.plan(a_plan(), &ids);
        let commits = [run.commit(), other.commit()];
        let done = abandon(store.append(&commits), waits).await;
        // The next commit waits for the end of the abandoned one.
        let again = store.append(&commits).await.unwrap();
        assert!([Ok(Appended::New), Ok(Appended::Already)].contains(&again[0]), "{again:?}");
        assert_eq!(again[0], again[1], "half a batch was written");
        let loaded = store.load(&[run.id(), other.id()]).await.unwrap();
        assert_eq!(loaded, [Some(run.run), Some(other.run)]);
        if done.is_some() {
            assert_eq!(again[0], Ok(Appended::Already));
            return;
        }
    }
}
