//! A server that is killed in the middle of a run continues it after the next start, and repeats no finished call.

use podium_api::v1;
use podium_api::v1::run_event::Kind;
use podium_api::v1::watch_run_response::Update;
use podium_vendor_sim::{Behaviour, Call, Fault, Options, Outcome, ScriptedFault, VendorSim};

use crate::support::{ANSWER, Folder, Server, asking, run, soon, stderr};

fn calls_of<'c>(calls: &'c [Call], model: &str) -> Vec<&'c Call> {
    calls.iter().filter(|call| call.model == model).collect()
}

async fn events_of(server: &Server, run_id: &str) -> Vec<v1::RunEvent> {
    let request = v1::WatchRunRequest { run_id: run_id.to_owned(), after_sequence: 0 };
    let mut updates = server.client().await.watch_run(request).await.unwrap().into_inner();
    let mut events = Vec::new();
    while let Some(update) = updates.message().await.unwrap() {
        if let Some(Update::Event(event)) = update.update {
            events.push(event);
        }
    }
    events
}

async fn run_of(server: &Server, run_id: &str) -> v1::Run {
    let request = v1::GetRunRequest { run_id: run_id.to_owned() };
    server.client().await.get_run(request).await.unwrap().into_inner().run.unwrap()
}

#[tokio::test]
async fn a_run_goes_on_after_kill_9_and_no_finished_step_is_called_again() {
    let sim = VendorSim::start(Options::loopback(7)).await.unwrap();
    let hang_once = ScriptedFault::next_calls(Fault::Hang, 1);
    let behaviour = Behaviour { faults: vec![hang_once], ..Behaviour::default() };
    sim.set_behaviour("sim-arithmetic", behaviour).unwrap();
    let folder = Folder::new();
    let (data, pool, workflow) = (folder.path("data"), folder.pool(&sim.base_url()), folder.workflow());

    let server = Server::start(&data, &pool, &workflow);
    let created = server.client().await.create_run(asking()).await.unwrap().into_inner();
    let run_id = created.run.unwrap().run_id;
    let second_is_called = sim.wait_for(|calls| !calls_of(calls, "sim-arithmetic").is_empty());
    let calls = soon("the second step is called", second_is_called).await;
    assert_eq!(calls_of(&calls, "sim-dates")[0].outcome, Outcome::Answered);
    server.kill();
    let abandoned = sim.wait_for(|calls| calls_of(calls, "sim-arithmetic")[0].outcome == Outcome::Abandoned);
    soon("the killed server's call is noticed", abandoned).await;

    let server = Server::start(&data, &pool, &workflow);
    let events = soon("the run ends", events_of(&server, &run_id)).await;
    let run = run_of(&server, &run_id).await;
    assert_eq!(run.answer.as_deref(), Some(ANSWER), "{run:#?}");

    let calls = sim.calls();
    assert_eq!(calls_of(&calls, "sim-dates").len(), 1, "a finished step was called again: {calls:#?}");
    let second: Vec<_> = calls_of(&calls, "sim-arithmetic").iter().map(|call| call.outcome).collect();
    assert_eq!(second, [Outcome::Abandoned, Outcome::Answered]);
    assert_eq!(calls_of(&calls, "sim-words").len(), 1);
    let sequences: Vec<_> = events.iter().map(|event| event.sequence).collect();
    assert_eq!(sequences, (1..=run.sequence).collect::<Vec<_>>());
    let lost = events.iter().filter(|event| matches!(event.kind, Some(Kind::AttemptLost(_))));
    assert_eq!(lost.count(), 1, "{events:#?}");
}

#[tokio::test]
async fn a_stopped_server_ends_in_order_and_its_run_continues_later() {
    let sim = VendorSim::start(Options::loopback(7)).await.unwrap();
    let hang_once = ScriptedFault::next_calls(Fault::Hang, 1);
    let behaviour = Behaviour { faults: vec![hang_once], ..Behaviour::default() };
    sim.set_behaviour("sim-words", behaviour).unwrap();
    let folder = Folder::new();
    let (data, pool, workflow) = (folder.path("data"), folder.pool(&sim.base_url()), folder.workflow());

    let server = Server::start(&data, &pool, &workflow);
    let run_id = server.client().await.create_run(asking()).await.unwrap().into_inner().run.unwrap().run_id;
    let last_is_called = sim.wait_for(|calls| !calls_of(calls, "sim-words").is_empty());
    soon("the last step is called", last_is_called).await;
    let request = v1::WatchRunRequest { run_id: run_id.clone(), after_sequence: u64::MAX };
    let mut watch = server.client().await.watch_run(request).await.unwrap().into_inner();
    let (status, lines) = server.terminate();
    assert!(status.success(), "{status}: {lines:#?}");
    let farewell = soon("the watch ends", watch.message()).await.unwrap_err();
    assert_eq!(farewell.code(), tonic::Code::Unavailable, "{farewell:?}");

    let server = Server::start(&data, &pool, &workflow);
    soon("the run ends", events_of(&server, &run_id)).await;
    assert_eq!(run_of(&server, &run_id).await.answer.as_deref(), Some(ANSWER));
    assert_eq!(calls_of(&sim.calls(), "sim-dates").len(), 1);
}

#[tokio::test]
async fn a_data_folder_has_one_process() {
    let sim = VendorSim::start(Options::loopback(7)).await.unwrap();
    let folder = Folder::new();
    let (data, pool, workflow) = (folder.path("data"), folder.pool(&sim.base_url()), folder.workflow());
    let server = Server::start(&data, &pool, &workflow);
    let (data, pool) = (data.display().to_string(), pool.display().to_string());
    let second = run(&["ask", "--embedded", "--data", &data, "--pool", &pool, "why?"]);
    let said = stderr(&second);
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("in use by another podium (process {})", server.pid())), "{said}");
}
