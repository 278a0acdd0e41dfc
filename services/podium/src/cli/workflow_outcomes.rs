//! Outcomes of workflows that follow from recorded answers of workers, and vectors of questions that need no model.

use std::collections::BTreeMap;

use podium_domain::ids::WorkerId;
use podium_head::derived;
use podium_head::features::Features;
use podium_head::outcomes::{Outcome, Outcomes, SCHEMA};
use podium_head::words;
use podium_planning::WorkflowSet;

use crate::error::Error;

/// Adds the outcomes of workflows that have none, as far as they follow from the answers of workers. Reports the others.
pub(super) fn derive(outcomes: &mut Outcomes, workflows: &WorkflowSet) -> Result<(), Error> {
    for choice in workflows.choices() {
        if outcomes.knows(&choice) {
            continue;
        }
        let added = of_workflow(outcomes, workflows, &choice);
        for outcome in &added {
            outcomes.add(outcome).map_err(|error| Error::OtherHead(error.to_string()))?;
        }
        if !added.is_empty() {
            eprintln!("podium: {} outcomes of `{choice}` are derived from recorded answers", added.len());
        }
    }
    Ok(())
}

fn of_workflow(outcomes: &Outcomes, workflows: &WorkflowSet, choice: &WorkerId) -> Vec<Outcome> {
    let mut added = Vec::new();
    for id in outcomes.questions() {
        let Some(question) = outcomes.text(id) else { continue };
        let Some(plan) = workflows.plan(choice, question) else { return added };
        if let Err(problem) = derived::check(&plan, question) {
            eprintln!("podium: no outcome of `{choice}` can be derived: {problem}");
            return Vec::new();
        }
        if let Some(derived) = derived::outcome(&plan, |worker| outcomes.answer(id, worker)) {
            added.push(Outcome {
                schema: SCHEMA,
                question_id: id.to_owned(),
                question: None,
                task: None,
                worker: choice.clone(),
                answer: None,
                reward: derived.reward,
                cost_nano_usd: derived.cost_nano_usd,
                latency_ms: None,
            });
        }
    }
    added
}

/// The vectors of the words of these questions, by their ids.
pub(super) fn features_of_words(questions: &BTreeMap<String, String>) -> Result<Features, Error> {
    let mut features = Features::new(words::source());
    for (id, question) in questions {
        let added = features.add(id.clone(), words::vector(question));
        added.map_err(|error| Error::OtherHead(error.to_string()))?;
    }
    Ok(features)
}
