//! `podium rollout`: completions of a conductor, carried out over the gym's simulated workers that err.

use std::io::Write as _;
use std::process::{Output, Stdio};

use futures::StreamExt as _;
use podium_api::training::v1;
use podium_api::training::v1::rollout_service_client::RolloutServiceClient;
use podium_vendor_sim::{Behaviour, Fault, Options, Running, ScriptedFault, ScriptedReply, VendorSim};
use serde_json::{Value, json};

use crate::support::{Folder, PATIENCE, podium, stderr, stdout};

struct Gym {
    _folder: Folder,
    sim: Running,
    pool: String,
}

impl Gym {
    /// Workers that err as their names say.
    async fn erring() -> Self {
        Self::with_models(str::to_owned).await
    }

    /// Specialists that never err.
    async fn new() -> Self {
        Self::with_models(|model| model.split('@').next().unwrap().to_owned()).await
    }

    async fn with_models(named: impl Fn(&str) -> String) -> Self {
        let sim = VendorSim::start(Options::loopback(7)).await.unwrap();
        let folder = Folder::new();
        let mut pool: toml::Table = include_str!("../../../../pools/gym.toml").parse().unwrap();
        pool["vendors"][0]["base_url"] = sim.base_url().into();
        for worker in pool["workers"].as_array_mut().unwrap() {
            worker["model"] = named(worker["model"].as_str().unwrap()).into();
        }
        let pool = folder.write("gym.toml", &pool.to_string()).display().to_string();
        Self { _folder: folder, sim, pool }
    }

    /// `podium rollout` with these lines as its input.
    async fn rollout(&self, lines: &[Value], arguments: &[&str]) -> Output {
        let mut command = podium(&["rollout", "--pool", &self.pool]);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut input = lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
        input.push('\n');
        let run = move || {
            let mut child = command.spawn().unwrap();
            let mut stdin = child.stdin.take().unwrap();
            let writer = std::thread::spawn(move || {
                // The process may refuse a line and end before it has read all of them.
                let _ = stdin.write_all(input.as_bytes());
            });
            let output = child.wait_with_output().unwrap();
            writer.join().unwrap();
            output
        };
        tokio::task::spawn_blocking(run).await.unwrap()
    }

    /// The outcomes of these lines, in their order.
    async fn outcomes(&self, lines: &[Value], arguments: &[&str]) -> Vec<Value> {
        let output = self.rollout(lines, arguments).await;
        assert!(output.status.success(), "{}", stderr(&output));
        let mut found: Vec<Value> =
            stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let place = |outcome: &Value| lines.iter().position(|line| line["id"] == outcome["id"]).unwrap();
        found.sort_by_key(place);
        assert_eq!(found.len(), lines.len());
        found
    }
}

fn plan(workers: &[usize], subtasks: &[&str], access: &[&[usize]]) -> String {
    format!("Parts.\nmodel_id = {workers:?}\nsubtasks = {}\naccess_list = {access:?}", json!(subtasks))
}

fn line(id: &str, completion: &str) -> Value {
    let question = "Multiply 6 by 7, and write the result in words.";
    json!({ "id": id, "question": question, "answer": "forty-two", "completion": completion, "seed": 1 })
}

/// Arithmetic (worker c), then words (worker f).
fn right_plan() -> String {
    plan(&[2, 5], &["multiply 6 by 7", "write the result in words"], &[&[], &[0]])
}

