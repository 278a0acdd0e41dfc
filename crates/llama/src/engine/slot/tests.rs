//! A slot under scripted logits: which tokens it decodes, and that it ends within its bounds for any model.

use std::sync::Arc;
use std::time::{Duration, Instant};

use podium_domain::conversation::{Message, Role};
use podium_domain::plan::PlanDraft;
use podium_domain::policy::Tier;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use toktrie::TokEnv;

use super::super::Request;
use super::*;
use crate::grammar::{Grammars, MayKeepAnswer, PlanShape};
use crate::prompt::{Prompt, Template};
use crate::sampler::Sampling;
use crate::vocabulary::tiny;

/// Represents the token that ends a text.
const END: &[u8] = b"(end)";

fn request() -> Request {
    Request {
        prompt: Prompt::new(Template::ChatMl, &[Message::new(Role::User, "What?")], ""),
        tier: Tier::Ultra,
        shape: PlanShape::new(0..4, 2, MayKeepAnswer::No).unwrap(),
        sampling: Sampling { temperature: 0.0, top_p: 1.0, seed: 0 },
        reasoning_tokens_max: 20,
        plan_tokens_max: 20,
        deadline: Instant::now() + Duration::from_mins(2),
        stop: CancellationToken::new(),
    }
}

/// A request without a receiver.
pub(in crate::engine) fn job() -> Box<Job> {
    job_of(request()).0
}

fn job_of(request: Request) -> (Box<Job>, oneshot::Receiver<Result<Completion, EngineError>>) {
    let places = Arc::new(Semaphore::new(1));
    let (reply, answer) = oneshot::channel();
    let job = Job {
        request,
        abandoned: CancellationToken::new(),
        listener: mpsc::unbounded_channel().0,
        reply,
        _place: places.try_acquire_owned().unwrap(),
    };
    (Box::new(job), answer)
}

/// A slot and the vocabulary of its logits.
struct Fixture {
    vocabulary: Arc<Vocabulary>,
    slot: Slot,
    answer: oneshot::Receiver<Result<Completion, EngineError>>,
}

impl Fixture {
    fn new(request: Request) -> (Self, Option<Ended>) {
        let vocabulary = Arc::new(tiny());
        let environment: TokEnv = Arc::<Vocabulary>::clone(&vocabulary);
        let walk = Grammars::new(&environment).unwrap().walk(&request.shape).unwrap();
        let (tokens, shared) = vocabulary.cut_prompt(&request.prompt);
        let (job, answer) = job_of(request);
        let (slot, ended) = Slot::begin(job, Prepared { tokens, shared, walk }, &vocabulary);
        (Self { vocabulary, slot, answer }, ended.unwrap())
    }

    fn size(&self) -> u32 {
        u32::try_from(self.vocabulary.speakable().len()).unwrap()
    }

    /// The token with exactly this text.
    fn token(&self, piece: &[u8]) -> u32 {
        let is_meant = |token: &u32| match piece {
            END => self.vocabulary.is_ending(*token),
            piece => self.vocabulary.bytes(*token) == piece,
        };
        (0..self.size()).find(is_meant).unwrap()
    }

    /// Decodes the missing tokens as a context would, then advances with these logits.
    fn give(&mut self, logits: &[f32]) -> Result<Option<Ended>, EngineError> {
        self.slot.take_stale();
        assert!(!self.slot.undecoded().is_empty(), "there is nothing to decode");
        self.slot.add_decoded(self.slot.undecoded().len());
        self.slot.advance(logits, &self.vocabulary)
    }

    /// Logits of a model that prefers these tokens in this order, whatever was written.
    fn logits_preferring(&self, preferred: &[&[u8]]) -> Vec<f32> {
        let mut logits = vec![0.0; self.size() as usize];
        for (rank, piece) in (1u8..).zip(preferred) {
            logits[self.token(piece) as usize] = 10.0 / f32::from(rank);
        }
        logits
    }

    /// Advances with the same logits until the end; at most as often as tokens are allowed.
    fn repeat(mut self, logits: &[f32]) -> Result<Completion, EngineError> {
        let request = &self.slot.job.request;
        let most = request.reasoning_tokens_max + request.plan_tokens_max;
        for _ in 0..=most {
            if let Some(ended) = self.give(logits).transpose() {
                self.slot.finish(ended);
                return self.answer.try_recv().unwrap();
            }
        }
        panic!("it continues after {most} tokens");
    }
}

/// Writes these tokens one by one. Returns how many completion tokens stay in the context, which ones are missing, and
/// whether some must be removed.
fn written(pieces: &[&str]) -> (usize, String, bool) {
    let (mut fixture, _) = Fixture::new(request());
    for (number, piece) in pieces.iter().enumerate() {
        let logits = fixture.logits_preferring(&[piece.as_bytes()]);
        assert_eq!(fixture.give(&logits).unwrap(), None);
        if number + 1 < pieces.len() {
            fixture.slot.take_stale();
        }
    }
    let bytes = |token: &u32| fixture.vocabulary.bytes(*token).to_vec();
    let lacking: Vec<u8> = fixture.slot.undecoded().iter().flat_map(bytes).collect();
    let kept = fixture.slot.decoded() - fixture.slot.prompt_tokens;
    (kept, String::from_utf8(lacking).unwrap(), fixture.slot.take_stale())
}

