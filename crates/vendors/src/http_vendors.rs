//! The vendors of a pool, ready to be called.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::VendorId;
use podium_domain::pool::{Pool, Vendor, Worker};
use podium_ports::vendor::{ChatRequest, ChatStream, VendorError, Vendors};
use reqwest::Url;

use crate::client::{Route, http_client};
use crate::endpoint::{Endpoint, Key};
use crate::keys::KeySource;

/// How long a call may be silent. The worker's own `limits.call_ms_max` bounds the whole call besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitLimits {
    /// From sending a request to the first byte of its answer.
    pub first_byte_max: Duration,
    /// Between two pieces of an answer once its text has begun. Before that, a worker may reason in silence.
    pub gap_max: Duration,
    /// From the end of the text to the word on usage that may follow. What is late is done without.
    pub tail_max: Duration,
}

impl Default for WaitLimits {
    fn default() -> Self {
        Self {
            first_byte_max: Duration::from_mins(2),
            gap_max: Duration::from_mins(1),
            tail_max: Duration::from_secs(5),
        }
    }
}

/// Why a pool's vendors cannot be called at all.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The HTTP client could not be made.
    #[error("the HTTP client cannot be made")]
    Client(#[source] reqwest::Error),
    /// A vendor's address is none.
    #[error("vendor `{vendor}`: base_url is not the address of an HTTP API")]
    BaseUrl {
        /// Which vendor.
        vendor: VendorId,
    },
}

/// Calls the workers of one pool over HTTP. Keys are read once, when it is made.
#[derive(Debug)]
pub struct HttpVendors {
    endpoints: BTreeMap<VendorId, Endpoint>,
    waits: WaitLimits,
}

impl HttpVendors {
    /// Makes an endpoint for each vendor of the pool, with the default limits.
    ///
    /// A key that is missing is no error here: only the workers of that vendor cannot be called.
    /// [`Self::missing_keys`] lists such vendors.
    pub fn new(pool: &Pool, keys: &dyn KeySource) -> Result<Self, BuildError> {
        Self::with_waits(pool, keys, WaitLimits::default())
    }

    /// As [`Self::new`], with limits of the caller's choice.
    pub fn with_waits(pool: &Pool, keys: &dyn KeySource, waits: WaitLimits) -> Result<Self, BuildError> {
        let outside = http_client(Route::Outside).map_err(BuildError::Client)?;
        let loopback = http_client(Route::Loopback).map_err(BuildError::Client)?;
        let endpoint = |vendor: &Vendor| {
            let base = Url::parse(&vendor.base_url).ok().filter(Url::has_host);
            let base = base.ok_or_else(|| BuildError::BaseUrl { vendor: vendor.id.clone() })?;
            let client = if is_loopback(&base) { &loopback } else { &outside };
            let key = Key::read(vendor.api_key_env.as_deref(), keys);
            Ok((vendor.id.clone(), Endpoint::new(vendor.clone(), base, key, client.clone())))
        };
        let endpoints = pool.vendors().iter().map(endpoint).collect::<Result<_, _>>()?;
        Ok(Self { endpoints, waits })
    }

    /// The vendors that cannot be called because their key is missing, each with the variable that should hold it.
    pub fn missing_keys(&self) -> impl Iterator<Item = (&VendorId, &str)> {
        self.endpoints.iter().filter_map(|(id, endpoint)| Some((id, endpoint.missing_key()?)))
    }
}

#[async_trait]
impl Vendors for HttpVendors {
    async fn chat(&self, worker: &Worker, request: &ChatRequest) -> Result<ChatStream, VendorError> {
        let endpoint = self.endpoints.get(&worker.vendor).ok_or_else(|| VendorError::Misconfigured {
            vendor: worker.vendor.as_str().to_owned(),
            message: "the pool does not define it".to_owned(),
        })?;
        endpoint.chat(worker, request, self.waits).await
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_is_asked_for_this_machine() {
        for (url, loopback) in [
            ("http://127.0.0.1:8099/v1", true),
            ("http://localhost:11434/v1", true),
            ("http://[::1]:80/v1", true),
            ("https://api.openai.com/v1", false),
            ("http://localhost.example.org/v1", false),
            ("http://10.0.0.1/v1", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), loopback, "{url}");
        }
    }
}
