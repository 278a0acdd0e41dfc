//! The command line as scripts and people use it: output streams and exit codes.

use podium_vendor_sim::{Behaviour, Fault, Options, Running, ScriptedFault, VendorSim};
use serde_json::Value;

use crate::support::{ANSWER, Folder, QUESTION, Server, run, stderr, stdout};

/// A folder, simulated workers, and the arguments that name them.
struct Bench {
    folder: Folder,
    sim: Running,
    setup: Vec<String>,
}

impl Bench {
    async fn new() -> Self {
        let sim = VendorSim::start(Options::loopback(7)).await.unwrap();
        let folder = Folder::new();
        let setup = vec![
            "--data".to_owned(),
            folder.path("data").display().to_string(),
            "--pool".to_owned(),
            folder.pool(&sim.base_url()).display().to_string(),
            "--conductor".to_owned(),
            format!("fixed:{}", folder.workflow().display()),
        ];
        Self { folder, sim, setup }
    }

    /// Runs a command over this bench, while the simulator runs on another thread.
    async fn run(&self, arguments: &[&str]) -> std::process::Output {
        let setup = self.setup.iter().map(String::as_str);
        off_thread(arguments.iter().copied().chain(setup).collect()).await
    }
}

/// Runs a command, while the simulator runs on another thread.
async fn off_thread(arguments: Vec<&str>) -> std::process::Output {
    let all: Vec<String> = arguments.into_iter().map(ToOwned::to_owned).collect();
    let run = move || run(&all.iter().map(String::as_str).collect::<Vec<_>>());
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[tokio::test]
async fn in_a_pipe_standard_output_has_only_the_answer() {
    let bench = Bench::new().await;
    let output = bench.run(&["ask", "--embedded", QUESTION]).await;
    let progress = stderr(&output);
    assert!(output.status.success(), "{progress}");
    assert_eq!(stdout(&output), format!("{ANSWER}\n"));
    for said in ["planned 3 steps", "(sees 1)", "step 1 done", "440", "answered"] {
        assert!(progress.contains(said), "{said} in {progress}");
    }
    assert!(!progress.contains('\u{1b}'), "no control sequences without a terminal: {progress:?}");
}

#[tokio::test]
async fn images_and_pdfs_are_sent_and_a_stop_sequence_ends_the_answer() {
    let sim = VendorSim::start(Options::loopback(7)).await.unwrap();
    let folder = Folder::new();
    let pool = format!(
        r#"
        schema = 1
        name = "seeing"
        version = "1"
        vendors = [{{ id = "sim", api = "openai-chat", base_url = "{}" }}]
        [[workers]]
        id = "echo"
        vendor = "sim"
        model = "sim-echo"
        description = "repeats its question"
        modalities = ["text", "image", "pdf"]
        context_tokens = 65536
        usd_per_million_tokens = {{ input = 1.0, output = 1.0 }}
        "#,
        sim.base_url()
    );
    let pool = folder.write("seeing.toml", &pool).display().to_string();
    let data = folder.path("data").display().to_string();
    let setup = ["--data", &data, "--pool", &pool, "--conductor", "direct"];
    let image = folder.path("a.png");
    std::fs::write(&image, b"\x89PNG\r\n\x1a\n").unwrap();
    let image = image.display().to_string();
    let ask = [&["ask", "--embedded", "What is this? A cat or a dog?"][..], &setup].concat();
    let seen = off_thread([&ask[..], &["--image", &image, "--image", "https://example.org/b.gif"]].concat());
    let seen = stdout(&seen.await);
    assert!(seen.contains("[image data:image/png;base64,iVBORw0KGgo=") && seen.contains("b.gif"), "{seen}");
    let pdf = folder.path("a.pdf");
    std::fs::write(&pdf, b"%PDF-1.7").unwrap();
    let pdf = pdf.display().to_string();
    let read = stdout(&off_thread([&ask[..], &["--file", &pdf]].concat()).await);
    assert!(read.contains("[pdf a.pdf data:application/pdf;base64,JVBERi0xLjc=]"), "{read}");
    let url = ["--file", "https://example.org/b.pdf"];
    let refused = stderr(&off_thread([&ask[..], &url].concat()).await);
    assert!(refused.contains("worker `echo` does not take pdf by URL"), "{refused}");
    let stopped = off_thread([&ask[..], &["--stop", " or a dog", "--stop", "?!"]].concat()).await;
    assert_eq!(stdout(&stopped), "What is this? A cat\n", "{}", stderr(&stopped));
    let refused = off_thread([&ask[..], &["--stop", ""]].concat()).await;
    assert!(stderr(&refused).contains("stop 1 has 0 bytes"), "{}", stderr(&refused));
    assert_eq!(refused.status.code(), Some(1));
}

#[tokio::test]
async fn json_is_one_document_and_the_run_can_be_shown_later() {
    let bench = Bench::new().await;
    let output = bench.run(&["ask", "--embedded", "--json", QUESTION]).await;
    let asked: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(asked["answer"], ANSWER);
    assert_eq!(asked["steps"].as_array().unwrap().len(), 3);
    assert_eq!(asked["steps"][1]["access"], serde_json::json!([0]));
    assert!(asked["cost_usd"].as_f64().unwrap() > 0.0);
    let id = asked["run_id"].as_str().unwrap();

    let list = run(&["runs", "list", "--server", "http://127.0.0.1:1"]);
    assert_eq!(list.status.code(), Some(1), "a server that was named must be there");
    let list = bench.run(&["runs", "list"]).await;
    assert!(stdout(&list).starts_with(id), "{}{}", stdout(&list), stderr(&list));
    let shown = bench.run(&["runs", "show", id, "--json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&stdout(&shown)).unwrap(), asked);
    let shown = stdout(&bench.run(&["runs", "show", id]).await);
    assert!(shown.contains("sim-arithmetic") && shown.contains(ANSWER), "{shown}");
}

#[tokio::test]
async fn a_run_that_fails_says_why_and_exits_with_1() {
    let bench = Bench::new().await;
    let refuse = ScriptedFault::with_probability(Fault::ServerError, 1.0);
    let behaviour = Behaviour { faults: vec![refuse], ..Behaviour::default() };
    for worker in ["sim-words", "sim-generalist"] {
        bench.sim.set_behaviour(worker, behaviour.clone()).unwrap();
    }
    let output = bench.run(&["ask", "--embedded", QUESTION]).await;
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(stdout(&output), "");
    assert!(said.contains("the final step 3 failed"), "{said}");
}

#[tokio::test]
async fn a_running_server_is_asked() {
    let bench = Bench::new().await;
    let (data, pool) = (bench.folder.path("data"), bench.folder.path("pool.toml"));
    let server = Server::start(&data, &pool, &bench.folder.path("workflow.yaml"));
    let url = format!("http://{}", server.grpc);
    let output = off_thread(vec!["ask", QUESTION, "--server", &url]).await;
    assert_eq!(stdout(&output), format!("{ANSWER}\n"), "{}", stderr(&output));
    let list = off_thread(vec!["runs", "list", "--json", "--server", &url]).await;
    let runs: Value = serde_json::from_str(&stdout(&list)).unwrap();
    assert_eq!((runs.as_array().unwrap().len(), &runs[0]["state"]), (1, &Value::from("succeeded")));
    assert!(runs[0]["cost_usd"].as_f64().unwrap() > 0.0);
    for nothing in ["wasted_usd", "saved_usd", "fallbacks"] {
        assert_eq!(runs[0][nothing].as_f64(), Some(0.0), "{nothing}");
    }
}

#[tokio::test]
async fn the_next_conductor_gets_its_share() {
    let bench = Bench::new().await;
    let next =
        "name: next\nversion: \"2\"\nsteps:\n  - worker: sim-words\n    subtask: \"write 12 in words\"\n";
    let next = format!("fixed:{}", bench.folder.write("next.yaml", next).display());
    for (share, conductor) in [("0", "three-steps-1"), ("1", "next-2")] {
        let follow = ["--conductor-next", &next, "--conductor-next-share", share];
        let arguments = [&["ask", "--embedded", "--json", QUESTION][..], &follow].concat();
        let asked = bench.run(&arguments).await;
        let run: Value = serde_json::from_str(&stdout(&asked)).unwrap();
        assert_eq!(run["conductor"], conductor, "{}", stderr(&asked));
    }
    let same = format!("fixed:{}", bench.folder.workflow().display());
    let refused = bench.run(&["ask", "--embedded", QUESTION, "--conductor-next", &same]).await;
    assert!(stderr(&refused).contains("are both `three-steps-1`"), "{}", stderr(&refused));
}

#[tokio::test]
async fn a_plan_is_printed_without_being_run() {
    let bench = Bench::new().await;
    let output = bench.run(&["plan", QUESTION]).await;
    let lines: Vec<_> = stdout(&output).lines().map(ToOwned::to_owned).collect();
    assert_eq!(lines.len(), 3, "{}", stderr(&output));
    assert_eq!(lines[1], "2  sim-arithmetic  multiply the result by 12  (sees 1)");
    let json: Value = serde_json::from_str(&stdout(&bench.run(&["plan", "--json", QUESTION]).await)).unwrap();
    assert_eq!(
        (&json["conductor"], &json["steps"][2]["index"]),
        (&Value::from("three-steps-1"), &Value::from(2))
    );
    assert_eq!(bench.sim.calls(), []);
}

#[tokio::test]
async fn a_model_of_another_pool_file_plans_in_its_own_wire_format() {
    let bench = Bench::new().await;
    let root = bench.sim.base_url().replace("/v1", "");
    let pool_file = format!(
        r#"
        schema = 1
        name = "planners"
        version = "1"
        vendors = [{{ id = "v", api = "gemini", base_url = "{root}/v1beta" }}]
        [[workers]]
        id = "planner"
        vendor = "v"
        model = "sim-conductor"
        description = "plans"
        context_tokens = 32768
        usd_per_million_tokens = {{ input = 1.0, output = 1.0 }}
        "#
    );
    let file = bench.folder.write("planners.toml", &pool_file).display().to_string();
    let planned = async |worker: &str| {
        let (conductor, data) = (format!("model:{file}#{worker}"), bench.folder.path("data"));
        let setup =
            ["--pool", &bench.setup[3], "--conductor", &conductor, "--data", &data.display().to_string()];
        off_thread(["plan", "--json", QUESTION].into_iter().chain(setup).collect()).await
    };
    let output = planned("planner").await;
    let json: Value =
        serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    assert_eq!(json["conductor"], "remote-planner");
    assert_eq!(json["steps"].as_array().unwrap().len(), 3, "{json}");
    assert_eq!(bench.sim.calls().len(), 1);
    let output = planned("nobody").await;
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("nobody"), "{}", stderr(&output));
}

#[tokio::test]
async fn an_evaluation_counts_right_answers() {
    let bench = Bench::new().await;
    let right = serde_json::json!({"id": "a", "question": QUESTION, "answer": "Five thousand two hundred and eighty."});
    let wrong = serde_json::json!({"id": "b", "question": QUESTION, "answer": "four", "skills": ["dates"]});
    let file = bench.folder.write("questions.jsonl", &format!("{right}\n{wrong}\n"));
    let file = file.display().to_string();
    let output = bench.run(&["eval", &file, "--json", "--concurrency", "2"]).await;
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&report["questions"], &report["right"]), (&Value::from(2), &Value::from(1)), "{report:#}");
    assert_eq!(report["items"][1]["answer"], ANSWER);
    assert!((report["steps_mean"].as_f64().unwrap() - 3.0).abs() < f64::EPSILON);

    bench.folder.write("questions.jsonl", &format!("{right}\n{{\n"));
    let output = bench.run(&["eval", &file]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("line 2"), "{}", stderr(&output));
}

