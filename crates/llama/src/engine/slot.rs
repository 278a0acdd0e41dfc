//! One request being worked on: its tokens, where it stands, and what follows from the next logits.

use std::time::Instant;

use super::{Completion, Ended, EngineError, Job};
use crate::grammar::{Grammars, Walk};
use crate::reasoning::{PlanStart, Reasoning};
use crate::sampler::Sampler;
use crate::transcript::Transcript;
use crate::vocabulary::Vocabulary;

/// A request being worked on.
pub(super) struct Slot {
    job: Box<Job>,
    /// Prompt and completion.
    tokens: Vec<u32>,
    prompt_tokens: usize,
    reasoning_tokens: usize,
    /// How many of the tokens the context holds.
    decoded: usize,
    /// The context holds tokens behind `decoded` that do not count.
    stale: bool,
    phase: Phase,
    sampler: Sampler,
    transcript: Transcript,
}

enum Phase {
    /// Free text.
    Reasoning(Reasoning),
    /// The three lists.
    Plan(Box<Walk>),
}

/// What the slots share.
pub(super) struct Shared<'a> {
    pub(super) vocabulary: &'a Vocabulary,
    pub(super) grammars: &'a mut Grammars,
    pub(super) context_tokens: usize,
}

impl Slot {
    /// Cuts the prompt. A request that could outgrow its context is refused here, so that none does later.
    pub(super) fn begin(job: Box<Job>, shared: &mut Shared<'_>) -> Result<Self, (Box<Job>, EngineError)> {
        let tokens = match prompt_tokens(&job, shared) {
            Ok(tokens) => tokens,
            Err(error) => return Err((job, error)),
        };
        let reasoning = Reasoning::after(job.request.prompt.prefix());
        let mut slot = Self {
            prompt_tokens: tokens.len(),
            reasoning_tokens: 0,
            tokens,
            decoded: 0,
            stale: false,
            sampler: Sampler::new(job.request.sampling),
            transcript: Transcript::new(job.listener.clone()),
            phase: Phase::Reasoning(reasoning),
            job,
        };
        if slot.job.request.reasoning_tokens_max == 0 {
            let start = Reasoning::after(slot.job.request.prompt.prefix()).close();
            if let Err(error) = slot.begin_plan(&start, shared) {
                return Err((slot.job, error));
            }
        }
        Ok(slot)
    }

    /// Why it is to end before its next token, if it is.
    pub(super) fn interrupted(&self) -> Option<Ended> {
        let request = &self.job.request;
        if request.stop.is_cancelled() || self.job.abandoned.is_cancelled() {
            return Some(Ended::Stopped);
        }
        (Instant::now() >= request.deadline).then_some(Ended::Deadline)
    }

    /// The tokens that the context lacks; never empty between two calls of [`Self::advance`].
    pub(super) fn undecoded(&self) -> &[u32] {
        &self.tokens[self.decoded..]
    }

    /// How many tokens the context has.
    pub(super) fn decoded(&self) -> usize {
        self.decoded
    }

    /// The context has so many tokens more.
    pub(super) fn add_decoded(&mut self, tokens: usize) {
        self.decoded += tokens;
    }

    /// Whether the context is to drop all behind [`Self::decoded`] first. Asked once.
    pub(super) fn take_stale(&mut self) -> bool {
        std::mem::take(&mut self.stale)
    }

    /// Chooses the next token, and takes those that must follow it. Tells if that is the end.
    pub(super) fn advance(
        &mut self,
        logits: &[f32],
        shared: &mut Shared<'_>,
    ) -> Result<Option<Ended>, EngineError> {
        let ended = match self.phase {
            Phase::Reasoning(_) => self.reason(logits, shared)?,
            Phase::Plan(_) => self.plan(logits, shared)?,
        };
        match &self.phase {
            Phase::Reasoning(reasoning) => self.transcript.tell(reasoning.settled()),
            Phase::Plan(_) => self.transcript.tell_all(),
        }
        Ok(ended)
    }

