//! The wall clock and random numbers: the only place where time is read and ids are created.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use podium_domain::cells::CellId;
use podium_domain::ids::{ClaimId, RunId};
use podium_domain::time::Timestamp;
use podium_ports::clock::{Clock, Ids};
use uuid::Uuid;

/// The machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "all other code reads the time through this clock")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_unix_ms(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    #[expect(clippy::disallowed_methods, reason = "all other code sleeps on this clock")]
    async fn sleep(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}

/// Creates ids from the operating system's random numbers, for runs of cell 0.
#[derive(Clone, Copy, Debug)]
pub struct RandomIds;

impl Ids for RandomIds {
    fn run_id(&self, now: Timestamp) -> RunId {
        CellIds(CellId::default()).run_id(now)
    }

    #[expect(clippy::disallowed_methods, reason = "this creates the ids")]
    fn claim_id(&self) -> ClaimId {
        ClaimId::new(Uuid::new_v4())
    }
}

/// The same for runs of this cell.
#[derive(Clone, Copy, Debug)]
pub struct CellIds(pub CellId);

impl Ids for CellIds {
    fn run_id(&self, now: Timestamp) -> RunId {
        // Version 4 fixes four bits of the upper half, above the lowest 12, and two bits of the lower half. A run id fixes those two
        // as well.
        let (upper, lower) = self.claim_id().as_uuid().as_u64_pair();
        #[expect(clippy::cast_possible_truncation, reason = "the lowest bits are meant")]
        RunId::in_cell(self.0, now, upper as u16, lower)
    }

    fn claim_id(&self) -> ClaimId {
        RandomIds.claim_id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_ids_are_of_version_7_and_sort_by_time() {
        let (early, late) = (Timestamp::from_unix_ms(1_000), Timestamp::from_unix_ms(1_001));
        let (first, second) = (RandomIds.run_id(early), RandomIds.run_id(late));
        assert_eq!(first.as_uuid().get_version_num(), 7);
        assert!(first < second);
        assert_ne!(first, RandomIds.run_id(early));
        assert_eq!(first.cell(), CellId::default());
    }

    #[test]
    fn run_ids_of_a_cell_carry_its_number() {
        let ids = CellIds(CellId::new(4095).unwrap());
        let (early, late) = (Timestamp::from_unix_ms(1_000), Timestamp::from_unix_ms(1_001));
        let first = ids.run_id(early);
        assert_eq!(first.cell().number(), 4095);
        assert!(RunId::least_at(early) <= first && first < RunId::least_at(late));
        assert_ne!(first, ids.run_id(early));
    }
}
