//! A server of `podium.v1` that does as a test says.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures::stream::{self, BoxStream, StreamExt as _};
use podium_api::v1::podium_service_server::{PodiumService, PodiumServiceServer};
use podium_api::v1::run_event::Kind;
use podium_api::v1::watch_run_response::Update;
use podium_api::v1::{self, Run, RunEvent, RunState, RunSummary, StepText, Succeeded, WatchRunResponse};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::ServerTlsConfig;
use tonic::{Request, Response, Status};

/// A watch: its updates, and how it ends.
pub(crate) struct Watched {
    pub(crate) updates: Vec<Update>,
    pub(crate) end: Option<Status>,
}

#[derive(Default)]
struct State {
    failures: Option<(Status, usize)>,
    is_silent: bool,
    watches: VecDeque<Watched>,
    run: Run,
    request_ids: Vec<String>,
    times: Vec<Instant>,
    timeouts: Vec<Option<String>>,
    keys: Vec<String>,
    watched_after: Vec<u64>,
    filters: Vec<String>,
}

/// The script, and the record of the calls.
#[derive(Clone, Default)]
pub(crate) struct Scripted {
    state: Arc<Mutex<State>>,
}

pub(crate) fn event(sequence: u64) -> Update {
    Update::Event(RunEvent { sequence, ..RunEvent::default() })
}

pub(crate) fn succeeded(sequence: u64) -> Update {
    let kind = Some(Kind::Succeeded(Succeeded::default()));
    Update::Event(RunEvent { sequence, kind, ..RunEvent::default() })
}

/// Live text of the answer.
pub(crate) fn text(offset: u64, text: &str) -> Update {
    let text = StepText { attempt: 1, offset, text: text.to_owned(), is_answer: true, ..StepText::default() };
    Update::StepText(text)
}

impl Scripted {
    fn with(self, change: impl FnOnce(&mut State)) -> Self {
        change(&mut self.state.lock().unwrap());
        self
    }

    /// The next creations fail.
    pub(crate) fn failing(self, status: Status, times: usize) -> Self {
        self.with(|state| state.failures = Some((status, times)))
    }

    /// Creations get no answer.
    pub(crate) fn silent(self) -> Self {
        self.with(|state| state.is_silent = true)
    }

    /// The next watch. After the last one, watches end at once.
    pub(crate) fn watched(self, watched: Watched) -> Self {
        self.with(|state| state.watches.push_back(watched))
    }

    /// The run has ended with this event.
    pub(crate) fn ended_at(self, sequence: u64) -> Self {
        self.with(|state| {
            state.run.state = RunState::Succeeded.into();
            state.run.sequence = sequence;
        })
    }

    /// The run has this answer.
    pub(crate) fn answering(self, answer: &str) -> Self {
        let scripted = self.ended_at(2);
        scripted.with(|state| state.run.answer = Some(answer.to_owned()))
    }

    pub(crate) async fn start(self) -> Server {
        self.listen(None).await
    }

    pub(crate) async fn start_secured(self, tls: ServerTlsConfig) -> Server {
        self.listen(Some(tls)).await
    }

    async fn listen(self, tls: Option<ServerTlsConfig>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let mut server = tonic::transport::Server::builder();
        if let Some(tls) = tls {
            server = server.tls_config(tls).unwrap();
        }
        let router = server.add_service(PodiumServiceServer::new(self.clone()));
        let incoming = TcpListenerStream::new(listener);
        let serving = async move {
            tokio::select! {
                ended = router.serve_with_incoming(incoming) => ended.unwrap(),
                _ = stopped => {}
            }
        };
        #[expect(clippy::disallowed_methods, reason = "the server ends with the test")]
        let serving = tokio::spawn(serving);
        Server { scripted: self, address, stop: Some(stop), serving: Some(serving) }
    }
}

pub(crate) struct Server {
    scripted: Scripted,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn secure_url(&self, host: &str) -> String {
        format!("https://{host}:{}", self.address.port())
    }

    /// Closes the listener.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        self.serving.take().unwrap().await.unwrap();
    }

    fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.scripted.state.lock().unwrap())
    }

    pub(crate) fn filters(&self) -> Vec<String> {
        self.read(|state| state.filters.clone())
    }

    pub(crate) fn request_ids(&self) -> Vec<String> {
        self.read(|state| state.request_ids.clone())
    }

    pub(crate) fn times(&self) -> Vec<Instant> {
        self.read(|state| state.times.clone())
    }

    /// The header `grpc-timeout` of each creation.
    pub(crate) fn timeouts(&self) -> Vec<Option<String>> {
        self.read(|state| state.timeouts.clone())
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.read(|state| state.keys.clone())
    }

    /// The event after which each watch began.
    pub(crate) fn watched_after(&self) -> Vec<u64> {
        self.read(|state| state.watched_after.clone())
    }
}

