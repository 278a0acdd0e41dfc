//! The kernel head: kernel ridge regression over recorded questions.
//!
//! A question's point is its hidden state with length 1, next to the [`form`](crate::text::form) of its text in standard
//! deviations, each with a factor. The kernel of two points is exp(-squared distance). A worker's score is its mean value plus
//! the weighted kernels of the recorded questions. So similar questions count more than distant ones, but all of them count:
//! it smooths more than the mean over a few neighbours.

use crate::dataset::Example;
use crate::file::{FileError, Matrix, Parsed};
use crate::identity::{
    self, HIDDEN_MAX, HeadError, Identity, Input, Kind, MEMORY_VALUES_MAX, Metadata, SCHEMA_KINDS,
    check_matrix,
};
use crate::score::as_f64;
use crate::text::{FORM, FORM_VALUES};
use crate::vector::{Cholesky, dot, unit};

const POINTS: &str = "kernel.points";
const COEFFICIENTS: &str = "kernel.coefficients";
const MEANS: &str = "kernel.means";
/// The means and the inverse standard deviations of the form's values.
const FORM_SCALE: &str = "kernel.form";

/// Most questions to learn from: more take minutes and gigabytes.
pub const QUESTIONS_MAX: usize = 8_000;
/// A value of the form counts as at most this many standard deviations from its mean.
const DEVIATIONS_MAX: f32 = 4.0;

/// How strongly the parts of a point count, and how much is smoothed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// The mean of the kernel's exponent that hidden states cause.
    pub hidden: f64,
    /// The mean of the kernel's exponent that forms cause; 0 leaves them out.
    pub form: f64,
    /// Ridge: added to the kernel's diagonal.
    pub ridge: f64,
}

/// The shapes among which training chooses. Around them the result hardly changes.
pub(crate) const SHAPES: [Shape; 8] = {
    const fn shape(hidden: f64, form: f64, ridge: f64) -> Shape {
        Shape { hidden, form, ridge }
    }
    [
        shape(1.4, 1.0, 1.0),
        shape(1.4, 1.0, 6.0),
        shape(1.4, 2.0, 1.0),
        shape(1.4, 2.0, 6.0),
        shape(2.8, 1.0, 1.0),
        shape(2.8, 1.0, 6.0),
        shape(2.8, 2.0, 1.0),
        shape(2.8, 2.0, 6.0),
    ]
};

/// Turns questions into points.
#[derive(Clone, Debug, PartialEq)]
struct Scale {
    hidden_factor: f32,
    /// `None` if the form is not used.
    form: Option<FormScale>,
}

#[derive(Clone, Debug, PartialEq)]
struct FormScale {
    /// The factor of a standard deviation.
    factor: f32,
    /// Two rows: means and inverse standard deviations.
    matrix: Matrix,
}

impl Scale {
    #[expect(clippy::cast_possible_truncation, reason = "a head has numbers of 32 bits")]
    fn of(examples: &[&Example], shape: Shape) -> Self {
        let count = as_f64(examples.len().max(1));
        // The mean squared distance of unit vectors is twice what their mean lacks of length 1.
        let hidden = examples.first().map_or(0, |example| example.hidden.len());
        let mut mean = vec![0.0f64; hidden];
        for example in examples {
            let state = unit(&example.hidden);
            mean.iter_mut().zip(&state).for_each(|(sum, value)| *sum += f64::from(*value) / count);
        }
        let distance = 2.0 * (1.0 - mean.iter().map(|value| value * value).sum::<f64>());
        let factor = if distance > f64::EPSILON { (shape.hidden / distance).sqrt() } else { 0.0 };
        let forms: Option<Vec<_>> = examples.iter().map(|example| example.form.as_ref()).collect();
        let form = forms.filter(|_| shape.form > 0.0).map(|forms| FormScale::of(&forms, shape.form));
        Self { hidden_factor: factor as f32, form }
    }

    /// The point of a question. An unknown form is a mean one.
    fn point(&self, input: Input<'_>) -> Vec<f32> {
        let state = unit(input.hidden);
        let mut point: Vec<f32> = state.into_iter().map(|value| value * self.hidden_factor).collect();
        if let Some(FormScale { factor, matrix }) = &self.form {
            let (means, inverses) = matrix.values.split_at(FORM_VALUES);
            let scaled = |((value, mean), inverse): ((&f32, &f32), &f32)| {
                factor * ((value - mean) * inverse).clamp(-DEVIATIONS_MAX, DEVIATIONS_MAX)
            };
            match input.form {
                None => point.extend([0.0; FORM_VALUES]),
                Some(form) => point.extend(form.iter().zip(means).zip(inverses).map(scaled)),
            }
        }
        point
    }

    fn points(&self, examples: &[&Example]) -> Matrix {
        let points: Vec<Vec<f32>> = examples.iter().map(|example| self.point(example.input())).collect();
        let columns = points.first().map_or(0, Vec::len);
        Matrix { rows: points.len(), columns, values: points.concat() }
    }
}

