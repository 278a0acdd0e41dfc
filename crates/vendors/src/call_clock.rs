//! Bounds every wait of one call: none is endless, and the error names the limit that was reached.

use std::time::Duration;

use podium_domain::ids::VendorId;
use podium_ports::vendor::VendorError;
use tokio::time::{Instant, timeout_at};

/// The time that one call has left.
#[derive(Clone, Debug)]
pub(crate) struct CallClock {
    vendor: VendorId,
    call_max: Duration,
    deadline: Instant,
}

impl CallClock {
    /// Starts the time of a call.
    pub(crate) fn start(vendor: VendorId, call_max: Duration) -> Self {
        Self { vendor, call_max, deadline: Instant::now() + call_max }
    }

    /// Waits for `future`: at most `wait_max`, or until the call's time is over if there is no other bound.
    pub(crate) async fn wait<F: Future>(
        &self,
        wait_max: Option<Duration>,
        future: F,
    ) -> Result<F::Output, VendorError> {
        let whole_call = (self.deadline, self.call_max);
        let (until, limit) = wait_max.map_or(whole_call, |max| whole_call.min((Instant::now() + max, max)));
        let vendor = || self.vendor.as_str().to_owned();
        timeout_at(until, future).await.map_err(|_| VendorError::Timeout { vendor: vendor(), limit })
    }
}
