//! How many processes share the limits, which gives the share of this process while Redis is unreachable.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use podium_domain::limits::Share;

/// Answers in a row that are needed, one per [`extend_every`](crate::limits::Options::extend_every). A process that has just joined
/// is then known to all others, and after a flush of Redis all have joined again.
const ANSWERS_MIN: usize = 3;

/// The position of this process among all that are registered in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Membership {
    /// Its position by id, from 0.
    pub(crate) rank: u32,
    /// The number of processes.
    pub(crate) of: u32,
}

/// The latest answers of Redis, and the share that follows from them.
#[derive(Debug, Default)]
pub(crate) struct Members {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    answers: VecDeque<Membership>,
    share: Option<Share>,
}

impl Members {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an answer of Redis. The largest number of processes among the latest answers counts.
    pub(crate) fn saw(&self, membership: Membership) {
        let mut seen = self.lock();
        seen.answers.push_back(membership);
        if seen.answers.len() > ANSWERS_MIN {
            seen.answers.pop_front();
        }
        if seen.answers.len() == ANSWERS_MIN {
            let most = seen.answers.iter().max_by_key(|membership| membership.of).copied();
            seen.share = most.map(|Membership { rank, of }| Share::Equal { rank, of });
        }
    }

    /// Redis became unreachable. The share is kept until Redis has answered often enough again.
    pub(crate) fn lost(&self) {
        self.lock().answers.clear();
    }

    /// The share of this process; `None` until the number of processes is known.
    pub(crate) fn share(&self) -> Option<Share> {
        self.lock().share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(members: &Members, ofs: &[u32]) -> Option<Share> {
        for of in ofs {
            members.saw(Membership { rank: 0, of: *of });
        }
        members.share()
    }

    fn part(of: u32) -> Share {
        Share::Equal { rank: 0, of }
    }

    #[test]
    fn a_share_is_known_after_several_answers() {
        let members = Members::default();
        assert_eq!(after(&members, &[3, 3]), None);
        assert_eq!(after(&members, &[3]), Some(part(3)));
    }

    #[test]
    fn a_share_shrinks_at_once_and_grows_after_several_answers() {
        let members = Members::default();
        assert_eq!(after(&members, &[2, 2, 2, 4]), Some(part(4)));
        assert_eq!(
            after(&members, &[1, 1]),
            Some(part(4)),
            "after a flush the others have not joined again yet"
        );
        assert_eq!(after(&members, &[1]), Some(part(1)));
    }

    #[test]
    fn the_share_is_kept_while_redis_is_unreachable() {
        let members = Members::default();
        assert_eq!(after(&members, &[4, 4, 4]), Some(part(4)));
        members.lost();
        assert_eq!(after(&members, &[1, 1]), Some(part(4)));
    }
}
