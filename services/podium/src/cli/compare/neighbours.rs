//! Routing by recorded outcomes: the worker that answered the most similar questions best. No training, and new outcomes count at once.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use podium_domain::ids::WorkerId;
use podium_head::outcomes::Outcome;

use super::statistics::real;
use crate::error::Error;

/// The number of neighbours that vote.
const NEIGHBOURS: usize = 20;
/// The number of hashed features.
const FEATURES: u64 = 1 << 18;

/// A question's features with their weights; the sum of squares is 1.
type Features = HashMap<u64, f64>;

/// Recorded questions with the reward and the cost of each worker.
#[derive(Debug)]
pub(super) struct Neighbours {
    questions: Vec<Recorded>,
    /// How rare a feature is: the logarithm of the questions over those that have it.
    rarity: HashMap<u64, f64>,
}

#[derive(Debug)]
struct Recorded {
    features: Features,
    /// The sum of rewards, of costs in billionths of a dollar, and the number of outcomes.
    workers: BTreeMap<WorkerId, [f64; 3]>,
}

impl Neighbours {
    /// Reads outcomes that `podium eval --outcomes` wrote. Those of workers that are not in `workers` are left out.
    pub(super) fn read(path: &Path, workers: &[WorkerId]) -> Result<Self, Error> {
        let unreadable = |source| Error::Unreadable { path: path.to_owned(), source };
        let bad = |line: usize, problem: String| Error::BadLine { path: path.to_owned(), line, problem };
        let mut texts: BTreeMap<String, (String, BTreeMap<WorkerId, [f64; 3]>)> = BTreeMap::new();
        for (line, number) in BufReader::new(File::open(path).map_err(unreadable)?).lines().zip(1..) {
            let line = line.map_err(unreadable)?;
            if line.trim().is_empty() {
                continue;
            }
            let outcome: Outcome = serde_json::from_str(&line).map_err(|e| bad(number, e.to_string()))?;
            let question = outcome
                .question
                .ok_or_else(|| bad(number, "it has no question to compare with".to_owned()))?;
            if !workers.contains(&outcome.worker) {
                continue;
            }
            let (_, of_question) = texts.entry(outcome.question_id).or_insert((question, BTreeMap::new()));
            let sums = of_question.entry(outcome.worker).or_default();
            let cost =
                outcome.cost_nano_usd.map_or(0.0, |cost| real(usize::try_from(cost).unwrap_or(usize::MAX)));
            *sums = [sums[0] + outcome.reward, sums[1] + cost, sums[2] + 1.0];
        }
        if texts.is_empty() {
            return Err(bad(1, "it has no outcome of a worker of the pool".to_owned()));
        }
        Ok(Self::of(texts.into_values()))
    }

    fn of(texts: impl Iterator<Item = (String, BTreeMap<WorkerId, [f64; 3]>)>) -> Self {
        let counted: Vec<_> = texts.map(|(text, workers)| (counts(&text), workers)).collect();
        let mut having: HashMap<u64, usize> = HashMap::new();
        counted.iter().flat_map(|(counts, _)| counts.keys()).for_each(|feature| {
            *having.entry(*feature).or_default() += 1;
        });
        let total = real(counted.len());
        let rarity: HashMap<u64, f64> =
            having.into_iter().map(|(feature, count)| (feature, (1.0 + total / real(count)).ln())).collect();
        let questions = counted
            .into_iter()
            .map(|(counts, workers)| Recorded { features: weighted(counts, &rarity), workers })
            .collect();
        Self { questions, rarity }
    }

    /// The worker with the best mean reward for the most similar questions; the cheapest of several.
    pub(super) fn choose(&self, question: &str) -> Option<WorkerId> {
        let asked = weighted(counts(question), &self.rarity);
        let similarity = |recorded: &Recorded| -> f64 {
            let shared =
                asked.iter().filter_map(|(feature, weight)| Some(weight * recorded.features.get(feature)?));
            shared.sum()
        };
        let mut near: Vec<(f64, &Recorded)> =
            self.questions.iter().map(|recorded| (similarity(recorded), recorded)).collect();
        near.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut sums: BTreeMap<&WorkerId, [f64; 3]> = BTreeMap::new();
        for (worker, [reward, cost, count]) in
            near.iter().take(NEIGHBOURS).flat_map(|(_, recorded)| &recorded.workers)
        {
            let sum = sums.entry(worker).or_default();
            *sum = [sum[0] + reward, sum[1] + cost, sum[2] + count];
        }
        let mean = |sum: &[f64; 3], index: usize| sum[index] / sum[2];
        let best = sums.iter().min_by(|(_, a), (_, b)| {
            mean(b, 0).total_cmp(&mean(a, 0)).then(mean(a, 1).total_cmp(&mean(b, 1)))
        });
        best.map(|(worker, _)| (*worker).clone())
    }
}

