//! Logs why Redis refuses this process, with a hint which setting may be wrong. The limiter only knows that Redis is unreachable,
//! and continues without it.

use std::time::Duration;

use podium_ports::clock::Clock as _;
use podium_setup::SystemClock;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, RedisError, RedisResult};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::connection_hints::{Server, hint};

/// Most time for one attempt.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);
/// Time between two attempts, each with a log line.
const ATTEMPT_EVERY: Duration = Duration::from_secs(10);

/// Why Redis refuses. Only the first word of its answer is kept, because the rest may repeat a password.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("Redis cannot be reached: {0}")]
    Unreachable(RedisError),
    #[error("Redis answered `{0}`")]
    Answer(String),
}

/// Logs why the server refuses this process, until it has accepted one connection or `stop` is cancelled.
pub(crate) async fn log_refusals(name: String, server: ConnectionInfo, stop: CancellationToken) {
    while let Err(error) = check(&server).await {
        let hint = hint(Server::Redis, &error);
        warn!(server = %name, %error, "cannot use Redis, trying again{hint}");
        tokio::select! {
            () = stop.cancelled() => return,
            () = SystemClock.sleep(ATTEMPT_EVERY) => {}
        }
    }
    info!(server = %name, "Redis accepts connections of this process");
}

async fn check(server: &ConnectionInfo) -> Result<(), Refusal> {
    ping(server).await.map_err(|error| match error.kind() {
        ErrorKind::Io | ErrorKind::InvalidClientConfig => Refusal::Unreachable(error),
        _ => Refusal::Answer(error.code().unwrap_or(error.category()).to_owned()),
    })
}

async fn ping(server: &ConnectionInfo) -> RedisResult<()> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ATTEMPT_MAX))
        .set_response_timeout(Some(ATTEMPT_MAX));
    let client = Client::open(server.clone())?;
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    redis::cmd("PING").query_async::<String>(&mut connection).await.map(|_| ())
}
