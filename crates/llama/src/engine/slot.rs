//! A running request: its tokens, its phase, and how it reacts to the next logits.

use super::prefixes::Beginning;
use super::prepare::Prepared;
use super::{Completion, Ended, EngineError, Job};
use crate::grammar::Walk;
use crate::reasoning::{PlanStart, Reasoning};
use crate::sampler::Sampler;
use crate::transcript::Transcript;
use crate::vocabulary::Vocabulary;

/// A running request.
pub(super) struct Slot {
    job: Box<Job>,
    /// Tokens of prompt and completion.
    tokens: Vec<u32>,
    prompt_tokens: usize,
    reasoning_tokens: usize,
    /// The prompt's beginning, while a prefix sequence still has to compute it.
    beginning: Option<Beginning>,
    /// Prompt tokens that an earlier request had computed.
    cached_tokens: usize,
    /// Tokens that are in the context.
    decoded: usize,
    /// The context has tokens beyond `decoded` that must be removed.
    stale: bool,
    phase: Phase,
    /// State of the plan's grammar; at its start during free text.
    walk: Walk,
    sampler: Sampler,
    transcript: Transcript,
}

enum Phase {
    /// Free text.
    Reasoning(Reasoning),
    /// The three lists.
    Plan,
}

impl Slot {
    /// Begins with the prompt. Returns why the request ends, if it ends at once.
    pub(super) fn begin(
        job: Box<Job>,
        prepared: Prepared,
        vocabulary: &Vocabulary,
    ) -> (Self, Result<Option<Ended>, EngineError>) {
        let Prepared { tokens, walk, .. } = prepared;
        let reasoning = Reasoning::after(job.request.prompt.prefix());
        let at_once = (job.request.reasoning_tokens_max == 0).then(|| reasoning.close());
        let mut slot = Self {
            prompt_tokens: tokens.len(),
            reasoning_tokens: 0,
            tokens,
            beginning: None,
            cached_tokens: 0,
            decoded: 0,
            stale: false,
            sampler: Sampler::new(job.request.sampling),
            transcript: Transcript::new(job.listener.clone()),
            phase: Phase::Reasoning(reasoning),
            walk,
            job,
        };
        let ended = at_once.map_or(Ok(None), |start| slot.begin_plan(&start, vocabulary));
        (slot, ended)
    }

    /// Waits for the prompt's beginning, which a prefix sequence computes.
    pub(super) fn await_beginning(&mut self, beginning: Beginning) {
        self.beginning = Some(beginning);
    }

    /// The beginning that it waits for.
    pub(super) fn awaited(&self) -> Option<Beginning> {
        self.beginning
    }

    /// Records that the context now has the beginning in this sequence, too.
    pub(super) fn take_beginning(&mut self) {
        if let Some(beginning) = self.beginning.take() {
            self.decoded = beginning.tokens;
            self.cached_tokens = if beginning.is_known { beginning.tokens } else { 0 };
        }
    }

    /// The request.
    pub(super) fn job(&self) -> &Job {
        &self.job
    }

    /// Whether the whole prompt is in the context.
    pub(super) fn is_writing(&self) -> bool {
        self.decoded >= self.prompt_tokens
    }

    /// The tokens that are not in the context; never empty between two calls of [`Self::advance`].
    pub(super) fn undecoded(&self) -> &[u32] {
        &self.tokens[self.decoded..]
    }

    /// Number of tokens in the context.
    pub(super) fn decoded(&self) -> usize {
        self.decoded
    }

    /// Records that the context has more tokens.
    pub(super) fn add_decoded(&mut self, tokens: usize) {
        self.decoded += tokens;
    }

    /// Whether tokens beyond [`Self::decoded`] must be removed from the context. Resets the flag.
    pub(super) fn take_stale(&mut self) -> bool {
        std::mem::take(&mut self.stale)
    }

