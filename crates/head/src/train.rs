//! Trains and evaluates a head.
//!
//! The seed splits the questions into three sets: held-out ones for evaluation, ones for model selection, and the rest for
//! training. The first stage is supervised ([`crate::supervised`]) with several strengths of regularisation; the best one on the
//! selection set is kept. The second stage searches around it by separable CMA-ES ([`crate::cma`]) for a higher mean reward of the
//! best-scored worker. Its head is kept only if it is better on the selection set, too: with few questions it overfits.

use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;

use crate::cma::{self, Search};
use crate::dataset::{Dataset, Example};
use crate::head::{HeadError, LinearHead, Source};
use crate::lbfgs::{self, Limits};
use crate::score::{self, Standing, as_f64};
use crate::supervised::{Lesson, Loss, scores};

/// Training options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Splits the questions and seeds all random numbers.
    pub seed: u64,
    /// Share of the questions that are held out, above 0 and below 1.
    pub held_out: f64,
    /// Temperature of the targets: a reward higher by this is e times as likely. Above 0.
    pub temperature: f64,
    /// Candidates per iteration of the second stage.
    pub population: usize,
    /// Iterations of the second stage; 0 skips it.
    pub iterations: u32,
    /// Width of the second stage's first population, in log-odds of a typical question.
    pub sigma: f64,
}

impl Default for Options {
    /// Population and iterations are about those of TRINITY (arXiv 2512.04695), which does not publish the other values.
    fn default() -> Self {
        Self { seed: 0, held_out: 0.2, temperature: 0.25, population: 32, iterations: 60, sigma: 0.1 }
    }
}

/// The stage that produced a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The first.
    Supervised,
    /// The second.
    Evolved,
}

impl Stage {
    /// The stage's name in output for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Supervised => "supervised",
            Self::Evolved => "sep-CMA-ES",
        }
    }
}

/// The result of training.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    /// The head.
    pub head: LinearHead,
    /// The stage that produced the head.
    pub stage: Stage,
    /// The selected strength of L2 regularisation.
    pub pull: f64,
    /// Questions in the training set.
    pub learned_from: usize,
    /// Questions in the selection set.
    pub chosen_by: usize,
    /// The evaluation of each way of choosing on the held-out questions.
    pub held_out: Vec<(String, Standing)>,
}

/// Why training failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TrainError {
    /// A setting is out of its bounds.
    #[error("{name} is {value}, it must be {bounds}")]
    Option {
        /// The option.
        name: &'static str,
        /// Its value.
        value: f64,
        /// Its valid range.
        bounds: &'static str,
    },
    /// The found weights are invalid, for example not finite.
    #[error("training produced an invalid head")]
    Head(#[from] HeadError),
}

/// Strengths of L2 regularisation to try. Scaled inputs have a length of about 1.
const PULLS: [f64; 6] = [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0];
const LIMITS: Limits = Limits { iterations_max: 300, gradient_max: 1e-6 };
/// One in this many of the questions that are not held out belongs to the selection set.
const ONE_CHOOSES_IN: usize = 5;

/// Trains a head for the slots of a pool with this hash ([`slots_hash`](podium_domain::pool::slots_hash)).
pub fn train(
    dataset: &Dataset,
    source: Source,
    pool_sha256: String,
    options: &Options,
) -> Result<Trained, TrainError> {
    check(options)?;
    let parts = Parts::of(dataset, options);
    let scale = Scale::of(&parts.learned, dataset.hidden());
    let lessons = |examples: &[&Example]| -> Vec<Lesson> {
        examples.iter().map(|example| scale.lesson(example, options.temperature)).collect()
    };
    let (learned, choosing) = (lessons(&parts.learned), lessons(&parts.choosing));
    let (pull, first) = supervise(&learned, &choosing, dataset);
    let second = evolve(&first, &parts.learned, &learned, options);
    let on = |weights: &[f64], examples: &[&Example]| {
        score::by_scores(examples, |example| scores(weights, &scale.input(example)))
    };
    let is_better = on(&second, &parts.choosing).reward > on(&first, &parts.choosing).reward;
    let (stage, weights) = if is_better { (Stage::Evolved, &second) } else { (Stage::Supervised, &first) };
    let head = LinearHead::new(dataset.slots().to_vec(), pool_sha256, source, scale.unscaled(weights))?;
    let known: Vec<&Example> = parts.learned.iter().chain(&parts.choosing).copied().collect();
    let mut held_out = baselines(&known, &parts.held_out, dataset);
    held_out.push((format!("head, {}", Stage::Supervised.as_str()), on(&first, &parts.held_out)));
    if options.iterations > 0 {
        held_out.push((format!("head, {}", Stage::Evolved.as_str()), on(&second, &parts.held_out)));
    }
    held_out.push(("head, as written".to_owned(), of_head(&head, &parts.held_out)));
    held_out.push(("best possible".to_owned(), score::oracle(&parts.held_out)));
    let (learned_from, chosen_by) = (parts.learned.len(), parts.choosing.len());
    Ok(Trained { head, stage, pull, learned_from, chosen_by, held_out })
}

/// Evaluates a head on these questions.
pub fn of_head(head: &LinearHead, examples: &[&Example]) -> Standing {
    score::by_scores(examples, |example| {
        let scores = head.scores(&example.hidden).unwrap_or_default();
        scores.into_iter().map(f64::from).collect()
    })
}

