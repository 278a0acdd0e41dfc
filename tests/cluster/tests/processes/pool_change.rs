//! Running processes follow their pool file: runs go to a new worker without a restart.

use std::time::Duration;

use podium_api::v1;
use podium_local_cluster::Shape;

use crate::client::connect;

/// Longest time for all processes to notice. They look every five seconds.
const NOTICE_MAX: Duration = Duration::from_mins(1);

fn for_the_new_worker() -> v1::CreateRunRequest {
    let text = "2 + 3".to_owned();
    v1::CreateRunRequest {
        messages: vec![v1::Message { role: v1::Role::User.into(), text, ..Default::default() }],
        policy: Some(v1::Policy { workers_allowed: vec!["extra".to_owned()], ..Default::default() }),
        ..v1::CreateRunRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_processes_of_a_cluster_follow_the_pool_file() {
    // The planner plans, too, so that each kind of process must have followed.
    let settings = vec![("plan_at_once", "false".to_owned())];
    let mut cluster = crate::start(&Shape { settings, ..Shape::new(1, 1, 1, "direct") }).await;
    let before: Vec<_> = cluster.services().map(|service| service.pid()).collect();
    let mut gateway = connect(cluster.gateways[0].address(1)).await.unwrap();
    let unknown = gateway.create_run(for_the_new_worker()).await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::InvalidArgument, "{unknown}");

    cluster.add_worker("extra").unwrap();
    let create = async || gateway.create_run(for_the_new_worker()).await.ok();
    let run =
        crate::until("the gateway knows the worker", NOTICE_MAX, create).await.into_inner().run.unwrap();
    let watch = v1::WatchRunRequest { run_id: run.run_id.clone(), after_sequence: 0 };
    let mut updates = gateway.watch_run(watch).await.unwrap().into_inner();
    let end = async { while updates.message().await.unwrap().is_some() {} };
    tokio::time::timeout(NOTICE_MAX, end).await.unwrap();
    let run =
        gateway.get_run(v1::GetRunRequest { run_id: run.run_id }).await.unwrap().into_inner().run.unwrap();
    assert_eq!((run.state(), run.pool.as_str()), (v1::RunState::Succeeded, "demo-extra"), "{run:?}");
    assert_eq!(run.rounds[0].steps[0].planned.as_ref().unwrap().worker, "extra", "{run:?}");
    assert_eq!(
        cluster.services().map(|service| service.pid()).collect::<Vec<_>>(),
        before,
        "nothing restarted"
    );
    cluster.stop().await.unwrap();
}
