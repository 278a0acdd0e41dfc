//! Bounds every wait of one call. The error names the limit that was reached.

use std::time::Duration;

use podium_domain::ids::VendorId;
use podium_domain::pool::Limits;
use podium_ports::vendor::{VendorError, Wait};
use tokio::time::{Instant, timeout_at};

/// The deadlines of one call.
#[derive(Clone, Debug)]
pub(crate) struct CallClock {
    vendor: VendorId,
    sent: Instant,
    connect_max: Duration,
    first_byte_max: Duration,
    idle_max: Duration,
    call_max: Duration,
}

impl CallClock {
    /// Starts the clock of a call: all limits count from now.
    pub(crate) fn start(vendor: VendorId, limits: &Limits) -> Self {
        let ms = Duration::from_millis;
        Self {
            vendor,
            sent: Instant::now(),
            connect_max: ms(limits.waits.connect_ms_max),
            first_byte_max: ms(limits.waits.first_byte_ms_max),
            idle_max: ms(limits.waits.idle_ms_max),
            call_max: ms(limits.call_ms_max),
        }
    }

    /// Waits for the first byte of an answer, at most `first_byte_max` after the call began.
    pub(crate) async fn first<F: Future>(&self, future: F) -> Result<F::Output, VendorError> {
        self.until(self.sent + self.first_byte_max, Wait::FirstByte, self.first_byte_max, future).await
    }

    /// Waits for more of an answer that has sent events but no text yet.
    pub(crate) async fn before_text<F: Future>(&self, future: F) -> Result<F::Output, VendorError> {
        let until = Instant::now() + self.first_byte_max;
        self.until(until, Wait::FirstByte, self.first_byte_max, future).await
    }

    /// Waits for more of an answer whose text has begun, at most `idle_max`.
    pub(crate) async fn idle<F: Future>(&self, future: F) -> Result<F::Output, VendorError> {
        self.until(Instant::now() + self.idle_max, Wait::Idle, self.idle_max, future).await
    }

    /// Waits at most `max` for something optional. `None` if it does not come in time.
    pub(crate) async fn at_most<F: Future>(&self, max: Duration, future: F) -> Option<F::Output> {
        let until = (Instant::now() + max).min(self.sent + self.call_max);
        timeout_at(until, future).await.ok()
    }

    /// The error for a connection that was not made in time.
    pub(crate) fn not_connected(&self) -> VendorError {
        self.timeout(Wait::Connect, self.connect_max)
    }

    async fn until<F: Future>(
        &self,
        until: Instant,
        wait: Wait,
        limit: Duration,
        future: F,
    ) -> Result<F::Output, VendorError> {
        let end = self.sent + self.call_max;
        let (until, wait, limit) =
            if until <= end { (until, wait, limit) } else { (end, Wait::Call, self.call_max) };
        timeout_at(until, future).await.map_err(|_| self.timeout(wait, limit))
    }

    fn timeout(&self, wait: Wait, limit: Duration) -> VendorError {
        VendorError::Timeout { vendor: self.vendor.as_str().to_owned(), wait, limit }
    }
}
