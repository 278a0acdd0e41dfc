//! Typed identifiers: the compiler rejects a `RunId` in place of a `ClaimId`, or a worker's name in place of a vendor's.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::cells::CellId;
use crate::time::Timestamp;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps an id that was generated elsewhere; the domain generates none.
            pub const fn new(id: Uuid) -> Self {
                Self(id)
            }

            /// The id as a UUID.
            pub const fn as_uuid(&self) -> &Uuid {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Uuid::parse_str(text).map(Self).map_err(|_| InvalidId)
            }
        }
    };
}

uuid_id! {
    /// The id of one request, from acceptance to answer. Sorts by the time of acceptance.
    ///
    /// In cell 0 it is a UUID of version 7. In other cells it is of version 8 and has the cell's number where version 7 has its
    /// first 12 random bits:
    ///
    /// | bits | version 7 | version 8 |
    /// |---|---|---|
    /// | 48 | milliseconds since 1970 | the same |
    /// | 4 | 7 | 8 |
    /// | 12 | random | the cell's number |
    /// | 2 | the variant | the same |
    /// | 62 | random | the same |
    RunId
}
uuid_id! {
    /// The id of one claim on a task. Random, because a counter that is rolled back could give two holders the same id.
    ClaimId
}
uuid_id! {
    /// The id of a process from its start to its end. Random, so that a process that starts again is another one.
    ProcessId
}

impl RunId {
    /// The smallest id of runs accepted at `at` or later; the largest id if `at` is beyond the range of ids.
    pub const fn least_at(at: Timestamp) -> Self {
        // An id begins with the milliseconds, in 48 of the 128 bits.
        if at.unix_ms() >> 48 == 0 {
            Self(Uuid::from_u128((at.unix_ms() as u128) << 80))
        } else {
            Self(Uuid::max())
        }
    }

    /// An id of a run that a cell accepts at `at`. `upper` and `lower` are random; the lowest 12 bits
    /// of `upper` and the lowest 62 of `lower` are used. In cell 0 those of `upper` follow the version.
    ///
    /// Ids of different cells never collide. Two ids of one cell and millisecond collide with a probability of 2^-62, in cell 0
    /// of 2^-74.
    pub const fn in_cell(cell: CellId, at: Timestamp, upper: u16, lower: u64) -> Self {
        let (version, middle) = match cell.number() {
            0 => (7, upper & CellId::MAX),
            number => (8, number),
        };
        let high = (at.unix_ms() << 16) | (version << 12) | middle as u64;
        let low = (lower & (u64::MAX >> 2)) | (1 << 63);
        Self(Uuid::from_u64_pair(high, low))
    }

    /// The cell that stores the run. Ids of all versions except 8 belong to cell 0, because ids had no cell before.
    pub const fn cell(&self) -> CellId {
        let (high, _) = self.0.as_u64_pair();
        match (high >> 12) & 0xf {
            #[expect(clippy::cast_possible_truncation, reason = "only the lowest bits are needed")]
            8 => CellId::of_bits(high as u16),
            _ => CellId::of_bits(0),
        }
    }
}

/// The text is not a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an id must be a UUID such as `01890a5d-ac96-774b-bcce-b302099a8057`")]
pub struct InvalidId;

/// Most bytes of the name of a worker, vendor or tenant.
pub const NAME_BYTES_MAX: usize = 64;

/// A name that is empty, too long, or has a character that some format would have to quote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("name `{name}` must be 1 to {NAME_BYTES_MAX} of a-z, A-Z, 0-9, `.`, `_`, `-`, `:`, `/`")]
pub struct InvalidName {
    /// The invalid name, cut to the permitted length.
    pub name: String,
}

macro_rules! name_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks the length and the characters.
            pub fn new(name: impl Into<String>) -> Result<Self, InvalidName> {
                checked_name(name.into()).map(Self)
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(name: String) -> Result<Self, InvalidName> {
                Self::new(name)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

name_id! {
    /// The pool's name for a vendor model.
    WorkerId
}
name_id! {
    /// The pool's name for a service that serves workers.
    VendorId
}
name_id! {
    /// The name of a tenant, which owns runs, keys and budgets.
    TenantId
}
name_id! {
    /// The public id of a tenant's API key; it reveals nothing about the key.
    KeyId
}

fn checked_name(name: String) -> Result<String, InvalidName> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-:/".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(allowed) {
        return Err(InvalidName { name: name.chars().take(NAME_BYTES_MAX).collect() });
    }
    Ok(name)
}