    /// Hands the result over.
    pub(super) fn finish(self, ended: Result<Ended, EngineError>) {
        let completion_tokens = self.tokens.len() - self.prompt_tokens;
        let (reasoning, plan) = self.transcript.finish();
        let completion = ended.map(|ended| Completion {
            reasoning,
            plan,
            prompt_tokens: self.prompt_tokens,
            reasoning_tokens: self.reasoning_tokens,
            completion_tokens,
            ended,
        });
        // Nobody may be waiting.
        let _ = self.job.reply.send(completion);
    }

    fn reason(&mut self, logits: &[f32], shared: &mut Shared<'_>) -> Result<Option<Ended>, EngineError> {
        let Phase::Reasoning(reasoning) = &mut self.phase else { return Ok(None) };
        let vocabulary = shared.vocabulary;
        let token = self.sampler.choose(logits, vocabulary.speakable()).ok_or(EngineError::NoToken)?;
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
            Some(start) => self.begin_plan(&start, shared),
            None => Ok(None),
        }
    }

    fn begin_plan(
        &mut self,
        start: &PlanStart,
        shared: &mut Shared<'_>,
    ) -> Result<Option<Ended>, EngineError> {
        for _ in 0..start.given_back {
            if let Some(token) = self.tokens.pop() {
                self.transcript.drop_last(shared.vocabulary.bytes(token).len());
            }
        }
        self.reasoning_tokens = self.tokens.len() - self.prompt_tokens;
        self.keep_decoded(self.tokens.len());
        let before = shared.vocabulary.cut(&start.before);
        self.write(&before, shared.vocabulary);
        self.transcript.begin_plan();
        let mut walk = shared.grammars.walk(&self.job.request.shape)?;
        let forced = walk.take_forced()?;
        self.phase = Phase::Plan(Box::new(walk));
        if self.is_over_budget(forced.len()) {
            return Ok(Some(Ended::TokensMax));
        }
        self.write(&forced, shared.vocabulary);
        // If nothing was written, the last token is decoded again: its logits were not asked for, or used up.
        self.keep_decoded(self.tokens.len() - 1);
        Ok(None)
    }

    /// What the context has beyond the first `tokens` does not count any more.
    fn keep_decoded(&mut self, tokens: usize) {
        if tokens < self.decoded {
            self.decoded = tokens;
            self.stale = true;
        }
    }

    fn plan(&mut self, logits: &[f32], shared: &mut Shared<'_>) -> Result<Option<Ended>, EngineError> {
        let Phase::Plan(walk) = &mut self.phase else { return Ok(None) };
        let token = self.sampler.choose(logits, &walk.allowed()?).ok_or(EngineError::NoToken)?;
        walk.take(token)?;
        let mut next = vec![token];
        if !walk.is_complete() {
            next.extend(walk.take_forced()?);
        }
        let is_complete = walk.is_complete();
        if self.is_over_budget(next.len()) {
            return Ok(Some(Ended::TokensMax));
        }
        self.write(&next, shared.vocabulary);
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

fn prompt_tokens(job: &Job, shared: &Shared<'_>) -> Result<Vec<u32>, EngineError> {
    let request = &job.request;
    if let Some(name) =
        request.prompt.template().controls().iter().find(|name| !shared.vocabulary.has_control(name))
    {
        return Err(EngineError::UnknownControl { name });
    }
    let completion_tokens = request.reasoning_tokens_max as usize + request.plan_tokens_max as usize;
    let tokens_max = shared.context_tokens.saturating_sub(completion_tokens);
    // What is far too long is not worth cutting, nor the memory.
    let tokens_at_least = request.prompt.text_bytes() / shared.vocabulary.token_bytes_max();
    if tokens_at_least > tokens_max {
        return Err(EngineError::PromptTooLong { tokens: tokens_at_least, tokens_max });
    }
    let tokens = shared.vocabulary.cut_prompt(&request.prompt);
    if tokens.len() > tokens_max {
        return Err(EngineError::PromptTooLong { tokens: tokens.len(), tokens_max });
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use podium_domain::conversation::{Message, Role};
    use tokio::sync::{mpsc, oneshot};
    use tokio_util::sync::CancellationToken;
    use toktrie::TokEnv;

    use super::super::Request;
    use super::*;
    use crate::grammar::{MayKeepAnswer, PlanShape};
    use crate::prompt::{Prompt, Template};
    use crate::sampler::Sampling;
    use crate::vocabulary::tiny;

    /// Stands for the token that ends a text.
    const END: &str = "(end)";

    fn job() -> Box<Job> {
        let request = Request {
            prompt: Prompt::new(Template::ChatMl, &[Message::new(Role::User, "What?")], ""),
            shape: PlanShape::new(0..4, 2, MayKeepAnswer::No).unwrap(),
            sampling: Sampling { temperature: 0.0, top_p: 1.0, seed: 0 },
            reasoning_tokens_max: 20,
            plan_tokens_max: 20,
            deadline: Instant::now() + Duration::from_mins(2),
            stop: CancellationToken::new(),
        };
        let abandoned = CancellationToken::new();
        Box::new(Job {
            request,
            abandoned,
            listener: mpsc::unbounded_channel().0,
            reply: oneshot::channel().0,
        })
    }

    /// Lets a slot write these tokens, each alone and as a context would: what is undecoded is decoded, then the logits of
    /// the last token are given. Tells how many tokens of the completion the context may keep, and those that it lacks.
    fn written(pieces: &[&str]) -> (usize, String, bool) {
        let vocabulary = std::sync::Arc::new(tiny());
        let environment: TokEnv = std::sync::Arc::<Vocabulary>::clone(&vocabulary);
        let mut grammars = Grammars::new(&environment).unwrap();
        let mut shared = Shared { vocabulary: &vocabulary, grammars: &mut grammars, context_tokens: 1000 };
        let Ok(mut slot) = Slot::begin(job(), &mut shared) else { panic!("refused") };
        for piece in pieces {
            slot.add_decoded(slot.undecoded().len());
            let size = u32::try_from(vocabulary.speakable().len()).unwrap();
            let is_meant = |token: &u32| match *piece {
                END => vocabulary.is_ending(*token),
                piece => vocabulary.bytes(*token) == piece.as_bytes(),
            };
            let token = (0..size).find(is_meant).unwrap();
            let mut logits = vec![0.0; size as usize];
            logits[token as usize] = 1.0;
            assert_eq!(slot.advance(&logits, &mut shared).unwrap(), None);
        }
        let lacking: Vec<u8> =
            slot.undecoded().iter().flat_map(|token| vocabulary.bytes(*token).to_vec()).collect();
        (slot.decoded() - slot.prompt_tokens, String::from_utf8(lacking).unwrap(), slot.take_stale())
    }

    #[test]
    fn a_token_of_free_text_is_decoded_next() {
        assert_eq!(written(&["Parts", ":"]), (1, ":".to_owned(), false));
    }

    #[test]
    fn the_context_drops_the_tokens_that_were_given_back() {
        assert_eq!(written(&["Parts", ".\n", "model", "_id"]), (2, "model_id = [".to_owned(), true));
        assert_eq!(
            written(&["Parts", ".\n", "m", "o", "d", "el_id = [7"]),
            (2, "model_id = [".to_owned(), true)
        );
        assert_eq!(written(&["Parts", "\nmodel", "_id"]), (1, "\nmodel_id = [".to_owned(), true));
    }

    #[test]
    fn a_text_that_ends_is_followed_by_the_plan() {
        assert_eq!(written(&["Parts", END]), (1, "\nmodel_id = [".to_owned(), false));
        assert_eq!(written(&["Parts", ".\n", END]), (2, "model_id = [".to_owned(), false));
        assert_eq!(written(&["Parts", ".\n", "m", "o", END]), (2, "model_id = [".to_owned(), true));
    }
}
