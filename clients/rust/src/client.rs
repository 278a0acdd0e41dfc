//! The calls of the API.

use std::fmt;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::time::Instant;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

use crate::answer::Answer;
use crate::builder::{ClientBuilder, Key};
use crate::error::{CallError, Error};
use crate::retry::{RetryPolicy, wait};
use crate::v1;
use crate::v1::podium_service_client::PodiumServiceClient;
use crate::watch::Watch;

/// The generated client, with the key of this client and without its retries.
pub type Service = PodiumServiceClient<InterceptedService<Channel, Key>>;

/// How close to the deadline tonic's own timer may fire first. It reports `CANCELLED`.
const TIMER_TOLERANCE: Duration = Duration::from_millis(10);

/// A client of a server. Clones share its connection.
#[derive(Clone)]
pub struct Client {
    service: Service,
    deadline: Option<Duration>,
    retry: RetryPolicy,
}

/// A created run.
#[derive(Clone, Debug, PartialEq)]
pub struct Created {
    /// The run.
    pub run: v1::Run,
    /// Whether it existed before, because its `request_id` had been used.
    pub existing: bool,
}

impl Client {
    /// A client of the server at `url`: `http://HOST:PORT`, or `https://HOST:PORT` with TLS.
    pub fn builder(url: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(url.into())
    }

    pub(crate) fn new(service: Service, deadline: Option<Duration>, retry: RetryPolicy) -> Self {
        Self { service, deadline, retry }
    }

    /// The same client with another deadline for each call.
    #[must_use]
    pub fn with_deadline(&self, limit: Option<Duration>) -> Self {
        Self { deadline: limit, ..self.clone() }
    }

    /// The generated client, for calls that this client does not have.
    pub fn service(&self) -> Service {
        self.service.clone()
    }

    pub(crate) fn retry(&self) -> RetryPolicy {
        self.retry
    }

    /// Creates a run and returns at once. A request without a `request_id` gets a new one, so that a retry creates no second run.
    pub async fn create(&self, mut request: v1::CreateRunRequest) -> Result<Created, Error> {
        if request.request_id.is_empty() {
            request.request_id = request_id();
        }
        let send = |mut service: Service, request| async move { service.create_run(request).await };
        let v1::CreateRunResponse { run, existing } = self.call("CreateRun", request, send).await?;
        Ok(Created { run: present("CreateRun", run)?, existing })
    }

    /// The current state of a run.
    pub async fn get(&self, run_id: &str) -> Result<v1::Run, Error> {
        let request = v1::GetRunRequest { run_id: run_id.to_owned() };
        let send = |mut service: Service, request| async move { service.get_run(request).await };
        present("GetRun", self.call("GetRun", request, send).await?.run)
    }

