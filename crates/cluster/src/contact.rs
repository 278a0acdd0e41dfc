//! Says why Redis does not let this process in, and which setting may be wrong: the limiter, which only knows that it is away,
//! goes on without it.

use std::time::Duration;

use podium_ports::clock::Clock as _;
use podium_setup::SystemClock;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, RedisError, RedisResult};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::advice::{Server, advice};

/// How long one try may take.
const TRY_MAX: Duration = Duration::from_secs(2);
/// How often it is tried and said.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// Why it does not. Of an answer only the first word is kept: the rest may repeat what was sent.
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
        let advice = advice(Server::Redis, &error);
        warn!(server = %name, %error, "Redis cannot be used, and is tried again{advice}");
        tokio::select! {
            () = stop.cancelled() => return,
            () = SystemClock.sleep(SAY_EVERY) => {}
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
        .set_connection_timeout(Some(TRY_MAX))
        .set_response_timeout(Some(TRY_MAX));
    let client = Client::open(server.clone())?;
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    redis::cmd("PING").query_async::<String>(&mut connection).await.map(|_| ())
}
