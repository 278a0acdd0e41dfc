//! Compares ways of choosing a worker by cross-validation.
//!
//! The questions are divided into folds; ids with the same question are in one fold. For each fold, every way is fitted to the
//! questions of the other folds, all of its settings included, and chooses for the questions of the fold. So each question is
//! judged once, by something that has not seen it.

use crate::dataset::{Dataset, Example};
use crate::identity::{Identity, Kind};
use crate::ridge::{Ridge, STRENGTHS};
use crate::score::{self, Scores, Standing};
use crate::train::{self, Options, TrainError, of_head, shuffled_groups};

/// Fewest folds.
pub const FOLDS_MIN: usize = 2;
/// Most folds.
pub const FOLDS_MAX: usize = 100;

/// A way of choosing and what it got, over the questions of all folds in the same order.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Its name.
    pub name: String,
    /// One entry for each question.
    pub scores: Scores,
}

/// All ways over the same questions.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison<'d> {
    /// The questions, in the order of the scores.
    pub questions: Vec<&'d Example>,
    /// The ways of choosing.
    pub ways: Vec<Compared>,
}

/// One in this many of the questions of the other folds chooses the strength of the ridge.
const ONE_CHOOSES_IN: usize = 5;

/// Compares heads of these kinds with a random worker, the best single worker, the most expensive one, ridge regression and
/// the best possible choice. `done` is called after each fold. Of `options`, the kind and the held-out share are not used.
pub fn compare<'d>(
    dataset: &'d Dataset,
    identity: &Identity,
    kinds: &[Kind],
    folds: usize,
    options: &Options,
    mut done: impl FnMut(usize),
) -> Result<Comparison<'d>, TrainError> {
    train::check(options)?;
    let examples: Vec<&Example> = dataset.examples().iter().collect();
    let groups = shuffled_groups(&examples, options.seed);
    if !(FOLDS_MIN..=FOLDS_MAX.min(groups.len())).contains(&folds) {
        let bounds = "2 to 100, and at most the number of different questions";
        return Err(TrainError::Option { name: "folds", value: score::as_f64(folds), bounds });
    }
    let mut compared: Vec<Compared> = Vec::new();
    let mut questions = Vec::with_capacity(examples.len());
    for fold in 0..folds {
        let (mut others, mut own) = (Vec::new(), Vec::new());
        for (at, group) in groups.iter().enumerate() {
            if at % folds == fold { own.extend(group) } else { others.push(group.clone()) }
        }
        let known = others.concat();
        let baselines = train::baselines(&known, &own, dataset).into_iter();
        // The best single worker may differ between folds.
        let mut rows: Vec<(String, Scores)> = baselines
            .map(|(name, scores)| (name.split(',').next().unwrap_or_default().to_owned(), scores))
            .collect();
        for kind in kinds {
            let options = Options { kind: *kind, ..*options };
            let fit = train::fit(dataset, identity, others.clone(), &options)?;
            rows.push((kind.as_str().to_owned(), of_head(&fit.head, &own)));
        }
        rows.extend(ridge(&known, &own, dataset).map(|scores| ("ridge".to_owned(), scores)));
        rows.push(("best possible".to_owned(), score::oracle(&own)));
        for (name, scores) in rows {
            match compared.iter_mut().find(|compared| compared.name == name) {
                Some(compared) => compared.scores.extend(scores),
                None => compared.push(Compared { name, scores }),
            }
        }
        questions.extend(own);
        done(fold + 1);
    }
    // A way that could not be fitted in every fold has no place in a paired comparison.
    compared.retain(|compared| compared.scores.len() == examples.len());
    Ok(Comparison { questions, ways: compared })
}

/// Ridge regression; `None` if it cannot be solved.
fn ridge(known: &[&Example], own: &[&Example], dataset: &Dataset) -> Option<Scores> {
    let slots = dataset.slots().len();
    let (mut learned, mut choosing) = (Vec::new(), Vec::new());
    for example in known {
        if example.group % ONE_CHOOSES_IN == 0 { choosing.push(*example) } else { learned.push(*example) }
    }
    let mut best = (f64::NEG_INFINITY, STRENGTHS[0]);
    for strength in STRENGTHS {
        let ridge = Ridge::fit(&learned, slots, strength)?;
        let scores = score::by_scores(&choosing, |example| ridge.scores(example));
        let value = Standing::of(&scores).value;
        if value > best.0 {
            best = (value, strength);
        }
    }
    let ridge = Ridge::fit(known, slots, best.1)?;
    Some(score::by_scores(own, |example| ridge.scores(example)))
}
