//! The executor of the benchmark: the real one, but its workers say one word at once.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt as _, stream};
use podium_cluster::{Program, Role};
use podium_domain::pool::Worker;
use podium_domain::usage::Usage;
use podium_executor::ExecutorParts;
use podium_ports::vendor::{ChatEvent, ChatRequest, ChatStream, FinishReason, VendorError, Vendors};

/// Its name as a program.
pub(crate) use podium_cluster::EXECUTOR;

/// Runs the process.
pub(crate) fn main() -> ExitCode {
    let program = Program {
        name: EXECUTOR,
        version: env!("CARGO_PKG_VERSION"),
        about: "An executor whose workers answer at once, for measurements.",
        role: Role::Executor,
    };
    podium_executor::main_with(program, at_once)
}

fn at_once(mut executor: ExecutorParts) -> ExecutorParts {
    if let Some(calls) = &mut executor.work.execute {
        calls.vendors = Arc::new(AtOnce);
    }
    executor
}

/// Workers that say one word at once.
struct AtOnce;

#[async_trait]
impl Vendors for AtOnce {
    async fn chat(&self, _: &Worker, _: &ChatRequest) -> Result<ChatStream, VendorError> {
        let usage = Usage { prompt_tokens: 100, completion_tokens: 1, ..Usage::default() };
        let events = [
            ChatEvent::Started { vendor_request_id: None },
            ChatEvent::Delta("done".to_owned()),
            ChatEvent::Finished { reason: FinishReason::Stop, usage: Some(usage) },
        ];
        Ok(stream::iter(events.map(Ok)).boxed())
    }
}
