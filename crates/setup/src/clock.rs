//! The wall clock and random numbers: the only place where time is read and ids are created.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
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

/// Creates ids from the operating system's random numbers.
#[derive(Clone, Copy, Debug)]
pub struct RandomIds;

impl Ids for RandomIds {
    fn run_id(&self, now: Timestamp) -> RunId {
        let random = self.claim_id().as_uuid().into_bytes();
        let mut bytes = [0; 10];
        // The last ten bytes of a version 4 id: two bits of the variant, which are set again, and 78 random ones.
        bytes.copy_from_slice(&random[6..]);
        RunId::new(uuid::Builder::from_unix_timestamp_millis(now.unix_ms(), &bytes).into_uuid())
    }

    #[expect(clippy::disallowed_methods, reason = "this creates the ids")]
    fn claim_id(&self) -> ClaimId {
        ClaimId::new(Uuid::new_v4())
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
    }
}
