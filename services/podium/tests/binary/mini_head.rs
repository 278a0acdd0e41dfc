//! From questions to a mini head, without a model: outcomes from simulated workers, hidden states made up by the test.

use podium_domain::ids::WorkerId;
use podium_head::features::Features;
use podium_head::{LinearHead, Source};
use serde_json::{Value, json};

use crate::support::{Folder, run, stderr, stdout};

/// 25 of each kind. One worker answers each kind reliably.
fn questions() -> Vec<(String, Value)> {
    let sums = (0..25).map(|n| (format!("sum-{n}"), format!("What is {n} plus 40?"), (n + 40).to_string()));
    let lists = (0..25).map(|n| {
        let (a, b) = (n + 7, n + 3);
        (format!("list-{n}"), format!("Put {a}, {b} in ascending order."), format!("{b}, {a}"))
    });
    let questions = sums.chain(lists);
    questions
        .map(|(id, question, answer)| (id.clone(), json!({"id": id, "question": question, "answer": answer})))
        .collect()
}

/// As if a model's hidden state distinguished the kinds of questions.
fn features() -> Features {
    let source =
        Source { weights_sha256: "7".repeat(64), adapter: None, reading: "chatml-question-1".to_owned() };
    let mut features = Features::new(source);
    for (at, (id, _)) in questions().into_iter().enumerate() {
        let noise = if at % 2 == 0 { 0.3 } else { -0.3 };
        let hidden = if id.starts_with("sum") { vec![1.0, 0.0, noise] } else { vec![0.0, 1.0, noise] };
        features.add(id, hidden).unwrap();
    }
    features
}

#[test]
fn a_mini_head_is_trained_from_outcomes_and_measured() {
    let folder = Folder::new();
    let lines: Vec<_> = questions().iter().map(|(_, question)| question.to_string()).collect();
    let file = folder.write("questions.jsonl", &lines.join("\n"));
    let path = |name: &str| folder.path(name).display().to_string();
    let (outcomes, states, head) =
        (path("outcomes.jsonl"), path("features.safetensors"), path("head.safetensors"));
    let recorded = run(&["eval", &file.display().to_string(), "--outcomes", &outcomes]);
    assert!(recorded.status.success(), "{}", stderr(&recorded));
    let said = stdout(&recorded);
    assert!(
        said.contains("sim-arithmetic  25 of 50 right") && said.contains("sim-lists  25 of 50 right"),
        "{said}"
    );
    let written = std::fs::read_to_string(&outcomes).unwrap();
    assert_eq!(written.lines().count(), 50 * 7, "{said}");
    let first: Value = serde_json::from_str(written.lines().next().unwrap()).unwrap();
    assert_eq!((&first["schema"], &first["question_id"]), (&json!(1), &json!("list-0")));
    assert!(first["cost_nano_usd"].as_u64().unwrap() > 0 && first["question"].is_string(), "{first}");

    std::fs::write(&states, features().to_bytes().unwrap()).unwrap();
    let data = ["--outcomes", &outcomes, "--features", &states];
    let trained = run(&[&["head", "train", "-o", &head][..], &data].concat());
    let said = stdout(&trained);
    assert!(trained.status.success(), "{}", stderr(&trained));
    assert!(said.contains("50: 32 to learn from, 8 to choose by, 10 held out"), "{said}");
    for row in ["random worker", "best single, ", "head, supervised", "head, sep-CMA-ES", "best possible"] {
        assert!(said.contains(row), "{row} in {said}");
    }
    let written = said.lines().find(|line| line.contains("head, as written")).unwrap();
    assert!(written.contains("mean reward 1.0000") && written.contains("better on 100.0 %"), "{said}");
    assert!(!said.contains("accuracy"), "{said}");

    let choice = LinearHead::read(folder.path("head.safetensors").as_path()).unwrap();
    let id = |name: &str| WorkerId::new(name).unwrap();
    let chosen =
        |hidden: &[f32]| choice.choose(hidden, |worker| *worker != id("sim-generalist")).unwrap().clone();
    assert_eq!((chosen(&[1.0, 0.0, 0.3]), chosen(&[0.0, 1.0, 0.3])), (id("sim-arithmetic"), id("sim-lists")));

    let measured = run(&[&["head", "eval", &head][..], &data].concat());
    let said = stdout(&measured);
    assert!(said.contains("questions  50") && said.contains("best single"), "{said}{}", stderr(&measured));
}

/// Outcomes and features files in a folder. Of two workers, each is right on one kind; the first costs ten times as much.
fn recorded(folder: &Folder, kinds: std::ops::Range<usize>) -> [String; 4] {
    let line = |id: &str, worker: &str, right: &str, cost: u64| {
        let reward = u8::from(id.starts_with(right));
        json!({"schema": 1, "question_id": id, "question": format!("Question {id}?"), "worker": worker,
            "reward": reward, "cost_nano_usd": cost})
        .to_string()
    };
    let all = questions();
    let ids = || all.iter().enumerate().filter(|(at, _)| kinds.contains(&(at % 5))).map(|(_, (id, _))| id);
    let lines: Vec<_> = ids()
        .flat_map(|id| {
            [line(id, "sim-arithmetic", "sum", 10_000_000), line(id, "sim-lists", "list", 1_000_000)]
        })
        .collect();
    folder.write(&format!("outcomes-{}", kinds.start), &lines.join("\n"));
    std::fs::write(folder.path("features"), features().to_bytes().unwrap()).unwrap();
    let path = |name: &str| folder.path(name).display().to_string();
    [
        "--outcomes".to_owned(),
        path(&format!("outcomes-{}", kinds.start)),
        "--features".to_owned(),
        path("features"),
    ]
}

