//! One vendor's API: where it is, how to prove who calls, and one call of it in any wire format.

use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use podium_domain::pool::{KeyHeader, Vendor, WireFormat, Worker};
use podium_ports::limiter::Quota;
use podium_ports::vendor::{ChatEvent, ChatRequest, ChatStream, VendorError};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder, Response, Url};
use secrecy::{ExposeSecret, SecretString};

use crate::answer::{self, Decoder};
use crate::call_clock::CallClock;
use crate::client::Route;
use crate::faults::Faults;
use crate::http_vendors::Clients;
use crate::keys::KeySource;
use crate::quota::quota;
use crate::{anthropic, demands, gemini, openai_chat, openai_responses};

/// Most bytes of an error's body that are read.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// Longest wait for an error's body.
const ERROR_BODY_MAX: Duration = Duration::from_secs(10);
/// Longest request id of a vendor that is kept.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// How a vendor knows who calls.
#[derive(Clone, Debug)]
pub(crate) enum Key {
    /// It does not ask.
    NotNeeded,
    /// It was found.
    Known(SecretString),
    /// Nothing is in the variable that should hold it.
    Missing { variable: String },
}

impl Key {
    /// Reads the key that `variable` should hold. Blanks around it (a line's end, most often) do not belong to it.
    pub(crate) fn read(variable: Option<&str>, keys: &dyn KeySource) -> Self {
        let Some(variable) = variable else {
            return Self::NotNeeded;
        };
        let key = keys.key(variable).map(|key| SecretString::from(key.expose_secret().trim()));
        match key.filter(|key| !key.expose_secret().is_empty()) {
            Some(key) => Self::Known(key),
            None => Self::Missing { variable: variable.to_owned() },
        }
    }
}

/// A vendor that can be called.
#[derive(Debug)]
pub(crate) struct Endpoint {
    vendor: Vendor,
    base: Url,
    key: Key,
    route: Route,
}

impl Endpoint {
    /// An endpoint below `base`, such as `https://api.openai.com/v1`. A query of the base is kept.
    pub(crate) fn new(vendor: Vendor, base: Url, key: Key, route: Route) -> Self {
        Self { vendor, base, key, route }
    }

    /// The variable that should hold the key and does not.
    pub(crate) fn missing_key(&self) -> Option<&str> {
        match &self.key {
            Key::Missing { variable } => Some(variable),
            Key::NotNeeded | Key::Known(_) => None,
        }
    }

    /// Calls `worker`. Returns once the vendor answered with a status and the head of a stream.
    pub(crate) async fn chat(
        &self,
        worker: &Worker,
        request: &ChatRequest,
        clients: &Clients,
    ) -> Result<ChatStream, VendorError> {
        let faults = self.faults();
        demands::check(worker, request, &faults)?;
        let connect_ms_max = worker.limits.waits.connect_ms_max;
        let client = clients.get(self.route, connect_ms_max).map_err(|source| faults.unreachable(source))?;
        let call = self.call(&client, worker, request, &faults)?;
        let clock = CallClock::start(self.vendor.id.clone(), &worker.limits);
        let response = clock.first(call.send()).await?.map_err(|source| {
            let is_late = source.is_connect() && source.is_timeout();
            if is_late { clock.not_connected() } else { faults.unreachable(source) }
        })?;
        if !response.status().is_success() {
            return Err(refusal(response, &faults, &clock).await);
        }
        if is_web_page(response.headers()) {
            return Err(faults.garbled("an answer of type text/html: base_url leads to a web page"));
        }
        let id = request_id(response.headers());
        let said = quota(response.headers());
        let events = answer::events(id, response.bytes_stream(), decoder(worker), faults, clock);
        if said == Quota::default() {
            return Ok(events.boxed());
        }
        // It comes second: `Started` is always the first.
        let mut said = Some(Ok(ChatEvent::Quota(said)));
        Ok(events
            .flat_map(move |event| stream::iter([Some(event), said.take()].into_iter().flatten()))
            .boxed())
    }

