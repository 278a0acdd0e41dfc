//! A slot under scripted logits: what it asks the context for, and that whatever a model wants, it ends in bounds.

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

/// Stands for the token that ends a text.
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

/// A request that nobody waits for.
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

/// A slot, and the vocabulary of its logits.
struct Rig {
    vocabulary: Arc<Vocabulary>,
    slot: Slot,
    answer: oneshot::Receiver<Result<Completion, EngineError>>,
}

impl Rig {
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

    /// The token that writes exactly this.
    fn token(&self, piece: &[u8]) -> u32 {
        let is_meant = |token: &u32| match piece {
            END => self.vocabulary.is_ending(*token),
            piece => self.vocabulary.bytes(*token) == piece,
        };
        (0..self.size()).find(is_meant).unwrap()
    }

    /// Decodes what is undecoded, as a context would, and gives the logits of the last token.
    fn give(&mut self, logits: &[f32]) -> Result<Option<Ended>, EngineError> {
        self.slot.take_stale();
        assert!(!self.slot.undecoded().is_empty(), "there is nothing to decode");
        self.slot.add_decoded(self.slot.undecoded().len());
        self.slot.advance(logits, &self.vocabulary)
    }

    /// A model that wants these tokens, the first most, whatever was written.
    fn wish(&self, wishes: &[&[u8]]) -> Vec<f32> {
        let mut logits = vec![0.0; self.size() as usize];
        for (rank, wish) in (1u8..).zip(wishes) {
            logits[self.token(wish) as usize] = 10.0 / f32::from(rank);
        }
        logits
    }

    /// Gives the same logits until it ends; at most as often as tokens are allowed.
    fn insist(mut self, logits: &[f32]) -> Result<Completion, EngineError> {
        let request = &self.slot.job.request;
        let most = request.reasoning_tokens_max + request.plan_tokens_max;
        for _ in 0..=most {
            if let Some(ended) = self.give(logits).transpose() {
                self.slot.finish(ended);
                return self.answer.try_recv().unwrap();
            }
        }
        panic!("it goes on after {most} tokens");
    }
}

/// Lets a slot write these tokens, each alone. Tells how many tokens of the completion the context may keep, those that it
/// lacks, and whether it has to drop some.
fn written(pieces: &[&str]) -> (usize, String, bool) {
    let (mut rig, _) = Rig::new(request());
    for (number, piece) in pieces.iter().enumerate() {
        let logits = rig.wish(&[piece.as_bytes()]);
        assert_eq!(rig.give(&logits).unwrap(), None);
        if number + 1 < pieces.len() {
            rig.slot.take_stale();
        }
    }
    let bytes = |token: &u32| rig.vocabulary.bytes(*token).to_vec();
    let lacking: Vec<u8> = rig.slot.undecoded().iter().flat_map(bytes).collect();
    let kept = rig.slot.decoded() - rig.slot.prompt_tokens;
    (kept, String::from_utf8(lacking).unwrap(), rig.slot.take_stale())
}

const END_TEXT: &str = "(end)";

#[test]
fn a_token_of_free_text_is_decoded_next() {
    assert_eq!(written(&["Parts", ":"]), (1, ":".to_owned(), false));
}

#[test]
fn the_context_drops_the_tokens_that_were_given_back() {
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
fn tokens_that_the_grammar_forces_are_decoded_as_one_run() {
    assert_eq!(written(&["Parts", END_TEXT, "2", "]\n"]).1, "]\nsubtasks =");
}

/// Room enough for any plan.
fn roomy() -> Request {
    let shape = request().shape.with_subtask_chars_max(40).unwrap();
    Request { shape, reasoning_tokens_max: 50, plan_tokens_max: 300, ..request() }
}

/// It ends with a plan that can be read.
fn ends_with_a_plan(wishes: &[&[u8]]) -> Completion {
    let (rig, _) = Rig::new(roomy());
    let logits = rig.wish(wishes);
    let completion = rig.insist(&logits).unwrap();
    assert_eq!(completion.ended, Ended::Complete, "{wishes:?}: {completion:?}");
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
fn a_model_that_writes_no_text_still_plans() {
    for byte in [0xFE, 0xC3, 0xE2, 0x80, 0x00] {
        let completion = ends_with_a_plan(&[&[byte]]);
        // What is no text is told as such, and the plan is text.
        assert!(completion.reasoning.contains(['\u{FFFD}', '\0']), "{byte}: {completion:?}");
        assert!(!completion.plan.contains('\u{FFFD}'), "{byte}: {completion:?}");
    }
}

#[test]
fn a_model_that_says_nothing_still_plans() {
    let completion = ends_with_a_plan(&[END]);
    assert_eq!(completion.reasoning_tokens, 0);
}

#[test]
fn a_model_that_wants_every_token_alike_still_plans() {
    ends_with_a_plan(&[]);
}

#[test]
fn a_plan_that_reaches_its_tokens_inside_any_list_says_so() {
    let whole = ends_with_a_plan(&[END]);
    let plan_tokens = u32::try_from(whole.completion_tokens - whole.reasoning_tokens).unwrap();
    for plan_tokens_max in 1..plan_tokens {
        let (mut rig, mut ended) = Rig::new(Request { plan_tokens_max, reasoning_tokens_max: 0, ..roomy() });
        let logits = rig.wish(&[END]);
        while ended.is_none() {
            ended = rig.give(&logits).unwrap();
        }
        assert_eq!(ended, Some(Ended::TokensMax), "{plan_tokens_max}");
        rig.slot.finish(Ok(Ended::TokensMax));
        let completion = rig.answer.try_recv().unwrap().unwrap();
        assert!(whole.plan.starts_with(&completion.plan) && completion.plan != whole.plan);
        assert!(completion.completion_tokens <= plan_tokens_max as usize);
    }
}

#[test]
fn logits_that_are_no_numbers_are_an_error() {
    let (rig, _) = Rig::new(roomy());
    let logits = vec![f32::NAN; rig.size() as usize];
    assert!(matches!(rig.insist(&logits), Err(EngineError::NoToken)));
}
