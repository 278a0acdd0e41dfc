//! The vendors of a pool, ready to be called.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use podium_domain::ids::VendorId;
use podium_domain::pool::{Pool, Vendor, Worker};
use podium_ports::vendor::{ChatRequest, ChatStream, VendorError, Vendors};
use reqwest::{Certificate, Client, Url};

use crate::client::{Route, http_client};
use crate::endpoint::Endpoint;
use crate::keys::KeySource;

/// Why a pool's vendors cannot be called at all.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The HTTP client could not be built.
    #[error("the HTTP client cannot be built")]
    Client(#[source] reqwest::Error),
    /// A vendor's certificates cannot be used.
    #[error("vendor `{vendor}`: root_certificates {path} {problem}")]
    RootCertificates {
        /// Which vendor.
        vendor: VendorId,
        /// The file.
        path: String,
        /// The problem.
        problem: String,
    },
    /// A vendor's `base_url` is not an HTTP address.
    #[error("vendor `{vendor}`: base_url is not the address of an HTTP API")]
    BaseUrl {
        /// Which vendor.
        vendor: VendorId,
    },
}

/// Trusted certificate authorities, with the path of their file.
#[derive(Clone, Debug)]
pub(crate) struct Roots {
    path: String,
    certificates: Vec<Certificate>,
}

impl Roots {
    /// Reads the authorities of a vendor that names a file; `None` for the system's.
    fn read(vendor: &Vendor) -> Result<Option<Self>, BuildError> {
        let Some(path) = &vendor.root_certificates else { return Ok(None) };
        let problem = |problem: String| BuildError::RootCertificates {
            vendor: vendor.id.clone(),
            path: path.clone(),
            problem,
        };
        let pem = std::fs::read(path).map_err(|e| problem(format!("cannot be read: {e}")))?;
        let certificates = Certificate::from_pem_bundle(&pem)
            .map_err(|e| problem(format!("cannot be decoded as PEM certificates: {e}")))?;
        if certificates.is_empty() {
            return Err(problem("holds no PEM certificate".to_owned()));
        }
        Ok(Some(Self { path: path.clone(), certificates }))
    }
}

/// The properties that the calls of one client share: route, file of trusted authorities, connect timeout in milliseconds.
type ClientKey = (Route, Option<String>, u64);

/// HTTP clients by route, trusted authorities and connect timeout: reqwest sets each of these once for all calls of a client.
#[derive(Debug, Default)]
pub(crate) struct Clients(Mutex<BTreeMap<ClientKey, Client>>);

impl Clients {
    /// The client for this route, these authorities and this connect timeout; built at the first use.
    pub(crate) fn get(
        &self,
        route: Route,
        roots: Option<&Roots>,
        connect_ms_max: u64,
    ) -> reqwest::Result<Client> {
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (route, roots.map(|roots| roots.path.clone()), connect_ms_max);
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        let certificates = roots.map(|roots| roots.certificates.clone());
        let client = http_client(route, Duration::from_millis(connect_ms_max), certificates)?;
        clients.insert(key, client.clone());
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
    /// Builds an endpoint for each vendor of the pool.
    ///
    /// A missing key is not an error here: only that vendor's workers cannot be called. [`Self::missing_secrets`] lists the
    /// missing ones.
    pub fn new(pool: &Pool, keys: &dyn KeySource) -> Result<Self, BuildError> {
        let clients = Clients::default();
        let endpoint = |vendor: &Vendor| {
            let base = Url::parse(&vendor.base_url).ok().filter(Url::has_host);
            let base = base.ok_or_else(|| BuildError::BaseUrl { vendor: vendor.id.clone() })?;
            let (route, roots) = (route(&base), Roots::read(vendor)?);
            // Build the clients now, so that an error appears at start-up.
            for worker in pool.workers().iter().filter(|worker| worker.vendor == vendor.id) {
                let connect_ms_max = worker.limits.waits.connect_ms_max;
                clients.get(route, roots.as_ref(), connect_ms_max).map_err(BuildError::Client)?;
            }
            Ok((vendor.id.clone(), Endpoint::new(pool, vendor, base, route, roots, keys)))
        };
        let endpoints = pool.vendors().iter().map(endpoint).collect::<Result<_, BuildError>>()?;
        Ok(Self { endpoints, clients })
    }

    /// The vendors that cannot be called because all their keys are missing.
    pub fn without_keys(&self) -> impl Iterator<Item = &VendorId> {
        self.endpoints.iter().filter(|(_, endpoint)| endpoint.has_no_key()).map(|(id, _)| id)
    }

    /// A sentence for each secret that is missing from the place that the pool names.
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
    fn loopback_addresses_bypass_the_proxy() {
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
