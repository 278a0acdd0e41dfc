//! One vendor's API: its address, its credentials, and one call in any wire format.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use podium_domain::ids::WorkerId;
use podium_domain::pool::{KeyHeader, Pool, TokenLimitField, Vendor, WireFormat, Worker};
use podium_domain::trace::TRACE_PARENT;
use podium_ports::limiter::Quota;
use podium_ports::vendor::{ChatEvent, ChatRequest, ChatStream, VendorError};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};
use secrecy::{ExposeSecret, SecretString};

use crate::additions::Additions;
use crate::answer::{self, Offered};
use crate::call_clock::CallClock;
use crate::client::Route;
use crate::errors::ErrorBuilder;
use crate::http_vendors::{Clients, Roots};
use crate::keys::{KeySource, Keys};
use crate::quota::quota;
use crate::{capability_check, format};

/// Longest error body that is read, in bytes.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// Longest wait for an error's body.
const ERROR_BODY_MAX: Duration = Duration::from_secs(10);
/// Longest vendor request id that is kept, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// A vendor's API that can be called.
#[derive(Debug)]
pub(crate) struct Endpoint {
    vendor: Vendor,
    base: Url,
    route: Route,
    roots: Option<Roots>,
    keys: Keys,
    /// Extra headers and fields by worker. Other workers get `vendors_own`.
    additions: BTreeMap<WorkerId, Additions>,
    vendors_own: Additions,
    /// The field that bounds a completion, as learnt from rejections, by worker.
    learnt: Mutex<BTreeMap<WorkerId, TokenLimitField>>,
}

/// The parts of a call that are the same in every attempt.
struct Prepared {
    client: Client,
    url: Url,
    headers: HeaderMap,
    body: Vec<u8>,
    token_limit: TokenLimitField,
}

/// A rejected call, with the vendor's message.
struct Refusal {
    status: u16,
    error: VendorError,
    message: String,
}

impl Endpoint {
    /// An endpoint below `base`, such as `https://api.openai.com/v1`. A query of the base is kept.
    pub(crate) fn new(
        pool: &Pool,
        vendor: &Vendor,
        base: Url,
        route: Route,
        roots: Option<Roots>,
        source: &dyn KeySource,
    ) -> Self {
        let workers = pool.workers().iter().filter(|worker| worker.vendor == vendor.id);
        let additions = workers
            .map(|worker| (worker.id.clone(), Additions::find([&vendor.extras, &worker.extras], source)));
        Self {
            additions: additions.collect(),
            vendors_own: Additions::find([&vendor.extras], source),
            keys: Keys::find(&vendor.keys, source),
            vendor: vendor.clone(),
            base,
            route,
            roots,
            learnt: Mutex::default(),
        }
    }

    /// Whether it requires a key and has none.
    pub(crate) fn has_no_key(&self) -> bool {
        self.keys.are_all_missing()
    }

    /// One sentence for each missing secret, with the consequence.
    pub(crate) fn missing_secrets(&self) -> Vec<String> {
        let id = &self.vendor.id;
        let effect = if self.keys.are_all_missing() {
            format!("workers of vendor `{id}` cannot be called")
        } else {
            format!("vendor `{id}` is called with its other keys")
        };
        let keys = self.keys.missing().into_iter().map(|what| format!("{what} holds no key: {effect}"));
        let headers = self.additions.values().flat_map(Additions::missing);
        let headers = headers.map(|(name, what)| {
            format!("{what} is empty: calls to vendor `{id}` that need header {name} fail")
        });
        let mut missing: Vec<_> = keys.chain(headers).collect();
        missing.dedup();
        missing
    }

