//! Applies a changed pool file to a running process.

use std::error::Error as StdError;
use std::sync::Arc;

use podium_domain::pool::Pool;
use podium_engine::{Engine, Parts, Work};
use podium_setup::log_pool_change;
use tracing::warn;

use crate::connections::Connections;
use crate::error::ClusterError;

/// Applies the pool of changed settings, if it differs from the current one. `rebuild` builds the parts and the work of the process on
/// connections that have the changed pool. If anything refuses the pool, that is logged, and the earlier one stays in use. Must be called
/// inside a tokio runtime.
pub async fn apply_pool(
    connections: &mut Connections,
    engine: &Engine,
    file: &Arc<Pool>,
    rebuild: impl AsyncFn(&Connections) -> Result<(Parts, Work), ClusterError>,
) {
    if connections.is_of(file) {
        return;
    }
    let before = Arc::clone(connections.pool());
    let refused = |error: &(dyn StdError + 'static)| {
        let (pool, before) = (file.version(), before.version());
        warn!(error, pool, before, "the changed pool cannot be used: the earlier one stays");
    };
    let earlier = match connections.use_pool(Arc::clone(file)) {
        Ok(earlier) => earlier,
        Err(error) => {
            return refused(&error);
        }
    };
    let applied = match rebuild(connections).await {
        Ok((parts, work)) => engine.replace(parts, engine.options(), work).map_err(ClusterError::from),
        Err(error) => Err(error),
    };
    match applied {
        Ok(()) => log_pool_change(&before, file),
        Err(error) => {
            connections.return_to(earlier);
            refused(&error);
        }
    }
}