/// The hashed words and pairs of words of a text, without case and with digits as one word, and how often they occur.
fn counts(text: &str) -> Features {
    let lower = text.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<&str> =
        words.map(|word| if word.chars().all(|c| c.is_ascii_digit()) { "0" } else { word }).collect();
    let mut counts = Features::new();
    let mut add = |words: &[&str]| {
        let mut hasher = DefaultHasher::new();
        words.hash(&mut hasher);
        *counts.entry(hasher.finish() % FEATURES).or_default() += 1.0;
    };
    words.chunks(1).for_each(&mut add);
    words.windows(2).for_each(&mut add);
    counts
}

/// Counts times rarity, scaled to length 1. Features of no recorded question are left out.
fn weighted(counts: Features, rarity: &HashMap<u64, f64>) -> Features {
    let weights: Features = counts
        .into_iter()
        .filter_map(|(feature, count)| Some((feature, (1.0 + count).ln() * rarity.get(&feature)?)))
        .collect();
    let length = weights.values().map(|weight| weight * weight).sum::<f64>().sqrt();
    weights.into_iter().map(|(feature, weight)| (feature, weight / length.max(f64::MIN_POSITIVE))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(name: &str) -> WorkerId {
        WorkerId::new(name).unwrap()
    }

    fn read(lines: &[serde_json::Value], workers: &[&str]) -> Result<Neighbours, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outcomes.jsonl");
        let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
        std::fs::write(&path, text.join("\n")).unwrap();
        Neighbours::read(&path, &workers.iter().map(|name| worker(name)).collect::<Vec<_>>())
    }

    fn outcome(id: usize, question: &str, name: &str, reward: f64, cost: u64) -> serde_json::Value {
        serde_json::json!({
            "schema": 1, "question_id": format!("{question} {id}"), "question": question.replace('#', &id.to_string()),
            "worker": name, "reward": reward, "cost_nano_usd": cost,
        })
    }

    #[test]
    fn the_worker_of_the_most_similar_questions_is_chosen() {
        let mut lines = Vec::new();
        for id in 0..30 {
            for (question, good) in [("Add # and 5.", "sums"), ("Spell the number # in words.", "words")] {
                for name in ["sums", "words", "elsewhere"] {
                    lines.push(outcome(id, question, name, if name == good { 1.0 } else { 0.0 }, 5));
                }
            }
        }
        let neighbours = read(&lines, &["sums", "words"]).unwrap();
        assert_eq!(neighbours.choose("Please add 1,234 and 17."), Some(worker("sums")));
        assert_eq!(neighbours.choose("spell 99 in words"), Some(worker("words")));
    }

    #[test]
    fn the_cheapest_of_equally_good_workers_is_chosen() {
        let lines = [
            outcome(1, "Add #.", "expensive", 1.0, 9),
            outcome(1, "Add #.", "cheap", 1.0, 2),
            outcome(1, "Add #.", "bad", 0.0, 1),
        ];
        assert_eq!(
            read(&lines, &["expensive", "cheap", "bad"]).unwrap().choose("Add 7."),
            Some(worker("cheap"))
        );
    }

    #[test]
    fn outcomes_that_cannot_be_compared_are_named() {
        let mut silent = outcome(1, "Add #.", "a", 1.0, 1);
        silent["question"] = serde_json::Value::Null;
        assert!(read(&[silent], &["a"]).unwrap_err().to_string().contains("line 1: it has no question"));
        let problem = read(&[outcome(1, "Add #.", "a", 1.0, 1)], &["b"]).unwrap_err().to_string();
        assert!(problem.contains("no outcome of a worker of the pool"), "{problem}");
    }
}
