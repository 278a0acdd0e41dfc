//! The ids that clients get for tool calls. An id names the run and the step of its call, so that any gateway finds them when the
//! result comes.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::ids::{ClaimId, InvalidId, RunId, StepIndex};
use crate::run::StepRef;

/// The id of a tool call: `call_` and 56 hexadecimal digits, which every API accepts.
///
/// Its tag is half of the random id of the claim under which the call was made. So a client cannot guess the id of a call that it
/// was not shown, and a call of another attempt has another id. A stored run proves an id: no process needs a key for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    run: RunId,
    step: StepRef,
    index: u8,
    tag: u64,
}

/// The prefix of Podium's ids of calls.
const PREFIX: &str = "call_";
/// The hexadecimal digits of the run, the round, the step, the position and the tag.
const DIGITS: [usize; 5] = [32, 2, 4, 2, 16];

impl CallId {
    /// The id of the call at position `index` of an answer, from 0.
    pub fn new(run: RunId, step: StepRef, claim: ClaimId, index: usize) -> Self {
        // A policy allows a few rounds only, and an answer has at most 128 calls.
        let index = u8::try_from(index).unwrap_or(u8::MAX);
        Self { run, step, index, tag: claim.as_uuid().as_u64_pair().1 }
    }

    /// The run that made the call.
    pub const fn run(&self) -> RunId {
        self.run
    }

    /// The step that made the call.
    pub const fn step(&self) -> StepRef {
        self.step
    }

    /// The position of the call in the step's answer, from 0.
    pub fn index(&self) -> usize {
        self.index.into()
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, step, index, tag } = self;
        let (run, round, step) = (run.as_uuid().simple(), step.round, step.step.get());
        write!(f, "{PREFIX}{run}{round:02x}{step:04x}{index:02x}{tag:016x}")
    }
}

impl FromStr for CallId {
    type Err = InvalidId;

    /// Reads an id of ours. An error means that another system made the id.
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let digits = text.strip_prefix(PREFIX).ok_or(InvalidId)?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
        if digits.len() != DIGITS.iter().sum::<usize>() || !digits.bytes().all(is_digit) {
            return Err(InvalidId);
        }
        let mut rest = digits;
        let [run, round, step, index, tag] = DIGITS.map(|count| {
            let (field, after) = rest.split_at(count);
            rest = after;
            u128::from_str_radix(field, 16).unwrap_or_default()
        });
        let narrow = |field: u128| u16::try_from(field).map_err(|_| InvalidId);
        Ok(Self {
            run: RunId::new(Uuid::from_u128(run)),
            step: StepRef { round: narrow(round)?, step: StepIndex::new(narrow(step)?) },
            index: u8::try_from(index).map_err(|_| InvalidId)?,
            tag: u64::try_from(tag).map_err(|_| InvalidId)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(index: usize) -> CallId {
        let run = RunId::new(Uuid::from_u128(0x0198_0000_0000_7000_8000_0000_0000_0001));
        let claim = ClaimId::new(Uuid::from_u128(0x1111_2222_3333_4444_8555_6666_7777_8888));
        CallId::new(run, StepRef { round: 3, step: StepIndex::new(15) }, claim, index)
    }

    #[test]
    fn a_call_id_names_its_run_step_and_position() {
        let text = id(127).to_string();
        assert_eq!(text, "call_0198000000007000800000000000000103000f7f8555666677778888");
        assert!(text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
        let read: CallId = text.parse().unwrap();
        assert_eq!((read, read.index(), read.step().round), (id(127), 127, 3));
    }

    #[test]
    fn an_id_of_another_system_is_not_ours() {
        let ours = id(0).to_string();
        let others = [
            String::new(),
            "call_".to_owned(),
            "call_abc123".to_owned(),
            ours.replace("call_", "toolu_"),
            ours.to_uppercase().replace("CALL_", "call_"),
            format!("{ours}0"),
            ours.replace('8', "g"),
            ours.replace("0198", "é98"),
        ];
        for other in others {
            assert!(other.parse::<CallId>().is_err(), "{other}");
        }
    }
}
