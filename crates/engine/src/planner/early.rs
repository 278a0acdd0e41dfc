//! Steps that begin while the rest of their plan is being written.
//!
//! What begins is committed before the plan is known, so a commit has to gain time: there is one only while the plan is not
//! complete, and only when a step can start with it.

use podium_domain::ids::StepIndex;
use podium_domain::plan::{LastStep, PlanDraft, PlanHead, PlanStream, Step};
use podium_domain::pool::Pool;
use podium_domain::run::{Command, Run, TaskRef};
use tokio::sync::mpsc;
use tracing::{debug, warn};

use crate::commit::CommandError;
use crate::engine::Engine;
use crate::lanes::task::Claimed;

/// Pieces of text that are read before the plan is looked at.
const TEXTS_MAX: usize = 256;

/// Begins steps as the conductor writes them; never returns before it is dropped.
pub(super) async fn begin_steps(
    engine: &Engine,
    claimed: &Claimed,
    mut heard: mpsc::UnboundedReceiver<String>,
) {
    let id = &claimed.run.spec().conductor;
    let conductor = engine.parts().conductors.all().find(|conductor| conductor.id() == id);
    if let Some(pool) = conductor.and_then(|conductor| conductor.pool_in_text()) {
        let mut reading = Reading::new(&claimed.run, claimed.task.round(), pool);
        let mut texts = Vec::new();
        while heard.recv_many(&mut texts, TEXTS_MAX).await > 0 {
            texts.drain(..).for_each(|text| reading.read(&text));
            let known = engine.known().get(claimed.run.id());
            if let Some(head) = reading.news(known.as_deref().unwrap_or(&claimed.run))
                && reading.begin(engine, claimed, head).await.is_err()
            {
                break;
            }
        }
    }
    heard.close();
    std::future::pending::<()>().await;
}

/// The text so far.
struct Reading<'a> {
    run: &'a Run,
    round: u16,
    pool: &'a Pool,
    stream: PlanStream,
    draft: PlanDraft,
    /// What the store has, as far as is known.
    begun: Option<PlanHead>,
}

/// Nothing of what is written can begin any more.
struct InVain;

impl<'a> Reading<'a> {
    fn new(run: &'a Run, round: u16, pool: &'a Pool) -> Self {
        let begun = run.rounds().get(usize::from(round)).and_then(|round| round.head.clone());
        Self { run, round, pool, stream: PlanStream::new(), draft: PlanDraft::default(), begun }
    }

    fn read(&mut self, text: &str) {
        self.stream.push(text).into_iter().for_each(|piece| self.draft.apply(piece));
    }

    /// The steps to begin with now, those that have begun included, if there are any that can start in a run that stands so.
    fn news(&self, run: &Run) -> Option<PlanHead> {
        // Nothing but a bracket is missing, or not even that.
        if self.draft.subtasks.len().min(self.draft.access_list.len()) >= self.draft.model_id.len() {
            return None;
        }
        // In a further round the first step may see the round before: its access list decides.
        if self.round > 0 && self.draft.access_list.is_empty() {
            return None;
        }
        let spec = self.run.spec();
        // Nobody knows yet whether what is begun ends the plan, and only what does has the limit, the form and the end of the
        // answer.
        let ending = if spec.shapes_answer() { LastStep::Withheld } else { LastStep::Included };
        let head = self.draft.head(self.pool, &spec.policy, ending)?;
        if self.begun.as_ref().is_some_and(|begun| !head.begins_with(begun)) {
            return None;
        }
        let ended = |seen: &StepIndex| {
            let task = TaskRef::Step { round: self.round, step: *seen };
            run.task(task).is_some_and(|task| task.state.is_final())
        };
        let can_start = |step: &Step| step.access.as_slice().iter().all(ended);
        let begun = self.begun.as_ref().map_or(0, PlanHead::len);
        let last = (begun..head.len()).rev().find(|index| can_start(&head.steps()[*index]))?;
        head.first(last + 1)
    }