    /// Calls `worker`. Returns as soon as the vendor has answered with a status and response headers.
    ///
    /// If the vendor rejects one key, the next key is tried; if it names the other field for the token limit, that field is
    /// used: a rejected call costs nothing. Nothing else is retried.
    pub(crate) async fn chat(
        &self,
        worker: &Worker,
        request: &ChatRequest,
        clients: &Clients,
    ) -> Result<ChatStream, VendorError> {
        let keys = self.keys.read().await;
        let additions = self.additions.get(&worker.id).unwrap_or(&self.vendors_own);
        let (headers, secrets) = additions.headers(&self.vendor.id).await?;
        let errors = ErrorBuilder::new(self.vendor.id.clone(), keys.iter().cloned().chain(secrets));
        capability_check::check(worker, request, &errors)?;
        if self.keys.are_needed() && keys.is_empty() {
            return Err(errors.misconfigured(&format!("{} holds no key", self.keys.missing().join(", "))));
        }
        let connect_ms_max = worker.limits.waits.connect_ms_max;
        let client = clients.get(self.route, self.roots.as_ref(), connect_ms_max);
        let client = client.map_err(|source| errors.unreachable(source))?;
        let clock = CallClock::start(self.vendor.id.clone(), &worker.limits);
        let mut prepared = self.prepare(client, headers, worker, request, additions, &errors)?;
        let response = match self.send(&prepared, worker, &keys, &errors, &clock).await? {
            Ok(response) => response,
            Err(refusal) => {
                let other = prepared.token_limit.other();
                if !self.is_about_the_token_limit(worker, &refusal, other) {
                    return Err(refusal.error);
                }
                self.learnt.lock().unwrap_or_else(PoisonError::into_inner).insert(worker.id.clone(), other);
                prepared =
                    self.prepare(prepared.client, prepared.headers, worker, request, additions, &errors)?;
                let again = self.send(&prepared, worker, &keys, &errors, &clock).await?;
                again.map_err(|refusal| refusal.error)?
            }
        };
        if is_web_page(response.headers()) {
            return Err(errors.garbled("an answer of type text/html: base_url leads to a web page"));
        }
        let id = request_id(response.headers());
        // With several keys, the quota of one key says nothing about the others.
        let limits = if keys.len() > 1 { Quota::default() } else { quota(response.headers()) };
        let decoder = format::of(worker.api).decoder(worker, request);
        let body = response.bytes_stream();
        let events = answer::events(id, body, decoder, Offered::by(request), errors, clock);
        if limits == Quota::default() {
            return Ok(events.boxed());
        }
        // The quota comes second: `Started` is always the first event.
        let mut limits = Some(Ok(ChatEvent::Quota(limits)));
        Ok(events
            .flat_map(move |event| stream::iter([Some(event), limits.take()].into_iter().flatten()))
            .boxed())
    }

    /// Sends the request with each key in turn, until the vendor accepts it or rejects it for another reason than the key.
    async fn send(
        &self,
        prepared: &Prepared,
        worker: &Worker,
        keys: &[SecretString],
        errors: &ErrorBuilder,
        clock: &CallClock,
    ) -> Result<Result<Response, Refusal>, VendorError> {
        if !self.keys.are_needed() {
            return self.send_once(prepared, worker, None, errors, clock).await;
        }
        let mut refused: Option<Refusal> = None;
        for key in self.keys.in_turn(keys) {
            let refusal = match self.send_once(prepared, worker, Some(&key), errors, clock).await? {
                Ok(response) => return Ok(Ok(response)),
                Err(refusal) if !refusal.is_about_the_key() => return Ok(Err(refusal)),
                Err(refusal) => refusal,
            };
            match &refusal.error {
                VendorError::Throttled { retry_after, .. } => self.keys.limited(&key, *retry_after),
                _ => self.keys.refused(&key),
            }
            // Report the rejection that ends soonest.
            if refused.as_ref().is_none_or(|first| refusal.passes_sooner_than(first)) {
                refused = Some(refusal);
            }
        }
        refused.map(Err).ok_or_else(|| errors.misconfigured("it has no key"))
    }

    async fn send_once(
        &self,
        prepared: &Prepared,
        worker: &Worker,
        key: Option<&SecretString>,
        errors: &ErrorBuilder,
        clock: &CallClock,
    ) -> Result<Result<Response, Refusal>, VendorError> {
        let mut headers = prepared.headers.clone();
        if let Some(key) = key {
            self.add_key(key, worker.api, &mut headers, errors)?;
        }
        let call = prepared.client.post(prepared.url.clone()).headers(headers).body(prepared.body.clone());
        let response = clock.first(call.send()).await?.map_err(|source| {
            let is_late = source.is_connect() && source.is_timeout();
            if is_late { clock.not_connected() } else { errors.unreachable(source) }
        })?;
        if response.status().is_success() {
            Ok(Ok(response))
        } else {
            Ok(Err(refusal(response, errors, clock).await))
        }
    }