impl TenantId {
    /// The tenant of questions outside runs, such as a trial of a plan.
    pub fn nobody() -> Self {
        Self("nobody".to_owned())
    }
}

/// Position of a step in its plan, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepIndex(u16);

impl StepIndex {
    /// The step at `index`, from 0.
    pub const fn new(index: u16) -> Self {
        Self(index)
    }

    /// The index as it is stored and sent.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The index for slices of steps.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }
}

/// Displayed from 1, for people; stored and sent from 0.
impl fmt::Display for StepIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", u32::from(self.0) + 1)
    }
}

/// A client's own id for a request, so that a repeated request is not paid twice.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RequestId(String);

impl RequestId {
    /// Most bytes of a request id.
    pub const BYTES_MAX: usize = 128;

    /// Checks that it is 1 to [`Self::BYTES_MAX`] printable ASCII characters.
    pub fn new(id: impl Into<String>) -> Result<Self, InvalidRequestId> {
        let id = id.into();
        if id.is_empty() || id.len() > Self::BYTES_MAX || !id.chars().all(|c| c.is_ascii_graphic()) {
            return Err(InvalidRequestId);
        }
        Ok(Self(id))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for RequestId {
    type Error = InvalidRequestId;

    fn try_from(id: String) -> Result<Self, InvalidRequestId> {
        Self::new(id)
    }
}

impl From<RequestId> for String {
    fn from(id: RequestId) -> Self {
        id.0
    }
}

/// The request id is empty, too long, or has blanks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("request id must be 1 to {} printable ASCII characters without blanks", RequestId::BYTES_MAX)]
pub struct InvalidRequestId;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_refuse_characters_that_need_quoting() {
        assert!(WorkerId::new("openai/gpt-5:mini").is_ok());
        for bad in ["", "a b", "ä", "x\0", &"x".repeat(65)] {
            assert!(WorkerId::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_run_ids_text_parses_back() {
        let id: RunId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        assert_eq!(id.to_string().parse::<RunId>(), Ok(id));
        assert_eq!("no".parse::<RunId>(), Err(InvalidId));
    }

    #[test]
    fn a_run_id_carries_its_cell() {
        let at = Timestamp::from_unix_ms(0x0189_0a5d_ac96);
        let in_cell =
            |number| RunId::in_cell(CellId::new(number).unwrap(), at, 0xf74b, 0xffce_b302_099a_8057);
        assert_eq!(in_cell(0).to_string(), "01890a5d-ac96-774b-bfce-b302099a8057");
        assert_eq!(in_cell(1).to_string(), "01890a5d-ac96-8001-bfce-b302099a8057");
        assert_eq!(in_cell(4095).to_string(), "01890a5d-ac96-8fff-bfce-b302099a8057");
        for number in [0, 1, 4095] {
            assert_eq!(in_cell(number).cell().number(), number);
            assert!(RunId::least_at(at) <= in_cell(number));
            assert!(in_cell(number) < RunId::least_at(Timestamp::from_unix_ms(at.unix_ms() + 1)));
        }
    }

    #[test]
    fn ids_without_a_cell_are_of_cell_0() {
        for id in ["01890a5d-ac96-774b-bcce-b302099a8057", "a987fbc9-4bed-4078-8f07-9141ba07c9f3"] {
            assert_eq!(id.parse::<RunId>().unwrap().cell(), CellId::default(), "{id}");
        }
        assert_eq!(RunId::least_at(Timestamp::default()).cell(), CellId::default());
    }

    #[test]
    fn the_least_id_of_a_time_separates_earlier_runs_from_later() {
        // The milliseconds of the version 7 ids below are 01890a5d-ac96.
        let accepted_at = Timestamp::from_unix_ms(0x0189_0a5d_ac96);
        let id: RunId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        assert!(RunId::least_at(accepted_at) <= id);
        assert!(id < RunId::least_at(Timestamp::from_unix_ms(accepted_at.unix_ms() + 1)));
        let latest: RunId = "ffffffff-ffff-7fff-bfff-ffffffffffff".parse().unwrap();
        assert!(latest < RunId::least_at(Timestamp::from_unix_ms(1 << 48)));
        assert_eq!(RunId::least_at(Timestamp::from_unix_ms(u64::MAX)), RunId::new(Uuid::max()));
    }
}
