//! Minimises a smooth function by L-BFGS: descent along gradients, corrected by the last few changes of the gradient.
//!
//! The two-loop recursion is Nocedal and Wright, Numerical Optimization (2006), algorithm 7.4. The first scale of the
//! inverse Hessian is their equation 7.20. Steps are halved until they satisfy their equation 3.4 (sufficient decrease).
//! That alone does not keep the curvature positive, so a change with a curvature that is not positive is skipped.

use std::collections::VecDeque;

/// Stopping criteria.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Most steps.
    pub iterations_max: u32,
    /// The search ends if no entry of the gradient is larger.
    pub gradient_max: f64,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The minimum.
    pub place: Vec<f64>,
    /// The value there.
    pub value: f64,
    /// Iterations used.
    pub iterations: u32,
}

/// Stored changes: 3 to 20 are usual.
const MEMORY: usize = 10;
/// The part of the decrease predicted by the gradient that a step must achieve.
const DECREASE_MIN: f64 = 1e-4;
/// Most halvings of a step. Beyond this, floating-point numbers cannot distinguish the points.
const HALVINGS_MAX: u32 = 40;

/// A change of the point and of its gradient.
struct Change {
    place: Vec<f64>,
    gradient: Vec<f64>,
    /// 1 over the product of the two.
    rho: f64,
}

/// Minimises `function` from `start`. It returns the value and writes the gradient into its second argument.
pub fn minimise(start: &[f64], limits: Limits, function: impl Fn(&[f64], &mut [f64]) -> f64) -> Found {
    let mut place = start.to_vec();
    let mut gradient = vec![0.0; place.len()];
    let mut value = function(&place, &mut gradient);
    let mut memory: VecDeque<Change> = VecDeque::with_capacity(MEMORY);
    for iterations in 0..limits.iterations_max {
        if gradient.iter().all(|slope| slope.abs() <= limits.gradient_max) {
            return Found { place, value, iterations };
        }
        let mut direction = corrected(&gradient, &memory);
        let mut slope = dot(&direction, &gradient);
        if slope >= 0.0 {
            // The stored changes give an ascent direction: discard them.
            memory.clear();
            direction = gradient.iter().map(|slope| -slope).collect();
            slope = dot(&direction, &gradient);
        }
        // Without stored changes the gradient's length is not a useful step length.
        let mut step = if memory.is_empty() { 1.0 / (-slope).sqrt().max(1.0) } else { 1.0 };
        let mut next_gradient = vec![0.0; place.len()];
        let mut halvings = 0;
        let (next, next_value) = loop {
            let next: Vec<f64> = place.iter().zip(&direction).map(|(at, by)| at + step * by).collect();
            let next_value = function(&next, &mut next_gradient);
            if next_value <= value + DECREASE_MIN * step * slope {
                break (next, next_value);
            }
            if halvings == HALVINGS_MAX {
                return Found { place, value, iterations };
            }
            halvings += 1;
            step /= 2.0;
        };
        remember(&mut memory, difference(&next, &place), difference(&next_gradient, &gradient));
        (place, value, gradient) = (next, next_value, next_gradient);
    }
    Found { place, value, iterations: limits.iterations_max }
}

/// The descent direction, corrected by the stored changes.
fn corrected(gradient: &[f64], memory: &VecDeque<Change>) -> Vec<f64> {
    let mut direction: Vec<f64> = gradient.iter().map(|slope| -slope).collect();
    let mut shares = Vec::with_capacity(memory.len());
    for change in memory.iter().rev() {
        let share = change.rho * dot(&change.place, &direction);
        add(&mut direction, -share, &change.gradient);
        shares.push(share);
    }
    if let Some(last) = memory.back() {
        let scale = 1.0 / (last.rho * dot(&last.gradient, &last.gradient));
        for value in &mut direction {
            *value *= scale;
        }
    }
    for (change, share) in memory.iter().zip(shares.into_iter().rev()) {
        let back = change.rho * dot(&change.gradient, &direction);
        add(&mut direction, share - back, &change.place);
    }
    direction
}

fn remember(memory: &mut VecDeque<Change>, place: Vec<f64>, gradient: Vec<f64>) {
    let curvature = dot(&place, &gradient);
    if curvature <= f64::EPSILON * dot(&gradient, &gradient) {
        return;
    }
    if memory.len() == MEMORY {
        memory.pop_front();
    }
    memory.push_back(Change { place, gradient, rho: 1.0 / curvature });
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], times: f64, what: &[f64]) {
    to.iter_mut().zip(what).for_each(|(to, what)| *to += times * what);
}

fn difference(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { iterations_max: 500, gradient_max: 1e-8 };

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        /// A quadratic bowl at any place, up to a thousand times longer than wide.
        #[test]
        fn the_minimum_of_a_bowl_is_found(
            bowl in prop::collection::vec((-3.0f64..3.0, -50.0f64..50.0), 1..30),
        ) {
            let found = minimise(&vec![1.0; bowl.len()], LIMITS, |at, gradient| {
                let mut value = 0.0;
                for (((exponent, bottom), at), slope) in bowl.iter().zip(at).zip(gradient) {
                    let scale = 10f64.powf(exponent / 2.0);
                    value += scale * (at - bottom).powi(2) / 2.0;
                    *slope = scale * (at - bottom);
                }
                value
            });
            for ((_, bottom), at) in bowl.iter().zip(&found.place) {
                prop_assert!((at - bottom).abs() < 1e-5, "{found:?}");
            }
        }
    }

    #[test]
    fn the_minimum_of_rosenbrocks_function_is_found() {
        // Rosenbrock's function: 0 at (1, 1).
        let found = minimise(&[-1.2, 1.0], LIMITS, |at, gradient| {
            let (a, b) = (1.0 - at[0], at[1] - at[0] * at[0]);
            gradient[0] = -2.0 * a - 400.0 * at[0] * b;
            gradient[1] = 200.0 * b;
            a * a + 100.0 * b * b
        });
        assert!((found.place[0] - 1.0).abs() < 1e-6 && (found.place[1] - 1.0).abs() < 1e-6, "{found:?}");
        assert!(found.iterations < 100, "{found:?}");
    }
}
