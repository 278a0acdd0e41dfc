//! An executor with a defect: the loop of a lane panics on its first task. Everything else is the real executor.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use podium_cluster::{EXECUTOR, Program, Role};
use podium_executor::ExecutorParts;
use podium_ports::queue::{Delivery, Lane, Published, QueueError, StepQueue, TaskMessage};

const PROGRAM: Program = Program {
    name: EXECUTOR,
    version: env!("CARGO_PKG_VERSION"),
    about: "An executor whose loop panics on its first task, for tests.",
    role: Role::Executor,
};

/// Runs the process.
pub(crate) fn main() -> ExitCode {
    podium_executor::main_with(PROGRAM, panicking)
}

fn panicking(mut executor: ExecutorParts) -> ExecutorParts {
    executor.parts.queue = Arc::new(Panicking(executor.parts.queue));
    executor
}

/// A queue that panics instead of delivering a task.
struct Panicking(Arc<dyn StepQueue>);

#[async_trait]
impl StepQueue for Panicking {
    async fn publish(&self, lane: &Lane, message: TaskMessage) -> Result<Published, QueueError> {
        self.0.publish(lane, message).await
    }

    async fn fetch(&self, lane: &Lane, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        let deliveries = self.0.fetch(lane, max, wait).await?;
        assert!(deliveries.is_empty(), "injected by the test");
        Ok(deliveries)
    }

    async fn capacity(&self, lane: &Lane) -> Result<usize, QueueError> {
        self.0.capacity(lane).await
    }

    async fn ping(&self) -> Result<(), QueueError> {
        self.0.ping().await
    }
}
