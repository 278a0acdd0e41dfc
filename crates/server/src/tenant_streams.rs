//! The open streams of each tenant, so that one tenant cannot take all of a server's connections and memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use podium_api::{ApiError, ErrorCode};
use podium_domain::ids::TenantId;

/// Counts the open streams of all tenants. Clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct TenantStreams {
    most: usize,
    open: Arc<Mutex<HashMap<TenantId, usize>>>,
}

impl TenantStreams {
    /// Allows each tenant `most` open streams.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, open: Arc::default() }
    }

    /// Counts a stream until the returned guard is dropped. An error if the tenant has as many as it may.
    pub(crate) fn begin(&self, tenant: &TenantId) -> Result<OpenStream, ApiError> {
        let mut open = self.lock();
        let count = open.entry(tenant.clone()).or_default();
        if *count >= self.most {
            let message = format!(
                "the tenant has {count} open streams, the limit is {} (tenant_streams_max); try again when one has ended",
                self.most
            );
            return Err(ApiError::new(ErrorCode::TooManyStreams, message));
        }
        *count += 1;
        Ok(OpenStream { streams: self.clone(), tenant: tenant.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open stream of a tenant.
#[derive(Debug)]
pub(crate) struct OpenStream {
    streams: TenantStreams,
    tenant: TenantId,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        if let Some(count) = open.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_at_its_limit_blocks_no_other_one() {
        let streams = TenantStreams::new(2);
        let [acme, other] = ["acme", "other"].map(|name| TenantId::new(name).unwrap());
        let first = streams.begin(&acme).unwrap();
        let _second = streams.begin(&acme).unwrap();
        let refused = streams.begin(&acme).unwrap_err();
        assert_eq!(refused.code, ErrorCode::TooManyStreams);
        assert!(refused.message.contains("2 open streams, the limit is 2"), "{refused}");
        assert!(streams.begin(&other).is_ok());
        drop(first);
        assert!(streams.begin(&acme).is_ok());
        assert_eq!(streams.lock().len(), 1, "a tenant without streams is forgotten");
    }
}