#[test]
fn the_demo_checks_its_answer() {
    let folder = Folder::new();
    let fixed = format!("fixed:{}", folder.workflow().display());
    let right = run(&["demo", "--conductor", &fixed]);
    assert!(right.status.success(), "{}", stderr(&right));
    assert_eq!(stdout(&right), format!("{ANSWER}\n"));
    for said in ["simulated:", "Right:", "podium serve"] {
        assert!(stderr(&right).contains(said), "{said} in {}", stderr(&right));
    }
    let wrong = run(&["demo", "--conductor", "direct:sim-facts"]);
    assert_eq!(wrong.status.code(), Some(1), "{}", stderr(&wrong));
    assert!(stderr(&wrong).contains("Wrong:"), "{}", stderr(&wrong));
}

#[test]
fn invalid_arguments_and_values_exit_with_2() {
    let folder = Folder::new();
    let bad_pool =
        folder.write("bad.toml", "schema = 2\nname = \"x\"\nversion = \"1\"\n").display().to_string();
    let long = folder.path("long.png");
    std::fs::write(&long, [&b"\x89PNG\r\n\x1a\n"[..], &vec![0; 768 << 10]].concat()).unwrap();
    let long = long.display().to_string();
    for (arguments, said) in [
        (vec!["ask"], "<QUESTION>"),
        (vec!["ask", " ", "--embedded"], "the question is blank"),
        (vec!["ask", "why?", "--tier", "maxi"], "maxi"),
        (
            vec!["ask", "why?", "--image", &bad_pool],
            "bad.toml is not an image: it must be PNG, JPEG, WebP or GIF",
        ),
        (vec!["ask", "why?", "--image", "/nowhere/a.png"], "/nowhere/a.png cannot be read"),
        (vec!["ask", "why?", "--image", &long], "long.png has more than 786432 bytes"),
        (vec!["ask", "why?", "--file", &bad_pool], "bad.toml is not a PDF: it must begin with `%PDF-`"),
        (vec!["ask", "why?", "--file", "/nowhere/a.pdf"], "/nowhere/a.pdf cannot be read"),
        (vec!["pool", "check", &bad_pool], "schema is 2"),
        (vec!["pool", "check", "/nowhere/pool.toml"], "/nowhere/pool.toml cannot be read"),
        (vec!["serve", "--check-config", "--listen", "0.0.0.0:80", "--drain-ms", "x"], "has 2 problems"),
        (vec!["ask", "why?", "--embedded", "--conductor", "direct:nobody"], "no worker `nobody`"),
        (vec!["serve", "--check-config", "--conductor", "worker:nobody"], "no worker `nobody`"),
        (vec!["serve", "--check-config", "--conductor", "fixed:/nope"], "/nope"),
        (vec!["serve", "--check-config", "--set", "log=infoo"], "neither a level"),
        (vec!["serve", "--check-config", "--set", "steps_slots=5"], "did you mean `step_slots`?"),
        (vec!["runs", "list", "--server", "127.0.0.1:8081"], "invalid server URL `127.0.0.1:8081`"),
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(said), "{said} in {}", stderr(&output));
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn keys_and_budgets_reject_useless_amounts_and_flags() {
    let folder = Folder::new();
    let data = folder.path("data").display().to_string();
    for (arguments, said) in [
        (vec!["key", "create", "--tenant", "a", "--budget-usd", "0.0000000001"], "the smallest amount"),
        (vec!["key", "create", "--tenant", "a", "--budget-usd", "-1"], "invalid --budget-usd -1"),
        (vec!["key", "create", "--tenant", "a", "--period", "day"], "--budget-usd"),
        (vec!["key", "list", "--tenant", "typo"], "tenant typo has no keys"),
    ] {
        let output = run(&[&arguments[..], &["--data", &data]].concat());
        assert!(
            !output.status.success() && stderr(&output).contains(said),
            "{arguments:?}: {}",
            stderr(&output)
        );
    }
    let output = run(&["budget", "set", "--tenant", "typo", "--usd", "1", "--data", &data]);
    assert!(output.status.success() && stderr(&output).contains("has no keys yet"), "{}", stderr(&output));
}

#[tokio::test]
async fn the_exit_code_distinguishes_answers_from_refusals() {
    let bench = Bench::new().await;
    let direct = |question: &'static str, conductor: String| {
        let setup: Vec<_> = bench.setup[..4].to_vec();
        async move {
            let mut arguments = vec!["ask", "--embedded", question, "--conductor", &conductor];
            arguments.extend(setup.iter().map(String::as_str));
            off_thread(arguments).await
        }
    };
    // This worker only knows words, and declines.
    let refused = direct("What is 2 plus 3?", "direct:sim-words".to_owned()).await;
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("declined"), "{}", stderr(&refused));
    // An answer without the output of a step is an answer, with a notice.
    let workflow = r#"