impl FormScale {
    #[expect(clippy::cast_possible_truncation, reason = "a head has numbers of 32 bits")]
    fn of(forms: &[&[f32; FORM_VALUES]], exponent: f64) -> Self {
        let count = as_f64(forms.len().max(1));
        let mean = |at: usize| forms.iter().map(|form| f64::from(form[at])).sum::<f64>() / count;
        let means: Vec<f64> = (0..FORM_VALUES).map(mean).collect();
        let inverse = |(at, mean): (usize, &f64)| {
            let squares: f64 = forms.iter().map(|form| (f64::from(form[at]) - mean).powi(2)).sum();
            let deviation = (squares / count).sqrt();
            if deviation > 1e-9 { 1.0 / deviation } else { 0.0 }
        };
        let inverses = means.iter().enumerate().map(inverse);
        let values = means.iter().copied().chain(inverses).map(|value| value as f32).collect();
        // Each standardised value has a mean squared distance of 2.
        let factor = (exponent / 2.0 / as_f64(FORM_VALUES)).sqrt() as f32;
        Self { factor, matrix: Matrix { rows: 2, columns: FORM_VALUES, values } }
    }
}

/// Chooses the worker with the highest expected value by kernel ridge regression.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelHead {
    identity: Identity,
    hidden: usize,
    scale: Scale,
    /// One row for each question.
    points: Matrix,
    /// One row for each question, one column for each slot.
    coefficients: Matrix,
    /// One row.
    means: Matrix,
}

impl KernelHead {
    /// Fits a head to these questions. Takes time with the cube of their number.
    pub fn fit(identity: &Identity, examples: &[&Example], shape: Shape) -> Result<Self, HeadError> {
        let mut fitted = Self::fit_ridges(identity, examples, shape, &[shape.ridge])?;
        fitted.pop().ok_or(HeadError::Singular)
    }

    /// Fits one head for each ridge; they share the kernel.
    pub(crate) fn fit_ridges(
        identity: &Identity,
        examples: &[&Example],
        shape: Shape,
        ridges: &[f64],
    ) -> Result<Vec<Self>, HeadError> {
        if examples.len() > QUESTIONS_MAX {
            let value = examples.len().to_string();
            return Err(HeadError::Setting { name: "questions to learn from", value, bounds: "1 to 8000" });
        }
        let slots = identity.slots.len();
        let scale = Scale::of(examples, shape);
        let points = scale.points(examples);
        let values: Vec<Vec<Option<f64>>> = examples.iter().map(|example| example.values()).collect();
        let mut means = Vec::with_capacity(slots);
        for (slot, worker) in identity.slots.iter().enumerate() {
            let recorded: Vec<f64> = values.iter().filter_map(|values| values[slot]).collect();
            if recorded.is_empty() {
                return Err(HeadError::NoOutcome { worker: worker.clone() });
            }
            means.push(recorded.iter().sum::<f64>() / as_f64(recorded.len()));
        }
        let kernel = kernel(&points);
        let heads = ridges.iter().map(|ridge| {
            let coefficients = solve(&kernel, *ridge, &values, &means).ok_or(HeadError::Singular)?;
            Self::new(identity.clone(), scale.clone(), points.clone(), &coefficients, &means)
        });
        heads.collect()
    }

    #[expect(clippy::cast_possible_truncation, reason = "a head has numbers of 32 bits")]
    fn new(
        identity: Identity,
        scale: Scale,
        points: Matrix,
        coefficients: &[f64],
        means: &[f64],
    ) -> Result<Self, HeadError> {
        let single = |values: &[f64]| values.iter().map(|value| *value as f32).collect();
        let coefficients =
            Matrix { rows: points.rows, columns: identity.slots.len(), values: single(coefficients) };
        let means = Matrix { rows: 1, columns: means.len(), values: single(means) };
        Self::of_parts(identity, scale, points, coefficients, means)
    }

    fn of_parts(
        identity: Identity,
        scale: Scale,
        points: Matrix,
        coefficients: Matrix,
        means: Matrix,
    ) -> Result<Self, HeadError> {
        identity.check()?;
        let slots = identity.slots.len();
        let form = if scale.form.is_some() { FORM_VALUES } else { 0 };
        if points.rows.saturating_mul(points.columns) > MEMORY_VALUES_MAX {
            return Err(HeadError::TooLarge { questions: points.rows, values: points.columns });
        }
        check_matrix(POINTS, &points, points.rows.max(1), form + 1..=form + HIDDEN_MAX)?;
        check_matrix(COEFFICIENTS, &coefficients, points.rows, slots..=slots)?;
        check_matrix(MEANS, &means, 1, slots..=slots)?;
        if let Some(FormScale { matrix, .. }) = &scale.form {
            check_matrix(FORM_SCALE, matrix, 2, FORM_VALUES..=FORM_VALUES)?;
        }
        let factors = [Some(scale.hidden_factor), scale.form.as_ref().map(|form| form.factor)];
        if let Some(factor) = factors.into_iter().flatten().find(|factor| !factor.is_finite()) {
            let value = factor.to_string();
            return Err(HeadError::Setting { name: "hidden_factor or form_factor", value, bounds: "finite" });
        }
        Ok(Self { identity, hidden: points.columns - form, scale, points, coefficients, means })
    }