/// Evaluates a random worker, and the best single worker according to `known`.
pub fn baselines(known: &[&Example], examples: &[&Example], dataset: &Dataset) -> Vec<(String, Standing)> {
    let best = score::best_single(known, dataset.slots().len());
    let name = dataset.slots().get(best).map_or("", |worker| worker.as_str());
    vec![
        ("random worker".to_owned(), score::random(examples)),
        (format!("best single, {name}"), score::always(examples, best)),
    ]
}

fn check(options: &Options) -> Result<(), TrainError> {
    let refuse = |name, value, bounds| Err(TrainError::Option { name, value, bounds });
    if !(options.held_out > 0.0 && options.held_out < 1.0) {
        return refuse("held-out", options.held_out, "above 0 and below 1");
    }
    if !(1e-3..=1e3).contains(&options.temperature) {
        return refuse("temperature", options.temperature, "0.001 to 1000");
    }
    if !(options.sigma > 0.0 && options.sigma.is_finite()) {
        return refuse("sigma", options.sigma, "above 0");
    }
    if !(cma::POPULATION_MIN..=cma::POPULATION_MAX).contains(&options.population) {
        return refuse("population", as_f64(options.population), "4 to 4096");
    }
    Ok(())
}

/// The questions by their use.
struct Parts<'a> {
    learned: Vec<&'a Example>,
    choosing: Vec<&'a Example>,
    held_out: Vec<&'a Example>,
}

impl<'a> Parts<'a> {
    /// Splits the questions. Each set has at least one.
    fn of(dataset: &'a Dataset, options: &Options) -> Self {
        let mut learned: Vec<&Example> = dataset.examples().iter().collect();
        learned.shuffle(&mut ChaCha8Rng::seed_from_u64(options.seed));
        let count = as_f64(learned.len()) * options.held_out;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "below the number of questions"
        )]
        let held_out = (count.round() as usize).clamp(1, learned.len() - 2);
        let held_out = learned.split_off(learned.len() - held_out);
        let choosing = (learned.len() / ONE_CHOOSES_IN).max(1);
        let choosing = learned.split_off(learned.len() - choosing);
        Self { learned, choosing, held_out }
    }
}

/// Scales the coordinates to comparable sizes: some of a hidden state are a hundred times as large as others. They are not
/// shifted, since the head has no bias.
struct Scale(Vec<f32>);

impl Scale {
    fn of(examples: &[&Example], hidden: usize) -> Self {
        let mut squares = vec![0.0f64; hidden];
        for example in examples {
            squares.iter_mut().zip(&example.hidden).for_each(|(sum, x)| *sum += f64::from(*x).powi(2));
        }
        let length = as_f64(hidden).sqrt();
        let factor = |sum: f64| {
            let root = (sum / as_f64(examples.len().max(1))).sqrt();
            if root > f64::from(f32::MIN_POSITIVE) { 1.0 / (root * length) } else { 0.0 }
        };
        #[expect(clippy::cast_possible_truncation, reason = "an overflow is reported as not finite")]
        Self(squares.into_iter().map(|sum| factor(sum) as f32).collect())
    }

    fn input(&self, example: &Example) -> Vec<f32> {
        example.hidden.iter().zip(&self.0).map(|(value, factor)| value * factor).collect()
    }

    fn lesson(&self, example: &Example, temperature: f64) -> Lesson {
        Lesson { input: self.input(example), ..Lesson::new(example, temperature) }
    }

    /// The weights for unscaled inputs.
    #[expect(clippy::cast_possible_truncation, reason = "a head has numbers of 32 bits")]
    fn unscaled(&self, weights: &[f64]) -> Vec<f32> {
        let factors = self.0.iter().cycle();
        weights.iter().zip(factors).map(|(weight, factor)| (weight * f64::from(*factor)) as f32).collect()
    }
}

/// The regularisation that gives the lowest loss on `choosing`, and its weights.
fn supervise(learned: &[Lesson], choosing: &[Lesson], dataset: &Dataset) -> (f64, Vec<f64>) {
    let mut weights = vec![0.0; dataset.slots().len() * dataset.hidden()];
    let mut best = (f64::INFINITY, PULLS[0], weights.clone());
    // Begin with the strongest; each fit starts from the previous result.
    for pull in PULLS.into_iter().rev() {
        let loss = Loss { lessons: learned, pull };
        weights =
            lbfgs::minimise(&weights, LIMITS, |at, gradient| loss.value_and_gradient(at, gradient)).place;
        let divergence = Loss { lessons: choosing, pull: 0.0 }.divergence(&weights);
        if divergence < best.0 {
            best = (divergence, pull, weights.clone());
        }
    }
    (best.1, best.2)
}

/// Weights near `first` with a higher reward on the training set.
fn evolve(first: &[f64], examples: &[&Example], lessons: &[Lesson], options: &Options) -> Vec<f64> {
    let search = Search {
        population: options.population,
        iterations: options.iterations,
        sigma: options.sigma,
        seed: options.seed,
    };
    let reward = |weights: &[f64]| -> f64 {
        let each = examples.iter().zip(lessons).filter_map(|(example, lesson)| {
            let slot = score::best_recorded(example, &scores(weights, &lesson.input))?;
            example.rewards[slot]
        });
        each.sum()
    };
    cma::maximise(first, search, reward).mean
}