    /// Chooses the next token and appends tokens that must follow it. Returns why the request ends, if it ends.
    pub(super) fn advance(
        &mut self,
        logits: &[f32],
        vocabulary: &Vocabulary,
    ) -> Result<Option<Ended>, EngineError> {
        let ended = match self.phase {
            Phase::Reasoning(_) => self.reason(logits, vocabulary)?,
            Phase::Plan => self.plan(logits, vocabulary)?,
        };
        match &self.phase {
            Phase::Reasoning(reasoning) => self.transcript.publish(reasoning.settled()),
            Phase::Plan => self.transcript.publish_all(),
        }
        Ok(ended)
    }

    /// Sends the result.
    pub(super) fn finish(self, ended: Result<Ended, EngineError>) {
        let completion_tokens = self.tokens.len() - self.prompt_tokens;
        let (reasoning, plan) = self.transcript.finish();
        let completion = ended.map(|ended| Completion {
            reasoning,
            plan,
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
            reasoning_tokens: self.reasoning_tokens,
            completion_tokens,
            ended,
        });
        // The receiver may be dropped.
        let _ = self.job.reply.send(completion);
    }

    fn reason(&mut self, logits: &[f32], vocabulary: &Vocabulary) -> Result<Option<Ended>, EngineError> {
        let Phase::Reasoning(reasoning) = &mut self.phase else { return Ok(None) };
        let Ok(token) = self.sampler.choose(logits, &mut vocabulary.speakable());
        let token = token.ok_or(EngineError::NoToken)?;
        let start = if vocabulary.is_ending(token) {
            Some(reasoning.close())
        } else {
            let bytes = vocabulary.bytes(token);
            self.tokens.push(token);
            self.transcript.push(bytes);
            self.reasoning_tokens += 1;
            let is_last = self.reasoning_tokens >= self.job.request.reasoning_tokens_max as usize;
            reasoning.push(bytes).or_else(|| is_last.then(|| reasoning.close()))
        };
        match start {
            Some(start) => self.begin_plan(&start, vocabulary),
            None => Ok(None),
        }
    }

    fn begin_plan(
        &mut self,
        start: &PlanStart,
        vocabulary: &Vocabulary,
    ) -> Result<Option<Ended>, EngineError> {
        for _ in 0..start.discarded {
            if let Some(token) = self.tokens.pop() {
                self.transcript.drop_last(vocabulary.bytes(token).len());
            }
        }
        self.reasoning_tokens = self.tokens.len() - self.prompt_tokens;
        self.keep_decoded(self.tokens.len());
        let before = vocabulary.cut(&start.before);
        self.write(&before, vocabulary);
        self.transcript.begin_plan();
        self.phase = Phase::Plan;
        let forced = self.walk.take_forced()?;
        if self.is_over_budget(forced.len()) {
            return Ok(Some(Ended::TokensMax));
        }
        self.write(&forced, vocabulary);
        // If no token was written, the last one is decoded again: its logits were not requested, or are used up.
        self.keep_decoded(self.tokens.len() - 1);
        Ok(None)
    }

    /// Marks tokens of the context beyond the first `tokens` as stale.
    fn keep_decoded(&mut self, tokens: usize) {
        if tokens < self.decoded {
            self.decoded = tokens;
            self.stale = true;
        }
    }

    fn plan(&mut self, logits: &[f32], vocabulary: &Vocabulary) -> Result<Option<Ended>, EngineError> {
        let token = self.sampler.choose(logits, &mut self.walk)?.ok_or(EngineError::NoToken)?;
        self.walk.take(token)?;
        let mut next = vec![token];
        if !self.walk.is_complete() {
            next.extend(self.walk.take_forced()?);
        }
        let is_complete = self.walk.is_complete();
        if self.is_over_budget(next.len()) {
            return Ok(Some(Ended::TokensMax));
        }
        self.write(&next, vocabulary);
        Ok(is_complete.then_some(Ended::Complete))
    }

    fn is_over_budget(&self, more: usize) -> bool {
        let plan_tokens = self.tokens.len() - self.prompt_tokens - self.reasoning_tokens;
        plan_tokens + more > self.job.request.plan_tokens_max as usize
    }

    fn write(&mut self, tokens: &[u32], vocabulary: &Vocabulary) {
        self.tokens.extend_from_slice(tokens);
        for token in tokens {
            self.transcript.push(vocabulary.bytes(*token));
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
