//! A finished round as text, for the conductor that is asked again and for workers that see everything.

use std::fmt::Write as _;

use super::escaped;
use crate::ids::StepIndex;
use crate::plan::Step;
use crate::pool::Pool;
use crate::run::{Run, StepRun};

/// Most bytes of a round's text, about 4096 tokens, as in the RL Conductor paper.
pub const EARLIER_BYTES_MAX: usize = 16 << 10;
/// Most bytes of a subtask in it. Its beginning is kept, because it names the task.
const SUBTASK_BYTES_MAX: usize = 1 << 10;
/// Upper bound of the bytes of a step besides its subtask and output; a step needs more than that.
const STEP_BYTES: usize = 256;

/// The previous round as its conductor sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// Its steps with their outputs.
    pub text: String,
    /// Whether it has an answer, which the conductor may keep. If not, the new round must answer.
    pub gave_answer: bool,
}

impl Earlier {
    /// The round before `round`, if it was planned.
    pub fn before(run: &Run, round: u16, pool: Option<&Pool>) -> Option<Self> {
        let text = of_round(run, round.checked_sub(1)?, pool)?;
        let failed = run.rounds().get(usize::from(round))?.corrects.as_ref();
        Some(Self { text, gave_answer: failed.is_none() })
    }
}

/// The steps of a round with their outputs, in at most [`EARLIER_BYTES_MAX`] bytes. The answer is last and gets its share first,
/// then the earlier steps, newest first. If an output is too long, its end is kept. The text says how much is left out.
///
/// With a pool, each step also has the position of its worker.
pub fn of_round(run: &Run, round: u16, pool: Option<&Pool>) -> Option<String> {
    let done = run.rounds().get(usize::from(round))?;
    let steps: Vec<_> = done.plan()?.indexed().filter(|(index, _)| !done.is_superseded(*index)).collect();
    let mut room = EARLIER_BYTES_MAX - STEP_BYTES;
    let mut shown = Vec::new();
    for (index, step) in steps.iter().rev() {
        let output = shown_output(&done.steps[index.as_usize()]);
        let Some(text) = shown_step(*index, step, &output, pool, room) else { break };
        room -= text.len();
        shown.push(text);
    }
    let left_out = steps.len() - shown.len();
    let mut text = String::new();
    if left_out > 0 {
        let _ = writeln!(text, "(the first {left_out} steps are left out)");
    }
    text.extend(shown.into_iter().rev());
    Some(text)
}

/// The text for a step's output in a prompt: the output, or the reason why it is missing.
fn shown_output(step: &StepRun) -> String {
    match (step.missing_because(), &step.output) {
        (Some(reason), _) => format!("(failed: {})", escaped(&reason)),
        (None, Some(output)) => escaped(output),
        (None, None) => "(not run)".to_owned(),
    }
}

/// A step in at most `room` bytes; `None` if no part of its output fits.
fn shown_step(
    index: StepIndex,
    step: &Step,
    output: &str,
    pool: Option<&Pool>,
    room: usize,
) -> Option<String> {
    let subtask = beginning(&escaped(&step.subtask));
    let room = room.checked_sub(STEP_BYTES + subtask.len())?;
    let position = pool.and_then(|pool| pool.workers().iter().position(|worker| worker.id == step.worker));
    let model = position.map(|position| format!(" model=\"{position}\"")).unwrap_or_default();
    let output = end(output, room);
    Some(format!(
        "<earlier step=\"{index}\"{model}>\n<subtask>\n{subtask}\n</subtask>\n<output>\n{output}\n</output>\n</earlier>\n"
    ))
}

fn beginning(text: &str) -> String {
    match text.len() {
        0..=SUBTASK_BYTES_MAX => text.to_owned(),
        bytes => {
            let kept = text.floor_char_boundary(SUBTASK_BYTES_MAX);
            format!("{}\n({} bytes are left out)", &text[..kept], bytes - kept)
        }
    }
}

fn end(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let from = text.ceil_char_boundary(text.len() - bytes_max);
    format!("({from} bytes are left out)\n{}", &text[from..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_step(subtask: &str) -> Step {
        let worker = crate::ids::WorkerId::new("w").unwrap();
        let access = crate::plan::AccessList::default();
        Step {
            worker,
            subtask: subtask.to_owned(),
            access,
            sees_earlier_round: false,
            unless_agree: crate::plan::AccessList::default(),
        }
    }

    #[test]
    fn the_end_of_an_output_is_kept_and_the_cut_is_marked() {
        assert_eq!(end("aéb", 4), "aéb");
        assert_eq!(end("aéb", 2), "(3 bytes are left out)\nb");
        assert_eq!(end("aéb", 0), "(4 bytes are left out)\n");
    }

    #[test]
    fn a_step_stays_within_its_bytes() {
        let step = a_step(&"do it ".repeat(1000));
        let output = "é".repeat(EARLIER_BYTES_MAX);
        for room in [1400, 1401, 3000, EARLIER_BYTES_MAX] {
            let text = shown_step(StepIndex::new(3), &step, &output, None, room).unwrap();
            assert!(text.len() <= room, "{} bytes in {room}", text.len());
            assert!(text.contains("é\n</output>"), "the end of the output is there");
        }
        assert_eq!(shown_step(StepIndex::new(3), &step, &output, None, 1000), None);
    }
}
