//! The states of runs without their data.

/// A state of a run without its data, as lists are filtered by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateKind {
    /// [`RunState::Active`](super::RunState::Active).
    Active,
    /// [`RunState::Suspended`](super::RunState::Suspended).
    Suspended,
    /// [`RunState::Succeeded`](super::RunState::Succeeded).
    Succeeded,
    /// [`RunState::Failed`](super::RunState::Failed).
    Failed,
    /// [`RunState::Cancelled`](super::RunState::Cancelled).
    Cancelled,
}

impl StateKind {
    /// Every state.
    pub const ALL: [Self; 5] =
        [Self::Active, Self::Suspended, Self::Succeeded, Self::Failed, Self::Cancelled];

    /// The name for clients and stores.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suspended => "suspended",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}
