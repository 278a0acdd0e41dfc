//! Steps that begin while the rest of their plan is being written.
//!
//! An early beginning takes an additional commit, so it must save time: it happens only while the plan is incomplete, and only if it
//! lets a step start.

use podium_domain::ids::StepIndex;
use podium_domain::plan::{LastStep, PlanDraft, PlanHead, PlanStream, Step};
use podium_domain::pool::Pool;
use podium_domain::run::{Command, Run, StepRef};
use tokio::sync::mpsc;
use tracing::{debug, warn};

use crate::claims::claim::Claimed;
use crate::commit::CommandError;
use crate::context::Context;

/// Most pieces of text that are read between two checks of the plan.
const TEXTS_MAX: usize = 256;

/// Begins steps as the conductor writes them; never returns before it is dropped. `pool` is the pool that the conductor's text refers
/// to. Without it, all steps wait for the plan.
pub(super) async fn begin_steps(
    context: &Context,
    claimed: &Claimed,
    pool: Option<&Pool>,
    mut texts: mpsc::UnboundedReceiver<String>,
) {
    if let Some(pool) = pool {
        let mut reading = Reading::new(&claimed.run, claimed.task.round(), pool);
        let mut batch = Vec::new();
        while texts.recv_many(&mut batch, TEXTS_MAX).await > 0 {
            batch.drain(..).for_each(|text| reading.read(&text));
            let cached = context.run_cache().get(claimed.run.id());
            if let Some(head) = reading.news(cached.as_deref().unwrap_or(&claimed.run))
                && reading.begin(context, claimed, head).await.is_err()
            {
                break;
            }
        }
    }
    texts.close();
    std::future::pending::<()>().await;
}

/// The conductor's text so far.
struct Reading<'a> {
    run: &'a Run,
    round: u16,
    pool: &'a Pool,
    stream: PlanStream,
    draft: PlanDraft,
    /// The steps that have begun, as far as this process knows.
    begun: Option<PlanHead>,
}

/// No other step of the round can begin before the plan is complete.
struct NoMoreSteps;

impl<'a> Reading<'a> {
    fn new(run: &'a Run, round: u16, pool: &'a Pool) -> Self {
        let begun = run.rounds().get(usize::from(round)).and_then(|round| round.head.clone());
        Self { run, round, pool, stream: PlanStream::new(), draft: PlanDraft::default(), begun }
    }

    fn read(&mut self, text: &str) {
        self.stream.push(text).into_iter().for_each(|piece| self.draft.apply(piece));
    }

    /// The steps to begin with now, including those that have begun. `None` unless another one can start in `run`.
    fn news(&self, run: &Run) -> Option<PlanHead> {
        // At most a bracket is missing, so the complete plan follows at once.
        if self.draft.subtasks.len().min(self.draft.access_list.len()) >= self.draft.model_id.len() {
            return None;
        }
        // In a follow-up round, the access list of the first step decides whether it sees the round before.
        if self.round > 0 && self.draft.access_list.is_empty() {
            return None;
        }
        let request = &self.run.spec().request;
        // The last step so far may end the plan, and only the last step of a plan has the token limit, response format and stop
        // sequences of the answer.
        let ending = if request.shapes_answer() { LastStep::Withheld } else { LastStep::Included };
        let head = self.draft.head(self.pool, &request.policy, ending)?;
        if self.begun.as_ref().is_some_and(|begun| !head.begins_with(begun)) {
            return None;
        }
        let has_ended = |seen: &StepIndex| {
            let step = StepRef { round: self.round, step: *seen };
            run.task(step.into()).is_some_and(|task| task.state.is_final())
        };
        let can_start = |step: &Step| step.access.as_slice().iter().all(has_ended);
        let begun = self.begun.as_ref().map_or(0, PlanHead::len);
        let last = (begun..head.len()).rev().find(|index| can_start(&head.steps()[*index]))?;
        head.first(last + 1)
    }