const END_TEXT: &str = "(end)";

#[test]
fn a_token_of_free_text_is_decoded() {
    assert_eq!(written(&["Parts", ":"]), (1, ":".to_owned(), false));
}

#[test]
fn the_context_removes_discarded_tokens() {
    assert_eq!(written(&["Parts", ".\n", "model", "_id"]), (2, "model_id = [".to_owned(), true));
    assert_eq!(written(&["Parts", ".\n", "m", "o", "d", "el_id = [7"]), (2, "model_id = [".to_owned(), true));
    assert_eq!(written(&["Parts", "\nmodel", "_id"]), (1, "\nmodel_id = [".to_owned(), true));
}

#[test]
fn a_text_that_ends_is_followed_by_the_plan() {
    assert_eq!(written(&["Parts", END_TEXT]), (1, "\nmodel_id = [".to_owned(), false));
    assert_eq!(written(&["Parts", ".\n", END_TEXT]), (2, "model_id = [".to_owned(), false));
    assert_eq!(written(&["Parts", ".\n", "m", "o", END_TEXT]), (2, "model_id = [".to_owned(), true));
}

#[test]
fn forced_tokens_are_decoded_in_one_run() {
    assert_eq!(written(&["Parts", END_TEXT, "2", "]\n"]).1, "]\nsubtasks =");
}

/// Enough tokens for any plan.
fn large() -> Request {
    let shape = request().shape.with_subtask_chars_max(40).unwrap();
    Request { shape, reasoning_tokens_max: 50, plan_tokens_max: 300, ..request() }
}

/// Checks that the request ends with a valid plan.
fn ends_with_a_plan(preferred: &[&[u8]]) -> Completion {
    let (fixture, _) = Fixture::new(large());
    let logits = fixture.logits_preferring(preferred);
    let completion = fixture.repeat(&logits).unwrap();
    assert_eq!(completion.ended, Ended::Complete, "{preferred:?}: {completion:?}");
    let draft = PlanDraft::parse(&completion.plan).unwrap();
    assert!(!draft.keeps_answer(), "{completion:?}");
    completion
}

#[test]
fn a_model_that_repeats_itself_for_ever_still_plans() {
    for word in [" words", ":", "\n", "model", "0", "[", "\"", "\\"] {
        let completion = ends_with_a_plan(&[word.as_bytes()]);
        assert!(completion.reasoning_tokens <= 50, "{word}");
    }
}

#[test]
fn a_model_that_writes_blanks_for_ever_still_plans() {
    for blank in [" ", "\t", "\r", "\n"] {
        ends_with_a_plan(&[blank.as_bytes()]);
    }
}

#[test]
fn a_model_that_writes_invalid_bytes_still_plans() {
    for byte in [0xFE, 0xC3, 0xE2, 0x80, 0x00] {
        let completion = ends_with_a_plan(&[&[byte]]);
        // Invalid bytes are reported as U+FFFD; the plan is valid text.
        assert!(completion.reasoning.contains(['\u{FFFD}', '\0']), "{byte}: {completion:?}");
        assert!(!completion.plan.contains('\u{FFFD}'), "{byte}: {completion:?}");
    }
}

#[test]
fn a_model_without_free_text_still_plans() {
    let completion = ends_with_a_plan(&[END]);
    assert_eq!(completion.reasoning_tokens, 0);
}

#[test]
fn a_model_with_equal_logits_still_plans() {
    ends_with_a_plan(&[]);
}

#[test]
fn a_plan_that_reaches_its_limit_in_any_list_reports_it() {
    let whole = ends_with_a_plan(&[END]);
    let plan_tokens = u32::try_from(whole.completion_tokens - whole.reasoning_tokens).unwrap();
    for plan_tokens_max in 1..plan_tokens {
        let (mut fixture, mut ended) =
            Fixture::new(Request { plan_tokens_max, reasoning_tokens_max: 0, ..large() });
        let logits = fixture.logits_preferring(&[END]);
        while ended.is_none() {
            ended = fixture.give(&logits).unwrap();
        }
        assert_eq!(ended, Some(Ended::TokensMax), "{plan_tokens_max}");
        fixture.slot.finish(Ok(Ended::TokensMax));
        let completion = fixture.answer.try_recv().unwrap().unwrap();
        assert!(whole.plan.starts_with(&completion.plan) && completion.plan != whole.plan);
        assert!(completion.completion_tokens <= plan_tokens_max as usize);
    }
}

#[test]
fn nan_logits_are_an_error() {
    let (fixture, _) = Fixture::new(large());
    let logits = vec![f32::NAN; fixture.size() as usize];
    assert!(matches!(fixture.repeat(&logits), Err(EngineError::NoToken)));
}
