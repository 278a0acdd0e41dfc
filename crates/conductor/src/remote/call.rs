//! One call of the model: streams its text and reports how it ended.

use futures::StreamExt;
use podium_domain::pool::Worker;
use podium_ports::conductor::TextSink;
use podium_ports::limiter::{Outcome, Permit, Settlement, outcome_of};
use podium_ports::vendor::{ChatEvent, ChatRequest, FinishReason, VendorError, Vendors};
use tokio::time::Instant;

use super::usage_account::UsageAccount;

/// Most bytes of output in which a plan is searched. A longer output is stopped.
const TEXT_BYTES_MAX: usize = 256 << 10;

/// The output of a call.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) text: String,
    pub(super) reason: FinishReason,
}

/// A call that failed.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) error: VendorError,
    /// Whether a part of the text had arrived.
    pub(super) has_text: bool,
}

/// A call to make.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) vendors: &'a dyn Vendors,
    pub(super) model: &'a Worker,
    pub(super) request: &'a ChatRequest,
    /// Receives each piece of text.
    pub(super) sink: TextSink<'a>,
    /// Receives the usage.
    pub(super) account: &'a UsageAccount,
}

impl Call<'_> {
    /// Calls the model and settles the permit. A dropped call leaves the permit unsettled.
    pub(super) async fn make(&self, permit: Box<dyn Permit>) -> Result<Written, Broken> {
        self.account.begin(self.request);
        let (mut text, mut settlement) = (String::new(), Settlement::default());
        let result = self.stream(&mut text, &mut settlement).await;
        let result = match result {
            Ok(reason) => Ok(Written { text, reason }),
            Err(error) => {
                settlement.outcome = outcome_of(&error);
                let (usage, has_text) = (self.account.break_off(), !text.is_empty());
                settlement.usage = (has_text || settlement.outcome == Outcome::Refused).then_some(usage);
                Err(Broken { error, has_text })
            }
        };
        permit.settle(settlement);
        result
    }

    async fn stream(
        &self,
        text: &mut String,
        settlement: &mut Settlement,
    ) -> Result<FinishReason, VendorError> {
        let began = Instant::now();
        let mut answer = self.vendors.chat(self.model, self.request).await?;
        while let Some(event) = answer.next().await {
            match event? {
                // The plan is in the text, even if the model also returns reasoning.
                ChatEvent::Started { .. }
                | ChatEvent::Unread(_)
                | ChatEvent::Reasoning(_)
                | ChatEvent::ReasoningSealed(_)
                | ChatEvent::ToolCallBegun { .. }
                | ChatEvent::ToolArguments { .. }
                | ChatEvent::ToolCall(_)
                | ChatEvent::StopSequence(_) => {}
                ChatEvent::Quota(quota) => settlement.quota = quota,
                ChatEvent::Delta(piece) => {
                    settlement.first_token.get_or_insert_with(|| began.elapsed());
                    self.account.wrote(piece.len());
                    (self.sink)(&piece);
                    text.push_str(&piece);
                    if text.len() > TEXT_BYTES_MAX {
                        settlement.outcome = Outcome::Refused;
                        settlement.usage = Some(self.account.break_off());
                        return Ok(FinishReason::Length);
                    }
                }
                ChatEvent::Finished { reason, usage } => {
                    settlement.outcome = Outcome::Answered;
                    settlement.usage = Some(self.account.finish(usage));
                    return Ok(reason);
                }
            }
        }
        let (vendor, message) = (
            self.model.vendor.as_str().to_owned(),
            "an answer that ended without a finish reason".to_owned(),
        );
        Err(VendorError::Garbled { vendor, message })
    }
}
