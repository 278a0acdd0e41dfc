//! From rows to the domain. What cannot be is named with the run and the place.

use podium_domain::ids::{RunId, StepIndex};
use podium_domain::run::{RunEvent, SequencedEvent, TaskRef};
use podium_domain::time::Timestamp;
use podium_ports::store::StoreError;

/// The form of the events' JSON that this version writes.
pub(crate) const FORMAT: i16 = 1;

/// What is wrong with what is stored of a run, or was to be.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// An event has a form that this version does not know.
    #[error("event {sequence} is in format {format}, this version reads format {FORMAT}")]
    Format {
        /// Which event.
        sequence: i64,
        /// Its format.
        format: i16,
    },
    /// An event's JSON does not read.
    #[error("event {sequence} does not read")]
    Event {
        /// Which event.
        sequence: i64,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
    /// Events are missing at the end, or there are more than the run knows of.
    #[error("the run has version {version}, its last event is {last}")]
    Version {
        /// What `run_states` says.
        version: i64,
        /// What `run_events` says.
        last: u64,
    },
    /// A column holds what it cannot.
    #[error("column `{column}` holds `{value}`")]
    Column {
        /// Table and column.
        column: &'static str,
        /// What it holds.
        value: String,
    },
    /// The caller's events do not lead to the caller's run.
    #[error("the events to be written do not lead up to version {version} without a gap")]
    Gap {
        /// The version of the run to be written.
        version: u64,
    },
    /// A run was there when another was to be created, and then it was not.
    #[error("the run that has the request id is gone")]
    Gone,
}

impl Damage {
    pub(crate) fn of(self, run: RunId) -> StoreError {
        StoreError::Inconsistent { run, source: Box::new(self) }
    }
}

/// What does not fit is the greatest that does: times at the end of time, costs of billions.
pub(crate) fn stored(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Nothing negative is ever stored.
pub(crate) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_default()
}

pub(crate) fn time(value: i64) -> Timestamp {
    Timestamp::from_unix_ms(unsigned(value))
}

/// Reads what [`TaskRef`] displays.
pub(crate) fn task(run: RunId, text: &str) -> Result<TaskRef, StoreError> {
    let number = |text: &str| text.parse::<u16>().ok();
    let parsed = match text.split('.').collect::<Vec<_>>().as_slice() {
        ["plan", round] => number(round).map(|round| TaskRef::Plan { round }),
        ["step", round, step] => number(round)
            .zip(number(step))
            .map(|(round, step)| TaskRef::Step { round, step: StepIndex::new(step) }),
        _ => None,
    };
    parsed.ok_or_else(|| Damage::Column { column: "tasks.task", value: text.to_owned() }.of(run))
}

/// A row of `run_events`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventRow<'r> {
    pub(crate) sequence: i64,
    pub(crate) at_ms: i64,
    pub(crate) format: i16,
    pub(crate) data: &'r str,
}

impl EventRow<'_> {
    pub(crate) fn read(self, run: RunId) -> Result<SequencedEvent, StoreError> {
        let Self { sequence, at_ms, format, data } = self;
        if format != FORMAT {
            return Err(Damage::Format { sequence, format }.of(run));
        }
        let event: RunEvent =
            serde_json::from_str(data).map_err(|source| Damage::Event { sequence, source }.of(run))?;
        Ok(SequencedEvent { sequence: unsigned(sequence), at: time(at_ms), event })
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_tasks_key_reads_back() {
        let run = RunId::new(Uuid::nil());
        let step = StepIndex::new(12);
        for expected in [TaskRef::Plan { round: 3 }, TaskRef::Step { round: 0, step }] {
            assert_eq!(task(run, &expected.to_string()).unwrap(), expected);
        }
        for bad in ["", "plan", "plan.x", "plan.1.2", "step.1", "step.1.2.3", "step.0.70000", "nap.1"] {
            assert!(matches!(task(run, bad), Err(StoreError::Inconsistent { .. })), "{bad}");
        }
    }
}
