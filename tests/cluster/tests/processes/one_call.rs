//! A question that is asked once, and then by many clients at once, causes one call of a worker.

use podium_api::v1;
use podium_domain::usage::Usage;
use podium_local_cluster::{Cluster, Shape};

use crate::client::connect;

const RUNS: usize = 20;

/// Asks for the sum at temperature 0, and waits for the end.
async fn ended(cluster: &Cluster) -> v1::Run {
    let mut gateway = connect(cluster.gateways[0].address(1)).await.unwrap();
    let request = v1::CreateRunRequest {
        messages: vec![v1::Message {
            role: v1::Role::User.into(),
            text: "20 + 22".to_owned(),
            ..Default::default()
        }],
        sampling: Some(v1::Sampling { temperature: Some(0.0), ..v1::Sampling::default() }),
        ..v1::CreateRunRequest::default()
    };
    let run_id = gateway.create_run(request).await.unwrap().into_inner().run.unwrap().run_id;
    let watch = v1::WatchRunRequest { run_id: run_id.clone(), after_sequence: 0 };
    let mut updates = gateway.watch_run(watch).await.unwrap().into_inner();
    while updates.message().await.unwrap().is_some() {}
    gateway.get_run(v1::GetRunRequest { run_id }).await.unwrap().into_inner().run.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answered_question_is_not_called_again() {
    let settings = vec![("step_cache", "exact".to_owned())];
    let shape = Shape { settings, ..Shape::new(1, 1, 2, "direct:sim-arithmetic") };
    let cluster = crate::start(&shape).await;
    let mut runs = vec![ended(&cluster).await];
    runs.extend(futures::future::join_all((0..RUNS).map(|_| ended(&cluster))).await);
    assert!(runs.iter().all(|run| run.answer.as_deref() == Some("42")), "{runs:#?}");
    assert_eq!(cluster.workers.calls().len(), 1, "{:#?}", cluster.workers.calls());
    let paid: Vec<_> = runs.iter().filter(|run| run.saved.is_none()).collect();
    let [paid] = paid.as_slice() else { panic!("one run paid: {paid:#?}") };
    assert!(paid.cost_nano_usd > 0);
    for run in runs.iter().filter(|run| run.run_id != paid.run_id) {
        let saved = run.saved.unwrap();
        assert_eq!((run.cost_nano_usd, saved.cost_nano_usd), (0, paid.cost_nano_usd));
        assert_eq!((run.usage, saved.usage), (Some(Usage::NONE.into()), paid.usage));
    }
    cluster.stop().await.unwrap();
}
