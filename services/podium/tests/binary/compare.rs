//! `podium eval --system`: several systems on the same questions, over the gym's simulated workers that err.

use std::process::Output;

use podium_vendor_sim::{Options, Running, VendorSim};
use serde_json::Value;

use crate::support::{Folder, run, stderr, stdout};

struct Gym {
    folder: Folder,
    sim: Running,
    questions: String,
    pool: String,
}

impl Gym {
    async fn new() -> Self {
        let sim = VendorSim::start(Options::loopback(7)).await.unwrap();
        let folder = Folder::new();
        let mut pool: toml::Table = include_str!("../../../../pools/gym.toml").parse().unwrap();
        pool["vendors"][0]["base_url"] = sim.base_url().into();
        let pool = folder.write("gym.toml", &pool.to_string()).display().to_string();
        let line = |number: u32| {
            let tag = if number < 20 { "small" } else { "large" };
            let (first, second) = (number * 7, number + 3);
            serde_json::json!({
                "id": format!("q{number}"),
                "question": format!("What is {first} + {second}?"),
                "answer": (first + second).to_string(),
                "tags": [tag],
            })
        };
        let lines: Vec<String> = (1..=40).map(|number| line(number).to_string()).collect();
        let questions = folder.write("questions.jsonl", &lines.join("\n")).display().to_string();
        Self { folder, sim, questions, pool }
    }

    /// `podium eval` with these arguments.
    async fn eval(&self, arguments: &[&str]) -> Output {
        let fixed = ["eval", &self.questions, "--pool", &self.pool];
        let all: Vec<String> = fixed.iter().chain(arguments).map(|argument| (*argument).to_owned()).collect();
        let run = move || run(&all.iter().map(String::as_str).collect::<Vec<_>>());
        tokio::task::spawn_blocking(run).await.unwrap()
    }
}

fn report(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap_or_else(|_| panic!("{}", stderr(output)))
}

fn row<'r>(report: &'r Value, name: &str) -> &'r Value {
    let rows = report["systems"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name} in {report:#}"))
}

#[tokio::test]
async fn systems_are_compared_on_the_same_questions() {
    let gym = Gym::new().await;
    let conductors = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conductors/gym");
    let checked = format!("checked=fixed:{conductors}/checked.yaml");
    let adaptive = format!("adaptive=fixed:{conductors}/adaptive-self-consistency.yaml");
    let arguments = [
        "--each-worker",
        "--system",
        &checked,
        "--system",
        &adaptive,
        "--system",
        "draw=random",
        "--baseline",
        "draw",
    ];
    let output = gym.eval(&[&arguments[..], &["--json"]].concat()).await;
    let report = report(&output);
    assert_eq!((&report["questions"], &report["are_workers_simulated"]), (&40.into(), &true.into()));
    assert_eq!(report["systems"].as_array().unwrap().len(), 13, "{report:#}");
    // The gym's worker c does arithmetic, e is the generalist, and f only knows words.
    assert_eq!(report["best_worker"], "worker worker-c", "{report:#}");
    let right = |name: &str| row(&report, name)["right"].as_u64().unwrap();
    assert!(right("worker worker-c") > 30 && right("worker worker-f") == 0, "{report:#}");
    assert!(right("checked") > right("worker worker-e"), "{report:#}");
    assert_eq!(row(&report, "checked")["calls_mean"], 3.0);
    // Two calls where the answers agree, four where they differ.
    let calls = row(&report, "adaptive")["calls_mean"].as_f64().unwrap();
    assert!(calls > 2.0 && calls < 4.0 && right("adaptive") >= right("worker worker-e"), "{report:#}");
    let items = report["items"]["adaptive"].as_array().unwrap();
    let is_skipped = |item: &&Value| item["plan"][3]["state"] == "skipped";
    let skipped: Vec<_> = items.iter().filter(is_skipped).collect();
    assert!(!skipped.is_empty() && skipped.len() < items.len(), "{} skipped", skipped.len());
    assert!(skipped.iter().all(|item| item["plan"][3]["output"] == item["plan"][0]["output"]));
    assert_eq!(row(&report, "worker worker-c")["is_best_for_its_cost"], true);
    assert!(row(&report, "checked")["against_baseline"]["p_value"].as_f64().unwrap() < 0.05);
    assert!(
        report["oracle"].as_f64().unwrap() >= row(&report, "worker worker-c")["accuracy"].as_f64().unwrap()
    );
    assert_eq!(report["tags"]["small"][0][1], 19);
    let plan = &report["items"]["checked"][0]["plan"];
    assert_eq!(
        (&plan[2]["worker"], &plan[2]["sees"]),
        (&"worker-d".into(), &serde_json::json!([0, 1])),
        "{plan:#}"
    );

    // Another evaluation with the same seed gives the same answers.
    let again = gym.eval(&arguments).await;
    let markdown = stdout(&again);
    let line = format!("| checked | {} (", right("checked"));
    assert!(markdown.contains(&line) && markdown.contains("workers are simulated"), "{markdown}");
}