    async fn begin(
        &mut self,
        context: &Context,
        claimed: &Claimed,
        head: PlanHead,
    ) -> Result<(), NoMoreSteps> {
        let (run, round, claim) = (claimed.run.id(), self.round, claimed.claim);
        match context.commands().send(run, Command::BeginSteps { round, claim, head: head.clone() }).await {
            Ok(_) => self.begun = Some(head),
            Err(CommandError::Refused(refusal)) => {
                debug!(%run, %refusal, "no other step begins before the plan is complete");
                return Err(NoMoreSteps);
            }
            // The next piece of text tries again, and the plan itself will be recorded.
            Err(error) => {
                warn!(%run, error = &error as &dyn std::error::Error, "steps could not begin early");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use podium_domain::answer::AnswerForm;
    use podium_ports::clock::Ids as _;
    use podium_testkit::{Driven, SeededIds, TestClock, a_pool, a_spec, head_of};

    use super::*;

    const CHAIN: &str =
        "model_id = [\"quick\", \"checker\", \"careful\"]\nsubtasks = [\"a\", \"b\", \"c\"]\n";

    fn a_run(answer_tokens_max: Option<u32>) -> Run {
        let mut spec = a_spec();
        spec.request.answer_tokens_max = answer_tokens_max;
        Driven::accept(SeededIds::new(1).run_id(TestClock::START), spec).run
    }

    fn steps(head: Option<&PlanHead>) -> usize {
        head.map_or(0, PlanHead::len)
    }

    #[test]
    fn steps_begin_early_only_if_one_can_start_before_the_plan() {
        let (run, pool) = (a_run(None), a_pool());
        let mut reading = Reading::new(&run, 0, &pool);
        let mut news = Vec::new();
        for text in [CHAIN, "access_list = [[], ", "[0], ", "[]", "]"] {
            reading.read(text);
            news.push(steps(reading.news(&run).as_ref()));
            reading.begun = Some(head_of(&[("quick", "a", &[])]));
        }
        assert_eq!(news, [1, 0, 0, 0, 0], "step 2 waits for step 1, and step 3 completes the plan");
        let mut reading = Reading::new(&run, 0, &pool);
        reading.read(&CHAIN.replace("\"c\"]", "\"c\", \"d\"]"));
        assert_eq!(steps(reading.news(&run).as_ref()), 0, "there are more subtasks than workers");
    }

    #[test]
    fn an_independent_step_begins_together_with_earlier_ones() {
        let (run, pool) = (a_run(None), a_pool());
        let mut reading = Reading::new(&run, 0, &pool);
        let four =
            CHAIN.replace("\"careful\"]", "\"careful\", \"quick\"]").replace("\"c\"]", "\"c\", \"d\"]");
        reading.read(&(four + "access_list = [[], [0], [], "));
        assert_eq!(steps(reading.news(&run).as_ref()), 3);
        reading.begun = Some(head_of(&[("quick", "something else", &[])]));
        assert_eq!(steps(reading.news(&run).as_ref()), 0, "the round began with another step");
    }

    #[test]
    fn a_follow_up_rounds_first_step_waits_for_its_access_list() {
        let (run, pool) = (a_run(None), a_pool());
        let mut reading = Reading { round: 1, ..Reading::new(&run, 0, &pool) };
        reading.read(CHAIN);
        assert_eq!(steps(reading.news(&run).as_ref()), 0);
        reading.read("access_list = [[\"all\"], ");
        let head = reading.news(&run).unwrap();
        assert!(head.len() == 1 && head.steps()[0].sees_earlier_round, "{head:?}");
    }

    #[test]
    fn a_text_that_starts_over_is_read_again() {
        let (run, pool) = (a_run(None), a_pool());
        let mut reading = Reading::new(&run, 0, &pool);
        reading.read("model_id = [\"quick\", \"checker\"]\nsubtasks = [\"a\", ");
        let first = reading.news(&run).unwrap();
        reading.read("\nmodel_id = [\"careful\", \"checker\"]\nsubtasks = [\"b\", ");
        let second = reading.news(&run).unwrap();
        assert_eq!((first.steps()[0].subtask.as_str(), second.steps()[0].subtask.as_str()), ("a", "b"));
        reading.begun = Some(first);
        assert_eq!(reading.news(&run), None);
    }

    #[test]
    fn the_last_step_waits_if_the_answer_has_a_limit_or_a_format() {
        let (pool, mut form) = (a_pool(), a_spec());
        form.request.answer = AnswerForm::JsonObject;
        let formed = Driven::accept(SeededIds::new(1).run_id(TestClock::START), form).run;
        for (run, expected) in [(a_run(None), 1), (a_run(Some(9)), 0), (formed, 0)] {
            let mut reading = Reading::new(&run, 0, &pool);
            reading.read("model_id = [\"quick\"]\nsubtasks = [\"a\"]\n");
            assert_eq!(steps(reading.news(&run).as_ref()), expected);
        }
    }
}
