//! Vectors of floats, and the solution of symmetric equations.

/// Sums that are kept apart, so that the compiler can use vector instructions.
const LANES: usize = 8;

/// The scalar product of two vectors of one length.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a_parts, a_rest) = a.as_chunks::<LANES>();
    let (b_parts, b_rest) = b.as_chunks::<LANES>();
    let mut sums = [0.0f32; LANES];
    for (a, b) in a_parts.iter().zip(b_parts) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

fn dot_f64(a: &[f64], b: &[f64]) -> f64 {
    let (a_parts, a_rest) = a.as_chunks::<LANES>();
    let (b_parts, b_rest) = b.as_chunks::<LANES>();
    let mut sums = [0.0f64; LANES];
    for (a, b) in a_parts.iter().zip(b_parts) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}

/// The vector with length 1; a vector of zeros stays.
pub(crate) fn unit(vector: &[f32]) -> Vec<f32> {
    let length = dot(vector, vector).sqrt();
    if length > f32::MIN_POSITIVE {
        vector.iter().map(|value| value / length).collect()
    } else {
        vector.to_vec()
    }
}

/// A factorised symmetric positive definite matrix (Cholesky), in rows.
pub(crate) struct Cholesky {
    size: usize,
    rows: Vec<f64>,
}

/// Rows that are factorised together.
const PANEL: usize = 32;

/// Computes a row's value in a column, for which `other` is the factorised row.
fn eliminate(own: &mut [f64], other: &[f64], column: usize) {
    own[column] = (own[column] - dot_f64(&own[..column], &other[..column])) / other[column];
}

impl Cholesky {
    /// Factorises the lower half of a matrix of `size` rows; `None` if it is not positive definite.
    pub(crate) fn new(mut rows: Vec<f64>, size: usize) -> Option<Self> {
        for start in (0..size).step_by(PANEL) {
            let end = size.min(start + PANEL);
            let (done, rest) = rows.split_at_mut(start * size);
            let panel = &mut rest[..(end - start) * size];
            // All rows of the panel use an earlier row while it is in the processor's cache.
            for (column, other) in done.chunks_exact(size).enumerate() {
                for own in panel.chunks_exact_mut(size) {
                    eliminate(own, other, column);
                }
            }
            for row in start..end {
                let (before, own) = panel.split_at_mut((row - start) * size);
                let own = &mut own[..size];
                for (column, other) in (start..).zip(before.chunks_exact(size)) {
                    eliminate(own, other, column);
                }
                let pivot = own[row] - dot_f64(&own[..row], &own[..row]);
                if !(pivot > 0.0 && pivot.is_finite()) {
                    return None;
                }
                own[row] = pivot.sqrt();
            }
        }
        Some(Self { size, rows })
    }

    /// The solution for this right-hand side.
    pub(crate) fn solve(&self, right: &[f64]) -> Vec<f64> {
        let row = |at: usize| &self.rows[at * self.size..(at + 1) * self.size];
        let mut solution = right.to_vec();
        for at in 0..self.size {
            solution[at] = (solution[at] - dot_f64(&row(at)[..at], &solution[..at])) / row(at)[at];
        }
        for at in (0..self.size).rev() {
            solution[at] /= row(at)[at];
            let value = solution[at];
            solution[..at].iter_mut().zip(row(at)).for_each(|(to, factor)| *to -= factor * value);
        }
        solution
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// More than two panels.
    const SIZE: usize = 2 * PANEL + 7;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn a_solution_satisfies_its_equations(
            rows in prop::collection::vec(prop::collection::vec(-1.0f64..1.0, SIZE), SIZE),
            right in prop::collection::vec(-1.0f64..1.0, SIZE),
        ) {
            let size = right.len();
            let product = |a: usize, b: usize| -> f64 { rows[a].iter().zip(&rows[b]).map(|(x, y)| x * y).sum() };
            let matrix: Vec<f64> = (0..size * size)
                .map(|at| product(at / size, at % size) + if at / size == at % size { 0.5 } else { 0.0 })
                .collect();
            let solution = Cholesky::new(matrix.clone(), size).unwrap().solve(&right);
            for (row, right) in matrix.chunks_exact(size).zip(&right) {
                let left: f64 = row.iter().zip(&solution).map(|(a, b)| a * b).sum();
                prop_assert!((left - right).abs() < 1e-9, "{left} and {right}");
            }
        }
    }

    #[test]
    fn an_indefinite_matrix_has_no_factors() {
        assert!(Cholesky::new(vec![1.0, 2.0, 2.0, 1.0], 2).is_none());
    }

    #[test]
    fn products_count_every_value() {
        let ones = [1.0f32; 19];
        assert_eq!((dot(&ones, &ones), unit(&[3.0, 4.0])), (19.0, vec![0.6, 0.8]));
    }
}