#[tokio::test]
async fn a_completion_earns_a_reward_by_its_own_plan() {
    let gym = Gym::new().await;
    let lines = [
        line("right", &right_plan()),
        line("wrong", &plan(&[2], &["multiply 6 by 7"], &[&[]])),
        // Worker f declines to calculate, and the second step needs its output.
        line("declined", &plan(&[5, 5], &["multiply 6 by 7", "write the result in words"], &[&[], &[0]])),
        line("garbled", "model_id = [2]\nsubtasks = [\"multiply 6 by 7\"]"),
        line("unknown", &plan(&[10], &["multiply 6 by 7"], &[&[]])),
    ];
    let outcomes = gym.outcomes(&lines, &[]).await;
    let of = |field: &str| outcomes.iter().map(|outcome| outcome[field].clone()).collect::<Vec<_>>();
    assert_eq!(of("reward"), [json!(1.0), json!(0.5), json!(0.5), json!(0.0), json!(0.0)], "{outcomes:#?}");
    assert_eq!(of("is_plan"), [true, true, true, false, false]);
    assert_eq!(of("is_right"), [json!(true), json!(false), json!(false), Value::Null, Value::Null]);
    assert_eq!(gym.sim.calls().len(), 4, "a completion that is no plan calls nobody");
    let [first, second] = [&outcomes[0]["steps"][0], &outcomes[0]["steps"][1]];
    assert_eq!(
        (&first["worker"], &first["output"], &first["sees"]),
        (&json!("worker-c"), &json!("42"), &json!([]))
    );
    assert_eq!(
        (&second["worker"], &second["state"], &second["sees"]),
        (&json!("worker-f"), &json!("done"), &json!([0]))
    );
    assert!(
        second["prompt_tokens"].as_u64().unwrap() > 0 && outcomes[0]["cost_nano_usd"].as_u64().unwrap() > 0
    );
    assert!(outcomes[3]["problem"].as_str().unwrap().contains("access_list has no list"), "{outcomes:#?}");

    let other = gym.outcomes(&lines[1..2], &["--reward-wrong", "0.25"]).await;
    assert_eq!(other[0]["reward"], 0.25);
}

#[tokio::test]
async fn a_failed_worker_gives_no_reward_and_no_second_call() {
    let gym = Gym::new().await;
    let fault = ScriptedFault::next_calls(Fault::ServerError, 100);
    let behaviour = Behaviour { faults: vec![fault], ..Behaviour::default() };
    gym.sim.set_behaviour("sim-arithmetic", behaviour).unwrap();
    let outcomes = gym.outcomes(&[line("a", &right_plan())], &[]).await;
    assert_eq!(
        (&outcomes[0]["reward"], &outcomes[0]["is_plan"]),
        (&Value::Null, &json!(true)),
        "{outcomes:#?}"
    );
    assert_eq!(outcomes[0]["steps"][0]["state"], "failed");
    assert!(outcomes[0]["problem"].as_str().unwrap().contains("worker `worker-c`"), "{outcomes:#?}");
    assert_eq!(gym.sim.calls().len(), 1, "neither a retry nor another worker");
}

#[tokio::test]
async fn a_seed_repeats_a_rollout_and_another_one_draws_again() {
    let gym = Gym::erring().await;
    let seeded = |seed: u32| {
        let whole = plan(&[4], &["Multiply 6 by 7, and write the result in words."], &[&[]]);
        let mut line = line(&format!("seed {seed}"), &whole);
        line["seed"] = seed.into();
        line
    };
    let lines: Vec<Value> = (0..60).map(seeded).collect();
    let answers =
        |outcomes: &[Value]| outcomes.iter().map(|outcome| outcome["answer"].clone()).collect::<Vec<_>>();
    let first = gym.outcomes(&lines, &[]).await;
    assert_eq!(answers(&first), answers(&gym.outcomes(&lines, &["--in-flight", "1"]).await));
    let right = first.iter().filter(|outcome| outcome["is_right"] == true).count();
    // Two operations, each right in about 80 % of the cases or fewer.
    assert!((15..58).contains(&right), "{right} of 60");
}

#[tokio::test]
async fn positions_mean_the_workers_of_the_line() {
    let gym = Gym::new().await;
    let mut line = line("a", &plan(&[1, 0], &["multiply 6 by 7", "write the result in words"], &[&[], &[0]]));
    line["workers"] = json!(["worker-f", "worker-c"]);
    assert_eq!(gym.outcomes(&[line], &[]).await[0]["reward"], 1.0);
}

