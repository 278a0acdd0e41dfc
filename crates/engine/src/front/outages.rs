//! Reads for clients that already wait: an outage of the store delays them and does not fail them. If each of them failed instead, the
//! clients would ask again at once, and a store that is only slow would get more work and no relief.

use std::time::Duration;

use podium_domain::ids::RunId;
use podium_domain::retry::Backoff;
use podium_ports::clock::Clock;
use podium_ports::store::StoreError;

/// The longest outage that clients outlast once they wait: twice the 30 s after which Patroni replaces a failed primary by default
/// (its setting `ttl`).
pub(super) const OUTAGE_MAX: Duration = Duration::from_mins(1);
/// The pauses between reads. Clients that fail together do not read again together.
const PAUSES: Backoff = Backoff { first: Duration::from_secs(2), max: Duration::from_secs(16) };
const PAUSE_MIN: Duration = Duration::from_millis(500);

/// The result of `read`, which is repeated while the store is unavailable, for about `outage_max`.
pub(super) async fn outlast<T, F>(
    clock: &dyn Clock,
    run: RunId,
    outage_max: Duration,
    mut read: impl FnMut() -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let began = clock.now();
    let mut failed = 0;
    loop {
        match read().await {
            Err(StoreError::Unavailable(_)) if clock.now().since(began) < outage_max => {
                failed += 1;
                clock.sleep(PAUSES.pause(failed, random(run), PAUSE_MIN)).await;
            }
            result => return result,
        }
    }
}

/// The last bytes of an id are random.
fn random(run: RunId) -> u32 {
    let bytes = run.as_uuid().as_bytes();
    u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]])
}
