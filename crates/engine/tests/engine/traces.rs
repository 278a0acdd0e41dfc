//! Calls of workers that continue the trace carry the span of their attempt.

use std::sync::Arc;

use podium_domain::pool::Pool;
use podium_domain::run::Run;
use podium_domain::trace::{SpanId, TraceParent};
use podium_ports::run_traces::RunTraces;
use podium_testkit::{Answer, Fault, a_pool, plan_of};

use crate::house::{House, Parts, quick, request, with};

const CLIENTS: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Keeps the traces that their clients keep.
#[derive(Debug)]
struct ByClient;

impl RunTraces for ByClient {
    fn ended(&self, _: &Run, _: &Pool) {}

    fn is_sampled(&self, run: &Run) -> bool {
        run.spec().request.trace.is_some_and(|parent| parent.is_sampled)
    }
}

/// A pool whose worker `quick` continues traces.
fn a_traced_pool() -> Pool {
    let mut workers = a_pool().workers().to_vec();
    workers[0].trace = true;
    a_pool().with_workers(workers)
}

async fn house(traces: Option<Arc<dyn RunTraces>>) -> House {
    let house = House::idle(quick(), |store| store).await;
    house.conductor.otherwise(plan_of(&[("quick", "Look.", &[]), ("checker", "Decide.", &[0])]));
    house.vendor.script("quick", [Answer::refuse(Fault::Failed)]).otherwise(Answer::text("done"));
    let change = |parts: &mut Parts| {
        parts.pool = Arc::new(a_traced_pool());
        parts.traces = traces;
    };
    house.beside(quick(), 8, change).at_work()
}

/// The run of a request with the client's span, and the spans of the calls of a worker.
async fn spans_of_calls(
    house: &House,
    client: Option<&str>,
    worker: &str,
) -> (Run, Vec<Option<TraceParent>>) {
    let policy = podium_domain::policy::Policy::new(
        podium_domain::policy::Tier::Ultra,
        podium_domain::policy::Effort::Medium,
    );
    let submit = with(request(policy), |request| request.trace = client.map(|span| span.parse().unwrap()));
    let id = house.engine.submit(submit).await.unwrap().run_id();
    let run = house.ended(id).await;
    let calls = house.vendor.calls_of(worker);
    (run, calls.into_iter().map(|call| call.trace).collect())
}

#[tokio::test]
async fn each_call_names_the_span_of_its_attempt() {
    for (client, is_sampled) in [(None, false), (Some(CLIENTS), true)] {
        let house = house(Some(Arc::new(ByClient))).await;
        let (run, spans) = spans_of_calls(&house, client, "quick").await;
        let attempts = &run.rounds()[0].steps[0].task.attempts;
        let expected: Vec<_> = attempts
            .iter()
            .map(|attempt| {
                Some(TraceParent { trace: run.trace_id(), span: SpanId::from(attempt.claim), is_sampled })
            })
            .collect();
        assert_eq!((expected.len(), &spans), (2, &expected), "{client:?}");
    }
}

#[tokio::test]
async fn a_worker_of_a_stranger_learns_of_no_trace() {
    let house = house(Some(Arc::new(ByClient))).await;
    let (_, spans) = spans_of_calls(&house, Some(CLIENTS), "checker").await;
    assert_eq!(spans, [None]);
}

#[tokio::test]
async fn a_process_without_traces_passes_the_clients_span_on() {
    let house = house(None).await;
    let (_, spans) = spans_of_calls(&house, Some(CLIENTS), "quick").await;
    assert_eq!(spans, [Some(CLIENTS.parse().unwrap()); 2]);
}