#[tokio::test]
async fn a_judge_of_the_pool_grades_answers() {
    let gym = Gym::new().await;
    let says = |text: &str| ScriptedReply { text: text.to_owned(), ..ScriptedReply::default() };
    let judge = |text: &str| Behaviour { replies: vec![says(text)], ..Behaviour::default() };
    let mut line = line("a", &right_plan());
    line["answer"] = "42, spelled out".into();
    line["grader"] = json!({ "kind": "judge", "worker": "worker-d" });
    for (reply, reward) in [("CORRECT", json!(1.0)), ("Incorrect.", json!(0.5)), ("perhaps", Value::Null)] {
        gym.sim.set_behaviour("sim-checker", judge(reply)).unwrap();
        let outcomes = gym.outcomes(std::slice::from_ref(&line), &[]).await;
        assert_eq!(outcomes[0]["reward"], reward, "{outcomes:#?}");
        let is_paid = outcomes[0]["grading_cost_nano_usd"].as_u64().unwrap() > 0;
        assert_eq!(is_paid, reward != Value::Null, "{outcomes:#?}");
    }
}

#[tokio::test]
async fn an_invalid_line_is_named() {
    let gym = Gym::new().await;
    let with = |field: &str, value: Value| {
        let mut line = line("a", "x");
        line[field] = value;
        line
    };
    for (bad, said) in [
        (with("question", " ".into()), "standard input, line 2: question must not be blank"),
        (with("seed", (1u32 << 31).into()), "seed is 2147483648, it must be at most 2147483647"),
        (with("workers", json!(["nobody"])), "workers: pool gym-1 has no worker `nobody`"),
        (with("grader", "exakt".into()), "line 2: grader: unknown variant `exakt`"),
        (
            with("grader", json!({ "kind": "judge", "worker": "nobody" })),
            "grader.worker: pool gym-1 has no worker",
        ),
        (json!({ "id": "a", "question": "q", "answer": "a" }), "missing field `completion`"),
    ] {
        let output = gym.rollout(&[line("first", "x"), bad], &[]).await;
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(said), "{said} in {}", stderr(&output));
    }
    let output = gym.rollout(&[], &["--listen", "0.0.0.0:0"]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--allow-remote"), "{}", stderr(&output));
}

#[tokio::test]
async fn a_trainer_can_stream_over_grpc() {
    let gym = Gym::new().await;
    let mut command = podium(&["rollout", "--pool", &gym.pool, "--listen", "127.0.0.1:0"]);
    command.env("PODIUM__DRAIN_MS", "200");
    let mut server = command.stderr(Stdio::piped()).spawn().unwrap();
    let log = crate::support::lines_of(server.stderr.take().unwrap());
    let address = loop {
        let line = log.recv_timeout(PATIENCE).unwrap();
        if let Some((_, address)) = line.split_once("serves rollouts at ") {
            break address.trim().to_owned();
        }
    };
    let mut client = RolloutServiceClient::connect(address).await.unwrap();
    let request = |id: &str, completion: &str, grader: &str| v1::RunRolloutsRequest {
        id: id.to_owned(),
        question: "Multiply 6 by 7, and write the result in words.".to_owned(),
        answer: "forty-two".to_owned(),
        grader: grader.to_owned(),
        completion: completion.to_owned(),
        seed: 1,
        workers: Vec::new(),
    };
    let requests = [
        request("right", &right_plan(), ""),
        request("no plan", "x", "exact"),
        request("pattern", &right_plan(), r#"{"kind":"regex"}"#),
    ];
    let answers = client.run_rollouts(futures::stream::iter(requests)).await.unwrap().into_inner();
    let mut answers: Vec<_> = answers.map(Result::unwrap).collect().await;
    answers.sort_by(|a, b| a.id.cmp(&b.id));
    let rewards: Vec<_> = answers.iter().map(|answer| (answer.id.as_str(), answer.reward)).collect();
    assert_eq!(rewards, [("no plan", Some(0.0)), ("pattern", Some(1.0)), ("right", Some(1.0))]);
    assert_eq!(answers[2].steps[1].worker, "worker-f");

    let bad = request("bad", "x", "exakt");
    let mut refused = client.run_rollouts(futures::stream::iter([bad])).await.unwrap().into_inner();
    let status = refused.next().await.unwrap().unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    assert!(status.message().starts_with("rollout `bad`: grader: unknown variant"), "{status}");
    assert!(
        std::process::Command::new("kill")
            .args(["-s", "TERM", &server.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    // The client is still connected, and this thread does not run it meanwhile.
    assert!(server.wait().unwrap().success());
}
