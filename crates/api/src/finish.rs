//! The reason why an answer ends.

use podium_domain::run::{FinishReason, Run, RunState, StepRun};

/// The reason why the reply of a run ends. [`FinishReason::Stop`] if the run has no answer, or its worker gave no reason.
pub(crate) fn finish_of(run: &Run) -> FinishReason {
    let finish = match run.state() {
        RunState::Suspended => Some(FinishReason::ToolCalls),
        _ => answer_step(run).and_then(|step| step.finish),
    };
    finish.unwrap_or(FinishReason::Stop)
}

/// The stop sequence that ended the answer of a run. None if it has no answer, or its vendor named no sequence.
pub(crate) fn stop_sequence_of(run: &Run) -> Option<&str> {
    answer_step(run).filter(|step| step.finish == Some(FinishReason::Stop))?.stop_sequence.as_deref()
}

/// The step with the answer of a run that succeeded.
fn answer_step(run: &Run) -> Option<&StepRun> {
    let RunState::Succeeded { round, step } = run.state() else { return None };
    run.rounds().get(usize::from(*round))?.steps.get(step.as_usize())
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
