//! The HTTP client for deliveries to a collector.
//!
//! The library's threads deliver, and have no runtime; so each request runs on the process's runtime, and the thread waits for it.

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use reqwest::redirect;
use tokio::runtime::Handle;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// Most bytes of a collector's answer that are read. A longer one is an error.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A client within the runtime that it was created in.
#[derive(Debug)]
pub(crate) struct CollectorClient {
    client: Option<reqwest::Client>,
    runtime: Handle,
    requests: TaskTracker,
}

/// A request to a collector failed.
#[derive(Debug, thiserror::Error)]
enum CollectorError {
    #[error("the HTTP client cannot be built")]
    NoClient,
    #[error("the collector's answer has more than {ANSWER_BYTES_MAX} bytes")]
    LongAnswer,
}

impl CollectorClient {
    /// Must be called within a tokio runtime.
    pub(crate) fn new() -> Self {
        // Another part of the process may have chosen a provider already.
        let _already_chosen = rustls::crypto::ring::default_provider().install_default();
        // A redirect would carry the headers, and with them a key, to a host that nobody configured.
        let client = reqwest::Client::builder().redirect(redirect::Policy::none()).build();
        Self { client: client.ok(), runtime: Handle::current(), requests: TaskTracker::new() }
    }
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone().ok_or(CollectorError::NoClient)?;
        let sending = self.requests.spawn_on(send(client, request), &self.runtime);
        // The caller's time limit drops this future, which ends the request.
        AbortOnDropHandle::new(sending).await?
    }
}

async fn send(client: reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let mut answer = client.execute(request.try_into()?).await?;
    let mut response = Response::builder().status(answer.status());
    if let Some(headers) = response.headers_mut() {
        headers.extend(std::mem::take(answer.headers_mut()));
    }
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await? {
        if body.len() + piece.len() > ANSWER_BYTES_MAX {
            return Err(CollectorError::LongAnswer.into());
        }
        body.extend_from_slice(&piece);
    }
    Ok(response.body(body.into())?)
}
