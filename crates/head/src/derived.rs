//! Outcomes of workflows from recorded answers of workers, without a call: for workflows whose steps all get the whole question and
//! see no other step, such as cascades. The answer of such a workflow follows from the answers of its workers.

use podium_domain::agreement::agree;
use podium_domain::ids::{StepIndex, WorkerId};
use podium_domain::plan::{Plan, Step};

/// The recorded answer of a worker to a question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer<'a> {
    /// Its text.
    pub text: &'a str,
    /// From 0 to 1.
    pub reward: f64,
    /// Its cost in billionths of a dollar, if it was recorded.
    pub cost_nano_usd: Option<u64>,
}

/// The reward and the cost that a workflow would have had.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Derived {
    /// The reward of its answer.
    pub reward: f64,
    /// The cost of all called workers in billionths of a dollar, if each was recorded.
    pub cost_nano_usd: Option<u64>,
}

/// Why no outcome of a workflow follows from recorded answers of its workers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Underivable {
    /// The step gets more or less than the question, so no recorded answer is its output.
    #[error(
        "step {step} does not get exactly the question, so recorded answers do not show what it would write"
    )]
    OtherPrompt {
        /// The step.
        step: StepIndex,
    },
    /// Two steps call the same worker, and one recorded answer cannot show whether two would agree.
    #[error("step {step} calls `{worker}` again, and recorded answers show one answer of each worker")]
    SameWorker {
        /// The step.
        step: StepIndex,
        /// The worker.
        worker: WorkerId,
    },
}

/// Whether outcomes of this plan for `question` follow from recorded answers.
pub fn check(plan: &Plan, question: &str) -> Result<(), Underivable> {
    let mut called: Vec<&WorkerId> = Vec::new();
    for (index, Step { worker, subtask, access, .. }) in plan.indexed() {
        if !access.is_empty() || subtask.trim() != question.trim() {
            return Err(Underivable::OtherPrompt { step: index });
        }
        if called.contains(&worker) {
            return Err(Underivable::SameWorker { step: index, worker: worker.clone() });
        }
        called.push(worker);
    }
    Ok(())
}

/// The outcome of a plan that passed [`check`]; `None` if the answer of a worker that it calls is missing.
pub fn outcome<'a>(plan: &Plan, recorded: impl Fn(&WorkerId) -> Option<Answer<'a>>) -> Option<Derived> {
    let mut outputs: Vec<Answer<'a>> = Vec::with_capacity(plan.len());
    let mut cost_nano_usd = Some(0u64);
    for Step { worker, unless_agree, .. } in plan.steps() {
        let named: Vec<Answer<'a>> =
            unless_agree.as_slice().iter().filter_map(|step| outputs.get(step.as_usize()).copied()).collect();
        if let Some(first) = named.first().filter(|_| agree(named.iter().map(|answer| answer.text))) {
            outputs.push(*first);
            continue;
        }
        let answer = recorded(worker)?;
        cost_nano_usd = cost_nano_usd.zip(answer.cost_nano_usd).map(|(sum, cost)| sum.saturating_add(cost));
        outputs.push(answer);
    }
    Some(Derived { reward: outputs.last()?.reward, cost_nano_usd })
}

#[cfg(test)]
mod tests {
    use podium_domain::plan::PlanDraft;
    use podium_domain::policy::{Effort, Policy, Tier};
    use podium_domain::pool::Pool;

    use super::*;

    fn pool() -> Pool {
        let worker = |id: &str| {
            format!(
                "[[workers]]\nid = \"{id}\"\nvendor = \"v\"\nmodel = \"m\"\ndescription = \"d\"\n\
                 context_tokens = 1000\noutput_tokens_max = 100\nusd_per_million_tokens = {{ input = 1.0, output = 1.0 }}\n"
            )
        };
        let vendor = "[[vendors]]\nid = \"v\"\napi = \"openai-chat\"\nbase_url = \"http://127.0.0.1:1/v1\"\n";
        let workers: String = ["a", "b", "c"].map(worker).concat();
        Pool::parse(&format!("schema = 1\nname = \"t\"\nversion = \"1\"\n{vendor}{workers}")).unwrap()
    }

    fn plan(ids: &str, subtask: &str, access: &str) -> Plan {
        let subtasks = vec![format!("{subtask:?}"); ids.matches(',').count() + 1].join(", ");
        let text = format!("model_id = {ids}\nsubtasks = [{subtasks}]\naccess_list = {access}");
        let policy = Policy::new(Tier::Ultra, Effort::Medium);
        PlanDraft::parse(&text).unwrap().check(&pool(), &policy).unwrap()
    }

    fn answers<'a>(texts: [&'a str; 3]) -> impl Fn(&WorkerId) -> Option<Answer<'a>> {
        move |worker| {
            let at = ["a", "b", "c"].iter().position(|name| *name == worker.as_str())?;
            let cost_nano_usd = Some([1, 10, 100][at]);
            let reward = if texts[at].contains("right") { 1.0 } else { 0.0 };
            (!texts[at].is_empty()).then_some(Answer { text: texts[at], reward, cost_nano_usd })
        }
    }

    #[test]
    fn a_cascade_calls_its_last_worker_where_the_others_differ() {
        let cascade = plan("[0, 1, 2]", "Why?", "[[], [], []]");
        let cascade = cascade.with_conditions(&[vec![], vec![], vec![0, 1]]).unwrap();
        check(&cascade, "Why?").unwrap();
        let got = |texts| outcome(&cascade, answers(texts)).map(|d| (d.reward, d.cost_nano_usd));
        assert_eq!(got(["wrong", "Wrong.", "right"]), Some((0.0, Some(11))));
        assert_eq!(got(["right", "right", "wrong"]), Some((1.0, Some(11))));
        assert_eq!(got(["wrong", "other", "right"]), Some((1.0, Some(111))));
        assert_eq!(got(["right", "right", ""]), Some((1.0, Some(11))), "the third answer is not needed");
        assert_eq!(got(["wrong", "other", ""]), None);
        let one = plan("[1]", "Why?", "[[]]");
        assert_eq!(outcome(&one, answers(["", "right", ""])).unwrap().cost_nano_usd, Some(10));
    }

    #[test]
    fn workflows_that_no_recorded_answer_describes_are_refused() {
        let sees = plan("[0, 1]", "Why?", "[[], [0]]");
        let step = StepIndex::new(1);
        assert_eq!(check(&sees, "Why?"), Err(Underivable::OtherPrompt { step }));
        let other = plan("[0]", "Because?", "[[]]");
        assert!(check(&other, "Why?").is_err());
        let twice = plan("[0, 0]", "Why?", "[[], []]");
        let worker = WorkerId::new("a").unwrap();
        assert_eq!(check(&twice, "Why?"), Err(Underivable::SameWorker { step, worker }));
    }
}
