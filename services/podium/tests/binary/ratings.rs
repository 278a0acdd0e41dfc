//! From rated answers to a mini head: asked, rated and exported through the APIs of a running server. The workers are simulated,
//! and the hidden states are made up by the test.

use std::collections::BTreeMap;

use podium_api::v1;
use podium_api::v1::podium_service_client::PodiumServiceClient;
use podium_head::Source;
use podium_head::features::Features;
use podium_head::outcomes::Outcome;
use podium_vendor_sim::{Options, VendorSim};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::support::{Folder, Server, run, soon, stderr, stdout};

/// Questions of each kind.
const QUESTIONS: usize = 15;
const WORKERS: [&str; 2] = ["sim-arithmetic", "sim-lists"];

type Client = PodiumServiceClient<Channel>;

/// The number of the worker that can do a question, and the question.
fn questions() -> impl Iterator<Item = (usize, String)> {
    (0..QUESTIONS).flat_map(|n| {
        [(0, format!("What is {n} plus 40?")), (1, format!("Put {}, {} in ascending order.", n + 7, n + 3))]
    })
}

/// Asks one worker in the mini tier, and waits for the end.
async fn asked(client: &mut Client, question: &str, worker: &str) -> v1::Run {
    let request = v1::CreateRunRequest {
        model: "podium-mini".to_owned(),
        messages: vec![v1::Message {
            role: v1::Role::User.into(),
            text: question.to_owned(),
            ..Default::default()
        }],
        policy: Some(v1::Policy { workers_allowed: vec![worker.to_owned()], ..v1::Policy::default() }),
        ..v1::CreateRunRequest::default()
    };
    let run_id = client.create_run(request).await.unwrap().into_inner().run.unwrap().run_id;
    let watch = v1::WatchRunRequest { run_id: run_id.clone(), after_sequence: 0 };
    let mut updates = client.watch_run(watch).await.unwrap().into_inner();
    soon("the run ends", async { while updates.message().await.unwrap().is_some() {} }).await;
    client.get_run(v1::GetRunRequest { run_id }).await.unwrap().into_inner().run.unwrap()
}

fn rating(run: &v1::Run, score: f64) -> v1::RateRunRequest {
    v1::RateRunRequest { run_id: run.run_id.clone(), score: Some(score), comment: String::new() }
}

fn code<T: std::fmt::Debug>(refused: Result<T, Status>) -> Code {
    refused.unwrap_err().code()
}

