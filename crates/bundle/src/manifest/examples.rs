//! Worked examples: questions with the plans that a conductor should write for them, as part of its prompt.
//!
//! In the RL Conductor paper (arXiv 2512.04388), a prompt with examples works better than one without, and best if the examples
//! are from other domains than the questions: they teach the format and how to split, not the answers.

use std::fmt;

use serde::Deserialize;

use super::{Manifest, WorkersInPrompt};
use podium_domain::plan::PlanDraft;
use podium_domain::pool::WORKERS_MAX;

/// Most worked examples of a bundle.
pub const EXAMPLES_MAX: usize = 16;
/// Most bytes of an example: question, team and plan together.
pub const EXAMPLE_BYTES_MAX: usize = 8 << 10;

/// The place of the examples in a prompt.
const PLACEHOLDER: &str = "{{examples}}";

/// A question and the plan that a conductor should write for it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// The question.
    pub question: String,
    /// The strengths of each worker in the example's team, in the order of the plan's numbers; empty if the plan names workers, and
    /// for slots.
    #[serde(default)]
    pub workers: Vec<String>,
    /// The expected text: optional reasoning, then the three lists.
    pub plan: String,
}

/// The form in the prompt.
impl fmt::Display for Example {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Question: {}", self.question.trim())?;
        for (number, worker) in self.workers.iter().enumerate() {
            writeln!(f, "Model id {number}: {}", worker.trim())?;
        }
        f.write_str(self.plan.trim())
    }
}

impl Example {
    fn bytes(&self) -> usize {
        self.question.len() + self.workers.iter().map(String::len).sum::<usize>() + self.plan.len()
    }

    /// The number of workers that its plan may refer to.
    fn positions(&self, manifest: &Manifest) -> usize {
        match manifest.prompt.workers {
            WorkersInPrompt::Slots => manifest.pool.slots.len(),
            WorkersInPrompt::Described if self.workers.is_empty() => WORKERS_MAX,
            WorkersInPrompt::Described => self.workers.len(),
        }
    }
}

pub(super) fn check(manifest: &Manifest, problems: &mut Vec<String>) {
    check_place(manifest, problems);
    let examples = &manifest.examples;
    if examples.len() > EXAMPLES_MAX {
        problems.push(format!("examples has {} entries, at most {EXAMPLES_MAX} are allowed", examples.len()));
    }
    for (number, example) in examples.iter().enumerate() {
        let mut say = |problem: String| problems.push(format!("examples[{number}]{problem}"));
        let bytes = example.bytes();
        if bytes > EXAMPLE_BYTES_MAX {
            say(format!(" has {bytes} bytes, at most {EXAMPLE_BYTES_MAX} are allowed"));
        }
        if example.question.trim().is_empty() {
            say(".question is blank".to_owned());
        }
        if example.workers.iter().any(|worker| worker.trim().is_empty()) {
            say(".workers has a blank entry".to_owned());
        }
        if manifest.prompt.workers == WorkersInPrompt::Slots && !example.workers.is_empty() {
            say(".workers must be left out where prompt.workers is `slots`: numbers are slots".to_owned());
        }
        let lists = PlanDraft::parse(&example.plan).map_err(|error| error.to_string());
        let checked = lists.and_then(|draft| {
            draft.check_form(example.positions(manifest)).map_err(|error| error.to_string())
        });
        if let Err(problem) = checked {
            say(format!(".plan is refused: {problem}"));
        }
    }
}

/// Examples without a placeholder would not be shown; a placeholder without examples would be shown literally.
fn check_place(manifest: &Manifest, problems: &mut Vec<String>) {
    let (system, user) = (manifest.prompt.system.as_deref().unwrap_or_default(), &manifest.prompt.user);
    let places = system.matches(PLACEHOLDER).count() + user.matches(PLACEHOLDER).count();
    match (manifest.examples.is_empty(), places) {
        (true, 0) | (false, 1) => {}
        (true, _) => problems.push(format!("the prompt has {PLACEHOLDER}, but there are no examples")),
        (false, _) => problems.push(format!(
            "there are examples, so prompt.system or prompt.user must have {PLACEHOLDER}, once; it is there {places} times"
        )),
    }
    let behind = user.split_once("{{question}}").is_some_and(|(_, behind)| behind.contains(PLACEHOLDER));
    if behind {
        problems.push(format!(
            "prompt.user must have {PLACEHOLDER} before {{{{question}}}}: what comes before it is computed once for all questions"
        ));
    }
}
