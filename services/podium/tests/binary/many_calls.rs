//! A server under many calls: as many at once as the pool allows, and a run that is cancelled while it waits.

use podium_api::v1;
use podium_vendor_sim::{Behaviour, Fault, Options, ScriptedFault, VendorSim};

use crate::support::{Folder, Server, asking, run, soon, stderr};

const RUNS: usize = 200;

#[tokio::test]
async fn a_server_makes_as_many_concurrent_calls_as_the_pool_allows() {
    let sim = VendorSim::start(Options::loopback(7)).await.unwrap();
    let hang = ScriptedFault::next_calls(Fault::Hang, u32::try_from(RUNS).unwrap());
    let behaviour = Behaviour { faults: vec![hang], ..Behaviour::default() };
    sim.set_behaviour("sim-arithmetic", behaviour).unwrap();
    let folder = Folder::new();
    let pool = std::fs::read_to_string(folder.pool(&sim.base_url())).unwrap();
    let pool = folder.write("wide.toml", &pool.replace("in_flight_max = 32", "in_flight_max = 1000"));
    let server = Server::start_with(&folder.path("data"), &pool, "direct:sim-arithmetic");
    let mut client = server.client().await;
    for _ in 0..RUNS {
        client.create_run(asking()).await.unwrap();
    }
    // None of them answers, so all must be under way concurrently.
    let calls = soon("every run has called", sim.wait_for(|calls| calls.len() >= RUNS)).await;
    assert_eq!(calls.len(), RUNS);
}

#[tokio::test]
async fn a_run_is_cancelled_from_the_command_line() {
    let sim = VendorSim::start(Options::loopback(7)).await.unwrap();
    let behaviour =
        Behaviour { faults: vec![ScriptedFault::next_calls(Fault::Hang, 1)], ..Behaviour::default() };
    sim.set_behaviour("sim-arithmetic", behaviour).unwrap();
    let folder = Folder::new();
    let pool = folder.pool(&sim.base_url());
    let server = Server::start_with(&folder.path("data"), &pool, "direct:sim-arithmetic");
    let mut client = server.client().await;
    let run_id = client.create_run(asking()).await.unwrap().into_inner().run.unwrap().run_id;
    soon("the worker is called", sim.wait_for(|calls| !calls.is_empty())).await;
    let (url, id) = (format!("http://{}", server.grpc), run_id.clone());
    let output = tokio::task::spawn_blocking(move || run(&["runs", "cancel", &id, "--server", &url]));
    let output = output.await.unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let run = client.get_run(v1::GetRunRequest { run_id }).await.unwrap().into_inner().run.unwrap();
    assert_eq!(run.state(), v1::RunState::Cancelled);
}
