//! One planner serves two conductors. All processes agree on a run's conductor, by its id or its pin.

use std::collections::BTreeMap;
use std::io::Write as _;

use podium_api::v1;
use podium_local_cluster::Shape;
use tempfile::NamedTempFile;

use crate::client::connect;

const RUNS: usize = 40;

/// The setting `conductor` for a workflow of one step, and the file that it names.
fn workflow(name: &str) -> (String, NamedTempFile) {
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    let step = format!("  - worker: sim-arithmetic\n    subtask: \"1 + 1\" # of {name}\n");
    write!(file, "name: {name}\nversion: \"1\"\nsteps:\n{step}").unwrap();
    (format!("fixed:{}", file.path().display()), file)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planner_serves_two_conductors_by_share_and_by_pin() {
    let ((blue, _blue), (green, _green)) = (workflow("blue"), workflow("green"));
    let mut shape = Shape::new(1, 1, 1, blue);
    shape.settings = vec![
        ("conductor_next", green),
        ("conductor_next_share", "0.5".to_owned()),
        // The planner plans only what the gateway does not.
        ("plan_at_once", "false".to_owned()),
    ];
    let cluster = crate::start(&shape).await;
    let mut gateway = connect(cluster.gateways[0].address(1)).await.unwrap();
    let mut conductors = BTreeMap::new();
    let pins = ["podium-ultra@blue-1", "podium-ultra@green-1"];
    for model in std::iter::repeat_n("podium-ultra", RUNS).chain(pins) {
        let request = v1::CreateRunRequest {
            model: model.to_owned(),
            messages: vec![v1::Message {
                role: v1::Role::User.into(),
                text: "1 + 1".to_owned(),
                ..Default::default()
            }],
            ..v1::CreateRunRequest::default()
        };
        let run_id = gateway.create_run(request).await.unwrap().into_inner().run.unwrap().run_id;
        let watch = v1::WatchRunRequest { run_id: run_id.clone(), after_sequence: 0 };
        let mut updates = gateway.watch_run(watch).await.unwrap().into_inner();
        while updates.message().await.unwrap().is_some() {}
        let run = gateway.get_run(v1::GetRunRequest { run_id }).await.unwrap().into_inner().run.unwrap();
        assert_eq!((run.state(), &run.rounds[0].fallback), (v1::RunState::Succeeded, &None), "{run:#?}");
        if let Some((_, pinned)) = model.split_once('@') {
            assert_eq!(run.conductor, pinned);
        }
        *conductors.entry(run.conductor).or_insert(0_usize) += 1;
    }
    assert_eq!(conductors.keys().collect::<Vec<_>>(), ["blue-1", "green-1"]);
    assert!(conductors.values().all(|runs| *runs > RUNS / 8), "{conductors:?}");
    cluster.stop().await.unwrap();
}
