//! Maximises a black-box function by separable CMA-ES: each iteration draws a population around a mean and moves the mean
//! towards the better half. The width of each coordinate adapts to the successful steps.
//!
//! The update is CMA-ES with the parameters of Hansen, The CMA Evolution Strategy: A Tutorial (arXiv 1604.00772, 2016, table
//! 1 and appendix A), with positive weights only. The covariance is restricted to its diagonal and learned (n + 2) / 3 times
//! as fast: Ros and Hansen, A Simple Modification in CMA-ES Achieving Linear Time and Space Complexity (2008), section 3.

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::score::as_f64;

/// Smallest population.
pub const POPULATION_MIN: usize = 4;
/// Largest population.
pub const POPULATION_MAX: usize = 4096;

/// Parameters of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// Candidates per iteration, clamped to [`POPULATION_MIN`] and [`POPULATION_MAX`].
    pub population: usize,
    /// Iterations.
    pub iterations: u32,
    /// Standard deviation of the first population, the same in every coordinate.
    pub sigma: f64,
    /// Seed of the candidates.
    pub seed: u64,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The mean of the last population. It is expected to be good, while the best candidate may have been lucky.
    pub mean: Vec<f64>,
    /// The best value of any candidate.
    pub best_value: f64,
    /// The width (overall standard deviation) of the last population.
    pub sigma: f64,
}

/// The constants of a search. The names are the tutorial's.
struct Rates {
    weights: Vec<f64>,
    mu_eff: f64,
    c_sigma: f64,
    d_sigma: f64,
    c_c: f64,
    c_1: f64,
    c_mu: f64,
    /// The expected length of a standard normal vector.
    chi: f64,
}

impl Rates {
    fn new(dimensions: usize, population: usize) -> Self {
        let (n, lambda) = (as_f64(dimensions.max(1)), as_f64(population));
        let raw = (1..=population / 2).map(|rank| f64::midpoint(lambda, 1.0).ln() - as_f64(rank).ln());
        let raw: Vec<f64> = raw.collect();
        let sum: f64 = raw.iter().sum();
        let weights: Vec<f64> = raw.iter().map(|weight| weight / sum).collect();
        let mu_eff = 1.0 / weights.iter().map(|weight| weight * weight).sum::<f64>();
        let c_sigma = (mu_eff + 2.0) / (n + mu_eff + 5.0);
        let d_sigma = 1.0 + 2.0 * (((mu_eff - 1.0) / (n + 1.0)).sqrt() - 1.0).max(0.0) + c_sigma;
        let c_c = (4.0 + mu_eff / n) / (n + 4.0 + 2.0 * mu_eff / n);
        let faster = (n + 2.0) / 3.0;
        let c_1 = (faster * 2.0 / ((n + 1.3).powi(2) + mu_eff)).min(1.0);
        let c_mu = faster * 2.0 * (mu_eff - 2.0 + 1.0 / mu_eff) / ((n + 2.0).powi(2) + mu_eff);
        let chi = n.sqrt() * (1.0 - 1.0 / (4.0 * n) + 1.0 / (21.0 * n * n));
        Self { weights, mu_eff, c_sigma, d_sigma, c_c, c_1, c_mu: c_mu.min(1.0 - c_1), chi }
    }
}

/// Searches around `start` for large values of `value`. NaN counts as the worst value.
pub fn maximise(start: &[f64], search: Search, value: impl Fn(&[f64]) -> f64) -> Found {
    let population = search.population.clamp(POPULATION_MIN, POPULATION_MAX);
    let rates = Rates::new(start.len(), population);
    let mut rng = ChaCha8Rng::seed_from_u64(search.seed);
    let mut state = State {
        mean: start.to_vec(),
        sigma: search.sigma,
        variances: vec![1.0; start.len()],
        path_sigma: vec![0.0; start.len()],
        path_c: vec![0.0; start.len()],
    };
    let mut best_value = f64::NEG_INFINITY;
    for iteration in 1..=search.iterations {
        let mut candidates: Vec<(f64, Vec<f64>)> = Vec::with_capacity(population);
        for _ in 0..population {
            let draw = normal(start.len(), &mut rng);
            let found = value(&state.place(&draw));
            candidates.push((if found.is_nan() { f64::NEG_INFINITY } else { found }, draw));
        }
        // A stable sort, so that equal candidates stay in the order of their drawing.
        candidates.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        if let Some((first, _)) = candidates.first() {
            best_value = best_value.max(*first);
        }
        state.learn(&rates, &candidates, iteration);
    }
    Found { mean: state.mean, best_value, sigma: state.sigma }
}

