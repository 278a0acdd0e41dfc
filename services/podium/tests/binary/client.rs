//! The published Rust client and its examples with the real server, also while that is killed and started again.

use std::path::PathBuf;

use futures::TryStreamExt as _;
use podium_client::v1::watch_run_response::Update;
use podium_client::v1::{CreateRunRequest, Policy, RunState};
use podium_client::{Client, Code};
use podium_harness::Wire;
use podium_vendor_sim::{Behaviour, Fault, Options, Running, ScriptedFault, VendorSim};

use crate::support::{ANSWER, Folder, QUESTION, Server, soon};

#[path = "../../../../clients/rust/examples/ask.rs"]
#[expect(dead_code, reason = "its `main` reads the command line")]
mod ask;
#[path = "../../../../clients/rust/examples/tools.rs"]
#[expect(dead_code, reason = "its `main` reads the command line")]
mod tools;
#[path = "../../../../clients/rust/examples/watch.rs"]
#[expect(dead_code, reason = "its `main` reads the command line")]
mod watch;

fn client(server: &Server) -> Client {
    Client::builder(format!("http://{}", server.grpc)).build().unwrap()
}

fn text(out: Vec<u8>) -> String {
    String::from_utf8(out).unwrap()
}

async fn sim() -> Running {
    VendorSim::start(Options::loopback(7)).await.unwrap()
}

fn start(folder: &Folder, sim: &Running) -> Server {
    Server::start(&folder.path("data"), &folder.pool(&sim.base_url()), &folder.workflow())
}

/// The demo's pool, in which the worker `sim-words` repeats the question or calls the tools that it names.
fn pool_with_tools(folder: &Folder, sim: &Running) -> PathBuf {
    let pool = std::fs::read_to_string(folder.pool(&sim.base_url())).unwrap();
    let mut pool: toml::Table = pool.parse().unwrap();
    let workers = pool["workers"].as_array_mut().unwrap();
    let worker = workers.iter_mut().find(|worker| worker["id"].as_str() == Some("sim-words")).unwrap();
    let worker = worker.as_table_mut().unwrap();
    worker.insert("model".to_owned(), "sim-echo".into());
    worker.insert("features".to_owned(), vec!["tools", "one_tool_call"].into());
    folder.write("tools.toml", &pool.to_string())
}

#[tokio::test]
async fn a_watch_survives_a_killed_server() {
    let (sim, folder) = (sim().await, Folder::new());
    let hang_once = ScriptedFault::next_calls(Fault::Hang, 1);
    sim.set_behaviour("sim-arithmetic", Behaviour { faults: vec![hang_once], ..Behaviour::default() })
        .unwrap();
    let server = start(&folder, &sim);
    // Clients keep the address, as behind a load balancer.
    let wire = Wire::start(server.grpc.parse().unwrap()).await.unwrap();
    let client = Client::builder(format!("http://{}", wire.address())).build().unwrap();
    let created = client.create(CreateRunRequest::question(QUESTION)).await.unwrap();
    let run_id = created.run.run_id;

    let mut watch = client.watch(&run_id, 0);
    let mut events = Vec::new();
    let mut written = String::new();
    let is_called = sim.wait_for(|calls| calls.iter().any(|call| call.model == "sim-arithmetic"));
    let mut is_called = Some(Box::pin(is_called));
    let mut server = Some(server);
    loop {
        let update = match &mut is_called {
            None => soon("the watch goes on", watch.next()).await,
            Some(called) => tokio::select! {
                update = watch.next() => update,
                _ = called => {
                    server.take().unwrap().kill();
                    let again = start(&folder, &sim);
                    wire.lead_to(again.grpc.parse().unwrap());
                    server = Some(again);
                    is_called = None;
                    continue;
                }
            },
        };
        match update {
            Some(Ok(Update::Event(event))) => events.push(event.sequence),
            Some(Ok(Update::StepText(text))) if text.is_answer => written.push_str(&text.text),
            Some(Ok(_)) => {}
            Some(Err(error)) => panic!("{error:?}"),
            None => break,
        }
    }
    assert!(is_called.is_none(), "the run ended before the server was killed");
    let run = client.get(&run_id).await.unwrap();
    assert_eq!((run.state(), run.answer()), (RunState::Succeeded, ANSWER));
    assert_eq!(events, (1..=run.sequence).collect::<Vec<_>>(), "no gap, no repetition");
    assert!(ANSWER.starts_with(&written), "{written}");
}

