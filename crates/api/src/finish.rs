//! The reason why an answer ends.

use podium_domain::run::{FinishReason, Run, RunState};

/// The reason why the reply of a run ends. [`FinishReason::Stop`] if the run has no answer, or its worker gave no reason.
pub(crate) fn finish_of(run: &Run) -> FinishReason {
    let finish = match run.state() {
        RunState::Succeeded { round, step } => {
            run.rounds().get(usize::from(*round)).and_then(|round| round.steps.get(step.as_usize())?.finish)
        }
        RunState::Suspended => Some(FinishReason::ToolCalls),
        _ => None,
    };
    finish.unwrap_or(FinishReason::Stop)
}

/// The suffix of the id of a run's response: nothing for the first reply. So each reply has its own id.
pub(crate) fn reply_suffix(run: &Run) -> String {
    match run.reply() {
        0 => String::new(),
        reply => format!("_{reply}"),
    }
}

/// The words of a worker that refused, or a sentence in place of blank words.
pub(crate) fn refusal_text(said: &str) -> &str {
    if said.trim().is_empty() { "The worker declined to answer." } else { said }
}