#[tokio::test]
async fn podium_max_is_trained_from_outcomes_and_chooses_by_question() {
    let gym = Gym::new().await;
    let workflow = |name: &str, worker: &str| {
        let steps = format!("steps: [{{ worker: {worker}, subtask: '{{{{ question }}}}' }}]");
        gym.folder.write(&format!("{name}.yaml"), &format!("{{ name: {name}, version: '1', {steps} }}"));
    };
    // The gym's worker c does arithmetic, and f only knows words.
    workflow("sums", "worker-c");
    workflow("words", "worker-f");
    let set = "name: mine\nversion: '1'\nhead: head.safetensors\nworkflows: [sums.yaml, words.yaml]\n";
    let set = gym.folder.write("max.yaml", set).display().to_string();
    let outcome = |number: u32, worker: &str| {
        let is_sum = number.is_multiple_of(2);
        let question =
            if is_sum { format!("What is {number} + 9?") } else { format!("Write {number} in words.") };
        let reward = u8::from(is_sum == (worker == "worker-c"));
        serde_json::json!({
            "schema": 1, "question_id": format!("o{number}"), "question": question, "worker": worker,
            "task": if is_sum { "sums" } else { "words" }, "answer": "1", "reward": reward, "cost_nano_usd": 1000,
        })
    };
    let lines = (1..=60)
        .flat_map(|number| ["worker-c", "worker-f"].map(|worker| outcome(number, worker).to_string()));
    let outcomes = lines.collect::<Vec<_>>().join("\n");
    let outcomes = gym.folder.write("outcomes.jsonl", &outcomes).display().to_string();
    let head = gym.folder.path("head.safetensors").display().to_string();
    let data =
        ["--words", "--workflows", &set, "--pool", &gym.pool, "--outcomes", &outcomes, "--iterations", "0"];
    let run_head = |arguments: &[&str]| run(&[&["head"], arguments, &data].concat());
    let trained = run_head(&["train", "--output", &head, "--price-factor", "10"]);
    assert!(trained.status.success(), "{}", stderr(&trained));
    assert!(stdout(&trained).contains("head: head.safetensors"), "{}", stdout(&trained));
    assert!(stderr(&trained).contains("60 outcomes of `sums-1` are derived"), "{}", stderr(&trained));
    let folds = stdout(&run_head(&["eval", "--folds", "3", "--kinds", "linear"]));
    assert!(folds.contains("task words") && folds.contains("always sums-1"), "{folds}");

    let system = format!("max=max:{set}");
    let report = report(&gym.eval(&["--system", &system, "--json"]).await);
    assert!(row(&report, "max")["right"].as_u64().unwrap() > 30, "{report:#}");
    assert_eq!(report["items"]["max"][0]["plan"][0]["worker"], "worker-c", "{report:#}");
}

#[tokio::test]
async fn a_system_that_answers_nothing_is_never_the_best_for_its_cost() {
    let gym = Gym::new().await;
    // The voter alone has no results to judge.
    let report = report(&gym.eval(&["--system", "silent=direct:worker-b", "--json"]).await);
    let silent = row(&report, "silent");
    assert_eq!((&silent["right"], &silent["is_best_for_its_cost"]), (&0.into(), &false.into()));
}

#[tokio::test]
async fn an_interrupted_comparison_continues() {
    let gym = Gym::new().await;
    let results = gym.folder.path("results.jsonl");
    let arguments = ["--system", "one=direct:worker-c", "--results", results.to_str().unwrap(), "--json"];
    let first = report(&gym.eval(&arguments).await);
    assert_eq!(gym.sim.calls().len(), 40);
    // The first line describes the evaluation. Ten answers are left, and half of an eleventh.
    let text = std::fs::read_to_string(&results).unwrap();
    let kept: Vec<&str> = text.lines().take(11).collect();
    std::fs::write(&results, kept.join("\n") + "\n{\"system\":\"o").unwrap();
    let second = report(&gym.eval(&arguments).await);
    assert_eq!(gym.sim.calls().len(), 40 + 30);
    assert_eq!(row(&first, "one")["right"], row(&second, "one")["right"]);

    let other = gym.eval(&[&arguments[..], &["--seed", "2"]].concat()).await;
    assert_eq!(other.status.code(), Some(2), "{}", stdout(&other));
    assert!(stderr(&other).contains("name another file"), "{}", stderr(&other));
}

#[tokio::test]
async fn systems_that_cannot_be_compared_are_named() {
    let gym = Gym::new().await;
    for (arguments, said) in [
        (
            &["--system", "a=direct", "--baseline", "b"][..],
            "--baseline: no system has the name `b`; there are a",
        ),
        (&["--system", "a=direct", "--system", "a=random"], "two systems have the name `a`"),
        (&["--system", "direct"], "NAME=CONDUCTOR"),
        (&["--system", "a=direct:nobody"], "nobody"),
        (&["--system", "a=direct", "--tier", "mini"], "--tier"),
    ] {
        let output = gym.eval(arguments).await;
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(said), "{said} in {}", stderr(&output));
    }
    assert!(gym.sim.calls().is_empty());
}

#[tokio::test]
async fn recorded_outcomes_route_questions() {
    let gym = Gym::new().await;
    let (outcomes, plot) = (gym.folder.path("outcomes.jsonl"), gym.folder.path("plot.svg"));
    let recorded = gym.eval(&["--outcomes", outcomes.to_str().unwrap()]).await;
    assert!(recorded.status.success(), "{}", stderr(&recorded));
    let near = format!("near=neighbours:{}", outcomes.display());
    let plotted = plot.to_str().unwrap();
    let arguments = ["--system", &near, "--system", "draw=random", "--plot", plotted, "--json"];
    let report = report(&gym.eval(&arguments).await);
    // All questions are sums, and worker c adds best.
    assert!(row(&report, "near")["right"].as_u64().unwrap() > 30, "{report:#}");
    assert_eq!(report["items"]["near"][0]["plan"][0]["worker"], "worker-c", "{report:#}");
    let image = std::fs::read_to_string(plot).unwrap();
    assert!(image.starts_with("<svg ") && image.contains(">near</text>"), "{image}");

    let missing = gym.eval(&["--system", "near=neighbours:/does/not/exist"]).await;
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("/does/not/exist cannot be read"), "{}", stderr(&missing));
}
