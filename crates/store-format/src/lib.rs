//! Code that the SQL stores share: the stored format of runs (events as versioned JSON, numbers as signed 64-bit columns), and the
//! check of a database's [`schema`]. Errors about invalid data name the run and the position.
#![deny(missing_docs)]

pub mod schema;

use std::fmt;

use podium_domain::ids::{RunId, StepIndex};
use podium_domain::run::{RunEvent, SequencedEvent, TaskRef};
use podium_domain::time::Timestamp;
use podium_ports::store::{Commit, StoreError};
use serde::Deserializer;
use serde::de::{DeserializeSeed, SeqAccess, Visitor};

/// The version of the events' JSON format that this version writes.
pub const FORMAT: i16 = 1;

/// Stored data of a run, or data to be stored, is invalid.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// An event has a format that this version does not know.
    #[error("event {sequence} is in format {format}, this version reads format {FORMAT}")]
    Format {
        /// The event's number.
        sequence: i64,
        /// The format of the event.
        format: i64,
    },
    /// An event's JSON cannot be decoded.
    #[error("event {sequence} cannot be decoded")]
    Event {
        /// The event's number.
        sequence: i64,
        /// The error of the decoder.
        #[source]
        source: serde_json::Error,
    },
    /// The events in a row do not match the row's first and last number.
    #[error("event {sequence} is missing or out of order")]
    Misplaced {
        /// The first event that is missing or out of order.
        sequence: i64,
    },
    /// The last event does not have the number of the run's version.
    #[error("the run has version {version}, its last event is {last}")]
    Version {
        /// The version in the run's row.
        version: i64,
        /// The number of the last event.
        last: u64,
    },
    /// A column has an invalid value.
    #[error("column `{column}` has the invalid value `{value}`")]
    Column {
        /// The table and column.
        column: &'static str,
        /// The value found.
        value: String,
    },
    /// The caller's events do not lead to the caller's run.
    #[error("the events to write have a gap before version {version}")]
    Gap {
        /// The version of the run to write.
        version: u64,
    },
}

impl Damage {
    /// Wraps the damage in the port's error.
    pub fn of(self, run: RunId) -> StoreError {
        StoreError::Inconsistent { run, source: Box::new(self) }
    }
}

/// Clamps a number to the largest that a column can hold, such as a time at the end of time.
pub fn stored(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Reads a number from a column; negative ones, which are never written, become 0.
pub fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_default()
}

/// A time from its milliseconds since the Unix epoch.
pub fn time(value: i64) -> Timestamp {
    Timestamp::from_unix_ms(unsigned(value))
}

/// Parses the text that [`TaskRef`] displays.
pub fn task(run: RunId, text: &str) -> Result<TaskRef, StoreError> {
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

/// The run's version before a commit. Fails if the numbers of the commit's events have a gap, or do not end at the version after
/// it.
pub fn version_before(commit: &Commit) -> Result<u64, StoreError> {
    let run = &commit.after;
    let gap = || Damage::Gap { version: run.version() }.of(run.id());
    let before = run.version().checked_sub(commit.events.len() as u64).ok_or_else(gap)?;
    let in_order = (before + 1..).zip(&commit.events).all(|(sequence, event)| event.sequence == sequence);
    if commit.events.is_empty() || !in_order { Err(gap()) } else { Ok(before) }
}

/// An event in [`FORMAT`], ready to insert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventToStore {
    /// Its number in the run.
    pub sequence: i64,
    /// When it happened, in milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// Its name. It is stored for people who query the database; the code never reads it.
    pub kind: &'static str,
    /// The event as JSON. A NUL in it is escaped, so it is text to every database.
    pub data: String,
}

impl EventToStore {
    /// Encodes an event of `run`.
    pub fn new(run: RunId, event: &SequencedEvent) -> Result<Self, StoreError> {
        let sequence = stored(event.sequence);
        let data = serde_json::to_string(&event.event)
            .map_err(|source| Damage::Event { sequence, source }.of(run))?;
        Ok(Self { sequence, at_ms: stored(event.at.unix_ms()), kind: event.event.name(), data })
    }
}

