//! The backend of a command: a server, or an engine in this process. Both have the same service interface.

use std::time::Duration;

use futures::stream::{BoxStream, StreamExt as _};
use podium_api::v1;
use podium_api::v1::podium_service_client::PodiumServiceClient;
use podium_api::v1::podium_service_server::PodiumService as _;
use podium_domain::policy::{Effort, Tier};
use podium_server::Runs;
use tokio_util::sync::CancellationToken;
use tonic::metadata::AsciiMetadataValue;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use crate::assemble::Embedded;
use crate::error::Error;
use crate::pool::Pace;
use crate::settings::Settings;

/// Most time to find a server on this machine.
const PROBE_WAIT: Duration = Duration::from_millis(500);
/// The variable with the key for a server.
const API_KEY: &str = "PODIUM_API_KEY";
const CONNECT_WAIT: Duration = Duration::from_secs(5);
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// A server or an engine in this process.
pub(crate) enum Backend {
    /// A server.
    Server(Box<PodiumServiceClient<InterceptedService<Channel, ShowKey>>>),
    /// An engine in this process.
    Here(Box<(Embedded, Runs)>),
}

/// The backend that the user chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A server if one listens at the default address, otherwise this process.
    Either,
    /// This server.
    Server(String),
    /// This process.
    Here,
}

/// The updates of a run.
pub(crate) type Updates = BoxStream<'static, Result<v1::WatchRunResponse, Status>>;

impl Backend {
    /// Finds a server or starts an engine here.
    pub(crate) async fn open(wanted: &Wanted, settings: &Settings) -> Result<Self, Error> {
        match wanted {
            Wanted::Server(url) => connect(url, CONNECT_WAIT).await,
            Wanted::Here => Ok(Self::here(start(settings).await?)),
            Wanted::Either => {
                let url = format!("http://{}", settings.grpc_listen);
                match connect(&url, PROBE_WAIT).await {
                    // Another program may listen there; the engine in this process answers then.
                    Err(Error::NoServer { .. } | Error::NotPodium { .. }) => {
                        Ok(Self::here(start(settings).await?))
                    }
                    outcome => outcome,
                }
            }
        }
    }

    /// An engine in this process.
    pub(crate) fn here(embedded: Embedded) -> Self {
        let access = embedded.access(false);
        let runs = Runs::new(embedded.engine().clone(), access, embedded.objects(), CancellationToken::new());
        Self::Here(Box::new((embedded, runs)))
    }

    /// Accepts a run.
    pub(crate) async fn create(&mut self, request: v1::CreateRunRequest) -> Result<v1::Run, Error> {
        let response = match self {
            Self::Server(client) => client.create_run(request).await,
            Self::Here(here) => here.1.create_run(Request::new(request)).await,
        };
        response.map_err(|e| refused(&e))?.into_inner().run.ok_or_else(no_run)
    }

    /// The updates of a run after event `after`.
    pub(crate) async fn watch(&mut self, run_id: &str, after: u64) -> Result<Updates, Error> {
        let request = v1::WatchRunRequest { run_id: run_id.to_owned(), after_sequence: after };
        match self {
            Self::Server(client) => {
                Ok(client.watch_run(request).await.map_err(|e| refused(&e))?.into_inner().boxed())
            }
            Self::Here(here) => {
                Ok(here.1.watch_run(Request::new(request)).await.map_err(|e| refused(&e))?.into_inner())
            }
        }
    }

    /// The current state of a run.
    pub(crate) async fn run(&mut self, run_id: &str) -> Result<v1::Run, Error> {
        let request = v1::GetRunRequest { run_id: run_id.to_owned() };
        let response = match self {
            Self::Server(client) => client.get_run(request).await,
            Self::Here(here) => here.1.get_run(Request::new(request)).await,
        };
        response.map_err(|e| refused(&e))?.into_inner().run.ok_or_else(no_run)
    }

    /// Cancels a run.
    pub(crate) async fn cancel(&mut self, run_id: &str) -> Result<(), Error> {
        let request = v1::CancelRunRequest { run_id: run_id.to_owned() };
        match self {
            Self::Server(client) => client.cancel_run(request).await.map(drop),
            Self::Here(here) => here.1.cancel_run(Request::new(request)).await.map(drop),
        }
        .map_err(|e| refused(&e))
    }

    /// The newest runs, at most `limit`.
    pub(crate) async fn list(&mut self, limit: u32) -> Result<Vec<v1::RunSummary>, Error> {
        let request = v1::ListRunsRequest { page_size: limit, ..Default::default() };
        let response = match self {
            Self::Server(client) => client.list_runs(request).await,
            Self::Here(here) => here.1.list_runs(Request::new(request)).await,
        };
        Ok(response.map_err(|e| refused(&e))?.into_inner().runs)
    }

    /// The budgets that the caller's runs are charged to.
    pub(crate) async fn budgets(&mut self) -> Result<Vec<v1::Budget>, Error> {
        let request = v1::ListBudgetsRequest {};
        let response = match self {
            Self::Server(client) => client.list_budgets(request).await,
            Self::Here(here) => here.1.list_budgets(Request::new(request)).await,
        };
        Ok(response.map_err(|e| refused(&e))?.into_inner().budgets)
    }

    /// Rates a run.
    pub(crate) async fn rate(&mut self, request: v1::RateRunRequest) -> Result<(), Error> {
        match self {
            Self::Server(client) => client.rate_run(request).await.map(drop),
            Self::Here(here) => here.1.rate_run(Request::new(request)).await.map(drop),
        }
        .map_err(|e| refused(&e))
    }

