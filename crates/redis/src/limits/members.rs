//! How many processes share the limits, and so which part of them is this process' while Redis is unreachable.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use podium_domain::limits::Share;

/// So many looks in a row are needed, one each [`extend_every`](crate::limits::Options::extend_every). A process that has just joined is
/// then known to all others, and after a flush of Redis all have joined again.
const LOOKS: usize = 3;

/// The processes as Redis knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// This process' place among them, by their ids.
    pub(crate) rank: u32,
    /// How many there are.
    pub(crate) of: u32,
}

/// What was seen of the processes.
#[derive(Debug, Default)]
pub(crate) struct Members {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    looks: VecDeque<Look>,
    share: Option<Share>,
}

impl Members {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an answer of Redis. The largest number of processes among the last answers counts.
    pub(crate) fn saw(&self, look: Look) {
        let mut seen = self.lock();
        seen.looks.push_back(look);
        if seen.looks.len() > LOOKS {
            seen.looks.pop_front();
        }
        if seen.looks.len() == LOOKS {
            let most = seen.looks.iter().max_by_key(|look| look.of).copied();
            seen.share = most.map(|Look { rank, of }| Share::Equal { rank, of });
        }
    }

    /// Redis became unreachable. The last share stays until Redis has been seen often enough again.
    pub(crate) fn lost(&self) {
        self.lock().looks.clear();
    }

    /// This process' share; none as long as too little is known of the others.
    pub(crate) fn share(&self) -> Option<Share> {
        self.lock().share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saw(members: &Members, ofs: &[u32]) -> Option<Share> {
        for of in ofs {
            members.saw(Look { rank: 0, of: *of });
        }
        members.share()
    }

    fn part(of: u32) -> Share {
        Share::Equal { rank: 0, of }
    }

    #[test]
    fn a_share_is_known_once_all_others_know_of_this_process() {
        let members = Members::default();
        assert_eq!(saw(&members, &[3, 3]), None);
        assert_eq!(saw(&members, &[3]), Some(part(3)));
    }

    #[test]
    fn a_share_shrinks_at_once_and_grows_when_fewer_were_seen_several_times() {
        let members = Members::default();
        assert_eq!(saw(&members, &[2, 2, 2, 4]), Some(part(4)));
        assert_eq!(saw(&members, &[1, 1]), Some(part(4)), "after a flush the others have yet to join again");
        assert_eq!(saw(&members, &[1]), Some(part(1)));
    }

    #[test]
    fn the_last_share_is_kept_while_redis_comes_and_goes() {
        let members = Members::default();
        assert_eq!(saw(&members, &[4, 4, 4]), Some(part(4)));
        members.lost();
        assert_eq!(saw(&members, &[1, 1]), Some(part(4)));
    }
}
