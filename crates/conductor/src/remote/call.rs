//! One call of a model that writes a plan: its text as it comes, and how it ended.

use futures::StreamExt;
use podium_domain::pool::Worker;
use podium_ports::conductor::TextSink;
use podium_ports::limiter::{Outcome, Permit, Settlement, outcome_of};
use podium_ports::vendor::{ChatEvent, ChatRequest, FinishReason, VendorError, Vendors};
use tokio::time::Instant;

use super::tally::Tally;

/// Most bytes of a text in which a plan is looked for. A model that writes on is stopped.
const TEXT_BYTES_MAX: usize = 256 << 10;

/// What a model wrote.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) text: String,
    pub(super) reason: FinishReason,
}

/// A call that broke off.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) error: VendorError,
    /// Whether something of its text had come.
    pub(super) was_heard: bool,
}

/// A call to be made.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) vendors: &'a dyn Vendors,
    pub(super) model: &'a Worker,
    pub(super) request: &'a ChatRequest,
    /// Hears each piece.
    pub(super) sink: TextSink<'a>,
    /// Is told what is consumed.
    pub(super) tally: &'a Tally,
}

impl Call<'_> {
    /// Has the model write, and settles the permit. Of a call that is dropped nobody knows anything.
    pub(super) async fn make(&self, permit: Box<dyn Permit>) -> Result<Written, Broken> {
        self.tally.begin(self.request);
        let (mut text, mut settlement) = (String::new(), Settlement::default());
        let result = self.listen(&mut text, &mut settlement).await;
        let result = match result {
            Ok(reason) => Ok(Written { text, reason }),
            Err(error) => {
                settlement.outcome = outcome_of(&error);
                let (usage, was_heard) = (self.tally.break_off(), !text.is_empty());
                settlement.usage = (was_heard || settlement.outcome == Outcome::Refused).then_some(usage);
                Err(Broken { error, was_heard })
            }
        };
        permit.settle(settlement);
        result
    }

    async fn listen(
        &self,
        text: &mut String,
        settlement: &mut Settlement,
    ) -> Result<FinishReason, VendorError> {
        let began = Instant::now();
        let mut answer = self.vendors.chat(self.model, self.request).await?;
        while let Some(event) = answer.next().await {
            match event? {
                // A plan is text, and so is the reasoning that is asked for.
                ChatEvent::Started { .. }
                | ChatEvent::Unread(_)
                | ChatEvent::Reasoning(_)
                | ChatEvent::ReasoningSealed(_)
                | ChatEvent::ToolCall(_) => {}
                ChatEvent::Quota(quota) => settlement.quota = quota,
                ChatEvent::Delta(piece) => {
                    settlement.first_token.get_or_insert_with(|| began.elapsed());
                    self.tally.heard(piece.len());
                    (self.sink)(&piece);
                    text.push_str(&piece);
                    if text.len() > TEXT_BYTES_MAX {
                        settlement.outcome = Outcome::Refused;
                        settlement.usage = Some(self.tally.break_off());
                        return Ok(FinishReason::Length);
                    }
                }
                ChatEvent::Finished { reason, usage } => {
                    settlement.outcome = Outcome::Answered;
                    settlement.usage = Some(self.tally.finish(usage));
                    return Ok(reason);
                }
            }
        }
        let (vendor, message) =
            (self.model.vendor.as_str().to_owned(), "an answer without an end".to_owned());
        Err(VendorError::Garbled { vendor, message })
    }
}