#[tokio::test(flavor = "multi_thread")]
async fn ratings_are_exported_and_train_a_mini_head() {
    let (folder, sim) = (Folder::new(), VendorSim::start(Options::loopback(7)).await.unwrap());
    let (data, pool) = (folder.path("data"), folder.pool(&sim.base_url()));
    let server = Server::start_with(&data, &pool, "direct");
    let mut client = server.client().await;
    let mut hidden = BTreeMap::new();
    for (kind, question) in questions() {
        for (at, worker) in WORKERS.into_iter().enumerate() {
            let run = asked(&mut client, &question, worker).await;
            assert_eq!(run.state(), v1::RunState::Succeeded, "{run:?}");
            // The first word is wrong, and the second one occurs twice.
            let right = f64::from(u8::from(at == kind));
            for score in [0.5, right, right] {
                client.rate_run(rating(&run, score)).await.unwrap();
            }
        }
        hidden.insert(question, kind);
    }
    let unrated = asked(&mut client, "What is 1 plus 1?", WORKERS[0]).await;
    let absent = v1::RateRunRequest { score: None, ..rating(&unrated, 1.0) };
    assert_eq!(code(client.rate_run(absent).await), Code::InvalidArgument);
    assert_eq!(code(client.rate_run(rating(&unrated, 1.5)).await), Code::InvalidArgument);
    let nobodys = v1::Run { run_id: "01890a5d-ac96-774b-bcce-b302099a8057".to_owned(), ..unrated };
    assert_eq!(code(client.rate_run(rating(&nobodys, 1.0)).await), Code::NotFound);

    let path = |name: &str| folder.path(name).display().to_string();
    let (outcomes, states, head) = (path("outcomes.jsonl"), path("states"), path("head"));
    let address = format!("http://{}", server.grpc);
    let exported = run(&["runs", "outcomes", "--server", &address, "--out", &outcomes]);
    assert!(exported.status.success(), "{}", stderr(&exported));
    let counted = format!("{} outcomes of {} questions", 4 * QUESTIONS, 2 * QUESTIONS);
    assert!(stdout(&exported).contains(&counted), "{}", stdout(&exported));
    let none =
        run(&["runs", "outcomes", "--server", &address, "--out", &path("none"), "--until", "2020-02-29"]);
    assert!(stdout(&none).contains("0 outcomes of 0 questions"), "{}{}", stdout(&none), stderr(&none));

    let source =
        Source { weights_sha256: "7".repeat(64), adapter: None, reading: "chatml-question-1".to_owned() };
    let mut features = Features::new(source);
    let mut known = BTreeMap::new();
    for line in std::fs::read_to_string(&outcomes).unwrap().lines() {
        let outcome: Outcome = serde_json::from_str(line).unwrap();
        let kind = hidden[outcome.question.as_ref().unwrap()];
        assert_eq!(outcome.reward > 0.5, outcome.worker.as_str() == WORKERS[kind], "{line}");
        assert!(outcome.cost_nano_usd > Some(0) && outcome.latency_ms.is_some(), "{line}");
        known.insert(outcome.question_id, kind);
    }
    for (id, kind) in known {
        features.add(id, if kind == 0 { vec![1.0, 0.0] } else { vec![0.0, 1.0] }).unwrap();
    }
    std::fs::write(&states, features.to_bytes().unwrap()).unwrap();
    let trained = run(&[
        "head",
        "train",
        "--pool",
        &pool.display().to_string(),
        "-o",
        &head,
        "--outcomes",
        &outcomes,
        "--features",
        &states,
    ]);
    let said = stdout(&trained);
    assert!(trained.status.success(), "{}", stderr(&trained));
    let written = said.lines().find(|line| line.contains("head, as written")).unwrap();
    assert!(written.contains("100.0 %"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_rated_over_http_and_from_the_command_line_once_it_has_ended() {
    let (folder, sim) = (Folder::new(), VendorSim::start(Options::loopback(7)).await.unwrap());
    let (data, pool) = (folder.path("data"), folder.pool(&sim.base_url()));
    let server = Server::start_with(&data, &pool, "direct");
    let mut client = server.client().await;
    let ended = asked(&mut client, "What is 1 plus 2?", WORKERS[0]).await;
    let address = format!("http://{}", server.grpc);
    let rated = run(&["runs", "rate", &ended.run_id, "0.25", "--comment", "hm", "--server", &address]);
    assert!(rated.status.success(), "{}", stderr(&rated));
    let list = || v1::ListOutcomesRequest { page_size: 1, ..v1::ListOutcomesRequest::default() };
    let page = client.list_outcomes(list()).await.unwrap().into_inner();
    let rating = page.outcomes[0].rating.clone().unwrap();
    assert_eq!((rating.score, rating.comment.as_str()), (0.25, "hm"));
    // A full page may have been the last one, which only the next one shows.
    let next = v1::ListOutcomesRequest { page_token: page.next_page_token, ..list() };
    let next = client.list_outcomes(next).await.unwrap().into_inner();
    assert_eq!((next.outcomes.len(), next.next_page_token.as_str()), (0, ""));

    let hang = podium_vendor_sim::ScriptedFault::next_calls(podium_vendor_sim::Fault::Hang, 100);
    let behaviour = podium_vendor_sim::Behaviour { faults: vec![hang], ..Default::default() };
    sim.set_behaviour(WORKERS[1], behaviour).unwrap();
    let request = v1::CreateRunRequest {
        model: "podium-mini".to_owned(),
        messages: vec![v1::Message {
            role: v1::Role::User.into(),
            text: "Put 2, 1 in ascending order.".to_owned(),
            ..Default::default()
        }],
        policy: Some(v1::Policy { workers_allowed: vec![WORKERS[1].to_owned()], ..v1::Policy::default() }),
        ..v1::CreateRunRequest::default()
    };
    let active = client.create_run(request).await.unwrap().into_inner().run.unwrap();
    let request = v1::RateRunRequest { run_id: active.run_id, score: Some(1.0), comment: String::new() };
    assert_eq!(code(client.rate_run(request).await), Code::FailedPrecondition);
}