name: lacking
version: "1"
failed_step: continue
steps:
  - worker: sim-words
    subtask: What is 2 plus 3?
  - worker: sim-arithmetic
    subtask: What is 2 plus 3?
  - worker: sim-arithmetic
    subtask: multiply the result by 12
    sees: [1, 2]
"#;
    let file = bench.folder.write("lacking.yaml", workflow).display().to_string();
    let degraded = direct("What is 2 plus 3, times 12?", format!("fixed:{file}")).await;
    let said = stderr(&degraded);
    assert!(degraded.status.success(), "{said}");
    assert!(said.contains("built without a step that it needs") && said.contains("step 1"), "{said}");
}

#[test]
fn a_pool_without_any_key_is_rejected_before_planning() {
    let folder = Folder::new();
    let data = folder.path("data").display().to_string();
    let pool = folder.pool("http://127.0.0.1:1/v1");
    let text = std::fs::read_to_string(&pool).unwrap();
    let text = text.replace("base_url", "api_key_env = \"PODIUM_TEST_NO_SUCH_KEY\"\nbase_url");
    let pool = folder.write("keyless.toml", &text).display().to_string();
    let output =
        run(&["ask", "why?", "--embedded", "--data", &data, "--pool", &pool, "--conductor", "direct"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("no worker of pool demo-1 can be called"));
}

#[test]
fn valid_settings_and_a_valid_pool_are_reported_as_valid() {
    let output = run(&["serve", "--check-config"]);
    assert!(output.status.success() && stdout(&output).contains("pool demo-1"), "{}", stderr(&output));
    assert!(!stdout(&output).contains("need no key"), "{}", stdout(&output));
    let remote = ["serve", "--check-config", "--listen", "0.0.0.0:80", "--allow-remote"];
    let output = run(&remote);
    let warned = stdout(&output).contains("warning: other machines can reach this server and need no key");
    assert!(output.status.success() && warned, "{}{}", stdout(&output), stderr(&output));
    let output = run(&[&remote[..], &["--keys-required"]].concat());
    assert!(output.status.success() && !stdout(&output).contains("need no key"), "{}", stdout(&output));
    let output = run(&["pool", "check"]);
    assert!(output.status.success() && stdout(&output).contains("sim-generalist"), "{}", stderr(&output));
}

#[tokio::test]
async fn pool_check_call_calls_each_worker_once() {
    let output = off_thread(vec!["pool", "check", "--call"]).await;
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output);
    assert_eq!(said.lines().filter(|line| line.contains("  works: first text after ")).count(), 7, "{said}");
    assert!(said.contains("these workers are simulated"), "{said}");

    let sim = VendorSim::start(Options::loopback(7)).await.unwrap();
    let folder = Folder::new();
    let pool = std::fs::read_to_string(folder.pool(&sim.base_url())).unwrap();
    let broken = pool.replace("model = \"sim-dates\"", "model = \"sim-nothing\"");
    let broken = folder.write("broken.toml", &broken).display().to_string();
    let output = off_thread(vec!["pool", "check", &broken, "--call"]).await;
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(said.contains("sim-dates  FAILED: ") && said.contains("does not exist"), "{said}");
    assert_eq!(said.matches("  works: ").count(), 6, "{said}");
    assert_eq!(sim.calls().len(), 6);
    sim.stop().await;
}
