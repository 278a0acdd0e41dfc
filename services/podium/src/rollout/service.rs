//! The gRPC service for trainers.

use std::net::SocketAddr;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use podium_api::training::v1;
use podium_api::training::v1::rollout_service_server::{RolloutService, RolloutServiceServer};
use podium_domain::ids::WorkerId;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use super::outcome::StepOutcome;
use super::{Outcome, Rollout, Rollouts};
use crate::error::Error;
use crate::grading::{Grader, by_name};

/// Most bytes of a request.
const REQUEST_BYTES_MAX: usize = 4 << 20;
/// Most bytes of a response: the outputs of all steps.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// Serves rollouts on a listener until `stop` is ready.
pub(crate) async fn serve(
    rollouts: Rollouts,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let service = RolloutServiceServer::new(rollouts)
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(RESPONSE_BYTES_MAX);
    let incoming = TcpListenerStream::new(listener);
    let served = Server::builder().add_service(service).serve_with_incoming_shutdown(incoming, stop).await;
    served.map_err(|e| Error::System { what: "the gRPC server failed", source: std::io::Error::other(e) })
}

/// Binds the address of the service.
pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|source| Error::System { what: "cannot listen for rollouts", source })
}

#[tonic::async_trait]
impl RolloutService for Rollouts {
    type RunRolloutsStream = BoxStream<'static, Result<v1::RunRolloutsResponse, Status>>;

    async fn run_rollouts(
        &self,
        request: Request<Streaming<v1::RunRolloutsRequest>>,
    ) -> Result<Response<Self::RunRolloutsStream>, Status> {
        let rollouts = self.clone();
        let in_flight = self.in_flight_max();
        let carried_out = request.into_inner().map(move |request| {
            let rollouts = rollouts.clone();
            async move { Ok(rollouts.checked_run(read(request?)?).await?.into()) }
        });
        Ok(Response::new(carried_out.buffer_unordered(in_flight).boxed()))
    }
}

impl Rollouts {
    async fn checked_run(&self, rollout: Rollout) -> Result<Outcome, Status> {
        self.check(&rollout).map_err(|problem| invalid(&rollout.id, &problem))?;
        Ok(self.run(&rollout).await)
    }
}

fn invalid(id: &str, problem: &str) -> Status {
    Status::invalid_argument(format!("rollout `{id}`: {problem}"))
}

fn read(request: v1::RunRolloutsRequest) -> Result<Rollout, Status> {
    let v1::RunRolloutsRequest { id, question, answer, grader, completion, seed, workers } = request;
    let worker = |name: String| WorkerId::new(name).map_err(|e| invalid(&id, &format!("workers: {e}")));
    let workers = workers.into_iter().map(worker).collect::<Result<_, _>>()?;
    let grader = match grader.as_str() {
        "" => Grader::default(),
        text if text.starts_with('{') => {
            let value: Value =
                serde_json::from_str(text).map_err(|e| invalid(&id, &format!("grader: {e}")))?;
            by_name(value).map_err(|e| invalid(&id, &e.to_string()))?
        }
        name => by_name(Value::from(name)).map_err(|e| invalid(&id, &e.to_string()))?,
    };
    Ok(Rollout { id, question, answer, grader, completion, seed, workers })
}

impl From<Outcome> for v1::RunRolloutsResponse {
    fn from(outcome: Outcome) -> Self {
        Self {
            id: outcome.id,
            reward: outcome.reward,
            is_plan: outcome.is_plan,
            is_right: outcome.is_right,
            answer: outcome.answer,
            problem: outcome.problem,
            steps: outcome.steps.into_iter().map(Into::into).collect(),
            prompt_tokens: outcome.prompt_tokens,
            completion_tokens: outcome.completion_tokens,
            cost_nano_usd: outcome.cost_nano_usd,
            grading_cost_nano_usd: outcome.grading_cost_nano_usd,
            latency_ms: outcome.latency_ms,
        }
    }
}

impl From<StepOutcome> for v1::StepOutcome {
    fn from(step: StepOutcome) -> Self {
        Self {
            worker: step.worker,
            subtask: step.subtask,
            sees: step.sees.into_iter().map(u32::from).collect(),
            state: step.state.to_owned(),
            output: step.output,
            problem: step.problem,
            prompt_tokens: step.prompt_tokens,
            completion_tokens: step.completion_tokens,
            cost_nano_usd: step.cost_nano_usd,
            latency_ms: step.latency_ms,
        }
    }
}