    /// The tenant's runs, the newest first. Pages are read as the stream is; it ends after an error.
    pub fn list(&self) -> BoxStream<'static, Result<v1::RunSummary, Error>> {
        self.list_matching("")
    }

    /// The same runs as far as a filter allows them, such as `state = FAILED AND tier = ultra`; see `ListRunsRequest.filter`.
    pub fn list_matching(&self, filter: &str) -> BoxStream<'static, Result<v1::RunSummary, Error>> {
        let (client, filter) = (self.clone(), filter.to_owned());
        let pages = stream::try_unfold(Some(String::new()), move |token| {
            let (client, filter) = (client.clone(), filter.clone());
            async move {
                let Some(page_token) = token else { return Ok(None) };
                let page = client.list_page(v1::ListRunsRequest { page_size: 0, page_token, filter }).await?;
                let next = Some(page.next_page_token).filter(|token| !token.is_empty());
                Ok(Some((page.runs, next)))
            }
        });
        let runs = pages.flat_map(|page| match page {
            Ok(runs) => stream::iter(runs).map(Ok).boxed(),
            Err(error) => stream::iter([Err(error)]).boxed(),
        });
        runs.boxed()
    }

    /// One page of the tenant's runs.
    pub async fn list_page(&self, request: v1::ListRunsRequest) -> Result<v1::ListRunsResponse, Error> {
        let send = |mut service: Service, request| async move { service.list_runs(request).await };
        self.call("ListRuns", request, send).await
    }

    /// Cancels a run. It is no error if the run was cancelled before; it is one if the run ended in another way.
    pub async fn cancel(&self, run_id: &str) -> Result<v1::Run, Error> {
        let request = v1::CancelRunRequest { run_id: run_id.to_owned() };
        let send = |mut service: Service, request| async move { service.cancel_run(request).await };
        present("CancelRun", self.call("CancelRun", request, send).await?.run)
    }

    /// Continues a suspended run with one result for each of its pending calls (`Run::tool_calls`). The same results may be
    /// submitted again.
    pub async fn submit_tool_results(
        &self,
        run_id: &str,
        results: Vec<v1::ToolResult>,
    ) -> Result<v1::Run, Error> {
        let request = v1::SubmitToolResultsRequest { run_id: run_id.to_owned(), results };
        let send = |mut service: Service, request| async move { service.submit_tool_results(request).await };
        present("SubmitToolResults", self.call("SubmitToolResults", request, send).await?.run)
    }

    /// Estimates the cost of a run without creating it.
    pub async fn estimate(&self, run: v1::CreateRunRequest) -> Result<v1::EstimateRunResponse, Error> {
        let request = v1::EstimateRunRequest { run: Some(run) };
        let send = |mut service: Service, request| async move { service.estimate_run(request).await };
        self.call("EstimateRun", request, send).await
    }

    /// Watches a run from the event after `after_sequence` (0: from the first) until it has ended. The watch resumes by itself
    /// after a lost connection.
    pub fn watch(&self, run_id: impl Into<String>, after_sequence: u64) -> Watch {
        Watch::new(self.clone(), run_id.into(), after_sequence)
    }

    /// Creates a run and streams its answer.
    pub async fn ask(&self, request: v1::CreateRunRequest) -> Result<Answer, Error> {
        let created = self.create(request).await?;
        Ok(self.answer(created.run.run_id))
    }

    /// Streams the answer of a run that exists, from its beginning.
    pub fn answer(&self, run_id: impl Into<String>) -> Answer {
        Answer::new(self.clone(), run_id.into())
    }

    async fn call<Q, R, F, C>(&self, method: &'static str, request: Q, send: F) -> Result<R, Error>
    where
        Q: Clone,
        F: Fn(Service, Request<Q>) -> C,
        C: Future<Output = Result<Response<R>, Status>>,
    {
        let deadline = self.deadline.map(|limit| Instant::now() + limit);
        let mut failures = 0;
        loop {
            let mut request = Request::new(request.clone());
            if let Some(deadline) = deadline {
                request.set_timeout(deadline.saturating_duration_since(Instant::now()));
            }
            let status = match within(deadline, Box::pin(send(self.service(), request))).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) => status,
            };
            let error = CallError::new(method, status);
            failures += 1;
            let pause = self.retry.pause(failures, &error);
            let is_late = deadline.is_some_and(|deadline| Instant::now() + pause >= deadline);
            if !error.is_transient() || failures >= self.retry.attempts_max || is_late {
                return Err(Box::new(error).into());
            }
            wait(pause).await;
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("deadline", &self.deadline)
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}

async fn within<T>(
    deadline: Option<Instant>,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let Some(deadline) = deadline else { return call.await };
    let exceeded = || Status::deadline_exceeded("the server did not answer before the deadline of the call");
    match tokio::time::timeout_at(deadline, call).await {
        Err(_elapsed) => Err(exceeded()),
        Ok(Err(status))
            if status.code() == Code::Cancelled && Instant::now() + TIMER_TOLERANCE >= deadline =>
        {
            Err(exceeded())
        }
        Ok(result) => result,
    }
}

fn present<T>(method: &'static str, run: Option<T>) -> Result<T, Error> {
    run.ok_or(Error::Incomplete { method, field: "run" })
}

#[expect(clippy::disallowed_methods, reason = "the client has no port for ids")]
fn request_id() -> String {
    uuid::Uuid::new_v4().to_string()
}
