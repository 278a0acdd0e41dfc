//! Upper bounds of the cost of runs, for reservations of budgets and for estimates before a run.
//!
//! The bound of a call is a generous count of its prompt plus every token that it may write, each at the highest price. The outputs that
//! a step sees count with their maximum length.

use podium_domain::content::Attachment;
use podium_domain::conversation::Conversation;
use podium_domain::ids::WorkerId;
use podium_domain::money::Cost;
use podium_domain::plan::{Plan, Step};
use podium_domain::policy::Policy;
use podium_domain::pool::{Pool, Worker};
use podium_domain::prompt::EARLIER_BYTES_MAX;
use podium_domain::time::Timestamp;

/// Bytes of a prompt token, about half of the value for English text.
const PROMPT_BYTES_PER_TOKEN: u64 = 2;
/// Bytes of the tags and sentences around a step's subtask, and around each output that it sees.
const FRAME_BYTES: u64 = 1024;
/// Prompt tokens of a token of an earlier output, which has about four bytes.
const PROMPT_TOKENS_PER_SEEN: u64 = 2;

/// The parts of a request that bound its cost.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) conversation: &'a Conversation,
    pub(crate) policy: &'a Policy,
    pub(crate) answer_tokens_max: Option<u32>,
    /// The size of the offered tools, which are part of the final step's prompt.
    pub(crate) tools_bytes: usize,
    /// The time of the run, because prices change.
    pub(crate) at: Timestamp,
}

/// The prompt of a call in addition to the conversation.
#[derive(Clone, Copy, Default)]
struct Given {
    /// Bytes of texts.
    bytes: u64,
    /// Tokens of earlier outputs.
    tokens: u64,
}

impl Question<'_> {
    /// The most that a plan's steps cost with one attempt each.
    pub(crate) fn plan_max(&self, pool: &Pool, plan: &Plan) -> Cost {
        self.steps_max(pool, plan).map(|(_, cost)| cost).sum()
    }

    /// The worker of each step of a plan, and the most that one attempt costs.
    pub(crate) fn steps_max(&self, pool: &Pool, plan: &Plan) -> impl Iterator<Item = (WorkerId, Cost)> {
        let worker = |step: &Step| pool.worker_or_retired(&step.worker);
        plan.indexed().map(move |(index, step)| {
            let seen = step.access.as_slice().iter().filter_map(|seen| plan.steps().get(seen.as_usize()));
            let earlier = if step.sees_earlier_round { EARLIER_BYTES_MAX } else { 0 };
            let mut given = Given { bytes: (step.subtask.len() + earlier) as u64, tokens: 0 };
            for seen in seen {
                given.bytes += seen.subtask.len() as u64 + FRAME_BYTES;
                given.tokens += worker(seen).map_or(0, |worker| u64::from(worker.output_tokens_max));
            }
            let is_final = index == plan.final_step();
            let cost = worker(step).map_or(Cost::ZERO, |worker| self.call_max(worker, given, is_final));
            (step.worker.clone(), cost)
        })
    }

    /// The least that a plan can cost: one step by the cheapest worker that the policy allows.
    pub(crate) fn least(&self, pool: &Pool) -> Cost {
        let allowed = pool.workers().iter().filter(|worker| self.policy.allows(&worker.id));
        allowed.map(|worker| self.call_max(worker, Given::default(), true)).min().unwrap_or_default()
    }

    /// The most that any plan of a round can cost: all steps that the policy allows, by the most expensive worker, each of which sees
    /// all steps before it and the round before.
    pub(crate) fn round_max(&self, pool: &Pool) -> Cost {
        let allowed = || pool.workers().iter().filter(|worker| self.policy.allows(&worker.id));
        let longest = allowed().map(|worker| u64::from(worker.output_tokens_max)).max().unwrap_or_default();
        let subtask = podium_domain::plan::SUBTASK_BYTES_MAX as u64;
        let earlier = if self.policy.rounds_max > 1 { EARLIER_BYTES_MAX as u64 } else { 0 };
        let step = |number: u64| {
            let bytes = earlier + subtask + number * (subtask + FRAME_BYTES);
            let given = Given { bytes, tokens: number * longest };
            let costs = allowed().map(|worker| self.call_max(worker, given, false));
            costs.max().unwrap_or_default()
        };
        (0..u64::from(self.policy.steps_max)).map(step).sum()
    }

    /// The most that one call costs.
    fn call_max(&self, worker: &Worker, given: Given, is_final: bool) -> Cost {
        let messages = self.conversation.messages().iter();
        let conversation: u64 = messages.map(|message| message.text_bytes() as u64).sum();
        let attached: u64 = self.conversation.attachments().map(Attachment::tokens_max).sum();
        let tools = self.tools_bytes as u64;
        let tokens = (conversation + tools + given.bytes + FRAME_BYTES).div_ceil(PROMPT_BYTES_PER_TOKEN)
            + attached
            + given.tokens.saturating_mul(PROMPT_TOKENS_PER_SEEN);
        let answer_max = self.answer_tokens_max.filter(|_| is_final).unwrap_or(u32::MAX);
        let output_tokens = worker.output_tokens_max.min(answer_max);
        let prompt_tokens = tokens.min(worker.context_tokens.into());
        worker.prices.at(self.at).most_cost(prompt_tokens, output_tokens.into())
    }
}
