//! The executor of the benchmark: the real one, but its workers say one word at once.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt as _, stream};
use podium_cluster::{Work, check_work, main as process, work_keys, work_until_signal};
use podium_domain::pool::Worker;
use podium_domain::usage::Usage;
use podium_ports::vendor::{ChatEvent, ChatRequest, ChatStream, FinishReason, VendorError, Vendors};

/// Its name as a program.
pub(crate) const EXECUTOR: &str = "podium-executor";

/// Runs the process.
pub(crate) fn main() -> ExitCode {
    let serve = |settings| work_until_signal(settings, Work::ExecuteWith(|| Arc::new(AtOnce)));
    process(EXECUTOR, env!("CARGO_PKG_VERSION"), &work_keys(), check_work, serve)
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
