//! Attempts have random claim ids inside and plain numbers outside.

use std::collections::BTreeMap;

use podium_domain::ids::ClaimId;
use podium_domain::run::{Run, TaskRef};

/// The number of each attempt of a run, from 1 a task, in the order of the claims.
///
/// Begins with what a run holds and learns the claims that come later, so that a watcher may begin anywhere.
#[derive(Clone, Debug, Default)]
pub struct AttemptNumbers {
    claims: BTreeMap<TaskRef, Vec<ClaimId>>,
}

impl AttemptNumbers {
    /// Those of a run as it stands.
    pub fn of(run: &Run) -> Self {
        let claims =
            run.tasks().map(|(task, work)| (task, work.attempts.iter().map(|a| a.claim).collect())).collect();
        Self { claims }
    }

    /// The number of the attempt under `claim`; one that is not known yet is the task's next.
    pub fn number(&mut self, task: TaskRef, claim: ClaimId) -> u32 {
        let claims = self.claims.entry(task).or_default();
        let at = claims.iter().position(|known| *known == claim).unwrap_or_else(|| {
            claims.push(claim);
            claims.len() - 1
        });
        u32::try_from(at + 1).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn claims_are_numbered_as_they_come_and_apart_for_each_task() {
        let mut numbers = AttemptNumbers::default();
        let claim = |n| ClaimId::new(Uuid::from_u128(n));
        let (first, second) = (TaskRef::Plan { round: 0 }, TaskRef::Plan { round: 1 });
        assert_eq!(numbers.number(first, claim(7)), 1);
        assert_eq!(numbers.number(first, claim(3)), 2);
        assert_eq!(numbers.number(second, claim(9)), 1);
        assert_eq!(numbers.number(first, claim(7)), 1);
    }
}
