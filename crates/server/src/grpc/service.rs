//! The calls of `podium.v1`.

use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use podium_api::openai::record_in_conversation;
use podium_api::v1::podium_service_server::PodiumService;
use podium_api::v1::{self, Run};
use podium_api::{ApiError, ErrorCode, NewRun, timestamp};
use podium_domain::conversation::Message;
use podium_domain::ids::{RequestId, RunId, TenantId};
use podium_domain::trace::{TRACE_ID, TRACE_PARENT, TraceId};
use podium_engine::{Engine, Submitted};
use podium_ports::objects::Objects;
use podium_ports::store::RunSummary;
use prost::Message as _;
use tokio_util::sync::CancellationToken;
use tonic::metadata::AsciiMetadataValue;
use tonic::{Request, Response, Status};

use super::filter::filter;
use super::{conversations, models, ratings};
use crate::auth::{Authenticator, Caller};
use crate::connections::Unread;
use crate::conversations::{Conversations, Joined};
use crate::error_mapping;
use crate::tenant_streams::TenantStreams;
use crate::use_cases;
use crate::watch::watch;

const AUTHORIZATION: &str = "authorization";
const PAGE_SIZE_DEFAULT: u32 = 50;
const PAGE_SIZE_MAX: u32 = 200;

/// `podium.v1` over an engine.
#[derive(Clone)]
pub struct Runs {
    engine: Engine,
    auth: Authenticator,
    conversations: Conversations,
    /// None without a server in front.
    streams: Option<TenantStreams>,
    stop: CancellationToken,
}

impl Runs {
    /// Watches end when `stop` is cancelled.
    pub fn new(
        engine: Engine,
        auth: Authenticator,
        objects: Arc<dyn Objects>,
        stop: CancellationToken,
    ) -> Self {
        let conversations = Conversations::new(engine.clone(), objects, auth.clone());
        Self { engine, auth, conversations, streams: None, stop }
    }

    /// The same, with a limit of each tenant's open watches.
    pub(super) fn within(self, streams: TenantStreams) -> Self {
        Self { streams: Some(streams), ..self }
    }

    /// The caller, as the server identified it. Without a server in front, the key is looked up here.
    async fn caller<T>(&self, request: &Request<T>) -> Result<Caller, ApiError> {
        if let Some(caller) = request.extensions().get::<Caller>() {
            return Ok(caller.clone());
        }
        // A value that is not text cannot be a key.
        let shown = request.metadata().get(AUTHORIZATION).map(|value| value.to_str().unwrap_or_default());
        self.auth.caller(shown).await
    }

    /// The run of a request, and the conversation that it joins.
    async fn new_run(
        &self,
        tenant: &TenantId,
        request: v1::CreateRunRequest,
    ) -> Result<(NewRun, Option<Joined>), ApiError> {
        if request.conversation_id.is_empty() {
            return Ok((NewRun::try_from(request)?, None));
        }
        let request_id = RequestId::new(request.request_id.as_str()).ok();
        let id = request.conversation_id.as_str();
        let joined = self.conversations.joined(tenant, id, request_id.as_ref()).await;
        let (joined, items) = joined.map_err(with_grpc_names)?;
        let (id, mut count) = (id.to_owned(), 0);
        let earlier = |messages: &[Message]| {
            let earlier = items.messages_before(messages)?;
            count = earlier.len();
            Ok(earlier)
        };
        let mut new_run = NewRun::after(earlier, request)?;
        new_run.request.api_record = record_in_conversation(&id, count);
        Ok((new_run, Some(joined)))
    }
}

