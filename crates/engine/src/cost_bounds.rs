//! What runs can cost at most: what is reserved of budgets, and what a client is told before a run.
//!
//! A call is worth its prompt, generously counted, and every token that it may write, each at the dearest class. Of a step that
//! sees others, the others' outputs are taken for as long as they may get.

use podium_domain::content::IMAGE_TOKENS_MAX;
use podium_domain::conversation::Conversation;
use podium_domain::ids::WorkerId;
use podium_domain::money::Cost;
use podium_domain::plan::{Plan, Step};
use podium_domain::policy::Policy;
use podium_domain::pool::{Pool, Worker};
use podium_domain::prompt::EARLIER_BYTES_MAX;
use podium_domain::time::Timestamp;

/// Bytes that are taken for a token of a prompt: about half of what English text has.
const PROMPT_BYTES_PER_TOKEN: u64 = 2;
/// Bytes of the tags and sentences around what a step is given, and around each output that it sees.
const FRAME_BYTES: u64 = 1024;
/// Tokens of a prompt that a token of an earlier output is taken for: it has about four bytes.
const PROMPT_TOKENS_PER_SEEN: u64 = 2;

/// What is asked, as far as it bounds what can be spent.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) conversation: &'a Conversation,
    pub(crate) policy: &'a Policy,
    pub(crate) answer_tokens_max: Option<u32>,
    /// When it would run: prices change.
    pub(crate) at: Timestamp,
}

impl Question<'_> {
    /// The most that a plan's steps cost if each needs one attempt.
    pub(crate) fn plan_max(&self, pool: &Pool, plan: &Plan) -> Cost {
        self.steps_max(pool, plan).map(|(_, cost)| cost).sum()
    }

    /// Each step of a plan, and the most that one attempt at it costs.
    pub(crate) fn steps_max(&self, pool: &Pool, plan: &Plan) -> impl Iterator<Item = (WorkerId, Cost)> {
        let worker = |step: &Step| pool.worker(&step.worker);
        plan.indexed().map(move |(index, step)| {
            let seen = step.access.as_slice().iter().filter_map(|seen| plan.steps().get(seen.as_usize()));
            let earlier = if step.sees_earlier_round { EARLIER_BYTES_MAX } else { 0 };
            let (mut bytes, mut tokens) = ((step.subtask.len() + earlier) as u64, 0);
            for seen in seen {
                bytes += seen.subtask.len() as u64 + FRAME_BYTES;
                tokens += worker(seen).map_or(0, |worker| u64::from(worker.output_tokens_max));
            }
            let is_final = index == plan.final_step();
            let cost =
                worker(step).map_or(Cost::ZERO, |worker| self.call_max(worker, (bytes, tokens), is_final));
            (step.worker.clone(), cost)
        })
    }

    /// The least that a plan can be worth: one step, by the cheapest worker that the policy allows.
    pub(crate) fn least(&self, pool: &Pool) -> Cost {
        let allowed = pool.workers().iter().filter(|worker| self.policy.allows(worker));
        allowed.map(|worker| self.call_max(worker, (0, 0), true)).min().unwrap_or_default()
    }

    /// The most that any plan of a round can be worth: all steps that the policy allows, by the dearest worker, each of which
    /// sees all before it, the round before included.
    pub(crate) fn round_max(&self, pool: &Pool) -> Cost {
        let allowed = || pool.workers().iter().filter(|worker| self.policy.allows(worker));
        let longest = allowed().map(|worker| u64::from(worker.output_tokens_max)).max().unwrap_or_default();
        let subtask = podium_domain::plan::SUBTASK_BYTES_MAX as u64;
        let earlier = if self.policy.rounds_max > 1 { EARLIER_BYTES_MAX as u64 } else { 0 };
        let step = |number: u64| {
            let seen = (earlier + subtask + number * (subtask + FRAME_BYTES), number * longest);
            let costs = allowed().map(|worker| self.call_max(worker, seen, false));
            costs.max().unwrap_or_default()
        };
        (0..u64::from(self.policy.steps_max)).map(step).sum()
    }

    /// The most that one call is worth which is given so many bytes and tokens besides the conversation.
    fn call_max(&self, worker: &Worker, (bytes, seen_tokens): (u64, u64), is_final: bool) -> Cost {
        let messages = self.conversation.messages().iter();
        let given: u64 = messages.map(|message| message.text_bytes() as u64).sum();
        let images = self.conversation.images().count() as u64;
        let tokens = (given + bytes + FRAME_BYTES).div_ceil(PROMPT_BYTES_PER_TOKEN)
            + images * IMAGE_TOKENS_MAX
            + seen_tokens.saturating_mul(PROMPT_TOKENS_PER_SEEN);
        let answer_max = self.answer_tokens_max.filter(|_| is_final).unwrap_or(u32::MAX);
        let output_tokens = worker.output_tokens_max.min(answer_max);
        let prompt_tokens = tokens.min(worker.context_tokens.into());
        worker.prices.at(self.at).most_cost(prompt_tokens, output_tokens.into())
    }
}
