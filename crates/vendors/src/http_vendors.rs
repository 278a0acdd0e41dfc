//! The vendors of a pool, ready to be called.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::VendorId;
use podium_domain::pool::{Pool, Vendor, Worker};
use podium_ports::vendor::{ChatRequest, ChatStream, VendorError, Vendors};
use reqwest::{Client, Url};

use crate::client::{Route, http_client};
use crate::endpoint::Endpoint;
use crate::keys::KeySource;

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

/// The HTTP clients: one for each way out and each limit of connecting, which a client has once for all its calls. There are as
/// many as pools say different such limits.
#[derive(Debug, Default)]
pub(crate) struct Clients(Mutex<BTreeMap<(Route, u64), Client>>);

impl Clients {
    /// The client for calls on that route that may wait so many milliseconds for a connection.
    pub(crate) fn get(&self, route: Route, connect_ms_max: u64) -> reqwest::Result<Client> {
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&(route, connect_ms_max)) {
            return Ok(client.clone());
        }
        let client = http_client(route, Duration::from_millis(connect_ms_max))?;
        clients.insert((route, connect_ms_max), client.clone());
        Ok(client)
    }
}

/// Calls the workers of one pool over HTTP. Keys in the environment are read once, keys in files for every call.
#[derive(Debug)]
pub struct HttpVendors {
    endpoints: BTreeMap<VendorId, Endpoint>,
    clients: Clients,
}

impl HttpVendors {
    /// Makes an endpoint for each vendor of the pool.
    ///
    /// A key that is missing is no error here: only the workers of that vendor cannot be called.
    /// [`Self::missing_secrets`] lists what is missing.
    pub fn new(pool: &Pool, keys: &dyn KeySource) -> Result<Self, BuildError> {
        let clients = Clients::default();
        for worker in pool.workers() {
            let vendor = pool.vendor(&worker.vendor);
            let base = vendor.and_then(|vendor| Url::parse(&vendor.base_url).ok());
            if let Some(base) = base {
                clients.get(route(&base), worker.limits.waits.connect_ms_max).map_err(BuildError::Client)?;
            }
        }
        let endpoint = |vendor: &Vendor| {
            let base = Url::parse(&vendor.base_url).ok().filter(Url::has_host);
            let base = base.ok_or_else(|| BuildError::BaseUrl { vendor: vendor.id.clone() })?;
            let route = route(&base);
            Ok((vendor.id.clone(), Endpoint::new(pool, vendor, base, route, keys)))
        };
        let endpoints = pool.vendors().iter().map(endpoint).collect::<Result<_, _>>()?;
        Ok(Self { endpoints, clients })
    }

    /// The vendors that cannot be called because every key of theirs is missing.
    pub fn without_keys(&self) -> impl Iterator<Item = &VendorId> {
        self.endpoints.iter().filter(|(_, endpoint)| endpoint.has_no_key()).map(|(id, _)| id)
    }

    /// A sentence for each secret that is not where the pool says, such as a key in an environment variable.
    pub fn missing_secrets(&self) -> impl Iterator<Item = String> {
        self.endpoints.values().flat_map(Endpoint::missing_secrets)
    }
}

#[async_trait]
impl Vendors for HttpVendors {
    async fn chat(&self, worker: &Worker, request: &ChatRequest) -> Result<ChatStream, VendorError> {
        let endpoint = self.endpoints.get(&worker.vendor).ok_or_else(|| VendorError::Misconfigured {
            vendor: worker.vendor.as_str().to_owned(),
            message: "the pool does not define it".to_owned(),
        })?;
        endpoint.chat(worker, request, &self.clients).await
    }
}

fn route(base: &Url) -> Route {
    if is_loopback(base) { Route::Loopback } else { Route::Outside }
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
