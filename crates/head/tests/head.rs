//! The mini head through its public interface: files, choice, and training on data with and without a signal.
#![expect(clippy::unwrap_used, reason = "a test's failure is a panic")]

use std::error::Error as _;
use std::path::Path;

use podium_domain::ids::WorkerId;
use podium_domain::pool::Pool;
use podium_domain::pool::slots_hash;
use podium_head::features::Features;
use podium_head::outcomes::{Outcome, Outcomes, SCHEMA};
use podium_head::score::Standing;
use podium_head::train::{Options, Trained, of_head, train};
use podium_head::{Dataset, DatasetError, FileError, LinearHead, NoChoice, OtherPool, Source, TIE_MARGIN};
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
                World::Noise => number() > 0.0,
            };
            let reward = if is_right { 1.0 } else { 0.0 };
            let question_id = question_id.clone();
            let (question, cost_nano_usd, latency_ms) = (None, None, None);
            let outcome =
                Outcome { schema: SCHEMA, question_id, question, worker, reward, cost_nano_usd, latency_ms };
            outcomes.add(&outcome).unwrap();
        }
        let hidden = (0..).zip(plain).map(|(at, x): (usize, f32)| if at % 5 == 0 { 100.0 * x } else { x });
        features.add(question_id, hidden.collect()).unwrap();
    }
    Dataset::join(&outcomes, &features, &slots()).unwrap()
}

fn trained(dataset: &Dataset, seed: u64) -> Trained {
    train(dataset, source(), "0".repeat(64), &Options { seed, ..Options::default() }).unwrap()
}

fn standing(trained: &Trained, name: &str) -> Standing {
    trained.held_out.iter().find(|(of, _)| of.starts_with(name)).unwrap().1
}

#[test]
fn a_head_beats_the_best_single_worker_on_predictive_features() {
    for seed in 0..3 {
        let trained = trained(&dataset(World::Linear, 600, seed), seed);
        let (head, single) = (standing(&trained, "head, as written"), standing(&trained, "best single"));
        assert!(head.accuracy > 0.8 && head.reward > single.reward + 0.3, "{:?}", trained.held_out);
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
    let only_first =
        train(&dataset, source(), "0".repeat(64), &Options { iterations: 0, ..Options::default() });
    let only_first = only_first.unwrap();
    assert_eq!(only_first.stage, podium_head::train::Stage::Supervised);
    let (first, second) =
        (standing(&only_first, "head, supervised"), standing(&trained(&dataset, 0), "head, supervised"));
    assert_eq!(first, second);
    // So wide that the first stage's weights are lost.
    let wild = Options { sigma: 1e6, iterations: 1, ..Options::default() };
    let wild = train(&dataset, source(), "0".repeat(64), &wild).unwrap();
    assert_eq!(wild.head, only_first.head);
}

#[test]
fn the_same_data_and_seed_give_the_same_bytes() {
    let dataset = dataset(World::Linear, 100, 4);
    let bytes = |seed| trained(&dataset, seed).head.to_bytes().unwrap();
    assert_eq!(bytes(1), bytes(1));
    assert_ne!(bytes(1), bytes(2));
    let all: Vec<_> = dataset.examples().iter().collect();
    assert!(of_head(&trained(&dataset, 1).head, &all).accuracy > 0.5);
}

#[test]
fn unusable_training_data_is_rejected() {
    let (mut outcomes, mut features) = (Outcomes::default(), Features::new(source()));
    for question in 0..9 {
        let question_id = format!("q{question}");
        features.add(question_id.clone(), vec![1.0]).unwrap();
        let (question, cost_nano_usd, latency_ms) = (None, None, None);
        let worker = id("a");
        outcomes
            .add(&Outcome {
                schema: SCHEMA,
                question_id,
                question,
                worker,
                reward: 1.0,
                cost_nano_usd,
                latency_ms,
            })
            .unwrap();
    }
    let join = |slots: &[&str]| {
        let slots: Vec<_> = slots.iter().map(|name| id(name)).collect();
        Dataset::join(&outcomes, &features, &slots).unwrap_err()
    };
    assert_eq!(join(&["a"]), DatasetError::TooFewWorkers { workers: 1 });
    assert_eq!(join(&["a", "b"]), DatasetError::TooFew { questions: 9 });
}