#[tokio::test]
async fn the_examples_print_an_answer_and_the_events_of_a_run() {
    let (sim, folder) = (sim().await, Folder::new());
    let server = start(&folder, &sim);
    let client = client(&server);
    let mut out = Vec::new();
    soon("the answer is complete", ask::ask(&client, QUESTION, &mut out)).await.unwrap();
    assert_eq!(text(out), format!("{ANSWER}\n"));

    let runs: Vec<_> = client.list().try_collect().await.unwrap();
    assert_eq!(runs.len(), 1);
    let (mut out, mut rest) = (Vec::new(), Vec::new());
    soon("the events are read", watch::watch(&client, &runs[0].run_id, 0, &mut out)).await.unwrap();
    let out = text(out);
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines[0], "1 accepted for podium-ultra");
    assert!(lines.iter().any(|line| line.ends_with("plan with 3 steps")), "{out}");
    assert!(lines.last().unwrap().ends_with(" succeeded"), "{out}");
    let second: u64 = lines[1].split(' ').next().unwrap().parse().unwrap();
    soon("the events are read", watch::watch(&client, &runs[0].run_id, second, &mut rest)).await.unwrap();
    assert_eq!(text(rest).lines().collect::<Vec<_>>(), lines[2..]);
}

#[tokio::test]
async fn the_example_executes_tools_in_both_tiers() {
    let (sim, folder) = (sim().await, Folder::new());
    let pool = pool_with_tools(&folder, &sim);
    let server = Server::start_with(&folder.path("data"), &pool, "direct:sim-words");
    let client = client(&server);
    for (model, runs) in [("podium-mini", 2), ("podium-ultra", 1)] {
        let before = client.list().try_collect::<Vec<_>>().await.unwrap().len();
        let mut out = Vec::new();
        soon("the tools are called", tools::ask(&client, model, "Ask weather.", &mut out)).await.unwrap();
        let said = text(out);
        assert!(said.starts_with("weather({"), "{model}: {said}");
        assert!(said.ends_with("The tools gave: 4 degrees, rain\n"), "{model}: {said}");
        let after = client.list().try_collect::<Vec<_>>().await.unwrap().len();
        assert_eq!(after - before, runs, "{model}");
    }
}

#[tokio::test]
async fn requests_are_idempotent_and_errors_name_their_fields() {
    let (sim, folder) = (sim().await, Folder::new());
    let server = start(&folder, &sim);
    let client = client(&server);
    let request = CreateRunRequest { request_id: "one".to_owned(), ..CreateRunRequest::question(QUESTION) };
    let (first, second) =
        (client.create(request.clone()).await.unwrap(), client.create(request).await.unwrap());
    assert_eq!((first.existing, second.existing), (false, true));
    assert_eq!(first.run.run_id, second.run.run_id);
    let other = CreateRunRequest { request_id: "one".to_owned(), ..CreateRunRequest::question("Why?") };
    let error = client.create(other).await.unwrap_err();
    assert_eq!(error.call().unwrap().reason.as_deref(), Some("IDEMPOTENCY_MISMATCH"));

    let policy = Policy { steps_max: Some(99), ..Policy::default() };
    let invalid = CreateRunRequest { policy: Some(policy), effort: 77, ..CreateRunRequest::question(" ") };
    let error = client.create(invalid).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::InvalidArgument));
    let fields = &error.call().unwrap().fields;
    let fields: Vec<_> = fields.iter().map(|violation| violation.field.as_str()).collect();
    assert_eq!(fields, ["messages", "effort", "policy.steps_max"]);
    let unknown = client.get("01890a5d-ac96-774b-bcce-b302099a8057").await.unwrap_err();
    assert_eq!(unknown.code(), Some(Code::NotFound));
}

#[tokio::test]
async fn a_cancelled_run_ends_its_watch() {
    let (sim, folder) = (sim().await, Folder::new());
    let hanging = ScriptedFault::next_calls(Fault::Hang, 1);
    sim.set_behaviour("sim-dates", Behaviour { faults: vec![hanging], ..Behaviour::default() }).unwrap();
    let server = start(&folder, &sim);
    let client = client(&server);
    let answer = client.ask(CreateRunRequest::question(QUESTION)).await.unwrap();
    let run_id = answer.run_id().to_owned();
    soon("the worker is called", sim.wait_for(|calls| !calls.is_empty())).await;
    for _ in 0..2 {
        assert_eq!(client.cancel(&run_id).await.unwrap().state(), RunState::Cancelled);
    }
    let run = soon("the answer ends", answer.run()).await.unwrap();
    assert_eq!((run.state(), run.answer), (RunState::Cancelled, None));
}