    /// Whether the rejection says that this server or model wants the other field for the token limit.
    fn is_about_the_token_limit(&self, worker: &Worker, refusal: &Refusal, other: TokenLimitField) -> bool {
        let is_open = self.vendor.token_limit_field.is_none() && self.token_limit_by_host(worker).is_some();
        let names_both = [other, other.other()].iter().all(|field| refusal.names(field.as_str()));
        let is_first = !self.learnt.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&worker.id);
        is_open && is_first && matches!(refusal.status, 400 | 422) && names_both
    }

    fn token_limit(&self, worker: &Worker) -> TokenLimitField {
        let learnt = self.learnt.lock().unwrap_or_else(PoisonError::into_inner).get(&worker.id).copied();
        let known = self.vendor.token_limit_field.or(learnt).or_else(|| self.token_limit_by_host(worker));
        known.unwrap_or(TokenLimitField::MaxTokens)
    }

    /// The field by the host's name, if servers of the format differ in it.
    fn token_limit_by_host(&self, worker: &Worker) -> Option<TokenLimitField> {
        format::of(worker.api).token_limit_of_host(self.base.host_str().unwrap_or_default())
    }

    fn prepare(
        &self,
        client: Client,
        mut headers: HeaderMap,
        worker: &Worker,
        request: &ChatRequest,
        additions: &Additions,
        errors: &ErrorBuilder,
    ) -> Result<Prepared, VendorError> {
        let base = &self.base;
        let token_limit = self.token_limit(worker);
        let format = format::of(worker.api);
        let url = format.url(base, worker);
        let body = format.body(worker, request, token_limit);
        let body = body.and_then(|body| additions.body(body));
        let body =
            body.map_err(|_| errors.misconfigured("the request has a value that JSON cannot represent"))?;
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(header) = format.header(request) {
            headers.insert(header.name, HeaderValue::from_static(header.value));
        }
        if let Some(Ok(span)) = request.trace.map(|span| HeaderValue::try_from(span.to_string())) {
            headers.insert(TRACE_PARENT, span);
        }
        Ok(Prepared { client, url, headers, body, token_limit })
    }

    /// Adds the key in the header that the vendor expects.
    fn add_key(
        &self,
        key: &SecretString,
        format: WireFormat,
        headers: &mut HeaderMap,
        errors: &ErrorBuilder,
    ) -> Result<(), VendorError> {
        let key = key.expose_secret();
        let (name, value) = match self.vendor.key_header(format) {
            KeyHeader::Bearer => (AUTHORIZATION, HeaderValue::try_from(format!("Bearer {key}"))),
            KeyHeader::Named(name) => {
                let name = HeaderName::try_from(name);
                let name = name.map_err(|_| errors.misconfigured("key_header is not a valid header name"))?;
                (name, HeaderValue::try_from(key))
            }
        };
        let mut value =
            value.map_err(|_| errors.misconfigured("its key has a character that is invalid in a header"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
        Ok(())
    }
}

impl Refusal {
    /// Whether another key may be accepted.
    fn is_about_the_key(&self) -> bool {
        matches!(self.status, 401..=403 | 429)
            || matches!(self.error, VendorError::Unpaid { .. } | VendorError::Misconfigured { .. })
    }

    fn passes_sooner_than(&self, other: &Self) -> bool {
        let wait = |error: &VendorError| match error {
            VendorError::Throttled { retry_after, .. } => Some(retry_after.unwrap_or_default()),
            _ => None,
        };
        match (wait(&self.error), wait(&other.error)) {
            (Some(wait), Some(others)) => wait < others,
            (wait, others) => wait.is_some() && others.is_none(),
        }
    }

    /// Whether the message has `word` as a whole word.
    fn names(&self, word: &str) -> bool {
        self.message.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|other| other == word)
    }
}

/// Reads why the vendor rejected the call. A body that does not arrive in time is ignored: the status matters most.
async fn refusal(response: Response, errors: &ErrorBuilder, clock: &CallClock) -> Refusal {
    let (status, headers) = (response.status(), response.headers().clone());
    let body = clock.at_most(ERROR_BODY_MAX, up_to(ERROR_BYTES_MAX, response.bytes_stream())).await;
    let body = body.unwrap_or_default();
    let error = errors.refused(status, &headers, &body);
    Refusal { status: status.as_u16(), error, message: String::from_utf8_lossy(&body).into_owned() }
}

/// The first bytes of a body, or those that arrived before an error.
async fn up_to(bytes_max: usize, body: impl Stream<Item = reqwest::Result<Bytes>>) -> Vec<u8> {
    let mut body = std::pin::pin!(body);
    let mut read = Vec::new();
    while let Some(Ok(bytes)) = body.next().await {
        let capacity = bytes_max - read.len();
        read.extend_from_slice(&bytes[..bytes.len().min(capacity)]);
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