    async fn begin(&mut self, engine: &Engine, claimed: &Claimed, head: PlanHead) -> Result<(), InVain> {
        let (run, round, claim) = (claimed.run.id(), self.round, claimed.claim);
        match engine.commands().send(run, Command::BeginSteps { round, claim, head: head.clone() }).await {
            Ok(_) => self.begun = Some(head),
            Err(CommandError::Refused(refusal)) => {
                debug!(%run, %refusal, "no step begins before the plan is complete");
                return Err(InVain);
            }
            // The next piece of text is a further try, and the plan itself is going to be recorded.
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
    use podium_domain::run::RunSpec;
    use podium_ports::clock::Ids as _;
    use podium_testkit::{Driven, SeededIds, TestClock, a_pool, a_spec, head_of};

    use super::*;

    const CHAIN: &str =
        "model_id = [\"quick\", \"checker\", \"careful\"]\nsubtasks = [\"a\", \"b\", \"c\"]\n";

    fn a_run(answer_tokens_max: Option<u32>) -> Run {
        let spec = RunSpec { answer_tokens_max, ..a_spec() };
        Driven::accept(SeededIds::new(1).run_id(TestClock::START), spec).run
    }

    fn steps(head: Option<&PlanHead>) -> usize {
        head.map_or(0, PlanHead::len)
    }

    #[test]
    fn there_is_news_only_when_a_step_can_start_and_more_than_a_bracket_is_missing() {
        let (run, pool) = (a_run(None), a_pool());
        let mut reading = Reading::new(&run, 0, &pool);
        let mut news = Vec::new();
        for text in [CHAIN, "access_list = [[], ", "[0], ", "[]", "]"] {
            reading.read(text);
            news.push(steps(reading.news(&run).as_ref()));
            reading.begun = Some(head_of(&[("quick", "a", &[])]));
        }
        assert_eq!(news, [1, 0, 0, 0, 0], "step 2 waits for step 1, and with step 3 the plan is there");
        let mut reading = Reading::new(&run, 0, &pool);
        reading.read(&CHAIN.replace("\"c\"]", "\"c\", \"d\"]"));
        assert_eq!(steps(reading.news(&run).as_ref()), 0, "there are more subtasks than workers");
    }

    #[test]
    fn a_step_that_sees_nothing_begins_with_those_before_it() {
        let (run, pool) = (a_run(None), a_pool());
        let mut reading = Reading::new(&run, 0, &pool);
        let four =
            CHAIN.replace("\"careful\"]", "\"careful\", \"quick\"]").replace("\"c\"]", "\"c\", \"d\"]");
        reading.read(&(four + "access_list = [[], [0], [], "));
        assert_eq!(steps(reading.news(&run).as_ref()), 3);
        reading.begun = Some(head_of(&[("quick", "something else", &[])]));
        assert_eq!(steps(reading.news(&run).as_ref()), 0, "the round has begun otherwise");
    }

    #[test]
    fn in_a_further_round_the_first_step_waits_for_its_access_list() {
        let (run, pool) = (a_run(None), a_pool());
        let mut reading = Reading { round: 1, ..Reading::new(&run, 0, &pool) };
        reading.read(CHAIN);
        assert_eq!(steps(reading.news(&run).as_ref()), 0);
        reading.read("access_list = [[\"all\"], ");
        let head = reading.news(&run).unwrap();
        assert!(head.len() == 1 && head.steps()[0].sees_earlier_round, "{head:?}");
    }

    #[test]
    fn a_text_that_begins_anew_is_read_anew() {
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
    fn the_step_that_ends_the_plan_waits_where_the_answer_has_a_limit_or_a_form() {
        let (pool, form) = (a_pool(), RunSpec { answer: AnswerForm::JsonObject, ..a_spec() });
        let formed = Driven::accept(SeededIds::new(1).run_id(TestClock::START), form).run;
        for (run, expected) in [(a_run(None), 1), (a_run(Some(9)), 0), (formed, 0)] {
            let mut reading = Reading::new(&run, 0, &pool);
            reading.read("model_id = [\"quick\"]\nsubtasks = [\"a\"]\n");
            assert_eq!(steps(reading.news(&run).as_ref()), expected);
        }
    }
}
