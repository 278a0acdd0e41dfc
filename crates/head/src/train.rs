//! Trains and evaluates a head.
//!
//! The seed splits the questions into three sets: held-out ones for evaluation, ones for model selection, and the rest for
//! training. Ids with the same question are in one set.
//!
//! A linear head is trained in two stages. The first stage is supervised ([`crate::supervised`]) with several strengths of regularisation; the best one on the
//! selection set is kept. The second stage searches around it by separable CMA-ES ([`crate::cma`]) for a higher mean reward of the
//! best-scored worker. Its head is kept only if it is better on the selection set, too: with few questions it overfits.
//!
//! The number of neighbours and the shape of a kernel are chosen by three selection sets in turns. The head then learns from
//! all questions that are not held out.

use std::fmt;

use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;

use crate::cma::{self, Search};
use crate::dataset::{Dataset, Example};
use crate::head::Head;
use crate::identity::{HeadError, Identity, Kind};
use crate::kernel::{KernelHead, SHAPES, Shape};
use crate::lbfgs::{self, Limits};
use crate::linear::LinearHead;
use crate::neighbours::{Memory, NeighboursHead};
use crate::score::{self, Paired, Scores, Standing, as_f64};
use crate::supervised::{Lesson, Loss, scores};

/// Training options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// How the head chooses.
    pub kind: Kind,
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
        Self {
            kind: Kind::Linear,
            seed: 0,
            held_out: 0.2,
            temperature: 0.25,
            population: 32,
            iterations: 60,
            sigma: 0.1,
        }
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

/// The result of model selection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Chosen {
    /// The stage and regularisation of a linear head.
    Linear {
        /// The stage that produced it.
        stage: Stage,
        /// The strength of L2 regularisation.
        pull: f64,
    },
    /// The number of neighbours.
    Neighbours(usize),
    /// The shape of the kernel.
    Kernel(Shape),
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Linear { stage, pull } => write!(f, "{}, pull {pull:.0e}", stage.as_str()),
            Self::Neighbours(count) => write!(f, "{count} neighbours"),
            Self::Kernel(Shape { hidden, form, ridge }) => {
                write!(f, "kernel with hidden {hidden}, form {form}, ridge {ridge}")
            }
        }
    }
}

/// The result of training.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    /// The head.
    pub head: Head,
    /// The result of model selection.
    pub chosen: Chosen,
    /// Questions in the training set.
    pub learned_from: usize,
    /// Questions in the selection set.
    pub chosen_by: usize,
    /// The evaluation of each way of choosing on the held-out questions.
    pub held_out: Vec<(String, Standing)>,
    /// How much more value the head has than the best single worker on the held-out questions.
    pub over_best_single: Paired,
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

/// Parts that choose in turns.
const TURNS: usize = 3;
/// Most questions from which kernels of all shapes are fitted to choose one. The best shape hardly depends on their number.
const SHAPE_QUESTIONS_MAX: usize = 1_500;
/// Numbers of neighbours to try.
const NEIGHBOURS: [usize; 6] = [5, 10, 20, 40, 80, 160];

/// Trains a head for the slots of a pool ([`slots_hash`](podium_domain::pool::slots_hash)), which are those of the data set.
pub fn train(dataset: &Dataset, identity: &Identity, options: &Options) -> Result<Trained, TrainError> {
    check(options)?;
    let examples: Vec<&Example> = dataset.examples().iter().collect();
    let mut groups = shuffled_groups(&examples, options.seed);
    let held_out = taken(&mut groups, as_f64(examples.len()) * options.held_out, 2);
    let known: Vec<&Example> = groups.concat();
    let fit = fit(dataset, identity, groups, options)?;
    let baselines = baselines(&known, &held_out, dataset);
    let mut table: Vec<_> =
        baselines.iter().map(|(name, scores)| (name.clone(), Standing::of(scores))).collect();
    for (name, head) in &fit.stages {
        table.push((format!("head, {name}"), Standing::of(&of_head(head, &held_out))));
    }
    let own = of_head(&fit.head, &held_out);
    table.push(("head, as written".to_owned(), Standing::of(&own)));
    table.push(("best possible".to_owned(), Standing::of(&score::oracle(&held_out))));
    let best = score::always(&held_out, score::best_single(&known, dataset.slots().len()));
    let Fit { head, chosen, learned_from, chosen_by, .. } = fit;
    let over_best_single = Paired::of(&own, &best);
    Ok(Trained { head, chosen, learned_from, chosen_by, held_out: table, over_best_single })
}

