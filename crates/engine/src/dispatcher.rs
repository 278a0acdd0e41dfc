//! The dispatcher: where a lane is contended, it takes from the backlog in the store what the lane has room for.

use podium_ports::queue::{Lane, QueueError};
use podium_ports::store::{ReadyTask, StoreError};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::dispatch::Todo;
use crate::engine::Engine;

/// Dispatches. Any number may run on one store and queue: the store hands each task to one of them.
pub(crate) struct Dispatcher {
    engine: Engine,
}

/// Why a lane was not refilled.
#[derive(Debug, thiserror::Error)]
enum DispatchError {
    #[error(transparent)]
    Queue(#[from] QueueError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Dispatcher {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine }
    }

    pub(crate) async fn run(self, stop: CancellationToken) {
        loop {
            let todo = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                todo = self.engine.dispatch().todo() => todo,
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.act_on(todo) => {}
            }
        }
    }

    async fn act_on(&self, todo: Todo) {
        self.engine.clock_is_right().await;
        let options = self.engine.options();
        // Where the queue or the store does not answer, there is no hurry.
        let pause = if self.dispatch(todo).await { options.dispatch_every } else { options.sweep_every };
        self.engine.parts().clock.sleep(pause).await;
    }

    /// Whether it could be done.
    async fn dispatch(&self, todo: Todo) -> bool {
        if !todo.refused.is_empty()
            && let Err(error) = self.engine.parts().store.put_back(&todo.refused).await
        {
            warn!(
                error = &error as &dyn std::error::Error,
                "tasks were not put back into the backlog; the sweeper publishes them"
            );
        }
        let refills = todo.contended.iter().map(|lane| async move {
            let refilled = self.refill(lane).await;
            if let Err(error) = &refilled {
                warn!(%lane, error = error as &dyn std::error::Error, "could not dispatch");
            }
            refilled.is_ok()
        });
        futures::future::join_all(refills).await.into_iter().all(|refilled| refilled)
    }

    async fn refill(&self, lane: &Lane) -> Result<(), DispatchError> {
        let (parts, options, dispatch) = (self.engine.parts(), self.engine.options(), self.engine.dispatch());
        let tasks_max = options.sweep_tasks_max;
        let room = if dispatch.serves(lane) {
            let room = parts.queue.room(lane).await?;
            u32::try_from(room).unwrap_or(u32::MAX).min(tasks_max)
        } else {
            tasks_max
        };
        if room == 0 {
            return Ok(());
        }
        let now = self.engine.now();
        let taken = parts.store.take(lane, now, now.after(options.dispatch_grace), room).await?;
        // Fewer than there is room for: that was all, or another dispatcher is at it.
        if taken.len() < room as usize {
            dispatch.note_emptied(lane);
        }
        let ready = taken.into_iter().map(|(run, task)| ReadyTask { run, task, lane: lane.clone() });
        Ok(dispatch.tell_all(ready.collect()).await?)
    }
}