#[tonic::async_trait]
impl PodiumService for Runs {
    async fn create_run(
        &self,
        request: Request<v1::CreateRunRequest>,
    ) -> Result<Response<v1::CreateRunResponse>, Status> {
        let caller = self.caller(&request).await?;
        let tenant = caller.tenant.clone();
        let parent = request.metadata().get(TRACE_PARENT).and_then(|value| value.to_str().ok());
        let trace = parent.and_then(|parent| parent.parse().ok());
        let (mut new_run, joined) = self.new_run(&tenant, request.into_inner()).await?;
        new_run.request.trace = trace;
        let submitted = use_cases::submit(&self.engine, caller, new_run).await?;
        self.conversations.join(&tenant, joined, &submitted).await.map_err(with_grpc_names)?;
        let (run, existing) = match submitted {
            Submitted::New(run) => (run, false),
            Submitted::Existing(id) | Submitted::Continued { run: id, .. } => {
                (Arc::new(use_cases::load(&self.engine, &tenant, id).await?), true)
            }
        };
        let message = v1::CreateRunResponse { run: Some(Run::from(&*run)), existing };
        Ok(traced(run.trace_id(), Response::new(message)))
    }

    type WatchRunStream = BoxStream<'static, Result<v1::WatchRunResponse, Status>>;

    async fn watch_run(
        &self,
        request: Request<v1::WatchRunRequest>,
    ) -> Result<Response<Self::WatchRunStream>, Status> {
        let tenant = self.caller(&request).await?.tenant;
        let unread = unread(&request);
        let request = request.into_inner();
        let id = run_id(&request.run_id)?;
        let open = self.streams.as_ref().map(|streams| streams.begin(&tenant)).transpose()?;
        let stop = self.stop.clone();
        let watched = watch(&self.engine, &tenant, id, request.after_sequence, stop, unread, open).await?;
        Ok(traced(watched.trace, Response::new(watched.updates.map_err(Status::from).boxed())))
    }

    async fn get_run(
        &self,
        request: Request<v1::GetRunRequest>,
    ) -> Result<Response<v1::GetRunResponse>, Status> {
        let tenant = self.caller(&request).await?.tenant;
        let unread = unread(&request);
        let id = run_id(&request.into_inner().run_id)?;
        let run = use_cases::load(&self.engine, &tenant, id).await?;
        let (trace, run) = (run.trace_id(), Run::from(&run));
        let held = unread.map(|unread| unread.hold(run.encoded_len())).transpose();
        let held = held.map_err(|_| error_mapping::overloaded(id))?;
        let mut response = Response::new(v1::GetRunResponse { run: Some(run) });
        if let Some(held) = held {
            response.extensions_mut().insert(held);
        }
        Ok(traced(trace, response))
    }

    async fn cancel_run(
        &self,
        request: Request<v1::CancelRunRequest>,
    ) -> Result<Response<v1::CancelRunResponse>, Status> {
        let tenant = self.caller(&request).await?.tenant;
        let id = run_id(&request.into_inner().run_id)?;
        use_cases::load(&self.engine, &tenant, id).await?;
        let run = self.engine.cancel(id).await.map_err(|e| error_mapping::command_error(id, &e))?;
        let message = v1::CancelRunResponse { run: Some(Run::from(&run)) };
        Ok(traced(run.trace_id(), Response::new(message)))
    }

    async fn submit_tool_results(
        &self,
        request: Request<v1::SubmitToolResultsRequest>,
    ) -> Result<Response<v1::SubmitToolResultsResponse>, Status> {
        let tenant = self.caller(&request).await?.tenant;
        let v1::SubmitToolResultsRequest { run_id: id, results } = request.into_inner();
        let (id, results) = (run_id(&id)?, podium_api::tool_results(results)?);
        let run = use_cases::give_results(&self.engine, &tenant, id, results).await?;
        let message = v1::SubmitToolResultsResponse { run: Some(Run::from(&run)) };
        Ok(traced(run.trace_id(), Response::new(message)))
    }