    pub(crate) fn of_file(parsed: &Parsed<'_, Metadata>) -> Result<Self, FileError> {
        let Metadata { hidden_factor, form_factor, form, .. } = &parsed.document;
        let form = match (form.as_deref(), form_factor) {
            (None, _) => None,
            (Some(FORM), Some(factor)) => {
                Some(FormScale { factor: *factor, matrix: parsed.matrix(FORM_SCALE)? })
            }
            (Some(other), _) => {
                return Err(parsed.wrong(format!("form is `{other}`, this version knows `{FORM}`")));
            }
        };
        let scale = Scale { hidden_factor: hidden_factor.unwrap_or(f32::NAN), form };
        let (points, coefficients, means) =
            (parsed.matrix(POINTS)?, parsed.matrix(COEFFICIENTS)?, parsed.matrix(MEANS)?);
        Self::of_parts(parsed.document.identity(), scale, points, coefficients, means)
            .map_err(|error| parsed.wrong(error.to_string()))
    }

    /// Serialises the head. Equal heads give equal bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FileError> {
        let mut metadata = Metadata::new(SCHEMA_KINDS, Kind::Kernel, &self.identity);
        metadata.hidden_factor = Some(self.scale.hidden_factor);
        let mut matrices =
            vec![(POINTS, &self.points), (COEFFICIENTS, &self.coefficients), (MEANS, &self.means)];
        if let Some(FormScale { factor, matrix }) = &self.scale.form {
            metadata.form = Some(FORM.to_owned());
            metadata.form_factor = Some(*factor);
            matrices.push((FORM_SCALE, matrix));
        }
        identity::serialise(&metadata, &matrices)
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Values in a hidden state.
    pub fn hidden(&self) -> usize {
        self.hidden
    }

    /// Whether it uses the form of the text.
    pub fn uses_form(&self) -> bool {
        self.scale.form.is_some()
    }

    /// The score of each slot, in order; `None` if the hidden state has the wrong size.
    pub fn scores(&self, input: Input<'_>) -> Option<Vec<f32>> {
        if input.hidden.len() != self.hidden {
            return None;
        }
        let point = self.scale.point(input);
        let mut scores = self.means.values.clone();
        let rows = self.points.values.chunks_exact(self.points.columns);
        for (other, coefficients) in rows.zip(self.coefficients.values.chunks_exact(scores.len())) {
            let kernel = (-squared_distance(&point, other)).exp();
            scores.iter_mut().zip(coefficients).for_each(|(score, factor)| *score += kernel * factor);
        }
        Some(scores)
    }
}

fn squared_distance(a: &[f32], b: &[f32]) -> f32 {
    (dot(a, a) + dot(b, b) - 2.0 * dot(a, b)).max(0.0)
}

/// The kernels of all pairs; the lower half.
fn kernel(points: &Matrix) -> Vec<f32> {
    let rows: Vec<&[f32]> = points.values.chunks_exact(points.columns.max(1)).collect();
    let mut kernel = vec![0.0; rows.len() * rows.len()];
    for (at, (row, to)) in rows.iter().zip(kernel.chunks_exact_mut(rows.len().max(1))).enumerate() {
        for (other, to) in rows[..=at].iter().zip(to) {
            *to = (-squared_distance(row, other)).exp();
        }
    }
    kernel
}

/// The coefficients, one row for each question. Slots that were recorded for the same questions share a factorisation.
fn solve(kernel: &[f32], ridge: f64, values: &[Vec<Option<f64>>], means: &[f64]) -> Option<Vec<f64>> {
    let (questions, slots) = (values.len(), means.len());
    let mut coefficients = vec![0.0; questions * slots];
    let mut left: Vec<usize> = (0..slots).collect();
    while let Some(first) = left.first().copied() {
        let is_like = |slot: &usize| values.iter().all(|of| of[*slot].is_some() == of[first].is_some());
        let (alike, others): (Vec<usize>, Vec<usize>) = left.iter().partition(|slot| is_like(slot));
        left = others;
        let recorded: Vec<usize> = (0..questions).filter(|at| values[*at][first].is_some()).collect();
        let size = recorded.len();
        let mut matrix = vec![0.0f64; size * size];
        for (row, (at, to)) in recorded.iter().zip(matrix.chunks_exact_mut(size)).enumerate() {
            for (other, to) in recorded[..=row].iter().zip(to.iter_mut()) {
                *to = f64::from(kernel[at * questions + other]);
            }
            to[row] += ridge;
        }
        let factors = Cholesky::new(matrix, size)?;
        for slot in alike {
            let right = recorded.iter().filter_map(|at| Some(values[*at][slot]? - means[slot]));
            let solution = factors.solve(&right.collect::<Vec<_>>());
            for (at, value) in recorded.iter().zip(solution) {
                coefficients[at * slots + slot] = value;
            }
        }
    }
    Some(coefficients)
}