#[test]
fn heads_are_compared_by_cross_validation() {
    let folder = Folder::new();
    let data = recorded(&folder, 0..5);
    let data: Vec<&str> = data.iter().map(String::as_str).collect();
    let compared = run(&[&["head", "eval", "--folds", "5"][..], &data].concat());
    let said = stdout(&compared);
    assert!(compared.status.success(), "{}", stderr(&compared));
    assert!(said.contains("questions  50 in 5 folds"), "{said}");
    for way in ["random worker", "best single", "most expensive", "linear", "neighbours", "kernel", "ridge"] {
        assert!(said.lines().any(|line| line.starts_with(&format!("  {way} "))), "{way} in {said}");
    }
    let best = said.lines().find(|line| line.starts_with("  best possible")).unwrap();
    assert!(best.contains("mean reward 1.0000") && best.contains("$0.005500 each"), "{said}");
    let pairs = said.split_once("over best single, in pairs:").unwrap().1;
    let neighbours = pairs.lines().find(|line| line.starts_with("  neighbours")).unwrap();
    assert!(neighbours.contains("+0."), "{said}");
    assert!(stderr(&compared).contains("5 of 5 folds"), "{}", stderr(&compared));
    for (flags, problem) in [
        (&["--folds", "1"][..], "folds is 1, it must be 2 to 100"),
        (&["--folds", "51"], "folds is 51"),
        (&["--folds", "5", "--price-factor", "-1"], "unexpected argument"),
        (&["--folds", "5", "--price-factor=-1"], "price-factor is -1, it must be 0 to"),
        (&["head.safetensors", "--folds", "5"], "cannot be used with"),
        (&[], "required"),
    ] {
        let refused = run(&[&["head", "eval"][..], flags, &data].concat());
        assert!(!refused.status.success() && stderr(&refused).contains(problem), "{}", stderr(&refused));
    }
}

#[test]
fn new_outcomes_are_added_to_a_neighbours_head_only() {
    let folder = Folder::new();
    let (first, more) = (recorded(&folder, 0..3), recorded(&folder, 3..5));
    let head = folder.path("head.safetensors").display().to_string();
    let with = |command: &[&str], data: &[String; 4]| {
        let data: Vec<&str> = data.iter().map(String::as_str).collect();
        run(&[&["head"], command, &data].concat())
    };
    let trained = with(&["train", "--kind", "neighbours", "-o", &head], &first);
    assert!(trained.status.success(), "{}", stderr(&trained));
    let said = stdout(&trained);
    assert!(said.contains("head       neighbours, 2 slots") && said.contains("5 neighbours"), "{said}");
    assert!(said.contains("over the best single worker: +"), "{said}");
    let added = with(&["add", &head, "-o", &head], &more);
    assert!(added.status.success(), "{}", stderr(&added));
    assert!(stdout(&added).contains("questions  44 remembered, 20 of them new"), "{}", stdout(&added));
    let measured = with(&["eval", &head], &more);
    let of_head = stdout(&measured).lines().find(|line| line.starts_with("  head ")).unwrap().to_owned();
    assert!(of_head.contains("mean reward 1.0000"), "{of_head}");

    let linear = folder.path("linear.safetensors").display().to_string();
    let priced = with(&["train", "--price-factor", "200", "-o", &linear], &first);
    assert!(stdout(&priced).contains("  value "), "{}", stdout(&priced));
    let refused = with(&["add", &linear, "-o", &linear], &more);
    assert!(
        stderr(&refused).contains("is of kind `linear`, which has to be trained again"),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn files_that_do_not_fit_together_are_rejected() {
    let folder = Folder::new();
    let path = |name: &str| folder.path(name).display().to_string();
    std::fs::write(folder.path("features"), features().to_bytes().unwrap()).unwrap();
    let outcome = |n: usize| {
        let worker = if n.is_multiple_of(2) { "sim-lists" } else { "sim-dates" };
        json!({"schema": 1, "question_id": format!("sum-{}", n / 2), "worker": worker, "reward": 1})
            .to_string()
    };
    let outcomes: Vec<_> = (0..40).map(outcome).collect();
    folder.write("outcomes", &outcomes.join("\n"));
    folder.write("few", &outcomes[..6].join("\n"));
    folder.write("bad", "{}");
    let of_others =
        Source { weights_sha256: "0".repeat(64), adapter: None, reading: "chatml-question-1".to_owned() };
    let slots = ["sim-lists", "sim-dates"].map(|id| WorkerId::new(id).unwrap()).to_vec();
    let other = LinearHead::new(slots, String::new(), of_others, vec![0.0; 6]).unwrap();
    std::fs::write(folder.path("other"), other.to_bytes().unwrap()).unwrap();
    let (features, out) = (path("features"), path("out"));
    for (arguments, said) in [
        (["train", "-o", &out, "--outcomes", &path("few"), "--features", &features], "3 questions have"),
        (["train", "-o", &out, "--outcomes", &path("bad"), "--features", &features], "line 1"),
        (
            ["train", "-o", &out, "--outcomes", &path("outcomes"), "--features", &path("few")],
            "not safetensors",
        ),
    ] {
        let output = run(&[&["head"], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(said), "{said} in {}", stderr(&output));
    }
    let measured =
        run(&["head", "eval", &path("other"), "--outcomes", &path("outcomes"), "--features", &features]);
    assert_eq!(measured.status.code(), Some(2));
    assert!(stderr(&measured).contains("other weights or another prompt"), "{}", stderr(&measured));
    assert!(!folder.path("out").exists());
}