    /// A page of ratings of workers.
    pub(crate) async fn outcomes(
        &mut self,
        request: v1::ListOutcomesRequest,
    ) -> Result<v1::ListOutcomesResponse, Error> {
        let response = match self {
            Self::Server(client) => client.list_outcomes(request).await,
            Self::Here(here) => here.1.list_outcomes(Request::new(request)).await,
        };
        Ok(response.map_err(|e| refused(&e))?.into_inner())
    }

    /// The estimated cost of a run.
    pub(crate) async fn estimate(
        &mut self,
        run: v1::CreateRunRequest,
    ) -> Result<v1::EstimateRunResponse, Error> {
        let request = v1::EstimateRunRequest { run: Some(run) };
        let response = match self {
            Self::Server(client) => client.estimate_run(request).await,
            Self::Here(here) => here.1.estimate_run(Request::new(request)).await,
        };
        Ok(response.map_err(|e| refused(&e))?.into_inner())
    }

    /// Whether a broken watch may be resumed.
    pub(crate) fn can_resume(&self, status: &Status) -> bool {
        matches!(self, Self::Server(_)) && status.code() == tonic::Code::Unavailable
    }

    /// Disconnects. An engine in this process finishes its work, or hands it back.
    pub(crate) async fn close(self) {
        match self {
            Self::Server(_) => {}
            Self::Here(here) => here.0.stop().await,
        }
    }
}

/// An engine on the data folder. It removes no old runs, because a command may not have the server's settings.
async fn start(settings: &Settings) -> Result<Embedded, Error> {
    let settings = Settings { runs_kept: None, ..settings.clone() };
    Embedded::start(&settings, Pace::Visible, None).await
}

async fn connect(url: &str, wait: Duration) -> Result<Backend, Error> {
    let no_server =
        |source: tonic::transport::Error| Error::NoServer { url: url.to_owned(), source: source.into() };
    let is_absolute = url.starts_with("http://") || url.starts_with("https://");
    let endpoint = Endpoint::from_shared(url.to_owned()).ok().filter(|_| is_absolute);
    let endpoint = endpoint.ok_or_else(|| Error::BadUrl { url: url.to_owned() })?;
    let endpoint = endpoint
        .connect_timeout(wait)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(10));
    let channel = endpoint.connect().await.map_err(no_server)?;
    let mut client = PodiumServiceClient::with_interceptor(channel, ShowKey::of_environment()?)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    // The server may be another program.
    let probe = client.list_runs(v1::ListRunsRequest { page_size: 1, ..Default::default() });
    match tokio::time::timeout(CONNECT_WAIT, probe).await {
        Ok(Ok(_)) => Ok(Backend::Server(Box::new(client))),
        Ok(Err(status)) => Err(not_served(url, status)),
        Err(elapsed) => Err(Error::NoServer { url: url.to_owned(), source: Box::new(elapsed) }),
    }
}

/// The error of a server that did not answer the first call.
fn not_served(url: &str, status: Status) -> Error {
    let (url, message) = (url.to_owned(), status.message().to_owned());
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => {
            Error::KeyRefused { url, message, variable: API_KEY }
        }
        Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted | Code::Aborted => {
            Error::NoServer { url, source: Box::new(status) }
        }
        _ => Error::NotPodium { url, message },
    }
}

/// Sends the key of the environment with every call, if it is set.
#[derive(Clone)]
pub(crate) struct ShowKey(Option<AsciiMetadataValue>);

impl ShowKey {
    fn of_environment() -> Result<Self, Error> {
        let Some(key) = std::env::var(API_KEY).ok().filter(|key| !key.is_empty()) else {
            return Ok(Self(None));
        };
        let shown = format!("Bearer {key}").parse();
        let mut shown: AsciiMetadataValue =
            shown.map_err(|_| Error::Refused(format!("{API_KEY} is not a valid key: it must be ASCII")))?;
        shown.set_sensitive(true);
        Ok(Self(Some(shown)))
    }
}

impl Interceptor for ShowKey {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(key) = &self.0 {
            request.metadata_mut().insert("authorization", key.clone());
        }
        Ok(request)
    }
}

/// A request for a run that asks one question.
pub(crate) fn question_request(question: String, tier: Tier, effort: Effort) -> v1::CreateRunRequest {
    let message = v1::Message { role: v1::Role::User.into(), text: question, ..Default::default() };
    v1::CreateRunRequest {
        model: podium_api::ModelName::of_tier(tier).to_string(),
        messages: vec![message],
        effort: v1::Effort::from(effort).into(),
        ..Default::default()
    }
}

pub(crate) fn refused(status: &Status) -> Error {
    Error::Refused(status.message().to_owned())
}

fn no_run() -> Error {
    Error::Refused("the server sent an answer without a run".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_that_is_no_url_is_named() {
        let Err(error) = connect("127.0.0.1:8081", CONNECT_WAIT).await else { panic!("it connected") };
        assert!(error.to_string().starts_with("invalid server URL `127.0.0.1:8081`"), "{error}");
    }

    #[test]
    fn a_refusal_and_a_wrong_port_are_told_from_silence() {
        let said = |code| not_served("http://h:1", Status::new(code, "words")).to_string();
        assert!(said(Code::Unauthenticated).ends_with("set PODIUM_API_KEY to a valid key"));
        assert!(said(Code::Internal).contains("is not Podium's gRPC API"));
        assert!(said(Code::Unavailable).ends_with("does not answer"));
    }
}