/// A head, fitted without a look at held-out questions.
pub(crate) struct Fit {
    pub(crate) head: Head,
    pub(crate) chosen: Chosen,
    pub(crate) learned_from: usize,
    pub(crate) chosen_by: usize,
    /// The head of each stage of training.
    stages: Vec<(&'static str, Head)>,
}

/// Fits a head to these shuffled groups of questions. Some of them choose among settings, the others are learned from.
pub(crate) fn fit(
    dataset: &Dataset,
    identity: &Identity,
    groups: Vec<Vec<&Example>>,
    options: &Options,
) -> Result<Fit, TrainError> {
    match options.kind {
        Kind::Linear => fit_linear(dataset, identity, groups, options),
        Kind::Neighbours => {
            let head = |count: usize, examples: &[&Example]| {
                let memory =
                    examples.iter().map(|example| (example.id.clone(), Memory::of(example))).collect();
                let head = NeighboursHead::new(identity.clone(), count, dataset.price_factor(), memory);
                head.map(Head::Neighbours)
            };
            let heads = |learned: &[&Example]| NEIGHBOURS.iter().map(|count| head(*count, learned)).collect();
            let (at, chosen_by) = best_setting(&groups, heads)?;
            let known: Vec<&Example> = groups.concat();
            let (head, chosen) = (head(NEIGHBOURS[at], &known)?, Chosen::Neighbours(NEIGHBOURS[at]));
            Ok(Fit { head, chosen, learned_from: known.len(), chosen_by, stages: Vec::new() })
        }
        Kind::Kernel => {
            let heads = |learned: &[&Example]| {
                let sample = &learned[..learned.len().min(SHAPE_QUESTIONS_MAX)];
                let mut heads = Vec::with_capacity(SHAPES.len());
                for shapes in SHAPES.chunk_by(|a, b| (a.hidden, a.form) == (b.hidden, b.form)) {
                    let ridges: Vec<f64> = shapes.iter().map(|shape| shape.ridge).collect();
                    let fitted = KernelHead::fit_ridges(identity, sample, shapes[0], &ridges)?;
                    heads.extend(fitted.into_iter().map(Head::Kernel));
                }
                Ok(heads)
            };
            let (at, chosen_by) = best_setting(&groups, heads)?;
            let known: Vec<&Example> = groups.concat();
            let head = Head::Kernel(KernelHead::fit(identity, &known, SHAPES[at])?);
            let chosen = Chosen::Kernel(SHAPES[at]);
            Ok(Fit { head, chosen, learned_from: known.len(), chosen_by, stages: Vec::new() })
        }
    }
}

/// The index of the setting whose heads have the most value, and the number of questions that chose it. In turns, one part of
/// the questions chooses among the heads that the others give.
fn best_setting(
    groups: &[Vec<&Example>],
    heads: impl Fn(&[&Example]) -> Result<Vec<Head>, HeadError>,
) -> Result<(usize, usize), HeadError> {
    let (mut values, mut chosen_by) = (Vec::new(), 0);
    for turn in 0..TURNS {
        let (mut learned, mut choosing) = (Vec::new(), Vec::new());
        for (at, group) in groups.iter().enumerate() {
            if at % ONE_CHOOSES_IN == turn { choosing.extend(group) } else { learned.extend(group) }
        }
        chosen_by += choosing.len();
        let heads = heads(&learned)?;
        values.resize(heads.len(), 0.0);
        for (sum, head) in values.iter_mut().zip(&heads) {
            let standing = Standing::of(&of_head(head, &choosing));
            *sum += standing.value * as_f64(standing.questions);
        }
    }
    let best = values.iter().enumerate().rev().max_by(|(_, a), (_, b)| a.total_cmp(b));
    Ok((best.map_or(0, |(at, _)| at), chosen_by))
}

fn fit_linear(
    dataset: &Dataset,
    identity: &Identity,
    mut groups: Vec<Vec<&Example>>,
    options: &Options,
) -> Result<Fit, TrainError> {
    let questions: usize = groups.iter().map(Vec::len).sum();
    #[expect(clippy::integer_division, reason = "about this share")]
    let choosing = taken(&mut groups, as_f64(questions / ONE_CHOOSES_IN), 1);
    let learned: Vec<&Example> = groups.concat();
    let (pull, [first, second]) = linear(dataset, identity, [&learned, &choosing], options)?;
    let value = |head: &Head| Standing::of(&of_head(head, &choosing)).value;
    let is_better = value(&second) > value(&first);
    let (stage, head) = if is_better { (Stage::Evolved, &second) } else { (Stage::Supervised, &first) };
    let (head, chosen) = (head.clone(), Chosen::Linear { stage, pull });
    let mut stages = vec![(Stage::Supervised.as_str(), first)];
    if options.iterations > 0 {
        stages.push((Stage::Evolved.as_str(), second));
    }
    Ok(Fit { head, chosen, learned_from: learned.len(), chosen_by: choosing.len(), stages })
}

/// The linear heads of both stages, and the strength of regularisation.
fn linear(
    dataset: &Dataset,
    identity: &Identity,
    [learned, choosing]: [&[&Example]; 2],
    options: &Options,
) -> Result<(f64, [Head; 2]), TrainError> {
    let scale = Scale::of(learned, dataset.hidden());
    let lessons = |examples: &[&Example]| -> Vec<Lesson> {
        examples.iter().map(|example| scale.lesson(example, options.temperature)).collect()
    };
    let (lessons, choosing) = (lessons(learned), lessons(choosing));
    let (pull, first) = supervise(&lessons, &choosing, dataset);
    let second = evolve(&first, learned, &lessons, options);
    let head = |weights: &[f64]| {
        LinearHead::with_identity(identity.clone(), scale.unscaled(weights)).map(Head::Linear)
    };
    Ok((pull, [head(&first)?, head(&second)?]))
}

/// Evaluates a head on these questions.
pub fn of_head(head: &Head, examples: &[&Example]) -> Scores {
    score::by_scores(examples, |example| {
        let scores = head.scores(example.input()).unwrap_or_default();
        scores.into_iter().map(f64::from).collect()
    })
}

/// Evaluates a random worker, the best single worker and the most expensive one according to `known`.
pub fn baselines(known: &[&Example], examples: &[&Example], dataset: &Dataset) -> Vec<(String, Scores)> {
    let slots = dataset.slots();
    let name = |slot: usize| slots.get(slot).map_or("", |worker| worker.as_str());
    let best = score::best_single(known, slots.len());
    let mut baselines = vec![
        ("random worker".to_owned(), score::random(examples)),
        (format!("best single, {}", name(best)), score::always(examples, best)),
    ];
    if let Some(expensive) = score::most_expensive(known, slots.len()) {
        let scores = score::always(examples, expensive);
        baselines.push((format!("most expensive, {}", name(expensive)), scores));
    }
    baselines
}

/// The questions in groups that belong together, in an order that the seed decides.
pub(crate) fn shuffled_groups<'a>(examples: &[&'a Example], seed: u64) -> Vec<Vec<&'a Example>> {
    let mut groups: std::collections::BTreeMap<usize, Vec<&Example>> = std::collections::BTreeMap::new();
    for example in examples {
        groups.entry(example.group).or_default().push(example);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    groups
}

/// Takes whole groups from the end until they have about `count` questions: at least one group, and `left` groups stay.
fn taken<'a>(groups: &mut Vec<Vec<&'a Example>>, count: f64, left: usize) -> Vec<&'a Example> {
    let (mut at, mut questions) = (groups.len(), 0);
    while at > left && (questions == 0 || as_f64(questions) + 0.5 < count) {
        at -= 1;
        questions += groups[at].len();
    }
    groups.split_off(at).concat()
}

pub(crate) fn check(options: &Options) -> Result<(), TrainError> {
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
            Some(example.recorded[slot]?.value)
        });
        each.sum()
    };
    cma::maximise(first, search, reward).mean
}