    fn call(
        &self,
        client: &Client,
        worker: &Worker,
        request: &ChatRequest,
        faults: &Faults,
    ) -> Result<RequestBuilder, VendorError> {
        let base = &self.base;
        let (url, body) = match worker.api {
            WireFormat::OpenaiChat => (openai_chat::url(base), openai_chat::body(base, worker, request)),
            WireFormat::OpenaiResponses => {
                (openai_responses::url(base), openai_responses::body(worker, request))
            }
            WireFormat::Anthropic => (anthropic::url(base), anthropic::body(worker, request)),
            WireFormat::Gemini => (gemini::url(base, &worker.model), gemini::body(worker, request)),
        };
        let body = body.map_err(|_| faults.misconfigured("the request has a value that JSON cannot say"))?;
        let mut headers = self.headers(worker.api, faults)?;
        if worker.api == WireFormat::Anthropic {
            let version = HeaderValue::from_static(anthropic::version(request));
            headers.insert(anthropic::VERSION_HEADER, version);
        }
        Ok(client.post(url).headers(headers).body(body))
    }

    fn faults(&self) -> Faults {
        let secret = match &self.key {
            Key::Known(key) => Some(key.clone()),
            Key::NotNeeded | Key::Missing { .. } => None,
        };
        Faults::new(self.vendor.id.clone(), secret)
    }

    fn headers(&self, format: WireFormat, faults: &Faults) -> Result<HeaderMap, VendorError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let key = match &self.key {
            Key::NotNeeded => return Ok(headers),
            Key::Known(key) => key.expose_secret(),
            Key::Missing { variable } => {
                return Err(faults.misconfigured(&format!("environment variable {variable} holds no key")));
            }
        };
        let (name, value) = match self.vendor.key_header(format) {
            KeyHeader::Bearer => (AUTHORIZATION, HeaderValue::try_from(format!("Bearer {key}"))),
            KeyHeader::Named(name) => {
                let name = HeaderName::try_from(name);
                let name = name.map_err(|_| faults.misconfigured("key_header is no name of a header"))?;
                (name, HeaderValue::try_from(key))
            }
        };
        let mut value =
            value.map_err(|_| faults.misconfigured("its key has a character that no header can carry"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
        Ok(headers)
    }
}

fn decoder(worker: &Worker) -> Box<dyn Decoder> {
    match worker.api {
        WireFormat::OpenaiChat => openai_chat::decoder(),
        WireFormat::OpenaiResponses => openai_responses::decoder(worker.id.clone()),
        WireFormat::Anthropic => anthropic::decoder(worker.id.clone()),
        WireFormat::Gemini => gemini::decoder(worker.id.clone()),
    }
}

/// Reads why the vendor refused. A body that does not come is done without: the status says the most.
async fn refusal(response: Response, faults: &Faults, clock: &CallClock) -> VendorError {
    let (status, headers) = (response.status(), response.headers().clone());
    let body = clock.at_most(ERROR_BODY_MAX, up_to(ERROR_BYTES_MAX, response.bytes_stream())).await;
    faults.refused(status, &headers, &body.unwrap_or_default())
}

/// The first bytes of a body, or what came of them.
async fn up_to(bytes_max: usize, body: impl Stream<Item = reqwest::Result<Bytes>>) -> Vec<u8> {
    let mut body = std::pin::pin!(body);
    let mut read = Vec::new();
    while let Some(Ok(bytes)) = body.next().await {
        let room = bytes_max - read.len();
        read.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if read.len() == bytes_max {
            break;
        }
    }
    read
}

fn is_web_page(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.is_some_and(|value| value.trim_start().to_ascii_lowercase().starts_with("text/html"))
}

fn request_id(headers: &HeaderMap) -> Option<String> {
    let value = headers.get("x-request-id").or_else(|| headers.get("request-id"))?.to_str().ok()?;
    let fits = !value.is_empty() && value.len() <= REQUEST_ID_BYTES_MAX;
    fits.then(|| value.to_owned())
}
