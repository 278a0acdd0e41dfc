//! The mini head through its public interface: files, choice, and training on data with and without a signal.
#![expect(clippy::unwrap_used, reason = "a test's failure is a panic")]

use std::error::Error as _;
use std::path::Path;

use podium_domain::ids::WorkerId;
use podium_domain::pool::Pool;
use podium_domain::pool::slots_hash;
use podium_head::features::Features;
use podium_head::folds::compare;
use podium_head::neighbours::Memory;
use podium_head::outcomes::{Outcome, Outcomes, SCHEMA};
use podium_head::score::{Paired, Standing};
use podium_head::train::{Chosen, Options, Stage, TrainError, Trained, of_head, train};
use podium_head::{
    Choices, Dataset, DatasetError, FileError, Head, Identity, Kind, LinearHead, NeighboursHead, NoChoice,
    OtherPool, Source, TIE_MARGIN,
};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

const WORKERS: [&str; 4] = ["a", "b", "c", "d"];

fn id(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

fn slots() -> Vec<WorkerId> {
    WORKERS.iter().map(|name| id(name)).collect()
}

fn source() -> Source {
    Source { weights_sha256: "5".repeat(64), adapter: None, reading: "test-1".to_owned() }
}

fn pool(models: &[(&str, &str)]) -> Pool {
    let vendor = "[[vendors]]\nid = \"v\"\napi = \"openai-chat\"\nbase_url = \"http://127.0.0.1:1/v1\"\n";
    let worker = |(id, model): &(&str, &str)| {
        format!(
            "[[workers]]\nid = \"{id}\"\nvendor = \"v\"\nmodel = \"{model}\"\ndescription = \"d\"\n\
             context_tokens = 4096\nusd_per_million_tokens = {{ input = 1.0, output = 1.0 }}\n"
        )
    };
    let workers: String = models.iter().map(worker).collect();
    Pool::parse(&format!("schema = 1\nname = \"p\"\nversion = \"1\"\n{vendor}{workers}")).unwrap()
}

fn head(rows: &[&[f32]]) -> LinearHead {
    let slots = slots()[..rows.len()].to_vec();
    LinearHead::new(slots, "0".repeat(64), source(), rows.concat()).unwrap()
}

/// An error with all its causes.
fn chain(error: &FileError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[test]
fn the_best_score_among_the_allowed_workers_is_chosen() {
    let head = head(&[&[1.0, 0.0], &[0.0, 1.0], &[0.5, 0.5]]);
    assert_eq!(head.scores(&[3.0, 1.0]), Some(vec![3.0, 1.0, 2.0]));
    assert_eq!(head.choose(&[3.0, 1.0], |_| true), Ok(&id("a")));
    assert_eq!(head.choose(&[3.0, 1.0], |worker| *worker != id("a")), Ok(&id("c")));
    assert_eq!(head.choose(&[3.0, 1.0], |worker| *worker == id("b")), Ok(&id("b")));
}

#[test]
fn no_worker_is_chosen_on_tied_or_invalid_scores() {
    let head = head(&[&[1.0, 0.0], &[0.0, 1.0]]);
    assert_eq!(head.choose(&[1.0, 1.0 - TIE_MARGIN / 2.0], |_| true), Err(NoChoice::Tie));
    assert!(head.choose(&[1.0, 1.0 - TIE_MARGIN * 2.0], |_| true).is_ok());
    assert_eq!(head.choose(&[1.0, 2.0], |_| false), Err(NoChoice::NoneAllowed));
    assert_eq!(head.choose(&[1.0], |_| true), Err(NoChoice::OtherSize { expected: 2, actual: 1 }));
    assert_eq!(head.choose(&[f32::NAN, 1.0], |_| true), Err(NoChoice::NotFinite));
}

#[test]
fn a_head_fits_a_pool_with_its_workers_in_any_order() {
    let trained_on = pool(&[("a", "m1"), ("b", "m2"), ("c", "m3"), ("d", "m4")]);
    let hash = slots_hash(&trained_on, &slots()).unwrap();
    let head = LinearHead::new(slots(), hash, source(), vec![0.0; 8]).unwrap();
    assert_eq!(head.fits(&trained_on), Ok(()));
    assert_eq!(head.fits(&pool(&[("x", "m0"), ("d", "m4"), ("c", "m3"), ("b", "m2"), ("a", "m1")])), Ok(()));
    let changed = head.fits(&pool(&[("a", "m1"), ("b", "other"), ("c", "m3"), ("d", "m4")])).unwrap_err();
    assert!(matches!(changed, OtherPool::Changed { .. }), "{changed}");
    let lacking = head.fits(&pool(&[("a", "m1"), ("b", "m2"), ("c", "m3")])).unwrap_err();
    assert_eq!(lacking.source().unwrap().to_string(), "the pool has no worker `d`");
}

#[test]
fn files_round_trip_and_equal_contents_give_equal_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let written = head(&[&[1.5, -2.0, 0.25], &[0.0, 7.0, 1e-9]]);
    let path = folder.path().join("head.safetensors");
    let bytes = written.to_bytes().unwrap();
    assert_eq!(bytes, written.to_bytes().unwrap());
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(LinearHead::read(&path).unwrap(), written);

    let mut features = Features::new(source());
    features.add("q2".to_owned(), vec![1.0, 2.0]).unwrap();
    features.add("q1".to_owned(), vec![3.0, 4.0]).unwrap();
    assert!(features.add("q1".to_owned(), vec![3.0, 4.0]).unwrap_err().to_string().contains("twice"));
    assert!(features.add("q3".to_owned(), vec![3.0]).unwrap_err().to_string().contains("must be 2"));
    assert!(features.add("q3".to_owned(), vec![3.0, f32::NAN]).unwrap_err().to_string().contains("finite"));
    let path = folder.path().join("features.safetensors");
    std::fs::write(&path, features.to_bytes().unwrap()).unwrap();
    let read = Features::read(&path).unwrap();
    assert_eq!((read.of("q1"), read.of("q2"), read.len()), (Some(&[3.0, 4.0][..]), Some(&[1.0, 2.0][..]), 2));
    assert_eq!(read, features);
    let refused = chain(&LinearHead::read(&path).unwrap_err());
    assert!(refused.contains("no key `podium.head`"), "{refused}");
}

#[test]
fn damaged_files_and_wrong_kinds_are_rejected() {
    let good = head(&[&[1.5, -2.0], &[0.0, 7.0]]).to_bytes().unwrap();
    let path = Path::new("some.safetensors");
    let refused = |bytes: &[u8]| chain(&LinearHead::from_bytes(bytes, path).unwrap_err());
    for length in [0, 7, 8, 40, good.len() - 1] {
        assert!(refused(&good[..length]).contains("not safetensors"), "{length}");
    }
    // Changes the header without changing its length, so the file stays well-formed.
    let replaced = |from: &str, to: &str| {
        let at = good.windows(from.len()).position(|part| part == from.as_bytes()).unwrap();
        let mut bytes = good.clone();
        bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
        refused(&bytes)
    };
    assert!(replaced("\\\"schema\\\":1", "\\\"schema\\\":9").contains("schema 9"));
    assert!(replaced("head.weight", "head.height").contains("no tensor `head.weight`"));
    assert!(replaced("[2,2]", "[1,4]").contains("1 x 4, it must be 2 x"));
    assert!(replaced("\\\"b\\\"", "\\\"a\\\"").contains("worker `a` twice"));
    assert!(replaced("\"F32\"", "\"I32\"").contains("must be F32"));
    let mut infinite = good.clone();
    let end = infinite.len() - 4;
    infinite[end..].copy_from_slice(&f32::INFINITY.to_le_bytes());
    assert!(refused(&infinite).contains("not finite at row 1, column 1"));
}

#[test]
fn an_invalid_outcome_is_reported_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outcomes.jsonl");
    let good = r#"{"schema":1,"question_id":"q","worker":"a","reward":1.0,"cost_nano_usd":7,"further":true}"#;
    for (bad, said) in [
        ("{", "line 3"),
        (r#"{"schema":2,"question_id":"q","worker":"a","reward":1.0}"#, "schema is 2"),
        (r#"{"schema":1,"question_id":"q","worker":"a","reward":1.5}"#, "reward is 1.5"),
        (r#"{"schema":1,"question_id":" ","worker":"a","reward":0.5}"#, "question_id"),
        (r#"{"schema":1,"question_id":"q","worker":"a b","reward":0.5}"#, "line 3"),
    ] {
        std::fs::write(&path, format!("{good}\n\n{bad}\n")).unwrap();
        let refused = Outcomes::read(&path).unwrap_err().to_string();
        assert!(refused.contains("line 3") && refused.contains(said), "{refused}");
    }
    std::fs::write(&path, format!("{good}\n{}\n", good.replace("1.0", "0.5"))).unwrap();
    assert_eq!(Outcomes::read(&path).unwrap().reward("q", &id("a")), Some(0.75));
}

/// How rewards depend on the questions.
#[derive(Clone, Copy)]
enum World {
    /// The worker whose hidden row fits the question best is right; the others are wrong.
    Linear,
    /// Worker `a` is right if two coordinates have the same sign, else `b`: no row of weights tells these apart.
    Signs,
    /// All workers are right equally often, independent of the question.
    Noise,
}

const HIDDEN: usize = 24;

/// Questions and rewards. Some coordinates are a hundred times as large as others, as in real hidden states.
fn dataset(world: World, questions: usize, seed: u64) -> Dataset {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut number = move || rng.random_range(-1.0f32..1.0);
    let rows: Vec<Vec<f32>> = WORKERS.iter().map(|_| (0..HIDDEN).map(|_| number()).collect()).collect();
    let (mut features, mut outcomes) = (Features::new(source()), Outcomes::default());
    for question in 0..questions {
        let question_id = format!("q{question}");
        let plain: Vec<f32> = (0..HIDDEN).map(|_| number()).collect();
        let score = |row: &Vec<f32>| -> f32 { row.iter().zip(&plain).map(|(a, b)| a * b).sum() };
        let best = rows.iter().map(score).enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b)).unwrap().0;
        for (slot, worker) in slots().into_iter().enumerate() {
            let is_right = match world {
                World::Linear => slot == best,
                World::Signs => slot == usize::from((plain[0] > 0.0) != (plain[5] > 0.0)),
                World::Noise => number() > 0.0,
            };
            let reward = if is_right { 1.0 } else { 0.0 };
            outcomes.add(&outcome(&question_id, worker.as_str(), reward)).unwrap();
        }
        let hidden = (0..).zip(plain).map(|(at, x): (usize, f32)| if at % 5 == 0 { 100.0 * x } else { x });
        features.add(question_id, hidden.collect()).unwrap();
    }
    Dataset::join(&outcomes, &features, &slots(), 0.0).unwrap()
}

fn identity() -> Identity {
    Identity { choices: Choices::Workers, slots: slots(), pool_sha256: "0".repeat(64), source: source() }
}

fn trained(dataset: &Dataset, seed: u64) -> Trained {
    train(dataset, &identity(), &Options { seed, ..Options::default() }).unwrap()
}

fn outcome(question_id: &str, worker: &str, reward: f64) -> Outcome {
    Outcome {
        schema: SCHEMA,
        question_id: question_id.to_owned(),
        question: None,
        task: None,
        answer: None,
        worker: id(worker),
        reward,
        cost_nano_usd: None,
        latency_ms: None,
    }
}

fn standing(trained: &Trained, name: &str) -> Standing {
    trained.held_out.iter().find(|(of, _)| of.starts_with(name)).unwrap().1
}

#[test]
fn a_head_beats_the_best_single_worker_on_predictive_features() {
    for seed in 0..3 {
        let trained = trained(&dataset(World::Linear, 600, seed), seed);
        let (head, single) = (standing(&trained, "head, as written"), standing(&trained, "best single"));
        assert!(head.unbeaten > 0.8 && head.reward > single.reward + 0.3, "{:?}", trained.held_out);
        assert!(standing(&trained, "best possible").reward > 0.999);
        assert!((standing(&trained, "random").reward - 0.25).abs() < 1e-9);
        assert_eq!((trained.learned_from, trained.chosen_by, head.questions), (384, 96, 120));
    }
}

#[test]
fn a_head_equals_random_choice_on_noise() {
    for seed in 0..3 {
        let trained = trained(&dataset(World::Noise, 600, seed), seed);
        let (head, random) = (standing(&trained, "head, as written"), standing(&trained, "random"));
        assert!((head.reward - random.reward).abs() < 3.0 * head.reward_error, "{:?}", trained.held_out);
    }
}

#[test]
fn the_second_stage_is_kept_only_if_it_wins_model_selection() {
    let dataset = dataset(World::Linear, 200, 9);
    let only_first = train(&dataset, &identity(), &Options { iterations: 0, ..Options::default() }).unwrap();
    assert!(matches!(only_first.chosen, Chosen::Linear { stage: Stage::Supervised, .. }));
    let (first, second) =
        (standing(&only_first, "head, supervised"), standing(&trained(&dataset, 0), "head, supervised"));
    assert_eq!(first, second);
    // So wide that the first stage's weights are lost.
    let wild = Options { sigma: 1e6, iterations: 1, ..Options::default() };
    let wild = train(&dataset, &identity(), &wild).unwrap();
    assert_eq!(wild.head, only_first.head);
}

#[test]
fn the_same_data_and_seed_give_the_same_bytes() {
    let dataset = dataset(World::Linear, 100, 4);
    let bytes = |seed| trained(&dataset, seed).head.to_bytes().unwrap();
    assert_eq!(bytes(1), bytes(1));
    assert_ne!(bytes(1), bytes(2));
    let all: Vec<_> = dataset.examples().iter().collect();
    assert!(Standing::of(&of_head(&trained(&dataset, 1).head, &all)).unbeaten > 0.5);
}

#[test]
fn unusable_training_data_is_rejected() {
    let (mut outcomes, mut features) = (Outcomes::default(), Features::new(source()));
    for question in 0..9 {
        let question_id = format!("q{question}");
        features.add(question_id.clone(), vec![1.0]).unwrap();
        outcomes.add(&outcome(&question_id, "a", 1.0)).unwrap();
    }
    let join = |slots: &[&str]| {
        let slots: Vec<_> = slots.iter().map(|name| id(name)).collect();
        Dataset::join(&outcomes, &features, &slots, 0.0).unwrap_err()
    };
    assert_eq!(join(&["a"]), DatasetError::TooFewWorkers { workers: 1 });
    assert_eq!(join(&["a", "b"]), DatasetError::TooFew { questions: 9 });
    // A tenth id with the text of another is not a tenth question.
    let mut same = Outcomes::default();
    for question in 0..11 {
        let question_id = format!("q{question}");
        let text = format!("Question {}?", question % 9);
        same.add(&Outcome { question: Some(text), ..outcome(&question_id, "a", 1.0) }).unwrap();
        let _ = features.add(question_id, vec![1.0]);
    }
    let few = Dataset::join(&same, &features, &slots(), 0.0).unwrap_err();
    assert_eq!(few, DatasetError::TooFew { questions: 9 });
}

fn options(kind: Kind) -> Options {
    Options { kind, iterations: 0, ..Options::default() }
}

#[test]
fn neighbours_and_kernels_learn_what_a_linear_head_cannot() {
    let dataset = dataset(World::Signs, 900, 5);
    let value = |kind| {
        let trained = train(&dataset, &identity(), &options(kind)).unwrap();
        let used = if kind == Kind::Linear { (576, 144) } else { (720, 432) };
        assert_eq!((trained.head.kind(), trained.learned_from, trained.chosen_by), (kind, used.0, used.1));
        standing(&trained, "head, as written").reward
    };
    let (linear, neighbours, kernel) = (value(Kind::Linear), value(Kind::Neighbours), value(Kind::Kernel));
    assert!(linear < 0.6 && neighbours > 0.65 && kernel > 0.7, "{linear} {neighbours} {kernel}");
}

#[test]
fn heads_of_all_kinds_round_trip_and_equal_heads_give_equal_bytes() {
    let dataset = dataset(World::Signs, 60, 2);
    for kind in Kind::ALL {
        let head = train(&dataset, &identity(), &options(kind)).unwrap().head;
        let bytes = head.to_bytes().unwrap();
        assert_eq!(bytes, head.to_bytes().unwrap());
        let read = Head::from_bytes(&bytes, Path::new("head")).unwrap();
        let input = dataset.examples()[7].input();
        assert_eq!((read.kind(), read.hidden(), read.slots()), (kind, HIDDEN, &slots()[..]));
        // Reading makes the states' length 1 again, which may change their last bits.
        let (ours, theirs) = (head.scores(input).unwrap(), read.scores(input).unwrap());
        assert!(ours.iter().zip(&theirs).all(|(a, b)| (a - b).abs() < 1e-5), "{ours:?} {theirs:?}");
        let linear = LinearHead::from_bytes(&bytes, Path::new("head"));
        assert_eq!(linear.is_ok(), kind == Kind::Linear);
        for length in [8, bytes.len() / 2, bytes.len() - 1] {
            assert!(Head::from_bytes(&bytes[..length], Path::new("head")).is_err(), "{kind:?} {length}");
        }
    }
}

#[test]
fn a_damaged_head_of_any_kind_is_rejected() {
    let dataset = dataset(World::Signs, 60, 2);
    let refused = |kind, from: &str, to: &str| {
        let mut bytes = train(&dataset, &identity(), &options(kind)).unwrap().head.to_bytes().unwrap();
        let at = bytes.windows(from.len()).position(|part| part == from.as_bytes()).unwrap();
        bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
        chain(&Head::from_bytes(&bytes, Path::new("head")).unwrap_err())
    };
    let neighbours = |from, to| refused(Kind::Neighbours, from, to);
    assert!(neighbours("\\\"schema\\\":2", "\\\"schema\\\":1").contains("reads 2 of kind neighbours"));
    assert!(neighbours("\\\"q10\\\"", "\\\"q11\\\"").contains("occurs twice"));
    assert!(neighbours("\\\"neighbours\\\":", "\\\"neighbourz\\\":").contains("neighbours is 0"));
    assert!(neighbours("neighbours.known", "neighbours.knows").contains("no tensor `neighbours.known`"));
    let kernel = |from, to| refused(Kind::Kernel, from, to);
    assert!(kernel("kernel.points", "kernel.point5").contains("no tensor `kernel.points`"));
    assert!(kernel("hidden_factor", "hidden_vector").contains("must be finite"));
    let unknown = kernel("\\\"kernel\\\"", "\\\"colonl\\\"");
    assert!(unknown.contains("unknown variant `colonl`"), "{unknown}");
}

#[test]
fn new_outcomes_count_at_once_in_a_neighbours_head() {
    let memory =
        |state: [f32; 2], a: f32, b: Option<f32>| Memory { state: state.to_vec(), values: vec![Some(a), b] };
    let identity = Identity { slots: slots()[..2].to_vec(), ..identity() };
    let known = [
        ("q1".to_owned(), memory([1.0, 0.0], 1.0, Some(0.0))),
        ("q2".to_owned(), memory([0.0, 1.0], 1.0, None)),
    ];
    let head = NeighboursHead::new(identity.clone(), 1, 0.0, known.into()).unwrap();
    // The mean over all questions is one more value: (1 + 1) / 2 for `a`; `b` has one value, 0.
    assert_eq!(head.scores(&[0.0, 5.0]), Some(vec![1.0, 0.0]));
    let (mut outcomes, mut features) = (Outcomes::default(), Features::new(source()));
    for question in 2..12 {
        let question_id = format!("q{question}");
        outcomes.add(&outcome(&question_id, "a", 0.0)).unwrap();
        outcomes.add(&outcome(&question_id, "b", 1.0)).unwrap();
        features.add(question_id, vec![0.1, 1.0]).unwrap();
    }
    let dataset = Dataset::join(&outcomes, &features, &identity.slots, 0.0).unwrap();
    let head = head.with(&dataset).unwrap();
    assert_eq!(head.questions(), 11);
    let scores = head.scores(&[0.0, 5.0]).unwrap();
    assert!(scores[0] < 0.1 && scores[1] > 0.9, "{scores:?}");
    let far = head.scores(&[5.0, 0.0]).unwrap();
    assert!(far[0] > far[1] - 0.5, "{far:?}");
}

#[test]
fn a_head_that_remembers_needs_an_outcome_of_each_worker() {
    let memory = Memory { state: vec![1.0], values: vec![Some(1.0), None, None, None] };
    let head = NeighboursHead::new(identity(), 3, 0.0, [("q".to_owned(), memory)].into());
    let refused = head.unwrap_err().to_string();
    assert!(refused.contains("worker `b` has no outcome"), "{refused}");
}

#[test]
fn a_price_factor_moves_the_choice_to_the_cheaper_worker() {
    let (mut outcomes, mut features) = (Outcomes::default(), Features::new(source()));
    for question in 0..40 {
        let question_id = format!("q{question}");
        // `a` is right on every question for a cent, `b` on every other one for a tenth of that.
        for (worker, reward, cost) in
            [("a", 1.0, 10_000_000), ("b", f64::from(u8::from(question % 2 == 0)), 1_000_000)]
        {
            let cost_nano_usd = Some(cost);
            outcomes.add(&Outcome { cost_nano_usd, ..outcome(&question_id, worker, reward) }).unwrap();
        }
        features.add(question_id, vec![if question % 2 == 0 { 1.0 } else { -1.0 }, 0.5]).unwrap();
    }
    let two = &slots()[..2];
    let identity = Identity { slots: two.to_vec(), ..identity() };
    for kind in Kind::ALL {
        let chosen = |factor| {
            let dataset = Dataset::join(&outcomes, &features, two, factor).unwrap();
            let trained = train(&dataset, &identity, &options(kind)).unwrap();
            let all: Vec<_> = dataset.examples().iter().collect();
            Standing::of(&of_head(&trained.head, &all))
        };
        let (free, priced) = (chosen(0.0), chosen(10.0));
        assert!((free.reward, priced.reward) == (1.0, 1.0), "{kind:?} {free:?} {priced:?}");
        assert!((priced.cost_usd.unwrap() - 0.0055).abs() < 1e-9, "{kind:?} {priced:?}");
        let expensive = chosen(200.0);
        assert_eq!((expensive.reward, expensive.cost_usd.map(|cost| cost < 0.0011)), (0.5, Some(true)));
    }
    outcomes.add(&outcome("q0", "c", 1.0)).unwrap();
    let unpriced = Dataset::join(&outcomes, &features, &slots()[..3], 1.0).unwrap_err();
    assert!(unpriced.to_string().contains("no outcome of `c` for question `q0`"), "{unpriced}");
    let negative = Dataset::join(&outcomes, &features, two, -1.0).unwrap_err();
    assert_eq!(negative, DatasetError::PriceFactor { factor: -1.0 });
}

#[test]
fn cross_validation_judges_each_question_once_by_what_has_not_seen_it() {
    let dataset = dataset(World::Signs, 300, 3);
    let mut folds = Vec::new();
    let compared =
        compare(&dataset, &identity(), &Kind::ALL, 5, &options(Kind::Linear), |fold| folds.push(fold));
    let compared = compared.unwrap();
    assert_eq!(compared.questions.len(), 300);
    let compared = compared.ways;
    assert_eq!(folds, [1, 2, 3, 4, 5]);
    let names: Vec<_> = compared.iter().map(|way| way.name.as_str()).collect();
    assert_eq!(
        names,
        ["random worker", "best single", "linear", "neighbours", "kernel", "ridge", "best possible"]
    );
    assert!(compared.iter().all(|way| Standing::of(&way.scores).questions == 300));
    let scores = |name: &str| &compared.iter().find(|way| way.name == name).unwrap().scores;
    let gain = Paired::of(scores("kernel"), scores("best single"));
    assert!(gain.difference > gain.half_width && gain.half_width > 0.0, "{gain:?}");
}

#[test]
fn cross_validation_does_not_let_a_repeated_question_answer_itself() {
    // Each text occurs under four ids with the same hidden state, and which worker is right depends on nothing else. So one
    // neighbour finds the answer if a copy is in another fold, and no way of choosing does if all are in one.
    let (mut outcomes, mut features) = (Outcomes::default(), Features::new(source()));
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    for text in 0..100 {
        let state: Vec<f32> = (0..HIDDEN).map(|_| rng.random_range(-1.0f32..1.0)).collect();
        let right = rng.random_range(0..4);
        for copy in 0..4 {
            let question_id = format!("q{text}-{copy}");
            for (slot, worker) in WORKERS.iter().enumerate() {
                let reward = if slot == right { 1.0 } else { 0.0 };
                let question = Some(format!("Question {text}?"));
                outcomes.add(&Outcome { question, ..outcome(&question_id, worker, reward) }).unwrap();
            }
            features.add(question_id, state.clone()).unwrap();
        }
    }
    let dataset = Dataset::join(&outcomes, &features, &slots(), 0.0).unwrap();
    let compared = compare(&dataset, &identity(), &Kind::ALL, 5, &options(Kind::Linear), |_| {}).unwrap();
    for way in compared.ways.iter().filter(|way| way.name != "best possible") {
        let reward = Standing::of(&way.scores).reward;
        assert!(reward < 0.45, "{}: {reward}", way.name);
    }
    let too_many = compare(&dataset, &identity(), &[], 101, &options(Kind::Linear), |_| {}).unwrap_err();
    assert!(matches!(too_many, TrainError::Option { name: "folds", .. }), "{too_many}");
}