/// The events of a commit in [`FORMAT`], ready to insert as one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventsToStore {
    /// The number of the first event in the run.
    pub first_sequence: i64,
    /// The number of the last event.
    pub last_sequence: i64,
    /// Their names. They are stored for people who query the database; the code never reads them.
    pub kinds: String,
    /// A JSON array of the events, each with its number and its time. A NUL in it is escaped, so it is text to every database.
    pub data: String,
}

impl EventsToStore {
    /// Encodes the events of a commit that [`version_before`] has accepted.
    pub fn new(commit: &Commit) -> Result<Self, StoreError> {
        let last_sequence = stored(commit.after.version());
        let first_sequence = commit.events.first().map_or(last_sequence, |first| stored(first.sequence));
        let data = serde_json::to_string(&commit.events)
            .map_err(|source| Damage::Event { sequence: first_sequence, source }.of(commit.after.id()))?;
        let kinds: Vec<_> = commit.events.iter().map(|event| event.event.name()).collect();
        Ok(Self { first_sequence, last_sequence, kinds: kinds.join(" "), data })
    }
}

/// An event as read from a row.
#[derive(Clone, Copy, Debug)]
pub struct StoredEvent<'r> {
    /// Its number in the run.
    pub sequence: i64,
    /// When it happened, in milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// The version of the format of `data`.
    pub format: i64,
    /// The event as JSON.
    pub data: &'r str,
}

impl StoredEvent<'_> {
    /// Decodes an event of `run`.
    pub fn read(self, run: RunId) -> Result<SequencedEvent, StoreError> {
        let Self { sequence, at_ms, format, data } = self;
        check_format(run, sequence, format)?;
        let event: RunEvent =
            serde_json::from_str(data).map_err(|source| Damage::Event { sequence, source }.of(run))?;
        Ok(SequencedEvent { sequence: unsigned(sequence), at: time(at_ms), event })
    }
}

/// The events of a commit as read from a row.
#[derive(Clone, Copy, Debug)]
pub struct StoredEvents<'r> {
    /// The number of the first event in the run.
    pub first_sequence: i64,
    /// The number of the last event.
    pub last_sequence: i64,
    /// The version of the format of `data`.
    pub format: i64,
    /// A JSON array of the events, each with its number and its time.
    pub data: &'r str,
}

impl StoredEvents<'_> {
    /// Decodes the events of `run` and appends them to `events`. After an error, `events` contains those before the invalid one.
    pub fn read(self, run: RunId, events: &mut Vec<SequencedEvent>) -> Result<(), StoreError> {
        let Self { first_sequence, last_sequence, format, data } = self;
        check_format(run, first_sequence, format)?;
        let before = events.len();
        let mut json = serde_json::Deserializer::from_str(data);
        let read = Appended(events).deserialize(&mut json).and_then(|()| json.end());
        let mut expected = first_sequence;
        for event in events.iter().skip(before) {
            if stored(event.sequence) != expected || expected > last_sequence {
                return Err(Damage::Misplaced { sequence: expected }.of(run));
            }
            expected = expected.saturating_add(1);
        }
        let sequence = expected.min(last_sequence);
        read.map_err(|source| Damage::Event { sequence, source }.of(run))?;
        if expected <= last_sequence {
            return Err(Damage::Misplaced { sequence: expected }.of(run));
        }
        Ok(())
    }
}

fn check_format(run: RunId, sequence: i64, format: i64) -> Result<(), StoreError> {
    if format == i64::from(FORMAT) { Ok(()) } else { Err(Damage::Format { sequence, format }.of(run)) }
}

/// Appends the events of an array one by one, so that after an error the position of the invalid one is known.
struct Appended<'e>(&'e mut Vec<SequencedEvent>);

impl<'de> DeserializeSeed<'de> for Appended<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Appended<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an array of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        while let Some(event) = array.next_element()? {
            self.0.push(event);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_tasks_key_parses_back() {
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