fn header<T>(request: &Request<T>, name: &str) -> Option<String> {
    Some(request.metadata().get(name)?.to_str().unwrap().to_owned())
}

#[tonic::async_trait]
impl PodiumService for Scripted {
    async fn create_run(
        &self,
        request: Request<v1::CreateRunRequest>,
    ) -> Result<Response<v1::CreateRunResponse>, Status> {
        let is_silent = {
            let mut state = self.state.lock().unwrap();
            state.times.push(Instant::now());
            state.timeouts.push(header(&request, "grpc-timeout"));
            state.keys.extend(header(&request, "authorization"));
            state.request_ids.push(request.get_ref().request_id.clone());
            if let Some((status, times)) = &mut state.failures
                && *times > 0
            {
                *times -= 1;
                return Err(status.clone());
            }
            state.is_silent
        };
        if is_silent {
            std::future::pending::<()>().await;
        }
        let run =
            Run { run_id: "run".to_owned(), request_id: request.into_inner().request_id, ..Run::default() };
        Ok(Response::new(v1::CreateRunResponse { run: Some(run), existing: false }))
    }

    type WatchRunStream = BoxStream<'static, Result<WatchRunResponse, Status>>;

    async fn watch_run(
        &self,
        request: Request<v1::WatchRunRequest>,
    ) -> Result<Response<Self::WatchRunStream>, Status> {
        let mut state = self.state.lock().unwrap();
        state.watched_after.push(request.get_ref().after_sequence);
        let watched = state.watches.pop_front().unwrap_or(Watched { updates: Vec::new(), end: None });
        let updates = watched.updates.into_iter().map(|update| Ok(WatchRunResponse { update: Some(update) }));
        Ok(Response::new(stream::iter(updates.chain(watched.end.map(Err))).boxed()))
    }

    async fn get_run(&self, _: Request<v1::GetRunRequest>) -> Result<Response<v1::GetRunResponse>, Status> {
        let run = self.state.lock().unwrap().run.clone();
        Ok(Response::new(v1::GetRunResponse { run: Some(run) }))
    }

    /// Two pages.
    async fn list_runs(
        &self,
        request: Request<v1::ListRunsRequest>,
    ) -> Result<Response<v1::ListRunsResponse>, Status> {
        let v1::ListRunsRequest { page_token, filter, .. } = request.into_inner();
        self.state.lock().unwrap().filters.push(filter);
        let (ids, next): (&[_], _) = match page_token.as_str() {
            "" => (&["c", "b"], "second"),
            "second" => (&["a"], ""),
            other => return Err(Status::invalid_argument(format!("unknown page `{other}`"))),
        };
        let run = |id: &&str| RunSummary { run_id: (*id).to_owned(), ..RunSummary::default() };
        let page =
            v1::ListRunsResponse { runs: ids.iter().map(run).collect(), next_page_token: next.to_owned() };
        Ok(Response::new(page))
    }

    async fn cancel_run(
        &self,
        _: Request<v1::CancelRunRequest>,
    ) -> Result<Response<v1::CancelRunResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn submit_tool_results(
        &self,
        _: Request<v1::SubmitToolResultsRequest>,
    ) -> Result<Response<v1::SubmitToolResultsResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn estimate_run(
        &self,
        _: Request<v1::EstimateRunRequest>,
    ) -> Result<Response<v1::EstimateRunResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn list_budgets(
        &self,
        _: Request<v1::ListBudgetsRequest>,
    ) -> Result<Response<v1::ListBudgetsResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn rate_run(
        &self,
        _: Request<v1::RateRunRequest>,
    ) -> Result<Response<v1::RateRunResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn list_outcomes(
        &self,
        _: Request<v1::ListOutcomesRequest>,
    ) -> Result<Response<v1::ListOutcomesResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn list_models(
        &self,
        _: Request<v1::ListModelsRequest>,
    ) -> Result<Response<v1::ListModelsResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn get_model(
        &self,
        _: Request<v1::GetModelRequest>,
    ) -> Result<Response<v1::GetModelResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn create_conversation(
        &self,
        _: Request<v1::CreateConversationRequest>,
    ) -> Result<Response<v1::CreateConversationResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn get_conversation(
        &self,
        _: Request<v1::GetConversationRequest>,
    ) -> Result<Response<v1::GetConversationResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn list_conversation_items(
        &self,
        _: Request<v1::ListConversationItemsRequest>,
    ) -> Result<Response<v1::ListConversationItemsResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn delete_conversation(
        &self,
        _: Request<v1::DeleteConversationRequest>,
    ) -> Result<Response<v1::DeleteConversationResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }
}
