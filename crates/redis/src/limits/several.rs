//! Limits on several Redis servers.

use std::sync::Arc;

use async_trait::async_trait;
use podium_domain::ids::VendorId;
use podium_domain::rendezvous;
use podium_ports::limiter::{CallRequest, Grant, Limiter, LimiterError};

use crate::limits::limiter::RedisLimiter;

/// One of several servers.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its name, the same in all processes; it decides which vendors the server counts. It is shown, so it has no credentials.
    pub name: String,
    /// The limiter on it.
    pub limiter: RedisLimiter,
}

/// A limiter over several Redis servers: all workers of a vendor are counted on one of them. Clones are the same limiter.
///
/// Processes share a vendor's limits if they have servers of the same names, in any order.
#[derive(Clone, Debug)]
pub struct SeveralRedisLimiters(Arc<[Server]>);

impl SeveralRedisLimiters {
    /// A limiter on at least one server.
    pub fn new(first: Server, others: impl IntoIterator<Item = Server>) -> Self {
        Self([first].into_iter().chain(others).collect())
    }

    /// The servers, in the order in which they were given.
    pub fn servers(&self) -> &[Server] {
        &self.0
    }

    /// The server that counts the calls of a vendor.
    pub fn server_of(&self, vendor: &VendorId) -> &Server {
        let names = self.0.iter().map(|server| (server.name.as_str(), 1));
        let chosen = if self.0.len() == 1 { None } else { rendezvous::choose(vendor.as_str(), names) };
        &self.0[chosen.unwrap_or_default()]
    }
}

#[async_trait]
impl Limiter for SeveralRedisLimiters {
    async fn acquire(&self, request: &CallRequest<'_>) -> Result<Grant, LimiterError> {
        self.server_of(&request.worker.vendor).limiter.acquire(request).await
    }
}