    async fn list_runs(
        &self,
        request: Request<v1::ListRunsRequest>,
    ) -> Result<Response<v1::ListRunsResponse>, Status> {
        let tenant = self.caller(&request).await?.tenant;
        let request = request.into_inner();
        let filter = filter(&request.filter)?;
        let before = page_token(&request.page_token)?;
        let size = page_size(request.page_size);
        // One more than requested: it shows whether there is another page.
        let mut runs = self
            .engine
            .list(&tenant, &filter, before, size + 1)
            .await
            .map_err(|e| error_mapping::store_error(&e))?;
        let has_more = runs.len() > size as usize;
        runs.truncate(size as usize);
        let next_page_token =
            runs.last().filter(|_| has_more).map(|last| last.id.to_string()).unwrap_or_default();
        let runs = runs.iter().map(summary).collect();
        Ok(Response::new(v1::ListRunsResponse { runs, next_page_token }))
    }

    async fn estimate_run(
        &self,
        request: Request<v1::EstimateRunRequest>,
    ) -> Result<Response<v1::EstimateRunResponse>, Status> {
        let caller = self.caller(&request).await?;
        let run = request.into_inner().run.unwrap_or_default();
        let (new_run, _) = self.new_run(&caller.tenant, run).await?;
        let estimate = use_cases::estimate(&self.engine, caller, new_run).await?;
        let steps = estimate.steps.iter().map(|(worker, cost)| v1::EstimatedStep {
            worker: worker.to_string(),
            cost_max_nano_usd: cost.nano_usd(),
        });
        Ok(Response::new(v1::EstimateRunResponse {
            cost_max_nano_usd: estimate.cost_max.nano_usd(),
            planning_cost_max_nano_usd: estimate.planning_cost_max.nano_usd(),
            cost_min_nano_usd: estimate.cost_min.nano_usd(),
            steps: steps.collect(),
            typical: estimate.typical.map(|typical| v1::TypicalCost {
                cost_nano_usd: typical.cost.nano_usd(),
                runs: typical.runs,
            }),
        }))
    }

    async fn list_budgets(
        &self,
        request: Request<v1::ListBudgetsRequest>,
    ) -> Result<Response<v1::ListBudgetsResponse>, Status> {
        let caller = self.caller(&request).await?;
        let sums = self.auth.sums(&caller).await?;
        let budgets = sums.iter().map(|sum| v1::Budget {
            payer: sum.budget.payer.to_string(),
            period: sum.budget.period.as_str().to_owned(),
            period_start_time: Some(timestamp(sum.from)),
            cap_nano_usd: sum.budget.cap.map(podium_domain::money::Cost::nano_usd),
            spent_nano_usd: sum.charge.spent.nano_usd(),
            reserved_nano_usd: sum.charge.reserved.nano_usd(),
        });
        Ok(Response::new(v1::ListBudgetsResponse { budgets: budgets.collect() }))
    }

    async fn rate_run(
        &self,
        request: Request<v1::RateRunRequest>,
    ) -> Result<Response<v1::RateRunResponse>, Status> {
        let tenant = self.caller(&request).await?.tenant;
        Ok(Response::new(ratings::rate(&self.engine, &tenant, request.into_inner()).await?))
    }

    async fn list_outcomes(
        &self,
        request: Request<v1::ListOutcomesRequest>,
    ) -> Result<Response<v1::ListOutcomesResponse>, Status> {
        let tenant = self.caller(&request).await?.tenant;
        Ok(Response::new(ratings::outcomes(&self.engine, &tenant, request.into_inner()).await?))
    }

    async fn list_models(
        &self,
        request: Request<v1::ListModelsRequest>,
    ) -> Result<Response<v1::ListModelsResponse>, Status> {
        self.caller(&request).await?;
        Ok(Response::new(models::list(&self.engine)))
    }

    async fn get_model(
        &self,
        request: Request<v1::GetModelRequest>,
    ) -> Result<Response<v1::GetModelResponse>, Status> {
        self.caller(&request).await?;
        Ok(Response::new(models::one(&self.engine, &request.into_inner().name)?))
    }

    async fn create_conversation(
        &self,
        request: Request<v1::CreateConversationRequest>,
    ) -> Result<Response<v1::CreateConversationResponse>, Status> {
        let tenant = self.caller(&request).await?.tenant;
        Ok(Response::new(conversations::create(&self.conversations, &tenant, request.into_inner()).await?))
    }

