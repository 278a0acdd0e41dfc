//! The database's clock.

use std::time::Duration;

use podium_ports::store::StoreError;
use sqlx::PgConnection;
use tokio::time::Instant;

use crate::Store;
use crate::call::Call;

/// A reading of the database's clock between two moments of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// When the request was sent.
    pub asked_at: Instant,
    /// When the answer had arrived.
    pub answered_at: Instant,
    /// The time of the database in between, since the Unix epoch, to a microsecond.
    pub shown: Duration,
}

impl Store {
    /// Reads the database's clock. The two moments exclude the wait for a connection.
    pub async fn read_clock(&self) -> Result<ClockReading, StoreError> {
        self.call(&ReadClock).await
    }
}

struct ReadClock;

impl Call for ReadClock {
    type Answer = ClockReading;

    async fn ask(&self, connection: &mut PgConnection) -> Result<ClockReading, sqlx::Error> {
        let asked_at = Instant::now();
        let now_us = sqlx::query_file_scalar!("queries/read_clock.sql").fetch_one(connection).await?;
        let shown = Duration::from_micros(u64::try_from(now_us).unwrap_or_default());
        Ok(ClockReading { asked_at, answered_at: Instant::now(), shown })
    }
}