/// Independent normal numbers, two from each pair of uniform ones: Box and Muller, A Note on the Generation of Random Normal
/// Deviates (1958).
fn normal(count: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let mut numbers = Vec::with_capacity(count + 1);
    while numbers.len() < count {
        // Above 0, so that its logarithm is finite.
        let (a, b): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
        let (length, (sin, cos)) = ((-2.0 * a.ln()).sqrt(), (std::f64::consts::TAU * b).sin_cos());
        numbers.extend([length * cos, length * sin]);
    }
    numbers.truncate(count);
    numbers
}

struct State {
    mean: Vec<f64>,
    sigma: f64,
    /// The diagonal of the covariance.
    variances: Vec<f64>,
    path_sigma: Vec<f64>,
    path_c: Vec<f64>,
}

impl State {
    /// The point that a standard normal vector maps to.
    fn place(&self, draw: &[f64]) -> Vec<f64> {
        let axes = self.mean.iter().zip(&self.variances).zip(draw);
        axes.map(|((mean, variance), draw)| mean + self.sigma * variance.sqrt() * draw).collect()
    }

    /// Updates the state with a population, the best candidate first.
    fn learn(&mut self, rates: &Rates, candidates: &[(f64, Vec<f64>)], iteration: u32) {
        let chosen: Vec<(f64, &[f64])> = rates
            .weights
            .iter()
            .zip(candidates)
            .map(|(weight, (_, draw))| (*weight, draw.as_slice()))
            .collect();
        let sum = |at: usize, of: fn(f64) -> f64| -> f64 {
            chosen.iter().map(|(weight, draw)| weight * of(draw[at])).sum()
        };
        let steps: Vec<f64> = (0..self.mean.len()).map(|at| sum(at, |draw| draw)).collect();
        let gain = (rates.c_sigma * (2.0 - rates.c_sigma) * rates.mu_eff).sqrt();
        for (path, step) in self.path_sigma.iter_mut().zip(&steps) {
            *path = (1.0 - rates.c_sigma) * *path + gain * step;
        }
        let length = self.path_sigma.iter().map(|path| path * path).sum::<f64>().sqrt();
        let age = i32::try_from(iteration).unwrap_or(i32::MAX);
        let unbiased = length / (1.0 - (1.0 - rates.c_sigma).powi(2).powi(age)).sqrt();
        let is_short = unbiased < (1.4 + 2.0 / (as_f64(self.mean.len()) + 1.0)) * rates.chi;
        let gain = if is_short { (rates.c_c * (2.0 - rates.c_c) * rates.mu_eff).sqrt() } else { 0.0 };
        // The share of the variance that is lost while the path is stalled.
        let kept = if is_short { 0.0 } else { rates.c_1 * rates.c_c * (2.0 - rates.c_c) };
        for (at, step) in steps.iter().enumerate() {
            let deviation = self.variances[at].sqrt();
            self.mean[at] += self.sigma * deviation * step;
            self.path_c[at] = (1.0 - rates.c_c) * self.path_c[at] + gain * deviation * step;
            let of_ranks = self.variances[at] * sum(at, |draw| draw * draw);
            self.variances[at] = (1.0 - rates.c_1 - rates.c_mu + kept) * self.variances[at]
                + rates.c_1 * self.path_c[at].powi(2)
                + rates.c_mu * of_ranks;
        }
        self.sigma *= ((rates.c_sigma / rates.d_sigma) * (length / rates.chi - 1.0)).exp();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(iterations: u32, seed: u64) -> Search {
        Search { population: 16, iterations, sigma: 0.5, seed }
    }

    #[test]
    fn the_centre_of_a_sphere_is_found() {
        for seed in 0..5 {
            let found = maximise(&[3.0; 10], search(250, seed), |at| -at.iter().map(|x| x * x).sum::<f64>());
            assert!(found.mean.iter().all(|x| x.abs() < 1e-6), "seed {seed}: {found:?}");
        }
    }

    /// The axes differ by a factor of 1000. A search with one width for all of them is still far off after these iterations.
    #[test]
    fn the_centre_of_a_long_ellipsoid_is_found() {
        for seed in 0..5 {
            let found = maximise(&[3.0; 10], search(700, seed), |at| {
                let axes =
                    (0i32..).zip(at).map(|(axis, x)| (10f64.powf(3.0 * f64::from(axis) / 9.0) * x).powi(2));
                -axes.sum::<f64>()
            });
            assert!(found.mean.iter().all(|x| x.abs() < 1e-6), "seed {seed}: {found:?}");
        }
    }

    /// Computed independently from the tutorial's formulas, for ten dimensions and a population of ten. Both learning rates
    /// of the variances are four times those of a full covariance.
    #[test]
    fn the_rates_are_those_of_the_tutorial() {
        let rates = Rates::new(10, 10);
        let near = |actual: f64, expected: f64| (actual - expected).abs() < 1e-12;
        for (weight, expected) in
            rates.weights.iter().zip([0.456_272_646_903, 0.270_753_097_002, 0.162_231_117_159])
        {
            assert!((weight - expected).abs() < 1e-12, "{:?}", rates.weights);
        }
        assert!(near(rates.mu_eff, 3.167_299_281_410_701_7), "{}", rates.mu_eff);
        assert!(near(rates.c_sigma, 0.284_428_587_946_367_4), "{}", rates.c_sigma);
        assert!(near(rates.d_sigma, 1.284_428_587_946_367_5), "{}", rates.d_sigma);
        assert!(near(rates.c_c, 0.294_990_383_035_622_3), "{}", rates.c_c);
        assert!(near(rates.c_1, 0.061_135_298_099_006_86), "{}", rates.c_1);
        assert!(near(rates.c_mu, 0.080_617_131_044_833_48), "{}", rates.c_mu);
        assert!(near(rates.chi, 3.084_726_565_169_012_3), "{}", rates.chi);
    }

    /// The value at the found mean, on axes that differ by a factor of 1000.
    fn on_a_long_ellipsoid(population: usize, iterations: u32, seed: u64) -> f64 {
        let value = |at: &[f64]| -> f64 {
            let axes =
                (0i32..).zip(at).map(|(axis, x)| (10f64.powf(3.0 * f64::from(axis) / 9.0) * x).powi(2));
            -axes.sum::<f64>()
        };
        let search = Search { population, iterations, sigma: 0.5, seed };
        value(&maximise(&[3.0; 10], search, value).mean)
    }

    /// The path has too few iterations to learn the widths. Without the rank update the value stays at about -100.
    #[test]
    fn widths_are_learned_from_the_ranks_of_a_large_population() {
        for seed in 0..3 {
            let left = on_a_long_ellipsoid(64, 100, seed);
            assert!(left > -1e-9, "seed {seed}: {left}");
        }
    }

    /// Two selected candidates of four teach almost nothing. Without the path the value stays at about -1000.
    #[test]
    fn widths_are_learned_from_the_path_of_a_small_population() {
        for seed in 0..3 {
            let left = on_a_long_ellipsoid(4, 1_000, seed);
            assert!(left > -1e-9, "seed {seed}: {left}");
        }
    }

    #[test]
    fn drawn_numbers_are_normally_distributed() {
        let drawn = normal(100_001, &mut ChaCha8Rng::seed_from_u64(3));
        let within = |width: f64| drawn.iter().filter(|x| x.abs() < width).count();
        // 68.27, 95.45 and 99.73 percent.
        assert!(within(1.0).abs_diff(68_270) < 500 && within(2.0).abs_diff(95_450) < 250, "{}", within(1.0));
        assert!(
            within(3.0).abs_diff(99_731) < 80
                && drawn.iter().filter(|x| **x > 0.0).count().abs_diff(50_000) < 600
        );
    }

    #[test]
    fn a_step_function_is_maximised_without_gradients() {
        let found =
            maximise(&[2.7; 6], search(200, 1), |at| -at.iter().map(|x| x.abs().floor()).sum::<f64>());
        assert!(found.best_value > -f64::EPSILON, "{found:?}");
        assert!(found.mean.iter().all(|x| x.abs() < 1.0), "{found:?}");
    }

    #[test]
    fn a_search_is_deterministic_and_never_selects_nan() {
        let run = |seed| {
            maximise(&[1.0; 4], search(60, seed), |at| {
                if at[0] < 0.5 { f64::NAN } else { -at.iter().map(|x| x * x).sum::<f64>() }
            })
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        assert!((run(7).mean[0] - 0.5).abs() < 0.05, "{:?}", run(7));
    }
}