    async fn get_conversation(
        &self,
        request: Request<v1::GetConversationRequest>,
    ) -> Result<Response<v1::GetConversationResponse>, Status> {
        let tenant = self.caller(&request).await?.tenant;
        Ok(Response::new(conversations::one(&self.conversations, &tenant, request.into_inner()).await?))
    }

    async fn list_conversation_items(
        &self,
        request: Request<v1::ListConversationItemsRequest>,
    ) -> Result<Response<v1::ListConversationItemsResponse>, Status> {
        let tenant = self.caller(&request).await?.tenant;
        Ok(Response::new(conversations::items(&self.conversations, &tenant, request.into_inner()).await?))
    }

    async fn delete_conversation(
        &self,
        request: Request<v1::DeleteConversationRequest>,
    ) -> Result<Response<v1::DeleteConversationResponse>, Status> {
        let tenant = self.caller(&request).await?.tenant;
        Ok(Response::new(conversations::remove(&self.conversations, &tenant, request.into_inner()).await?))
    }
}

/// Renames the field of an error as this API names it.
fn with_grpc_names(mut error: ApiError) -> ApiError {
    for problem in error.fields.iter_mut().filter(|problem| problem.field == "conversation") {
        "conversation_id".clone_into(&mut problem.field);
    }
    error
}

/// Adds the id of a run's trace to the metadata of a response.
fn traced<T>(trace: TraceId, mut response: Response<T>) -> Response<T> {
    if let Ok(id) = AsciiMetadataValue::try_from(trace.to_string()) {
        response.metadata_mut().insert(TRACE_ID, id);
    }
    response
}

/// The counter of unread bytes. None without a server in front.
fn unread<T>(request: &Request<T>) -> Option<Unread> {
    request.extensions().get::<Unread>().cloned()
}

/// The size of a page for the requested one.
pub(super) fn page_size(wanted: u32) -> u32 {
    match wanted {
        0 => PAGE_SIZE_DEFAULT,
        wanted => wanted.min(PAGE_SIZE_MAX),
    }
}

/// The last run of the previous page; none for the first page.
pub(super) fn page_token(token: &str) -> Result<Option<RunId>, ApiError> {
    match token {
        "" => Ok(None),
        token => token.parse().map(Some).map_err(|_| {
            let message = "page_token must be empty or the next_page_token of an earlier response";
            ApiError::on_field(ErrorCode::InvalidValue, "page_token", message)
        }),
    }
}

pub(super) fn run_id(text: &str) -> Result<RunId, ApiError> {
    text.parse().map_err(|e: podium_domain::ids::InvalidId| {
        ApiError::on_field(ErrorCode::InvalidValue, "run_id", e.to_string())
    })
}

fn summary(run: &RunSummary) -> v1::RunSummary {
    let state = match run.state.as_str() {
        "active" => v1::RunState::Active,
        "suspended" => v1::RunState::Suspended,
        "succeeded" => v1::RunState::Succeeded,
        "failed" => v1::RunState::Failed,
        "cancelled" => v1::RunState::Cancelled,
        _ => v1::RunState::Unspecified,
    };
    v1::RunSummary {
        run_id: run.id.to_string(),
        state: state.into(),
        model: run.model.clone(),
        question: run.question.clone(),
        steps: run.sums.steps,
        cost_nano_usd: run.sums.cost.nano_usd(),
        wasted_cost_nano_usd: run.sums.wasted.nano_usd(),
        saved_cost_nano_usd: run.sums.saved.nano_usd(),
        fallbacks: run.sums.fallbacks,
        failed_steps: run.sums.lack.map(|lack| lack.failed_steps),
        degraded: run.sums.lack.map(|lack| lack.degraded),
        refused: run.sums.lack.map(|lack| lack.refused),
        accept_time: Some(timestamp(run.accepted_at)),
        end_time: run.ended_at.map(timestamp),
    }
}
